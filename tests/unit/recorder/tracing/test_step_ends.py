"""Maps at step end: which of them become figures of a sample, and when the next one is due."""

import math
from typing import Any

import pytest
from dump_cases import make_dump

from tb_memplugin.importers.memory_dump import summarize_dump
from tb_memplugin.recorder.tracing import schedule as step_ends
from tb_memplugin.recorder.tracing.schedule import LOOK_SECONDS, MAX_WAITING, SHARE, HostBuffers, StepEnds
from tb_memplugin.schema import MISSING

DUMP = make_dump(in_use=1536)


class Maps:
    def available(self, device: str) -> bool:
        return device != "CPU:0"

    def read(self, device: str) -> bytes:
        return DUMP


class Buffer:
    devices = ("GPU:0", "CPU:0")

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def measure(self, row: int, device: str, pool_bytes: int, largest_free_bytes: int) -> None:
        assert 0 < largest_free_bytes <= pool_bytes - 1536
        self.rows.append((row, device))


def make(buffer: Buffer, overhead: float = 0.005, spend: Any = lambda seconds: None) -> StepEnds:
    return StepEnds(Maps(), buffer, overhead, spend)  # type: ignore[arg-type]


def test_a_map_of_the_samples_moment_becomes_its_figures() -> None:
    buffer = Buffer()
    ends = make(buffer)
    dumps = ends.read()
    assert dumps == {"GPU:0": DUMP}
    ends.measure_read(7, {"GPU:0": 1536}, dumps)
    # AND those of another moment and unread ones are ignored
    ends.measure(8, {"GPU:0": 1537}, {"GPU:0": DUMP})
    ends.measure(9, {"GPU:0": 1536}, {"GPU:0": None})
    assert buffer.rows == [(7, "GPU:0")]


def test_maps_cost_their_share_of_the_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(step_ends.time, "perf_counter", lambda: now[0])
    spent: list[float] = []
    ends = make(Buffer(), spend=spent.append)
    assert ends.due_in() == 0
    ends._budget.count(0.002)
    assert spent == [0.002]
    assert ends.due_in() == pytest.approx(0.002 / (SHARE * 0.005))
    now[0] += 3
    assert ends.due_in() < 0


def test_without_maps_or_budget_or_while_many_maps_wait_none_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(step_ends.time, clock, lambda: 100.0)
    ends = make(Buffer())
    read = [ends.read() for _ in range(MAX_WAITING - 1)]
    assert ends.due_in() == 0
    read.append(ends.read())
    assert ends.due_in() == LOOK_SECONDS
    ends.measure_read(0, {"GPU:0": 1536}, read[0])
    assert ends.due_in() == 0
    assert make(Buffer(), overhead=0).due_in() == math.inf
    buffer = Buffer()
    buffer.devices = ("CPU:0",)  # type: ignore[assignment]
    assert make(buffer).due_in() == math.inf


def test_buffers_in_host_memory_are_read_as_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    spent: list[float] = []
    monkeypatch.setattr(step_ends.time, "perf_counter", lambda: now[0])

    def buffered() -> int:
        now[0] += 0.01
        return 7

    monkeypatch.setattr(step_ends.data_pipelines, "buffered_bytes", buffered)
    buffers = HostBuffers(Maps(), 0.005, spent.append)  # type: ignore[arg-type]
    assert buffers.due_in() == 0
    assert buffers.read() == (7, summarize_dump(DUMP).pool_bytes) and spent == [pytest.approx(0.01)]
    assert buffers.due_in() == pytest.approx(0.01 / (SHARE * 0.005) - 0.01)
    # Fast ones are not read more often than this.
    fast = HostBuffers(Maps(), 100.0, spent.append)  # type: ignore[arg-type]
    fast.read()
    assert fast.due_in() == pytest.approx(step_ends.HOST_SECONDS - 0.01)
    assert HostBuffers(Maps(), 0, spent.append).due_in() == math.inf  # type: ignore[arg-type]


def test_buffers_that_cannot_be_read_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_ends.data_pipelines, "buffered_bytes", lambda: None)
    maps = Maps()
    monkeypatch.setattr(maps, "available", lambda device: False)
    assert HostBuffers(maps, 1.0, lambda seconds: None).read() == (MISSING, MISSING)  # type: ignore[arg-type]
