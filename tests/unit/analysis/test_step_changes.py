"""Changes of runs with known histories: what is compared, the causes, and the sentences."""

import dataclasses
import pathlib

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot, make_table

from tb_memplugin import load
from tb_memplugin.analysis.changes import Level, step_changes
from tb_memplugin.schema import LayerTable, LedgerRow, Run, Snapshot

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
STEPS = np.arange(60)
TABLES = (make_table(0, unfrozen=False), make_table(30, unfrozen=True, reason="model/backbone became trainable"))


def traced(step: int, *, size: int | None = 16, slots: int = 0, former: int = 0, **parts: int) -> Snapshot:
    """A traced step with optimizer slots in use, and slots of an earlier optimizer."""
    snapshot = make_snapshot(step, **parts)  # type: ignore[arg-type]
    rows = [*snapshot.ledger, LedgerRow("model/backbone", "optimizer_state", None, slots, 0)]
    rows.append(LedgerRow("Adam replaced at step 30/model/backbone", "optimizer_state", None, former, 0))
    in_use = snapshot.in_use_bytes + slots + former
    return dataclasses.replace(snapshot, ledger=tuple(rows), in_use_bytes=in_use, batch_size=size)


def run_of(snapshots: list[Snapshot], tables: tuple[LayerTable, ...] = (), peaks: object = None) -> Run:
    """A run whose measured peaks are those of the nearest earlier traced step, or the given ones."""
    values = np.full(len(STEPS), 104 * MIB) if peaks is None else np.asarray(peaks, np.int64)
    if peaks is None:
        for snapshot in snapshots:
            values[snapshot.step :] = snapshot.in_use_bytes
    samples = make_samples(STEPS.tolist(), values.tolist(), in_use=[50 * MIB] * len(STEPS))
    return make_run(samples, snapshots=tuple(snapshots), layer_tables=tables)


def said(run: Run) -> list[str]:
    return [change.sentence() for change in step_changes(run, DEVICE, "train")]


AGAIN = (make_table(0, unfrozen=True), make_table(30, unfrozen=True, reason="the model was compiled again"))
COMPILED = [traced(25, slots=55 * MIB), traced(33, slots=55 * MIB, former=55 * MIB)]
OLD_MODEL = LedgerRow("model, no longer used/backbone", "weights", None, 20 * MIB, 0)
LEFT = traced(33)
LEFT = dataclasses.replace(LEFT, ledger=(*LEFT.ledger, OLD_MODEL), in_use_bytes=LEFT.in_use_bytes + OLD_MODEL.bytes)
SMALLER = [traced(11, activations=200 * MIB), *(traced(step, size=8) for step in (20, 30))]
UNFROZEN = [traced(25), traced(33, slots=113 * MIB, activations=231 * MIB)]
LARGER = [traced(11, size=4), traced(12, size=96, activations=490 * MIB)]
BOTH = [traced(25, slots=55 * MIB), traced(33, slots=113 * MIB, former=55 * MIB)]


@pytest.mark.parametrize(
    ("snapshots", "tables", "sentence"),
    [
        (UNFROZEN, TABLES, "Step 30: unfroze backbone, +244 MiB"),
        (BOTH, TABLES, "Step 30: unfroze backbone, +113 MiB"),
        (COMPILED, AGAIN, "Step 30: earlier optimizer stays, +55.0 MiB"),
        (COMPILED, (), "Steps 25 to 33: earlier optimizer stays, +55.0 MiB"),  # a loop of no known optimizer
        ([traced(32), LEFT], (), "Step 33: earlier model stays, +20.0 MiB"),
        ([traced(25), traced(33, former=MIB - 1)], (), None),
        (LARGER, (), "Step 12: batch 4 → 96, +390 MiB"),
        (SMALLER, (), "Step 20: batch 16 → 8, −100 MiB"),
        ([traced(25), traced(33, size=32, slots=MIB)], TABLES, "Step 30: unfroze backbone, batch 16 → 32, +1.0 MiB"),
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
            "Mainly optimizer state +113 MiB.",
            "Compiled again: slots of the earlier optimizer stay, +55.0 MiB.",
            "Earlier optimizers and models take 55.0 MiB in all. "
            "`tb_memplugin.release_unused()` between two trainings frees them.",
        ),
    ]


@pytest.mark.parametrize(
    ("snapshots", "compared"),
    [
        ([traced(2, activations=900 * MIB), traced(28), traced(30, slots=8 * MIB), traced(50)], (28, 30)),
        # A partial batch is not compared.
        ([traced(20), traced(29, size=3, activations=20 * MIB), traced(31, slots=8 * MIB), traced(40)], (20, 31)),
    ],
)
def test_the_nearest_traced_steps_on_both_sides_are_compared(snapshots, compared) -> None:
    run = run_of(snapshots, TABLES)
    (change,) = step_changes(run, DEVICE, "train")
    before, after = (next(one for one in run.snapshots if one.step == step) for step in compared)
    assert (change.before, change.after) == tuple(Level(one.step, one.in_use_bytes) for one in (before, after))
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
    snapshots = [traced(5 * at, size=int(size), activations=int(size) * MIB) for at, size in enumerate(sizes)]
    values = np.repeat([one.in_use_bytes for one in snapshots], 5)
    assert said(run_of(snapshots, peaks=values)) == []


def test_a_recorded_failure_of_a_larger_batch() -> None:
    """The stored run is that of the demo: batches of 4 sequences, then one of 96."""
    stored = load(FIXTURES / "runs")["out_of_memory"]
    sized = [one if one.at_failure else dataclasses.replace(one, batch_size=4) for one in stored.snapshots]
    (change,) = step_changes(dataclasses.replace(stored, snapshots=tuple(sized)), DEVICE, "train")
    last, failed = sized[-2:]
    size = (failed.in_use_bytes - last.in_use_bytes) / MIB
    assert change.sentence() == f"Step {stored.ooms[0].step}: batch 4 → 96, +{size:.0f} MiB"
    assert change.before is not None and change.before.step == last.step
