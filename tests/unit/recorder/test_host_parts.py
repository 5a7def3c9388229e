"""The parts of host memory: they agree with the kernel, cost their share at most, and are absent where unknown."""

import builtins
import ctypes
import math
import mmap
import re
from typing import Any

import pytest
from dump_cases import make_dump

from tb_memplugin.model import MISSING
from tb_memplugin.recorder import host_parts
from tb_memplugin.recorder.host_parts import HostParts
from tb_memplugin.recorder.native.mapped_memory import resident_bytes
from tb_memplugin.recorder.native.memory_maps import PINNED
from tb_memplugin.recorder.sampling import heaps
from tb_memplugin.recorder.sampling.host import resident_parts

MIB = 1 << 20


class NoMaps:
    def available(self, device: str) -> bool:
        return False


class OneMap:
    def __init__(self, device: str, dump: bytes) -> None:
        self.device, self.dump = device, dump

    def available(self, device: str) -> bool:
        return device == self.device

    def read(self, device: str) -> bytes:
        assert device == self.device
        return self.dump


def make_parts(monkeypatch: pytest.MonkeyPatch, overhead: float = 1.0) -> HostParts:
    monkeypatch.setattr(host_parts.data_pipelines, "buffered_bytes", lambda: None)
    return HostParts(NoMaps(), overhead, lambda seconds: None)  # type: ignore[arg-type]


def test_the_kinds_of_pages_sum_to_the_kernels_rss() -> None:
    with open("/proc/self/status", "rb") as file:
        status = file.read()
    stated = re.search(rb"VmRSS:\s+(\d+) kB", status)
    parts = resident_parts(status)
    assert stated is not None and parts is not None
    assert parts.resident_bytes == int(stated[1]) << 10
    # smaps_rollup walks the page tables: it is exact, the counters of status may lag by some pages per thread.
    with open("/proc/self/smaps_rollup", "rb") as file:
        walked = re.search(rb"^Rss:\s+(\d+) kB", file.read(), re.MULTILINE)
    now = resident_parts()
    assert walked is not None and now is not None
    assert abs(now.resident_bytes - (int(walked[1]) << 10)) < 8 * MIB


def test_older_or_other_systems_have_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resident_parts(b"VmRSS:\t 100 kB\n") is None

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise FileNotFoundError(arguments[0])

    monkeypatch.setattr(builtins, "open", refuse)
    assert resident_parts() is None
    parts = make_parts(monkeypatch)
    assert parts.due_in() == math.inf and parts.measure(0, 0, 0.0) is None and parts.take() is None


def test_resident_pages_are_those_that_were_touched() -> None:
    size = 64 * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(10):
            memory[page * mmap.PAGESIZE] = 1
        view = ctypes.c_char.from_buffer(memory)
        begin = ctypes.addressof(view)
        assert resident_bytes([(begin, begin + size)]) == 10 * mmap.PAGESIZE
        # Pages that lie only partly inside belong to others.
        assert resident_bytes([(begin + 1, begin + 2 * mmap.PAGESIZE)]) == mmap.PAGESIZE
        del view
    assert resident_bytes([(mmap.PAGESIZE, 2 * mmap.PAGESIZE)]) is None  # nothing is mapped there


def test_rows_sum_to_rss_and_parts_that_cannot_fit_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts(monkeypatch)
    first = parts.measure(7, 0, 1.5)
    monkeypatch.setattr(heaps, "python_objects_bytes", lambda: 1 << 50)
    parts.measure(8, 0, 2.5)
    host = parts.take()
    assert host is not None and host.step.tolist() == [7, 8] and parts.take() is None
    assert (host.known_parts_bytes() + host.other_bytes() == host.resident_bytes).all()
    assert (host.other_bytes() >= 0).all() and host.resident_bytes[0] == first
    assert host.python_objects_bytes[1] < 0


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_pinned_memory_is_taken_out_of_shared_memory_only(monkeypatch: pytest.MonkeyPatch, flags: int) -> None:
    import ctypes

    size, touched = 4 * MIB, 3 * MIB
    with mmap.mmap(-1, size, flags=flags | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory[:touched] = b"x" * touched
        view = ctypes.c_char.from_buffer(memory)
        chunks = [(ctypes.addressof(view), MIB, MIB, True), (ctypes.addressof(view) + MIB, size - MIB, 0, False)]
        maps = OneMap(PINNED, make_dump(PINNED.encode(), MIB, chunks))
        monkeypatch.setattr(host_parts.data_pipelines, "buffered_bytes", lambda: None)
        parts = HostParts(maps, 1.0, lambda seconds: None)  # type: ignore[arg-type]
        before = resident_parts()
        parts.measure(7, 0, 1.5)
        host = parts.take()
        del view
    assert host is not None and before is not None
    shared = before.shared_memory_bytes
    if flags == mmap.MAP_PRIVATE:  # the kernel counts it elsewhere
        assert (host.pinned_pool_bytes[0], host.shared_memory_bytes[0]) == (MISSING, shared)
    else:
        assert (host.pinned_pool_bytes[0], host.shared_memory_bytes[0]) == (touched, shared - touched)
    assert (host.known_parts_bytes() + host.other_bytes() == host.resident_bytes).all()


def test_measurements_keep_to_their_share_and_get_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(host_parts.time, "perf_counter", lambda: now[0])
    parts = make_parts(monkeypatch, overhead=0.005)
    spent: list[float] = []
    parts._spend = spent.append  # type: ignore[method-assign]

    def slow() -> Any:
        now[0] += 0.01
        return None

    monkeypatch.setattr(heaps, "c_heap", slow)
    count = 0
    for _ in range(20_000):
        now[0] += 0.1
        if parts.due_in() <= 0:
            count += 1
            parts.measure(count, 0, now[0])
    assert count > 50
    assert sum(spent) <= host_parts.SHARE * 0.005 * now[0] + 0.011
    assert make_parts(monkeypatch, overhead=0).due_in() == math.inf


def test_days_of_steps_record_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(host_parts.time, "perf_counter", lambda: now[0])
    parts = make_parts(monkeypatch)
    count = 0
    while now[0] < 3 * 86400:
        now[0] += 1.0
        if parts.due_in() <= 0:
            count += 1
            parts._last = now[0]
    assert 5_000 < count < 20_000
