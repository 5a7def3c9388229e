"""The sessions of this process: which one records into which run, and that each is closed before the process ends."""

import atexit
import functools
import logging
import os
import weakref
from collections.abc import Collection
from typing import Any

from tb_memplugin.recorder.base import FOREIGN_SECONDS, end_foreign_calls, wait
from tb_memplugin.storage.write import own_recordings

logger = logging.getLogger("tb_memplugin")

Place = tuple[str, str]  # run directory, as in `Settings`, and worker name


_by_place: "weakref.WeakValueDictionary[Place, Any]" = weakref.WeakValueDictionary()
_unclosed: "weakref.WeakSet[Any]" = weakref.WeakSet()


def take_place(recorder: Any, log_dir: str, worker: str) -> Any:
    """Register the recorder of a run and return its open predecessor, if any: a notebook cell may run again."""
    place = (log_dir, worker)
    predecessor = _by_place.get(place)
    _by_place[place] = recorder
    own_recordings.register(log_dir, functools.partial(_write, place))
    return None if predecessor is None or predecessor.closed else predecessor


def _write(place: Place) -> bool:
    recorder = _by_place.get(place)
    return wait() if recorder is None or recorder.closed else bool(recorder.drain())


def close_at_exit(recorder: Any) -> None:
    """Close the recorder when the process ends, before what TensorFlow has registered so far is torn down."""
    _unclosed.add(recorder)
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def is_unclosed(recorder: Any) -> bool:
    return recorder in _unclosed and not recorder.closed


def is_recording(except_into: Collection[str]) -> bool:
    """Whether a session is between its start and end, or in a recorded call of Keras, except into some directories."""
    return any(
        not session.closed and not session.paused and session.settings.log_dir not in except_into
        for session in list(_unclosed)
    )


def _close_all() -> None:
    unclosed = [recorder for recorder in list(_unclosed) if not recorder.closed]
    for recorder in unclosed:
        recorder.close_without_waiting()
    if not wait():  # once for all, also for recorders that were dropped
        for recorder in unclosed:
            recorder.warn_incomplete()
    reason = (
        "the memory recorder waits for up to %d s until TensorFlow gives up a request to the file system of a run: "
        "the process would be aborted otherwise"
    )
    end_foreign_calls(functools.partial(logger.warning, reason, FOREIGN_SECONDS))


def _forget_all() -> None:
    """Forget the recorders in a forked child: they belong to the parent, and nothing is done as the child exits."""
    atexit.unregister(_close_all)
    _unclosed.clear()
    _by_place.clear()
    own_recordings.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
