"""Which directories are being recorded into: by this process, and, by advisory locks on event
files, by others.

TensorBoard's Python reader follows only one growing event file per directory, so a second process
that records into the same run needs a directory of its own. A lock ends with its process. Where
locks do not exist (remote file systems, Windows), no file counts as live. A reader in the recording
process waits until its records are written."""

import logging
import os
from collections.abc import Callable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

EVENT_FILE_PART = "tfevents"
EVENT_FILE_BEGIN = "events.out.tfevents."
"""Followed by the time, the session, and the number of the file in it."""


def any_live(directory: str) -> bool:
    if fcntl is None or "://" in directory or not os.path.isdir(directory):
        return False
    return any(
        EVENT_FILE_PART in entry.name and entry.is_file() and is_live(entry.path)
        for entry in os.scandir(directory)
    )


def sessions_in(directory: str) -> int | None:
    """The number of sessions with event files directly in the directory; None where locks do not
    exist."""
    if fcntl is None or "://" in directory:
        return None
    if not os.path.isdir(directory):
        return 0
    parts = (
        entry.name.split(".")
        for entry in os.scandir(directory)
        if entry.name.startswith(EVENT_FILE_BEGIN)
    )
    return len({name[4] for name in parts if len(name) == 6})


def is_live(path: str) -> bool:
    """Whether a process records into an event file; False where that cannot be known."""
    if fcntl is None or "://" in path:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def lock(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file; False if another process has locked it. True where locks do not exist."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


logger = logging.getLogger("tb_memplugin")

_writers: dict[str, Callable[[], bool]] = {}


def register(directory: str, write: Callable[[], bool]) -> None:
    """Note that this process records into a run directory.

    `write` waits until everything recorded so far is written; it returns False if that takes too
    long."""
    _writers[_canonical(directory)] = write


def write_under(directory: str) -> None:
    """Wait until what this process recorded under a directory is written; log a warning where that
    takes too long."""
    wanted = _canonical(directory)
    for own, write in list(_writers.items()):
        separator = "/" if "://" in wanted else os.sep
        is_inside = own == wanted or own.startswith(wanted.rstrip("/\\") + separator)
        if is_inside and not write():
            logger.warning(
                "%s is incomplete: traced steps are still being analyzed. Load it again later.", own
            )


def forget_all() -> None:
    """Forget all directories in a forked child, which records into none of them."""
    _writers.clear()


def _canonical(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else os.path.realpath(directory)
