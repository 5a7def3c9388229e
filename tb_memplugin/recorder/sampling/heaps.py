"""Figures of the heaps of this process: Python's allocator of small objects, and glibc's ``malloc``.

They count allocated bytes, which need not be resident. Each function returns None where the figure cannot be measured.
"""

import ctypes
import functools
import re
from typing import Any, NamedTuple

_ALLOCATED_BLOCKS = re.compile(rb"^# bytes in allocated blocks\s*=\s*([\d,]+)$", re.MULTILINE)


class CHeap(NamedTuple):
    """Bytes of glibc's heap: allocated, and freed but kept for later allocations."""

    allocated_bytes: int
    free_bytes: int


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later; the older ``mallinfo`` overflows at 2 GiB."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def c_heap() -> CHeap | None:
    """glibc's heap, of all threads. Takes about 0.1 ms: it walks the lists of free chunks."""
    library = _c_library()
    if library is None or not hasattr(library, "mallinfo2"):
        return None
    figures = library.mallinfo2()
    return CHeap(int(figures.uordblks + figures.hblkhd), int(figures.fordblks))


def python_objects_bytes() -> int | None:
    """Bytes of the objects in the arenas of Python's allocator (pymalloc).

    CPython writes its statistics, which `sys._debugmallocstats` prints, to a stream in memory. Takes 0.1 ms per
    100 MiB, with the GIL. None if this Python hides the function or uses another allocator (``PYTHONMALLOC=malloc``).
    """
    library = _c_library()
    statistics = _python_statistics()
    if library is None or statistics is None:
        return None
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = library.open_memstream(ctypes.byref(text), ctypes.byref(size))
    if not stream:
        return None
    try:
        statistics(stream)
    finally:
        library.fclose(stream)
        content = ctypes.string_at(text.value, size.value) if text.value else b""
        library.free(text)
    match = _ALLOCATED_BLOCKS.search(content)
    return int(match[1].replace(b",", b"")) if match else None


@functools.cache
def _c_library() -> Any:
    try:
        library = ctypes.CDLL(None)
        library.open_memstream.restype = ctypes.c_void_p
        library.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.fclose.argtypes = library.free.argtypes = [ctypes.c_void_p]
    except (AttributeError, OSError, TypeError):  # not a system with POSIX's C library
        return None
    if hasattr(library, "mallinfo2"):
        library.mallinfo2.restype = _Mallinfo2
    return library


@functools.cache
def _python_statistics() -> Any:
    try:
        function = ctypes.pythonapi._PyObject_DebugMallocStats
    except AttributeError:
        return None
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
    return function
