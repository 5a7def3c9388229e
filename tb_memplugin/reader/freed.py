"""Memory that was freed, given back to the operating system."""

import ctypes


def give_back() -> None:
    """Have the C library give back what was freed; it keeps it for each thread otherwise. Only glibc can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return
