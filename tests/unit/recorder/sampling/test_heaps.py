"""Figures of the process's heaps follow what is allocated, and are absent where they cannot be measured."""

import ctypes
import os

import numpy as np
import pytest

from tb_memplugin.recorder.sampling import heaps

MIB = 1 << 20

HIDES_STATISTICS = not hasattr(ctypes.pythonapi, "_PyObject_DebugMallocStats") or "PYTHONMALLOC" in os.environ
OLD_C_LIBRARY = not hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.skipif(HIDES_STATISTICS, reason="this build of Python hides the statistics of its allocator")
def test_python_objects_grow_with_what_is_allocated() -> None:
    before = heaps.python_objects_bytes()
    objects = [bytes(400) for _ in range(20_000)]
    after = heaps.python_objects_bytes()
    assert before is not None and after is not None and len(objects) == 20_000
    # 433 bytes with the header, rounded up to 16; the interpreter may free or make some objects meanwhile.
    assert after - before == pytest.approx(20_000 * 448, rel=0.02)


@pytest.mark.skipif(OLD_C_LIBRARY, reason="this C library is not glibc 2.33 or later")
def test_the_c_heap_grows_with_what_is_allocated() -> None:
    before = heaps.c_heap()
    array = np.ones(30 * MIB, np.uint8)
    after = heaps.c_heap()
    assert before is not None and after is not None
    assert after.allocated_bytes - before.allocated_bytes == pytest.approx(len(array), rel=0.05)


def test_a_python_without_its_own_allocator_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heaps, "_python_statistics", lambda: lambda stream: 0)
    assert heaps.python_objects_bytes() is None
    monkeypatch.setattr(heaps, "_c_library", lambda: None)
    assert heaps.c_heap() is None and heaps.python_objects_bytes() is None
