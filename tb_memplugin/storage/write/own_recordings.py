"""The run directories that this process records into: a reader in the same process waits until they are written."""

import logging
import os
from collections.abc import Callable

logger = logging.getLogger("tb_memplugin")

_writers: dict[str, Callable[[], bool]] = {}


def register(directory: str, write: Callable[[], bool]) -> None:
    """Note that this process records into a run directory.

    Args:
        directory: Path or URL.
        write: Waits until everything recorded so far is written; returns False if that takes too long.
    """
    _writers[_canonical(directory)] = write


def write_under(directory: str) -> None:
    """Wait until what this process recorded under a directory is written; log a warning where that takes too long."""
    wanted = _canonical(directory)
    for own, write in list(_writers.items()):
        if _contains(wanted, own) and not write():
            logger.warning("%s is incomplete: traced steps are still being analyzed. Load it again later.", own)


def forget_all() -> None:
    """Forget all directories in a forked child, which records into none of them."""
    _writers.clear()


def _canonical(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else os.path.realpath(directory)


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/\\") + ("/" if "://" in outer else os.sep))
