"""Rows of counters: kept where a value changed, at most one per `take` once there are many."""

import itertools
from typing import Any

import pytest

from tb_memplugin.recorder.heap import Kept
from tb_memplugin.recorder.loop import output as counters
from tb_memplugin.recorder.loop.output import DENSE_ROWS, CounterRows, ProgramCounts, earlier_sessions
from tb_memplugin.schema import MISSING


def rows_of(rows: CounterRows) -> list[tuple[Any, ...]]:
    taken = rows.take()
    if taken is None:
        return []
    return list(
        zip(taken.step.tolist(), taken.kind, taken.name, taken.count.tolist(), taken.bytes.tolist(), strict=True)
    )


def test_only_changes_are_kept_and_a_counter_that_is_missing_became_zero() -> None:
    rows = CounterRows()
    rows.add(3, [("models_alive", "CPU:0", 1, 100, None), ("traces", "f", 2, MISSING, None)])
    rows.add(4, [("models_alive", "CPU:0", 1, 100, None), ("traces", "f", 3, MISSING, "why")])
    rows.add(5, [("models_alive", "CPU:0", 1, 160, None), ("traces", "f", 3, MISSING, "why")])
    assert rows_of(rows) == [
        (3, "models_alive", "CPU:0", 1, 100),
        (3, "traces", "f", 2, MISSING),
        (4, "traces", "f", 3, MISSING),
        (5, "models_alive", "CPU:0", 1, 160),
    ]
    assert rows.take() is None
    rows = CounterRows()
    rows.add(1, [("models_gone", "CPU:0", 2, 64, None)])
    rows.add(2, [])
    rows.add(3, [])
    assert rows_of(rows)[1:] == [(2, "models_gone", "CPU:0", 0, 0)]


def test_many_changes_cost_one_row_for_each_take() -> None:
    rows = CounterRows()
    for step in range(10 * DENSE_ROWS):
        rows.add(step, [("traces", "f", step, MISSING, None)])
    taken = rows_of(rows)
    # The last value is there, and the first ones are.
    assert len(taken) == DENSE_ROWS + 1 and taken[-1][3] == 10 * DENSE_ROWS - 1
    rows.add(10**6, [("traces", "f", 10**6, MISSING, None)])
    assert len(rows_of(rows)) == 1


def test_a_session_is_told_the_ends_of_those_before_it_in_order_and_of_many_some(monkeypatch) -> None:
    monkeypatch.setattr(counters, "session_ends", {})
    monkeypatch.setattr(counters, "_numbers", itertools.count(1))
    first, second, third = (ProgramCounts(0.0) for _ in range(3))
    second.note_end({"CPU:0": 25}, {"CPU:0": 5})
    first.note_end({"CPU:0": 5}, {})
    first.note_end({"CPU:0": 10, "GPU:0": 1}, {"CPU:0": 0})  # it went on
    assert earlier_sessions(1) == []
    assert earlier_sessions(3) == [
        [("earlier_sessions", "CPU:0", 1, 10, None), ("earlier_sessions", "GPU:0", 1, 1, None)],
        [("earlier_sessions", "CPU:0", 2, 20, None)],
    ]
    third.count(7, lambda: False)
    assert (7, "earlier_sessions", "CPU:0", 2, 20) in rows_of(third.rows)
    for _ in range(997):
        ProgramCounts(0.0).note_end({"CPU:0": 1}, {})
    third.note_end({"CPU:0": 1}, {})
    numbers = [values[0][2] for values in earlier_sessions(1001)]
    assert len(numbers) == counters.MAX_SESSIONS and numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 1000)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each look."""
    found: list[int] = []

    def look() -> tuple[list[Kept], list[Kept]]:
        found.append(1)
        return [Kept("list", 2, 8)], [Kept("dict", 3, None)]

    monkeypatch.setattr(counters, "kept_objects", look)
    return found


def test_it_looks_at_objects_if_memory_grew_and_the_budget_allows(looks, monkeypatch) -> None:
    counts = ProgramCounts(0.005)
    counts.count(1, lambda: False)
    assert looks == []
    counts.count(2, lambda: True)
    found = rows_of(counts.rows)
    assert (2, "kept_arrays", "list", 2, 8) in found and (2, "kept_iterators", "dict", 3, MISSING) in found
    ProgramCounts(0.0).count(1, lambda: True)
    monkeypatch.setattr(counters, "FREE_SECONDS", -1.0)
    counts.count(3, lambda: True)
    assert looks == [1]
