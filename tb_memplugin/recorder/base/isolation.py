"""Keeps the recorder from disturbing the training and its process: faults (`Faults`), what a fast
path must look at (`changes`), forked children and temporary directories."""

import contextlib
import glob
import logging
import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, get_args

try:
    import fcntl
except ImportError:  # on Windows, where the directories of a killed process stay
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("tb_memplugin")

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Due(NamedTuple):
    """The next known moment at which a step needs more than a sample; whatever comes first."""

    seconds: float = math.inf  # from now
    step: float = math.inf  # as a step of this number or a later one begins
    peak_bytes: float = math.inf  # after a step with a higher peak


class Changes:
    """Changes of the program that no `Due` knows: each recorder of the process compares `last` with
    what it saw."""

    __slots__ = ("last",)

    def note(self) -> None:
        """Make every recorder look what is due before its next step. Any thread and any finalizer
        may call this."""
        # unlike a number that two threads increment at once, it loses no change
        self.last = object()

    __init__ = note


changes = Changes()

# An absolute path of at least two parts, with or without a drive: not ``/device:CPU:0`` and not
# ``a/b``. In quotation marks, as in the operating system's errors, it may contain anything.
# Elsewhere the words between its parts count as its own: rather too much is left out than a
# person's name stored.
_START = r"(?<![\w/.])(?:[A-Za-z]:|~\w*)?[\\/]"
_PART = r"[^\s'\":;,\\/]"
# with spaces, if another part follows
_MORE = rf"(?:{_PART}|[\\/]| (?={_PART}+(?: {_PART}+)*[\\/]))*"
_PATH = re.compile(rf"(?<=')(?:{_START}|~)[^']*[\\/][^']*(?=')|{_START}{_PART}*[\\/]{_MORE}")
_WORD = re.compile(r" [^\s'\":;,]+")


def without_paths(sentence: str) -> str:
    """The sentence with ``<path>`` for each path: run directories must name no person or
    machine."""
    kept, at = "", 0
    while (found := _PATH.search(sentence, at)) is not None:
        end = place = found.end()
        # its last part may contain spaces
        while (word := _WORD.match(sentence, place)) is not None:
            place = word.end()
            end = place if os.path.exists(sentence[found.start() : place]) else end
        kept, at = f"{kept}{sentence[at : found.start()]}<path>", end
    return kept + sentence[at:]


MAX_FAILED_STEPS = 3  # steps in a row whose analysis may fail before it stops
# most steps that are reported for a part; further ones are logged at debug level only
MAX_STEP_NOTES = 5


class Faults:
    """Runs parts of the recorder; reports a part's first fault and does not run the part again. Any
    thread may call the methods. `report` gets one sentence per fault and may raise."""

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()
        self._failed_steps: dict[str, int] = {}  # in a row
        self._noted_steps: dict[str, int] = {}

    def run(
        self, part: str, job: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R | None:
        """The job's result; None if its part has stopped, or stops now because the job raises. The
        part is a noun phrase for the user that completes "… stopped"."""
        try:
            return None if part in self._stopped else job(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an object of the program may raise any
            self.stop(part, error)
            return None

    def run_step(
        self, part: str, step: int, job: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R | None:
        """As `run`, for the analysis of one step on the background thread. An exception costs this
        step; `MAX_FAILED_STEPS` in a row stop the part."""
        if part in self._stopped:
            return None
        try:
            result = job(*args, **kwargs)
        except Exception as error:
            logger.debug("%s failed for step %d", part, step, exc_info=error)
            failed = self._failed_steps[part] = self._failed_steps.get(part, 0) + 1
            noted = self._noted_steps[part] = self._noted_steps.get(part, 0) + 1
            if failed >= MAX_FAILED_STEPS:
                self.stop(part, error)
            elif noted <= MAX_STEP_NOTES:
                self.warn(
                    f"{part} failed for step {step}: {_line(error)}; training is not affected"
                )
            return None
        self._failed_steps[part] = 0
        return result

    def clean_up(self, part: str, action: Callable[[], None]) -> None:
        """Call `action`, also if `part` has stopped."""
        try:
            action()
        except Exception as error:
            self.stop(part, error)

    def stop(self, part: str, reason: str | BaseException) -> None:
        if part in self._stopped:
            return
        self._stopped.add(part)
        changes.note()
        self.warn(f"{part} stopped: {_line(reason)}; training is not affected")

    def stopped(self, part: str) -> bool:
        return part in self._stopped

    def warn(self, sentence: str) -> None:
        """Log a warning and add it to the run's notes."""
        logger.warning("%s", sentence)
        if self._report is not None:
            try:
                self._report(without_paths(sentence))
            # the cause of the fault, such as a full disk, may break the report as well
            except Exception:
                logger.debug("a fault could not be noted in the run", exc_info=True)


def _line(reason: str | BaseException) -> str:
    text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
    return " ".join(text.split())[:500]


_inherited: "weakref.WeakSet[Any]" = weakref.WeakSet()


def abandon_in_child(item: Any) -> None:
    """Call the item's `_abandon` in every child that is forked while it exists. The method takes no
    lock: a thread that does not exist in the child may hold it."""
    _inherited.add(item)


def _abandon_all() -> None:
    for item in list(_inherited):
        item._abandon()
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


Use: TypeAlias = Literal["oom", "profile", "probe"]
MEMORY = "/dev/shm"
_PREFIX = "tb_memplugin_{}_"
_PREFIXES = tuple(map(_PREFIX.format, get_args(Use)))


class PrivateDirectory:
    """A new temporary directory, in memory if wanted and possible, that only this user can read. A
    forked child leaves it to its parent. It is locked: the locks of a killed process end with it,
    so that `remove_abandoned` finds it."""

    def __init__(self, use: Use, in_memory: bool = False) -> None:
        self._process = os.getpid()
        place = MEMORY if in_memory and os.path.isdir(MEMORY) else None
        for _ in range(10):
            self.path = tempfile.mkdtemp(prefix=_PREFIX.format(use), dir=place)
            try:
                self._locked = _lock(self.path)
                break
            except (BlockingIOError, FileNotFoundError):
                continue  # another process removed it as abandoned before it was locked
            except OSError:
                # locks are not supported, so other processes cannot lock and remove it either
                self._locked = None
                break
        else:
            place = tempfile.gettempdir() if place is None else place
            raise OSError(
                f"new directories in {place} are removed at once. Set TMPDIR to another directory."
            )
        abandon_in_child(self)

    def remove(self) -> None:
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
        self._abandon()

    def _abandon(self) -> None:
        """Unlock it; in a forked child the parent's lock stays."""
        locked, self._locked = self._locked, None
        if locked is not None:
            os.close(locked)


def is_private(path: str) -> bool:
    """Whether a path leads into such a directory, of this process or another one."""
    return any(prefix in path for prefix in _PREFIXES)


def remove_abandoned() -> None:
    """Remove the directories of killed processes: those of this user that are not locked."""
    for place in {tempfile.gettempdir(), MEMORY}:
        for name in glob.glob("tb_memplugin_*", root_dir=place):
            with contextlib.suppress(OSError):
                locked = (
                    _lock(path := os.path.join(place, name)) if name.startswith(_PREFIXES) else None
                )
                if locked is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(locked)


def _lock(path: str) -> int | None:
    """Lock a directory and return the file descriptor, None if the system has no such locks. Raises
    `OSError` if another process has locked it, or if it is not a directory of this user."""
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stat = os.fstat(descriptor)
        if stat.st_uid != os.geteuid() or not os.path.samestat(
            stat, os.stat(path, follow_symlinks=False)
        ):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
