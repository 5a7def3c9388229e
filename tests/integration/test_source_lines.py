"""The inside of really trained steps: ledgers over time, source lines and shapes; of graph, eager
and compiled steps, of several steps in one, of loops, and of imported profiles."""

import collections
import concurrent.futures
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from child import run_child
from timeline_cases import category_totals, split_columns

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.schema import DTYPE_BYTES, MISSING, Snapshot, Timeline

HERE = pathlib.Path(__file__).parent
FILE = "integration/source_lines_training.py"
ENVIRONMENT = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "200", "TF_ENABLE_ONEDNN_OPTS": "0"}
CHILD = """
import os

os.chdir(sys.argv[1])
sys.path.insert(0, "integration")
import source_lines_training

losses = {}
for name in sys.argv[3:]:
    training, mode, lines = name.split("-")
    losses[name] = source_lines_training.TRAININGS[training](
        sys.argv[2] + "/" + name, mode, lines == "lines"
    )
answer({"losses": losses})
"""
MODES = ("graph", "eager", "xla")
NAMES = [f"{training}-{mode}-lines" for training in ("fit", "loop") for mode in MODES]
FITS = [*NAMES[:3], "fit-steps-lines"]


def numbers() -> dict[str, str]:
    """The name at the end of a line to the line as it is stored."""
    text = (HERE / "source_lines_training.py").read_text(encoding="utf-8").splitlines()
    marked = (
        (line.rpartition("  # ")[2], number)
        for number, line in enumerate(text, 1)
        if "  # " in line
    )
    return {name: f"{FILE}:{number}" for name, number in marked}


LINES = numbers()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(directory: pathlib.Path) -> Any:
    """(runs, losses) of all trainings, with lines and without."""
    without = ["fit-graph-none", "fit-eager-none", "loop-graph-none"]
    # Compiled ones in processes of their own: later profiles of a process contain their modules.
    together = [name for name in (*NAMES, FITS[-1], *without) if "xla" not in name]
    losses = train(directory, together, *([name] for name in NAMES if "xla" in name))
    return tb_memplugin.load(directory), losses


def train(directory: pathlib.Path, *children: list[str]) -> dict[str, list[float]]:
    """The losses of the named trainings; those of each list run in one process, beside the
    others."""

    def run(names: list[str]) -> dict[str, list[float]]:
        answer = run_child(CHILD, str(HERE.parent), str(directory), *names, environment=ENVIRONMENT)
        losses: dict[str, list[float]] = answer["losses"]
        return losses

    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:
        return {
            name: losses for answer in pool.map(run, children) for name, losses in answer.items()
        }


def owned(timeline: Timeline) -> set[tuple[str | None, str, str | None]]:
    """(last part of the layer's path, category, line) of the rows with a line."""
    rows = np.flatnonzero(timeline.line >= 0).tolist()
    owners = [timeline.owners[int(timeline.owner[row])] for row in rows]
    lines = [timeline.lines[int(timeline.line[row])] for row in rows]
    return {
        ((owner.layer or "").rpartition("/")[2] or None, owner.category, line)
        for owner, line in zip(owners, lines, strict=True)
    }


def lines_of(timeline: Timeline, layer: str | None, *categories: str) -> set[str | None]:
    return {
        line for name, category, line in owned(timeline) if name == layer and category in categories
    }


@pytest.mark.parametrize(
    ("training", "first", "head"), [("fit", "made first", "fit"), ("loop", "model", "model")]
)
def test_in_graph_mode_each_op_has_the_innermost_line_outside_of_libraries(
    trained, training, first, head
) -> None:
    """Of layers that only `fit` calls, the line that made them, if there is one only: two lines
    make a `head`."""
    (timeline,) = trained[0][f"{training}-graph-lines"].timelines
    # THEN what layers saved for backward has the line that called the layer or, in the custom
    # layer, the op
    assert lines_of(timeline, "first", "activations", "activation_gradients") == {LINES[first]}
    assert lines_of(timeline, "inner", "activations") == {LINES["inner"]}
    assert LINES["softplus"] in lines_of(
        timeline, "block", "activations", "activation_gradients", "workspace"
    )
    # THEN gradients have the line of the op that they are the gradient of
    for layer in ("inner", "outer"):
        assert lines_of(timeline, layer, "weight_gradients") == {LINES[layer]}
    assert lines_of(timeline, "head", "weight_gradients") == {LINES[head]}


def test_in_a_loop_loss_and_update_have_their_lines(trained: Any) -> None:
    (timeline,) = trained[0]["loop-graph-lines"].timelines
    found = set(timeline.lines)
    assert {LINES["loss"], LINES["update"]} <= found <= set(LINES.values())


def test_in_eager_mode_rows_have_the_line_that_called_their_layer(trained: Any) -> None:
    (timeline,) = trained[0]["loop-eager-lines"].timelines
    assert lines_of(timeline, "first", "activations", "workspace") >= {LINES["model"]}
    assert lines_of(timeline, "inner", "activations") == {LINES["inner"]}
    assert lines_of(timeline, "outer", "weight_gradients") == {LINES["gradient"]}
    assert LINES["update"] in timeline.lines and set(timeline.lines) <= set(LINES.values())
    (timeline,) = trained[0]["fit-eager-lines"].timelines
    assert lines_of(timeline, "inner", "activations") == {LINES["inner"]}
    assert lines_of(timeline, "first", "activations") == {LINES["made first"]}


def test_buffers_inside_compiled_modules_have_lines(trained: Any) -> None:
    (timeline,) = trained[0]["loop-xla-lines"].timelines
    assert timeline.mode == "xla" and set(timeline.lines) <= set(LINES.values())
    assert lines_of(
        timeline, "inner", "activations", "activation_gradients", "weight_gradients"
    ) == {LINES["inner"]}


def test_without_source_lines_none_are_stored_and_losses_are_the_same(trained: Any) -> None:
    runs, losses = trained
    for name in ("fit-graph", "fit-eager", "loop-graph"):
        (timeline,) = runs[f"{name}-none"].timelines
        assert timeline.lines == () and (timeline.line == -1).all() and len(timeline.shapes)
        assert losses[f"{name}-none"] == losses[f"{name}-lines"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_takes_the_requested_bytes_and_large_tensors_have_one(
    trained: Any, name: str
) -> None:
    (timeline,) = trained[0][name].timelines
    known = np.flatnonzero(timeline.shape >= 0)
    for row in known.tolist():
        shape = timeline.shapes[int(timeline.shape[row])]
        assert timeline.rounding_bytes[row] != MISSING
        requested = int(timeline.bytes[row] - timeline.rounding_bytes[row])
        assert math.prod(shape.shape) * DTYPE_BYTES[shape.dtype] == requested
    # THEN weights have the shapes of Keras
    weights = [
        row
        for row in known.tolist()
        if timeline.owners[int(timeline.owner[row])].category == "weights"
    ]
    shapes = {timeline.shapes[int(timeline.shape[row])].shape for row in weights}
    assert shapes >= {(32, 48), (48,), (48, 64), (64, 64), (64,), (64, 10), (10,)}
    # THEN what a step computes has a shape, except for small ones. (In eager mode, scratch space of
    # gradients, which is no tensor, counts as their activation gradients.)
    computed = ["weights", "optimizer_state", "weight_gradients", "activations"]
    computed += ["activation_gradients"] if "graph" in name else []
    for row in (
        np.flatnonzero((timeline.shape < 0) & (timeline.bytes > 256)).tolist()
        if "xla" not in name
        else ()
    ):
        owner = timeline.owners[int(timeline.owner[row])]
        assert owner.category not in computed, (
            owner,
            timeline.ops[int(timeline.op[row])],
            timeline.bytes[row],
        )


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_live_at_one_moment_do_not_overlap_in_addresses(trained: Any, name: str) -> None:
    (timeline,) = trained[0][name].timelines
    at_peak = np.flatnonzero((timeline.start <= timeline.peak) & (timeline.end > timeline.peak))
    rows = at_peak[timeline.address[at_peak] >= 0]
    rows = rows[np.argsort(timeline.address[rows], kind="stable")]
    ends = timeline.address[rows] + timeline.bytes[rows]
    assert len(rows) > 20 and (ends[:-1] <= timeline.address[rows][1:]).all()
    if "xla" not in name:
        assert (timeline.address >= 0).all()


def at_peak(timeline: Timeline) -> dict[tuple[Any, ...], int]:
    requested, rounding = split_columns(timeline.bytes, timeline.rounding_bytes)
    sums: collections.Counter[tuple[Any, ...]] = collections.Counter()
    for row in np.flatnonzero(
        (timeline.start <= timeline.peak) & (timeline.end > timeline.peak)
    ).tolist():
        owner = timeline.owners[int(timeline.owner[row])]
        sums[owner.layer, owner.category, owner.trainable] += int(requested[row])
        sums[owner.layer, "rounding", owner.trainable] += int(rounding[row])
    return {owner: size for owner, size in sums.items() if size}


def ledger_of(snapshot: Snapshot) -> dict[tuple[Any, ...], int]:
    return {(row.layer, row.category, row.trainable): row.bytes for row in snapshot.ledger}


@pytest.mark.parametrize("name", [*NAMES, FITS[-1]])
def test_at_the_peak_a_timeline_is_the_ledger(trained: Any, name: str) -> None:
    run = trained[0][name]
    (timeline,), (snapshot,) = run.timelines, run.snapshots
    assert run.damage == () and at_peak(timeline) == ledger_of(snapshot)
    assert (timeline.step, timeline.device, timeline.mode) == (
        snapshot.step,
        snapshot.device,
        snapshot.mode,
    )
    assert int(np.max(sum(category_totals(timeline).values()))) == snapshot.in_use_bytes
    # THEN it is the allocator's own peak of the step, unless that was before the window opened
    (row,) = np.flatnonzero((run.samples.step == timeline.step) & (run.samples.phase == 0))[-1:]
    assert int(run.samples.devices[timeline.device].peak_bytes[row]) == snapshot.in_use_bytes


@pytest.mark.parametrize("name", FITS)
def test_activations_wait_at_the_end_of_the_forward_pass_and_are_gone_at_the_end(
    trained: Any, name: str
) -> None:
    run = trained[0][name]
    (taken,), (snapshot,) = run.timelines, run.snapshots
    names = [band.name for band in taken.bands]
    assert names[0] == "forward" and names.count("forward") == (2 if "steps" in name else 1)
    assert "backward" in names or "backward_and_update" in names
    totals = category_totals(taken)
    activations = totals["activations"]
    waiting = activations + totals.get("inputs", np.zeros_like(activations))
    held = sum(row.bytes for row in snapshot.saved_for_backward)
    ends = [band.end - 1 for band in taken.bands if band.name == "forward"]
    assert max(int(waiting[end]) for end in ends) >= held > 0
    assert int(activations[-1]) < 0.1 * held


def test_a_compiled_step_shows_the_compilers_plan(trained: Any) -> None:
    (timeline,) = trained[0]["fit-xla-lines"].timelines
    assert timeline.compiled and any(
        "compiler's plan" in sentence for sentence in timeline.not_available
    )
    inside = np.flatnonzero(timeline.start > timeline.compiled[0].start).tolist()
    layers = {
        (timeline.owners[int(timeline.owner[row])].layer or "").rpartition("/")[2] for row in inside
    }
    assert layers >= {"first", "inner"}


def test_an_imported_profile_has_a_timeline_by_the_names_of_its_operations(
    trained: Any,
    directory: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = next((directory / "fit-graph-lines").rglob("*.xplane.pb"))
    assert main(["import", str(profile), "--logdir", str(tmp_path), "--run", "imported"]) == 0
    assert "name scopes" in capsys.readouterr().out
    run = tb_memplugin.load(tmp_path)["imported"]
    timelines = [timeline for timeline in run.timelines if timeline.device == "CPU:0"]
    assert (
        timelines
        and timelines[0].bands
        and any("name scopes" in text for text in timelines[0].not_available)
    )
    assert any(owner.layer and "first" in owner.layer for owner in timelines[0].owners)
    assert [at_peak(one) for one in run.timelines] == [ledger_of(one) for one in run.snapshots]


@pytest.mark.long
def test_a_post_mortem_names_the_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["fail-graph-lines", "fail-eager-lines", "fail-graph-none"]
    # beside each other: each waits ten seconds for memory
    train(tmp_path, *([name] for name in names))
    runs = tb_memplugin.load(tmp_path)
    lines = {name: oom.line for name in names for oom in runs[name].ooms}
    assert lines == {names[0]: LINES["huge"], names[1]: LINES["huge"], names[2]: None}
    assert main(["inspect", str(tmp_path), "--run", names[0]]) == 0
    assert f", {LINES['huge']}" in capsys.readouterr().out
