"""Source lines and shapes of really trained steps: functional model, custom layer and loop; graph, eager and XLA."""

import concurrent.futures
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.model import MISSING, Timeline
from tb_memplugin.model.tensors import DTYPE_BYTES

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
    losses[name] = source_lines_training.TRAININGS[training](sys.argv[2] + "/" + name, mode, lines == "lines")
answer({"losses": losses})
"""
MODES = ("graph", "eager", "xla")
NAMES = [f"{training}-{mode}-lines" for training in ("fit", "loop") for mode in MODES]


def numbers() -> dict[str, str]:
    """The name at the end of a line to the line as it is stored."""
    text = (HERE / "source_lines_training.py").read_text(encoding="utf-8").splitlines()
    marked = ((line.rpartition("  # ")[2], number) for number, line in enumerate(text, 1) if "  # " in line)
    return {name: f"{FILE}:{number}" for name, number in marked}


LINES = numbers()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(runs, losses) of all trainings, with lines and without."""
    directory = tmp_path_factory.mktemp("runs")
    without = ["fit-graph-none", "fit-eager-none", "loop-graph-none"]
    # Compiled ones in processes of their own: later profiles of a process contain their modules.
    together = [name for name in (*NAMES, *without) if "xla" not in name]
    losses = train(directory, together, *([name] for name in NAMES if "xla" in name))
    return tb_memplugin.load(directory), losses


def train(directory: pathlib.Path, *children: list[str]) -> dict[str, list[float]]:
    """The losses of the named trainings; those of each list run in one process, beside the others."""

    def run(names: list[str]) -> dict[str, list[float]]:
        answer = run_child(CHILD, str(HERE.parent), str(directory), *names, environment=ENVIRONMENT)
        losses: dict[str, list[float]] = answer["losses"]
        return losses

    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:
        return {name: losses for answer in pool.map(run, children) for name, losses in answer.items()}


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
    return {line for name, category, line in owned(timeline) if name == layer and category in categories}


@pytest.mark.parametrize(("training", "first", "head"), [("fit", "made first", "fit"), ("loop", "model", "model")])
def test_in_graph_mode_each_op_has_the_innermost_line_outside_of_libraries(
    trained: Any, training: str, first: str, head: str
) -> None:
    """Of layers that only `fit` calls, the line that made them, if there is one only: two lines make a `head`."""
    (timeline,) = trained[0][f"{training}-graph-lines"].timelines
    # THEN what layers saved for backward has the line that called the layer or, in the custom layer, the op
    assert lines_of(timeline, "first", "activations", "activation_gradients") == {LINES[first]}
    assert lines_of(timeline, "inner", "activations") == {LINES["inner"]}
    assert LINES["softplus"] in lines_of(timeline, "block", "activations", "activation_gradients", "workspace")
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
    assert lines_of(timeline, "inner", "activations", "activation_gradients", "weight_gradients") == {LINES["inner"]}


def test_without_source_lines_none_are_stored_and_losses_are_the_same(trained: Any) -> None:
    runs, losses = trained
    for name in ("fit-graph", "fit-eager", "loop-graph"):
        (timeline,) = runs[f"{name}-none"].timelines
        assert timeline.lines == () and (timeline.line == -1).all() and len(timeline.shapes)
        assert losses[f"{name}-none"] == losses[f"{name}-lines"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_takes_the_requested_bytes_and_large_tensors_have_one(trained: Any, name: str) -> None:
    (timeline,) = trained[0][name].timelines
    known = np.flatnonzero(timeline.shape >= 0)
    for row in known.tolist():
        shape = timeline.shapes[int(timeline.shape[row])]
        assert timeline.rounding_bytes[row] != MISSING
        requested = int(timeline.bytes[row] - timeline.rounding_bytes[row])
        assert math.prod(shape.shape) * DTYPE_BYTES[shape.dtype] == requested
    # THEN weights have the shapes of Keras
    weights = [row for row in known.tolist() if timeline.owners[int(timeline.owner[row])].category == "weights"]
    shapes = {timeline.shapes[int(timeline.shape[row])].shape for row in weights}
    assert shapes >= {(32, 48), (48,), (48, 64), (64, 64), (64,), (64, 10), (10,)}
    # THEN what a step computes has a shape, except for small ones. (In eager mode, scratch space of gradients, which is
    # no tensor, counts as their activation gradients.)
    computed = ["weights", "optimizer_state", "weight_gradients", "activations"]
    computed += ["activation_gradients"] if "graph" in name else []
    for row in np.flatnonzero((timeline.shape < 0) & (timeline.bytes > 256)).tolist() if "xla" not in name else ():
        owner = timeline.owners[int(timeline.owner[row])]
        assert owner.category not in computed, (owner, timeline.ops[int(timeline.op[row])], timeline.bytes[row])


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


@pytest.mark.long
def test_a_post_mortem_names_the_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["fail-graph-lines", "fail-eager-lines", "fail-graph-none"]
    train(tmp_path, *([name] for name in names))  # beside each other: each waits ten seconds for memory
    runs = tb_memplugin.load(tmp_path)
    lines = {name: oom.line for name in names for oom in runs[name].ooms}
    assert lines == {names[0]: LINES["huge"], names[1]: LINES["huge"], names[2]: None}
    assert main(["inspect", str(tmp_path), "--run", names[0]]) == 0
    assert f", {LINES['huge']}" in capsys.readouterr().out
