"""The inside of really trained steps: graph, eager, several steps in one, compiled; and of imported profiles."""

import collections
import pathlib
from typing import Any

import numpy as np
import pytest
from child import run_child
from timeline_cases import category_totals, split_columns

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.model import Run

ENVIRONMENT = {
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "512",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}

FIT = """
import keras, numpy as np, tb_memplugin
L = keras.layers
def fit(name, **options):
    model = keras.Sequential([keras.Input((32, 32, 3)), L.Conv2D(8, 3, activation="relu", name="first"),
        L.Conv2D(8, 3, activation="relu", name="second"), L.Flatten(), L.Dense(10, name="head")])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    callback = tb_memplugin.MemoryCallback(sys.argv[1] + "/" + name, trace_steps=[5, 6], keep_profile=name == "graph")
    model.fit(np.random.rand(128, 32, 32, 3).astype("float32"), np.zeros(128, "int32"), batch_size=16,
              epochs=2, verbose=0, callbacks=[callback])
fit("graph", jit_compile=False)
fit("steps", jit_compile=False, steps_per_execution=2)
fit("eager", run_eagerly=True, jit_compile=False)
fit("xla", jit_compile=True)
answer({})
"""

MODES = ("graph", "steps", "eager", "xla")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Four trainings of one model."""
    directory = tmp_path_factory.mktemp("runs")
    run_child(FIT, str(directory), environment=ENVIRONMENT)
    return tb_memplugin.load(directory), directory


def at_peak(run: Run, place: int) -> dict[tuple[Any, ...], int]:
    timeline = run.timelines[place]
    requested, rounding = split_columns(timeline.bytes, timeline.rounding_bytes)
    sums: dict[tuple[Any, ...], int] = collections.Counter()
    for row in np.flatnonzero((timeline.start <= timeline.peak) & (timeline.end > timeline.peak)).tolist():
        owner = timeline.owners[int(timeline.owner[row])]
        sums[owner.layer, owner.category, owner.trainable] += int(requested[row])
        sums[owner.layer, "rounding", owner.trainable] += int(rounding[row])
    return {owner: size for owner, size in sums.items() if size}


@pytest.mark.parametrize("mode", MODES)
def test_at_the_peak_a_timeline_is_the_ledger(runs: Any, mode: str) -> None:
    run = runs[0][mode]
    assert len(run.timelines) == len(run.snapshots) > 0 and run.damage == ()
    for place, snapshot in enumerate(run.snapshots):
        timeline = run.timelines[place]
        assert (timeline.step, timeline.device, timeline.mode) == (snapshot.step, snapshot.device, snapshot.mode)
        ledger = {(row.layer, row.category, row.trainable): row.bytes for row in snapshot.ledger}
        assert at_peak(run, place) == ledger
        in_use = sum(category_totals(timeline).values())
        assert int(np.max(in_use)) == snapshot.in_use_bytes
        # THEN it is the allocator's own peak of the step, unless that was before the window opened
        (row,) = np.flatnonzero((run.samples.step == timeline.step) & (run.samples.phase == 0))[-1:]
        assert int(run.samples.devices[timeline.device].peak_bytes[row]) == snapshot.in_use_bytes


@pytest.mark.parametrize("mode", MODES)
def test_activations_wait_at_the_end_of_the_forward_pass_and_are_gone_at_the_end(runs: Any, mode: str) -> None:
    run = runs[0][mode]
    for snapshot, taken in zip(run.snapshots, run.timelines, strict=True):
        names = [band.name for band in taken.bands]
        assert names[0] == "forward" and names.count("forward") == (2 if mode == "steps" else 1)
        assert "backward" in names or "backward_and_update" in names
        totals = category_totals(taken)
        activations = totals["activations"]
        waiting = activations + totals.get("inputs", np.zeros_like(activations))
        held = sum(row.bytes for row in snapshot.saved_for_backward)
        ends = [band.end - 1 for band in taken.bands if band.name == "forward"]
        assert max(int(waiting[end]) for end in ends) >= held > 0
        assert int(activations[-1]) < 0.1 * held


def test_a_compiled_step_shows_the_compilers_plan(runs: Any) -> None:
    for timeline in runs[0]["xla"].timelines:
        assert timeline.compiled and any("compiler's plan" in sentence for sentence in timeline.not_available)
        inside = np.flatnonzero(timeline.start > timeline.compiled[0].start).tolist()
        layers = {(timeline.owners[int(timeline.owner[row])].layer or "").rpartition("/")[2] for row in inside}
        assert layers >= {"first", "second"}


def test_an_imported_profile_has_a_timeline_by_the_names_of_its_operations(
    runs: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = next((runs[1] / "graph").rglob("*.xplane.pb"))
    assert main(["import", str(profile), "--logdir", str(tmp_path), "--run", "imported"]) == 0
    assert "name scopes" in capsys.readouterr().out
    run = tb_memplugin.load(tmp_path)["imported"]
    timelines = [timeline for timeline in run.timelines if timeline.device == "CPU:0"]
    assert timelines and timelines[0].bands and any("name scopes" in text for text in timelines[0].not_available)
    assert any(owner.layer and "first" in owner.layer for owner in timelines[0].owners)
    for place in range(len(run.timelines)):
        ledger = {(row.layer, row.category, row.trainable): row.bytes for row in run.snapshots[place].ledger}
        assert at_peak(run, place) == ledger
