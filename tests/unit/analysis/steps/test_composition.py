"""Long-lived bytes between and beyond traced steps follow the bytes in use at step end, and never exceed them."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import DEVICE, MIB, empty_activations, make_samples, make_snapshot
from reading_cases import make_table as table_of

from tb_memplugin.analysis.steps.composition import EndMemory, long_lived
from tb_memplugin.analysis.steps.overview import Overview, overview
from tb_memplugin.model import MISSING, PERSISTENT, LedgerRow, Run, Snapshot

LEAK, BASE, TRANSIENT = 2 * MIB, 4 * MIB, 20 * MIB


def column(*values: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(values, np.int64)


def leaking(step: int, held: int | None = None) -> Snapshot:
    """A traced step of a program that keeps 2 MiB of each step."""
    kept = step * LEAK if held is None else held
    plain = make_snapshot(step, frozen=0, trainable=BASE, activations=TRANSIENT, unattributed=0, rounding=0)
    ledger = (*plain.ledger, LedgerRow(None, "held_tensors", None, kept, 0))
    return dataclasses.replace(plain, ledger=ledger, in_use_bytes=plain.in_use_bytes + kept)


def view_of(steps: int, traced: list[int]) -> Overview:
    """A leak of which some steps were traced."""
    kept = [BASE + step * LEAK for step in range(steps)]
    samples = make_samples(range(steps), [size + TRANSIENT for size in kept], in_use=[size + LEAK for size in kept])
    run = Run("r", ("s",), ("",), (), samples, empty_activations(), tuple(map(leaking, traced)), (), ())
    return overview(run, DEVICE, "train", None, None, 10_000)


def held(view: Overview) -> list[int]:
    sizes: list[int] = view.composition[:, view.groups.index(("held_tensors", None))].tolist()
    return sizes


def test_a_leak_is_drawn_as_it_is_before_between_and_after_traced_steps() -> None:
    view = view_of(60, [19, 39])
    assert held(view) == [step * LEAK for step in range(60)]
    assert not view.composition[:, view.groups.index(("unattributed", None))].any()


def test_with_one_traced_step_later_growth_has_no_category_and_earlier_steps_hold_no_more_than_is_in_use() -> None:
    view = view_of(60, [19])
    assert held(view)[19:] == [19 * LEAK] * 41
    assert view.composition[-1, view.groups.index(("unattributed", None))] == 40 * LEAK
    assert held(view)[:5] == [step * LEAK + LEAK for step in range(5)]


def test_a_jump_between_traced_steps_is_drawn_where_it_was_measured() -> None:
    # GIVEN 50 MiB more from step 3 on, between traced steps 0 and 10
    rows = EndMemory(np.arange(11), np.asarray([0] * 3 + [50] * 8), np.zeros(11, np.int64))
    traced = EndMemory(column(0, 10), column(0, 50), column(0, 0))
    values, known = long_lived(rows, traced, np.asarray([[7], [57]]))
    assert known.all() and values[:, 0].tolist() == [7] * 3 + [57] * 8
    # WHEN the bytes at step end are unknown, THEN they follow the step
    unknown = rows._replace(end_bytes=np.full(11, MISSING))
    assert long_lived(unknown, traced, np.asarray([[7], [57]]))[0][:, 0].tolist() == list(range(7, 58, 5))


def test_between_two_of_several_traced_steps_only_these_two_count() -> None:
    # GIVEN growth by 10 up to step 10, by 40 up to step 20, by none up to step 30
    traced = EndMemory(column(0, 10, 20, 30), np.full(4, MISSING), np.zeros(4, np.int64))
    rows = EndMemory(column(5, 15, 25), np.full(3, MISSING), np.zeros(3, np.int64))
    values, known = long_lived(rows, traced, np.asarray([[0], [10], [50], [50]]))
    assert known.all() and values[:, 0].tolist() == [5, 30, 50]


def test_steps_with_another_layer_table_are_not_interpolated() -> None:
    rows = EndMemory(column(5, 15), column(10, 10), column(0, 1))
    values, known = long_lived(rows, EndMemory(column(0), column(10), column(0)), np.asarray([[3]]))
    assert known.tolist() == [True, False] and values[0, 0] == 3


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sets(st.integers(0, 39), max_size=5))
def test_long_lived_bytes_never_exceed_those_in_use_at_step_end(ends: list[int], traced: set[int]) -> None:
    samples = make_samples(range(len(ends)), [400 * MIB] * len(ends), in_use=[size * MIB for size in ends])
    snapshots = tuple(leaking(step, held=step * MIB) for step in sorted(traced) if step < len(ends))
    run = Run("r", ("s",), ("",), (table_of(0, unfrozen=True),), samples, empty_activations(), snapshots, (), ())
    view = overview(run, DEVICE, "train", None, None, 10_000)
    outlive = [at for at, (category, _) in enumerate(view.groups) if category in PERSISTENT]
    inferred = ~view.traced
    assert (view.composition[inferred][:, outlive].sum(axis=1) <= view.figures.in_use_bytes[inferred]).all()
    assert (view.composition >= 0).all()
    assert (view.composition.sum(axis=1) == view.figures.peak_bytes).all()
