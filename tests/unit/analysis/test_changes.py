"""Changes of runs with known histories: what is compared, the causes, and the sentences; layer
tables, epochs and validation passes."""

import dataclasses
import pathlib

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import DEVICE, MIB, make_layer, make_run, make_samples, make_snapshot, make_table

from tb_memplugin.analysis import (
    Epoch,
    LayerChange,
    LayerTotals,
    ValidationPass,
    comparable_steps,
    epochs,
    layer_changes,
    layer_totals,
    step_changes,
    table_at,
    validation_passes,
)
from tb_memplugin.schema import MISSING, LayerTable, LedgerRow, Run, Snapshot
from tb_memplugin.storage import join_samples

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


def test_totals_split_weights_by_what_training_changes() -> None:
    assert layer_totals(make_table(0, unfrozen=False)) == LayerTotals(
        4_000_000, 2_000, 0, 4_000_000, 4_012, 12, 1, 1
    )
    assert layer_totals(make_table(0, unfrozen=True)) == LayerTotals(
        0, 4_002_000, 0, 0, 8_004_012, 12, 0, 2
    )


def test_statistics_of_a_batch_normalization_are_neither_frozen_nor_trained() -> None:
    # GIVEN 64 channels with 256 weights, of which Keras trains 128
    norm = dataclasses.replace(
        make_layer("bn", True, 256), type="BatchNormalization", output_shape=(-1, 8, 8, 64)
    )
    layers = dataclasses.replace(norm, trainable_weight_bytes=4 * 128), make_layer("pool", True, 0)
    table = dataclasses.replace(make_table(0, unfrozen=False), layers=layers)
    assert layer_totals(table) == LayerTotals(0, 4 * 128, 4 * 128, 0, 12, 12, 0, 1)
    frozen = dataclasses.replace(norm, trainable=False, trainable_weight_bytes=0)
    totals = layer_totals(dataclasses.replace(table, layers=(frozen,)))
    assert (totals.frozen_weight_bytes, totals.unfreezing_weight_bytes) == (4 * 256, 4 * 128)


def test_sums_of_a_hostile_table_are_limited() -> None:
    huge = dataclasses.replace(
        make_layer("x", True, 1),
        weight_bytes=0,
        trainable_weight_bytes=2**53 - 1,
        optimizer_bytes=2**53 - 1,
    )
    totals = layer_totals(dataclasses.replace(make_table(0, unfrozen=False), layers=(huge,) * 5000))
    assert totals.frozen_weight_bytes == 0
    assert totals.trainable_weight_bytes == totals.optimizer_bytes == 2**53 - 1


def changes_of(*tables: LayerTable) -> list[LayerChange]:
    return layer_changes(make_run(layer_tables=tables), DEVICE, "train")


def test_an_unfreezing_names_its_layers() -> None:
    tables = (
        make_table(0, unfrozen=False),
        make_table(7, unfrozen=True),
        make_table(9, unfrozen=False),
    )
    assert [(one.step, one.became_trainable, one.became_frozen) for one in changes_of(*tables)] == [
        (0, (), ()),
        (7, ("model/backbone",), ()),
        (9, (), ("model/backbone",)),
    ]
    # A change that also sets the flags of layers without weights names only those with weights.
    pool = [make_layer("model/pool", unfrozen, 0) for unfrozen in (False, True)]
    tables = [
        dataclasses.replace(one, layers=(*one.layers, pool[at]))
        for at, one in enumerate(tables[:2])
    ]
    before, after = changes_of(*tables)
    assert after.became_trainable == ("model/backbone",)
    assert after.trainable_layers - before.trainable_layers == 1


def test_the_table_of_a_step_is_the_last_one_not_after_it() -> None:
    tables = [make_table(step, unfrozen=False) for step in (2, 5, 5, 9)]
    expected = {
        0: tables[0],
        2: tables[0],
        4: tables[0],
        5: tables[2],
        8: tables[2],
        100: tables[3],
        None: tables[3],
    }
    assert all(table_at(tables, step) is table for step, table in expected.items())
    assert table_at([], 3) is None


def test_epochs_cover_their_training_steps() -> None:
    parts = [
        make_samples(range(3), [1] * 3, epoch=0),
        make_samples([2], [1], phase="validation"),
        make_samples([3, 4], [1] * 2, epoch=1),
    ]
    assert epochs(make_run(join_samples(parts)[0])) == [Epoch(0, 0, 2), Epoch(1, 3, 4)]
    outside = dataclasses.replace(make_samples([1], [1]), epoch=np.asarray([MISSING]))
    assert epochs(make_run(outside)) == epochs(make_run()) == []


def test_validation_passes_come_after_their_training_step() -> None:
    parts = [
        make_samples(range(3), [900] * 3),
        make_samples([2, 2], [5 * MIB, 3 * MIB], phase="validation"),
        make_samples([5], [MISSING], phase="validation", in_use=[0]),
    ]
    run = make_run(join_samples(parts)[0])
    assert validation_passes(run, "CPU:0") == [
        ValidationPass(2, 2, 5 * MIB),
        ValidationPass(5, 1, None),
    ]
    # Batches before training are none.
    early = make_run(
        join_samples([make_samples([0], [MIB], phase="validation", start=1e9), *parts])[0]
    )
    assert validation_passes(early, "CPU:0") == validation_passes(run, "CPU:0")
    assert validation_passes(run, "GPU:3") == [
        ValidationPass(2, 2, None),
        ValidationPass(5, 1, None),
    ]


STEPS = np.arange(60)
TABLES = (
    make_table(0, unfrozen=False),
    make_table(30, unfrozen=True, reason="model/backbone became trainable"),
)


def traced(
    step: int, *, size: int | None = 16, slots: int = 0, former: int = 0, **parts: int
) -> Snapshot:
    """A traced step with optimizer slots in use, and slots of an earlier optimizer."""
    snapshot = make_snapshot(step, **parts)  # type: ignore[arg-type]
    rows = [*snapshot.ledger, LedgerRow("model/backbone", "optimizer_state", None, slots, 0)]
    rows.append(
        LedgerRow("Adam replaced at step 30/model/backbone", "optimizer_state", None, former, 0)
    )
    in_use = snapshot.in_use_bytes + slots + former
    return dataclasses.replace(snapshot, ledger=tuple(rows), in_use_bytes=in_use, batch_size=size)


def run_of(
    snapshots: list[Snapshot], tables: tuple[LayerTable, ...] = (), peaks: object = None
) -> Run:
    """A run whose measured peaks are those of the nearest earlier traced step, or the given
    ones."""
    values = np.full(len(STEPS), 104 * MIB) if peaks is None else np.asarray(peaks, np.int64)
    if peaks is None:
        for snapshot in snapshots:
            values[snapshot.step :] = snapshot.in_use_bytes
    samples = make_samples(STEPS.tolist(), values.tolist(), in_use=[50 * MIB] * len(STEPS))
    return make_run(samples, snapshots=tuple(snapshots), layer_tables=tables)


def said(run: Run) -> list[str]:
    return [change.sentence() for change in step_changes(run, DEVICE, "train")]


AGAIN = (
    make_table(0, unfrozen=True),
    make_table(30, unfrozen=True, reason="the model was compiled again"),
)
COMPILED = [traced(25, slots=55 * MIB), traced(33, slots=55 * MIB, former=55 * MIB)]
OLD_MODEL = LedgerRow("model, no longer used/backbone", "weights", None, 20 * MIB, 0)
LEFT = traced(33)
LEFT = dataclasses.replace(
    LEFT, ledger=(*LEFT.ledger, OLD_MODEL), in_use_bytes=LEFT.in_use_bytes + OLD_MODEL.bytes
)
SMALLER = [traced(11, activations=200 * MIB), *(traced(step, size=8) for step in (20, 30))]
UNFROZEN = [traced(25), traced(33, slots=113 * MIB, activations=231 * MIB)]
FAILED = dataclasses.replace(traced(12, size=96, activations=490 * MIB), at_failure=True)
LARGER = [traced(11, size=4), traced(12, size=96, activations=490 * MIB)]
BOTH = [traced(25, slots=55 * MIB), traced(33, slots=113 * MIB, former=55 * MIB)]


@pytest.mark.parametrize(
    ("snapshots", "tables", "sentence"),
    [
        (UNFROZEN, TABLES, "Step 30: unfroze backbone, +244 MiB"),
        (BOTH, TABLES, "Step 30: unfroze backbone, +113 MiB"),
        (COMPILED, AGAIN, "Step 30: earlier optimizer stays, +55.0 MiB"),
        # a loop of no known optimizer
        (COMPILED, (), "Steps 25 to 33: earlier optimizer stays, +55.0 MiB"),
        ([traced(32), LEFT], (), "Step 33: earlier model stays, +20.0 MiB"),
        ([traced(25), traced(33, former=MIB - 1)], (), None),
        (LARGER, (), "Step 12: batch 4 → 96, +390 MiB"),
        (SMALLER, (), "Step 20: batch 16 → 8, −100 MiB"),
        ([traced(11, size=1024), traced(12, size=2048)], (), "Step 12: batch 1,024 → 2,048, +0 B"),
        ([traced(11, size=None), traced(12)], (), None),
        # A failed step counts alone, also with a smaller batch.
        (
            [traced(10, size=4), traced(11, size=4), FAILED, traced(13, size=4)],
            (),
            "Step 12: batch 4 → 96, +390 MiB",
        ),
        (
            [traced(11), dataclasses.replace(traced(12, size=8), at_failure=True)],
            (),
            "Step 12: batch 16 → 8, +0 B",
        ),
        (
            [traced(25), traced(33, size=32, slots=MIB)],
            TABLES,
            "Step 30: unfroze backbone, batch 16 → 32, +1.0 MiB",
        ),
    ],
)
def test_a_change_is_said_with_its_cause(snapshots, tables, sentence) -> None:
    assert said(run_of(snapshots, tables)) == ([] if sentence is None else [sentence])


def test_details_name_the_main_parts_persistent_ones_first_and_what_stays() -> None:
    runs = run_of(UNFROZEN, TABLES), run_of(LARGER), run_of(BOTH, TABLES)
    details = [step_changes(run, DEVICE, "train")[0].details() for run in runs]
    assert details == [
        ("Mainly optimizer state +113, activations +131 MiB.",),
        ("Mainly activations +390 MiB.",),
        (
            "Mainly optimizer state +58.0 (and 55.0 of the earlier optimizer stayed) MiB.",
            "Earlier optimizers and models take 55.0 MiB in all. "
            "`tb_memplugin.release_unused()` between two trainings frees them.",
        ),
    ]


def test_a_change_of_the_layer_table_has_what_stays_of_the_earlier_optimizer() -> None:
    changes = layer_changes(run_of(BOTH, TABLES), DEVICE, "train")
    assert [one.stayed_slots_bytes for one in changes] == [0, *[55 * MIB] * (len(changes) - 1)]
    assert {
        one.stayed_slots_bytes for one in layer_changes(run_of(UNFROZEN, TABLES), DEVICE, "train")
    } == {0}


@pytest.mark.parametrize(
    ("snapshots", "compared"),
    [
        (
            [traced(2, activations=900 * MIB), traced(28), traced(30, slots=8 * MIB), traced(50)],
            (28, 30),
        ),
        # A partial batch is not compared.
        (
            [
                traced(20),
                traced(29, size=3, activations=20 * MIB),
                traced(31, slots=8 * MIB),
                traced(40),
            ],
            (20, 31),
        ),
    ],
)
def test_the_nearest_traced_steps_on_both_sides_are_compared(snapshots, compared) -> None:
    run = run_of(snapshots, TABLES)
    (change,) = step_changes(run, DEVICE, "train")
    before, after = (next(one for one in run.snapshots if one.step == step) for step in compared)
    assert (change.before.step, change.after.step) == compared
    assert change.delta_bytes == after.in_use_bytes - before.in_use_bytes
    assert change.sentence() == "Step 30: unfroze backbone, +8.0 MiB"


def test_without_a_trace_on_one_side_measured_peaks_are_compared() -> None:
    peaks = np.where(STEPS < 30, 100, 175) * MIB
    for snapshots in ([], [traced(10)], [traced(40, activations=171 * MIB)]):
        assert said(run_of(snapshots, TABLES, peaks)) == ["Step 30: unfroze backbone, +75.0 MiB"]


def test_the_step_of_another_batch_size_is_that_of_the_measured_peaks() -> None:
    snapshots = [traced(11, size=4), traced(40, size=96, activations=490 * MIB)]
    peaks = np.where(STEPS < 23, snapshots[0].in_use_bytes, snapshots[1].in_use_bytes)
    assert said(run_of(snapshots, peaks=peaks)) == ["Step 23: batch 4 → 96, +390 MiB"]
    peaks[30] = snapshots[0].in_use_bytes
    assert said(run_of(snapshots, peaks=peaks)) == ["Steps 11 to 40: batch 4 → 96, +390 MiB"]
    # Steps that were not measured do not show it, but if there is none between.
    samples = make_samples([11, 40], [one.in_use_bytes for one in snapshots])
    assert said(make_run(samples, snapshots=tuple(snapshots))) == [
        "Steps 11 to 40: batch 4 → 96, +390 MiB"
    ]


def test_a_jump_without_a_cause_has_the_categories_of_its_traced_steps() -> None:
    snapshots = [traced(10), traced(35), traced(45, activations=160 * MIB)]
    peaks = np.where(STEPS < 40, 104 * MIB, 164 * MIB)
    peaks[35], peaks[45] = (one.in_use_bytes for one in snapshots[1:])
    (change,) = step_changes(run_of(snapshots, peaks=peaks), DEVICE, "train")
    assert change.sentence() == "Step 40: peak +60.0 MiB"
    assert change.details() == ("Mainly activations +60.0 MiB.",)
    # Traced steps that do not show the jump are not compared.
    snapshots[2] = traced(45)
    peaks[45] = snapshots[2].in_use_bytes
    (change,) = step_changes(run_of(snapshots, peaks=peaks), DEVICE, "train")
    assert (change.sentence(), change.details()) == ("Step 40: peak +60.0 MiB", ())


@pytest.mark.parametrize("seed", range(5))
def test_varying_batch_sizes_are_no_change(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes: npt.NDArray[np.int64] = random.permutation(np.arange(8, 20))
    snapshots = [
        traced(5 * at, size=int(size), activations=int(size) * MIB) for at, size in enumerate(sizes)
    ]
    values = np.repeat([one.in_use_bytes for one in snapshots], 5)
    assert said(run_of(snapshots, peaks=values)) == []


def steps_of(sizes: dict[int, int | None], ends: tuple[int, ...] = (), last: int = 40) -> list[int]:
    """The comparable steps of traced steps with these batch sizes, in epochs that end at some
    steps."""
    first, parts = 0, []
    for epoch, end in enumerate((*ends, last)):
        parts.append(
            make_samples(range(first, end + 1), [200 * MIB] * (end + 1 - first), epoch=epoch)
        )
        first = end + 1
    run = make_run(
        join_samples(parts)[0],
        snapshots=tuple(traced(step, size=size) for step, size in sizes.items()),
    )
    return [snapshot.step for snapshot in comparable_steps(run, DEVICE, "train")]


def test_partial_batches_are_left_out() -> None:
    # At the end of an epoch, also of the last one, and between two batches of one size.
    assert steps_of({3: 16, 9: 7, 12: 16}, ends=(9,)) == steps_of({3: 16, 9: 7, 12: 16}) == [3, 12]
    assert steps_of({3: 16, 40: 7}) == [3]
    # A smaller batch that stays is compared.
    assert (
        steps_of({3: 16, 9: 7, 12: 7})
        == steps_of({3: None, 9: 7, 12: None}, ends=(9,))
        == [3, 9, 12]
    )
