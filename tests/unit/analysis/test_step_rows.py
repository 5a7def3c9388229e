"""Which traced steps are compared, and which changes of the batch size count."""

import dataclasses

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot

from tb_memplugin.analysis.rows import (
    BatchChange,
    batch_changes,
    category_deltas,
    comparable_steps,
    first_of_level,
    former_of,
)
from tb_memplugin.schema import LedgerRow, Snapshot
from tb_memplugin.storage.read.columns import join_samples


def of_size(step: int, size: int | None, activations: int = 100 * MIB) -> Snapshot:
    return dataclasses.replace(make_snapshot(step, activations=activations), batch_size=size)


def steps_of(sizes: dict[int, int | None], ends: tuple[int, ...] = (), last: int = 40) -> list[int]:
    """The comparable steps of traced steps with these batch sizes, in epochs that end at some steps."""
    first, parts = 0, []
    for epoch, end in enumerate((*ends, last)):
        parts.append(make_samples(range(first, end + 1), [200 * MIB] * (end + 1 - first), epoch=epoch))
        first = end + 1
    run = make_run(join_samples(parts)[0], snapshots=tuple(of_size(step, size) for step, size in sizes.items()))
    return [snapshot.step for snapshot in comparable_steps(run, DEVICE, "train")]


def test_partial_batches_are_left_out() -> None:
    # At the end of an epoch, also of the last one, and between two batches of one size.
    assert steps_of({3: 16, 9: 7, 12: 16}, ends=(9,)) == steps_of({3: 16, 9: 7, 12: 16}) == [3, 12]
    assert steps_of({3: 16, 40: 7}) == [3]
    # A smaller batch that stays is compared.
    assert steps_of({3: 16, 9: 7, 12: 7}) == steps_of({3: None, 9: 7, 12: None}, ends=(9,)) == [3, 9, 12]


def test_a_failed_step_is_always_compared() -> None:
    failed = dataclasses.replace(of_size(20, 8), at_failure=True)
    run = make_run(make_samples(range(21), [200 * MIB] * 21), snapshots=(of_size(3, 16), failed))
    assert [one.step for one in comparable_steps(run, DEVICE, "train")] == [3, 20]


def test_of_one_step_the_highest_peak_counts() -> None:
    run = make_run(make_samples([5], [9]), snapshots=(of_size(5, 4, 300 * MIB), of_size(5, 4)))
    (snapshot,) = comparable_steps(run, DEVICE, "train")
    assert snapshot.in_use_bytes > 300 * MIB
    assert comparable_steps(run, DEVICE, "validation") == []


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([4, 96], ["batch 4 → 96"]),
        ([4, 4, None, 96, 96], ["batch 4 → 96"]),
        ([1024, 1024, 2048, 2048, 8, 8], ["batch 1,024 → 2,048", "batch 2,048 → 8"]),
        ([16, 12, 18, 11, 14], []),  # varying sizes
        ([None, 16], []),
        ([16, 16], []),
    ],
)
def test_lasting_changes_of_the_batch_size(sizes: list[int | None], found: list[str]) -> None:
    changes = batch_changes([of_size(step, size) for step, size in enumerate(sizes)])
    assert [change.title for change in changes] == found


def test_a_failed_step_counts_alone() -> None:
    sizes = [of_size(1, 4), of_size(2, 4), dataclasses.replace(of_size(3, 96), at_failure=True), of_size(4, 4)]
    assert batch_changes(sizes)[0].title == "batch 4 → 96"


def test_measured_peaks_between_traced_steps_show_the_first_step() -> None:
    change = BatchChange(of_size(10, 4, 100 * MIB), of_size(20, 8, 200 * MIB))
    steps = np.arange(30)
    peaks = np.where(steps < 14, 104 * MIB, 203 * MIB)
    assert first_of_level(steps, peaks, change) == 14
    # Unknown if a step is missing, or if the peak returns.
    assert first_of_level(steps[steps != 12], peaks[steps != 12], change) is None
    assert first_of_level(steps, np.where(steps == 17, 104 * MIB, peaks), change) is None
    adjacent = BatchChange(of_size(19, 4), of_size(20, 8))
    assert first_of_level(steps, np.full(30, 200 * MIB), adjacent) == 20
    assert first_of_level(steps[:0], peaks[:0], adjacent) == 20
    assert first_of_level(steps[:0], peaks[:0], change) is None


def test_category_deltas_sum_to_the_difference() -> None:
    before, after = make_snapshot(1), make_snapshot(2, activations=300 * MIB, frozen=0, trainable=4_002_000)
    deltas = category_deltas(before, after)
    assert deltas == {"activations": 200 * MIB}  # the same weights, now trained
    assert sum(deltas.values()) == after.in_use_bytes - before.in_use_bytes
    deltas = category_deltas(make_snapshot(1, unattributed=0), make_snapshot(1, rounding=0))
    assert list(deltas) == ["activations", "rounding", "unattributed"]


def test_former_optimizers_and_models_are_summed_without_their_rounding() -> None:
    rows = (
        LedgerRow("Adam replaced at step 72/net/dense", "optimizer_state", None, 50, 0),
        LedgerRow("Adam replaced at step 72/net/dense", "rounding", None, 7, 7),
        LedgerRow("net, no longer used/dense", "weights", None, 20, 0),
        LedgerRow("net/dense", "optimizer_state", None, 100, 0),
    )
    former = former_of(dataclasses.replace(make_snapshot(80), ledger=rows))
    assert (former.slots, former.others) == (50, 20)
