"""Rows of counters: kept where a value changed, at most one per `take` once there are many."""

from typing import Any

from tb_memplugin.model import MISSING
from tb_memplugin.recorder.sampling.counter_rows import DENSE_ROWS, CounterRows


def rows_of(rows: CounterRows) -> list[tuple[Any, ...]]:
    taken = rows.take()
    if taken is None:
        return []
    return list(
        zip(taken.step.tolist(), taken.kind, taken.name, taken.count.tolist(), taken.bytes.tolist(), strict=True)
    )


def test_only_changes_are_kept() -> None:
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


def test_a_counter_that_is_missing_became_zero() -> None:
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
