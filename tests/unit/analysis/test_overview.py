"""The composition of every step's peak: measured at traced steps, inferred in between, always
summing to the peak."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import DEVICE, MIB, make_samples, make_table
from reading_cases import make_run as any_run
from reading_cases import make_snapshot as make_any_snapshot

from tb_memplugin.analysis import Overview, overview
from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    NO_SAMPLES,
    PERSISTENT,
    LayerTable,
    LedgerRow,
    Run,
    Samples,
    Snapshot,
    stack_order,
)
from tb_memplugin.storage import join_samples

make_snapshot = functools.partial(make_any_snapshot, rounding=0)


def make_run(
    samples: Samples | None = None, tables: tuple[LayerTable, ...] = (), snapshots: Any = ()
) -> Run:
    return any_run(samples or NO_SAMPLES, layer_tables=tables, snapshots=snapshots)


def ending_at_peak(steps: Sequence[int], peaks: Sequence[int], **parts: Any) -> Samples:
    return make_samples(steps, peaks, **{"in_use": peaks, **parts})


def view(run: Run, limit: int = 10_000) -> Overview:
    return overview(run, DEVICE, "train", None, None, limit)


def row(shown: Overview, at: int) -> dict[str, int]:
    """The composition of one row by category, frozen weights under ``frozen``; zeros left out."""
    names = ["frozen" if group == ("weights", False) else group[0] for group in shown.groups]
    return {
        name: int(size) for name, size in zip(names, shown.composition[at], strict=True) if size
    }


def test_a_lower_peak_cuts_the_stack_from_the_top_rounding_before_what_was_requested() -> None:
    taken = make_any_snapshot(
        5, activations=1000, frozen=300, trainable=20, unattributed=4, rounding=90
    )
    shown = view(
        make_run(ending_at_peak([5, 6, 7, 8, 9], [1324, 1322, 1300, 800, 310]), snapshots=(taken,))
    )
    # The traced step is its ledger, with groups in stack order.
    assert list(shown.groups) == sorted(shown.groups, key=lambda group: stack_order(*group))
    assert {category for category, _ in shown.groups} == set(CATEGORIES)
    assert shown.traced.tolist() == [True, False, False, False, False]
    assert row(shown, 0) == {
        "frozen": 300,
        "weights": 20,
        "activations": 910,
        "rounding": 90,
        "unattributed": 4,
    }
    assert row(shown, 1) == {
        "frozen": 300,
        "weights": 20,
        "activations": 910,
        "rounding": 90,
        "unattributed": 2,
    }
    assert row(shown, 2) == {"frozen": 300, "weights": 20, "activations": 910, "rounding": 70}
    assert row(shown, 3) == {"frozen": 300, "weights": 20, "activations": 480}
    assert row(shown, 4) == {"frozen": 300, "weights": 10}


def test_between_traced_steps_the_last_snapshot_is_used_and_the_remainder_is_unattributed() -> None:
    # GIVEN snapshots at 2 and 4
    early = make_snapshot(2, activations=1000, frozen=300, trainable=20, unattributed=0)
    late = make_snapshot(4, activations=2000, frozen=300, trainable=20, unattributed=0)
    shown = view(
        make_run(
            ending_at_peak([1, 2, 3, 4, 5], [1330, 1320, 1400, 2320, 2321]), snapshots=(early, late)
        )
    )
    # THEN before the first one the first is held, later the last one, and the surplus is
    # unattributed
    assert [row(shown, at).get("activations") for at in range(5)] == [1000, 1000, 1000, 2000, 2000]
    assert [row(shown, at).get("unattributed", 0) for at in range(5)] == [10, 0, 80, 0, 1]
    assert shown.snapshot.tolist() == [0, 0, 0, 1, 1]
    assert shown.traced.tolist() == [False, True, False, True, False]


def test_weights_and_optimizer_follow_the_layer_table_of_the_row() -> None:
    # GIVEN a snapshot taken while the backbone was frozen, and an unfreezing at step 10
    taken = make_snapshot(5, activations=1000, frozen=4_000_000, trainable=2_000, unattributed=0)
    tables = (make_table(0, unfrozen=False), make_table(10, unfrozen=True))
    shown = view(make_run(ending_at_peak([5, 10], [4_003_000, 20_000_000]), tables, (taken,)))
    # THEN the later row has the weights and the optimizer state of its own table
    assert row(shown, 0) == {"frozen": 4_000_000, "weights": 2_000, "activations": 1000}
    later = row(shown, 1)
    assert later["weights"] == 4_002_000 and "frozen" not in later
    assert later["optimizer_state"] == 8_000_000 + 4_000 + 12
    assert sum(later.values()) == 20_000_000


def test_after_a_change_the_next_snapshot_holds_if_the_change_is_all_that_lies_between() -> None:
    # GIVEN an unfreezing at step 10, and snapshots of 5 and 12; a second one at 20, and a snapshot
    # only before it
    early = make_snapshot(5, activations=1000, frozen=4_000_000, trainable=2_000, unattributed=0)
    late = make_snapshot(12, activations=7000, frozen=0, trainable=4_002_000, unattributed=0)
    tables = (
        make_table(0, unfrozen=False),
        make_table(10, unfrozen=True),
        make_table(20, unfrozen=False),
    )
    steps = [5, 9, 10, 12, 15, 20]
    shown = view(make_run(ending_at_peak(steps, [40_000_000] * 6), tables, (early, late)))
    # THEN step 10 is composed as 12 is; nothing is known of what 20 is like beyond 12
    assert shown.snapshot.tolist() == [0, 0, 1, 1, 1, 1]
    assert [row(shown, at)["activations"] for at in range(6)] == [
        1000,
        1000,
        7000,
        7000,
        7000,
        7000,
    ]


def test_without_snapshots_weights_and_optimizer_come_from_the_layer_table() -> None:
    shown = view(make_run(ending_at_peak([0], [5_000_000]), (make_table(0, unfrozen=False),)))
    expected = {
        "frozen": 4_000_000,
        "weights": 2_000,
        "optimizer_state": 4_012,
        "unattributed": 993_988,
    }
    assert row(shown, 0) == expected
    assert shown.snapshot.tolist() == [-1] and not shown.traced.any()


def test_the_host_does_not_hold_the_model_when_there_is_an_accelerator() -> None:
    # GIVEN a run on a GPU whose host device was sampled too
    joined, _ = join_samples(
        [make_samples([0], [5_000_000]), make_samples([0], [9_000_000], device="GPU:0")]
    )
    run = make_run(joined, (make_table(0, unfrozen=False),))
    assert row(view(run), 0) == {"unattributed": 5_000_000}
    assert row(overview(run, "GPU:0", "train", None, None, 100), 0)["frozen"] == 4_000_000


def test_a_traced_step_without_a_sample_is_a_row_too() -> None:
    # GIVEN snapshots only, as the summary-writer API writes them
    taken = make_snapshot(7, activations=1000, frozen=0, trainable=0, unattributed=0)
    shown = view(make_run(snapshots=(taken,)))
    assert shown.rows.step.tolist() == [7] and shown.figures.peak_bytes.tolist() == [1000]
    assert shown.figures.in_use_bytes.tolist() == [MISSING]
    assert row(shown, 0) == {"activations": 1000}


def test_an_unknown_peak_has_no_composition_and_nothing_recorded_no_rows() -> None:
    # of an allocator that tells no peak
    samples = make_samples([0, 1], [MISSING, 50], in_use=[5, 5])
    shown = view(make_run(samples, (make_table(0, unfrozen=False),)))
    assert (shown.composition[0] == MISSING).all() and shown.composition[1].sum() == 50
    for device in ("CPU:0", "GPU:7"):
        shown = overview(make_run(), device, "train", None, None, 100)
        assert len(shown.rows.step) == 0 and shown.composition.shape == (0, len(shown.groups))


def test_the_peak_of_a_traced_step_of_a_run_without_peaks_is_its_snapshots() -> None:
    samples, _ = join_samples([make_samples([step], [MISSING], in_use=[5]) for step in range(3)])
    shown = view(
        make_run(samples, snapshots=(make_snapshot(1, activations=1000, frozen=0, trainable=0),))
    )
    assert shown.figures.peak_bytes.tolist() == [MISSING, shown.snapshots[0].in_use_bytes, MISSING]


def test_only_the_requested_steps_and_phase_and_one_row_a_step_with_the_highest_peak() -> None:
    validated = make_samples(
        [5, 5, 5, 9], [99, 120, 98, 97], phase="validation", in_use=[1, 2, 3, 4]
    )
    run = make_run(join_samples([make_samples(range(10), range(10)), validated])[0])
    shown = overview(run, DEVICE, "train", 3, 6, 100)
    assert (
        shown.rows.step.tolist() == shown.figures.peak_bytes.tolist() == [3, 4, 5, 6]
        and shown.total_rows == 4
    )
    shown = overview(run, DEVICE, "validation", None, None, 100)
    assert shown.rows.step.tolist() == [5, 9]
    assert shown.figures.peak_bytes.tolist() == [
        120,
        97,
    ] and shown.figures.in_use_bytes.tolist() == [2, 4]


def test_reduction_keeps_traced_steps_and_the_peak() -> None:
    peaks = np.full(10_000, 200 * MIB)
    peaks[[17, 5_003]] = [300 * MIB, 900 * MIB]
    taken = tuple(make_snapshot(step) for step in (3, 4_444, 9_998))
    shown = view(
        make_run(ending_at_peak(range(10_000), peaks.tolist()), snapshots=taken), limit=200
    )
    assert len(shown.rows.step) <= 210 and shown.total_rows == 10_000
    assert {0, 3, 17, 4_444, 5_003, 9_998, 9_999} <= set(shown.rows.step.tolist())
    assert shown.rows.step[shown.traced].tolist() == [3, 4_444, 9_998]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    sizes = st.integers(0, 2**40)
    steps = draw(st.lists(st.integers(0, 30), max_size=20))
    peaks = draw(st.lists(sizes | st.just(MISSING), min_size=len(steps), max_size=len(steps)))
    parts = dict.fromkeys(("activations", "frozen", "trainable", "unattributed"), sizes)
    snapshots = draw(st.lists(st.builds(make_snapshot, st.integers(0, 30), **parts), max_size=4))
    tables = draw(
        st.lists(st.builds(make_table, st.integers(0, 30), unfrozen=st.booleans()), max_size=3)
    )
    unflagged = draw(st.booleans())
    if unflagged and snapshots:
        ledger = tuple(dataclasses.replace(entry, trainable=None) for entry in snapshots[0].ledger)
        snapshots[0] = dataclasses.replace(snapshots[0], ledger=ledger)
    return make_run(
        ending_at_peak(steps, peaks),
        tuple(sorted(tables, key=lambda table: table.step)),
        tuple(snapshots),
    )


@given(runs(), st.integers(10, 40))
def test_every_row_sums_to_its_measured_peak_and_nothing_is_negative(run: Run, limit: int) -> None:
    shown = view(run, limit)
    known = shown.figures.peak_bytes != MISSING
    assert (shown.composition[known].sum(axis=1) == shown.figures.peak_bytes[known]).all()
    assert (shown.composition[known] >= 0).all()
    assert (shown.composition[~known] == MISSING).all()
    # AND rows are the steps that were recorded or traced, each once, in order
    expected = set(run.samples.step.tolist()) | {snapshot.step for snapshot in run.snapshots}
    assert set(shown.rows.step.tolist()) <= expected and (np.diff(shown.rows.step) > 0).all()


LEAK, BASE, TRANSIENT = 2 * MIB, 4 * MIB, 20 * MIB


def leaking(step: int, held: int | None = None) -> Snapshot:
    kept = step * LEAK if held is None else held
    plain = make_snapshot(step, frozen=0, trainable=BASE, activations=TRANSIENT, unattributed=0)
    ledger = (*plain.ledger, LedgerRow(None, "held_tensors", None, kept, 0))
    return dataclasses.replace(plain, ledger=ledger, in_use_bytes=plain.in_use_bytes + kept)


def view_of(steps: int, traced: list[int]) -> Overview:
    kept = [BASE + step * LEAK for step in range(steps)]
    samples = make_samples(
        range(steps), [size + TRANSIENT for size in kept], in_use=[size + LEAK for size in kept]
    )
    return view(make_run(samples, snapshots=tuple(map(leaking, traced))))


def held(view: Overview) -> list[int]:
    sizes: list[int] = view.composition[:, view.groups.index(("held_tensors", None))].tolist()
    return sizes


def test_a_leak_is_drawn_as_it_is_before_between_and_after_traced_steps() -> None:
    shown = view_of(60, [19, 39])
    unattributed = shown.groups.index(("unattributed", None))
    assert held(shown) == [step * LEAK for step in range(60)]
    assert not shown.composition[:, unattributed].any()
    # With one traced step, later growth has no category, and earlier steps hold no more than is in
    # use.
    shown = view_of(60, [19])
    assert held(shown)[19:] == [19 * LEAK] * 41 and shown.composition[-1, unattributed] == 40 * LEAK
    assert held(shown)[:5] == [step * LEAK + LEAK for step in range(5)]


def test_a_jump_between_traced_steps_is_drawn_where_it_was_measured() -> None:
    # GIVEN 50 MiB more from step 3 on, between traced steps 0 and 10
    ends = [BASE + 20 * MIB] * 3 + [BASE + 70 * MIB] * 8
    samples = make_samples(range(11), [BASE + TRANSIENT + 100 * MIB] * 11, in_use=ends)
    snapshots = leaking(0, held=7 * MIB), leaking(10, held=57 * MIB)
    assert held(view(make_run(samples, snapshots=snapshots))) == [7 * MIB] * 3 + [57 * MIB] * 8
    # Steps with another layer table are not interpolated.
    tables = make_table(0, unfrozen=False), make_table(1, unfrozen=True)
    assert held(view(make_run(samples, tables, snapshots)))[1:3] != [7 * MIB] * 2
    # WHEN the bytes at step end are unknown, THEN they follow the step
    unknown = make_samples(range(11), [BASE + TRANSIENT + 100 * MIB] * 11, in_use=[MISSING] * 11)
    assert held(view(make_run(unknown, snapshots=snapshots))) == [
        size * MIB for size in range(7, 58, 5)
    ]


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sets(st.integers(0, 39), max_size=5)
)
def test_long_lived_bytes_never_exceed_those_in_use_at_step_end(
    ends: list[int], traced: set[int]
) -> None:
    samples = make_samples(
        range(len(ends)), [400 * MIB] * len(ends), in_use=[size * MIB for size in ends]
    )
    snapshots = tuple(leaking(step, held=step * MIB) for step in sorted(traced) if step < len(ends))
    shown = view(make_run(samples, (make_table(0, unfrozen=True),), snapshots))
    outlive = [at for at, (category, _) in enumerate(shown.groups) if category in PERSISTENT]
    inferred = ~shown.traced
    assert (
        shown.composition[inferred][:, outlive].sum(axis=1) <= shown.figures.in_use_bytes[inferred]
    ).all()
