"""Memory that was freed, given back to the operating system.

glibc keeps what a thread freed for that thread, and each request has another one: without this, crafted directories
take up to twice the memory that ``docs/development/reading_limits.md`` states (548 MB instead of 257 MB).
"""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LONG_SECONDS = 0.05
"""Work that takes less frees little."""


def give_back() -> None:
    """Have the C library give back what was freed; it keeps it for each thread otherwise. Only glibc can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return


@contextmanager
def given_back() -> Iterator[None]:
    """Give back what was freed if the work inside takes long."""
    began = time.monotonic()
    try:
        yield
    finally:
        if time.monotonic() - began > _LONG_SECONDS:
            give_back()
