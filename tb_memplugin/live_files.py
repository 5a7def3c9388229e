"""Which event files of a directory a living process still writes, told by advisory locks that end with their process.

TensorBoard's Python reader follows one live event file of a directory only, so a second process that records into the
same run by accident needs a directory of its own; a file whose writer is dead does no harm. Where there are no such
locks (remote file systems, Windows) nothing is known to be live.
"""

import os

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

EVENT_FILE_PART = "tfevents"


def hold(path: str) -> int | None:
    """Marks an event file as live until the descriptor that is returned is closed; None where that cannot be done."""
    if fcntl is None or "://" in path:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def release(descriptor: int | None) -> None:
    """Ends a mark that `hold` made."""
    if descriptor is not None:
        os.close(descriptor)


def any_live(directory: str) -> bool:
    """Whether any event file in the directory itself is marked as live."""
    if fcntl is None or "://" in directory or not os.path.isdir(directory):
        return False
    for entry in os.scandir(directory):
        if EVENT_FILE_PART in entry.name and entry.is_file():
            try:
                descriptor = os.open(entry.path, os.O_RDONLY)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(descriptor)
    return False
