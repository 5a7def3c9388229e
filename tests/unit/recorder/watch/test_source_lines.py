"""Lines of the ops of a graph, with stand-ins for TensorFlow's graphs; `tests/integration` has real ones."""

import os
import pathlib
import sys
import sysconfig
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.watch import source_lines
from tb_memplugin.recorder.watch.call_notes import GraphNotes, Span
from tb_memplugin.recorder.watch.source_lines import ConstructorLines, SourceFiles, SourceLines


class Graph:
    """As `GraphOps`: ops with stacks of (file, line), outermost first."""

    def __init__(self, ops: dict[str, Any], types: dict[str, str] | None = None) -> None:
        self.graph = self
        self.reads: list[str] = []
        self.ops = [_Op(self, name, stack) for name, stack in ops.items()]
        self.types = [(types or {}).get(name, "Add") for name in ops]
        self.number = {name: number for number, name in enumerate(ops)}

    def __len__(self) -> int:
        return len(self.ops)


class _Op:
    def __init__(self, graph: Graph, name: str, stack: Any) -> None:
        self._graph, self.name, self._stack = graph, name, stack

    @property
    def traceback(self) -> Any:
        self._graph.reads.append(self.name)
        if self._stack is None:
            return None
        return [SimpleNamespace(filename=file, lineno=line, name=name) for file, line, name in map(_named, self._stack)]


def _named(frame: tuple[Any, ...]) -> tuple[Any, ...]:
    return frame if len(frame) == 3 else (*frame, "call")


LIBRARY = ("/venv/site-packages/keras/layer.py", 5)
TRAIN, TAPE, UPDATE = ("train.py", 1), ("train.py", 8), ("train.py", 9)


@pytest.fixture
def lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> SourceLines:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source_lines, "_libraries", list)
    return SourceLines()


def layers(graph: Graph, **passes: tuple[int, int]) -> Any:
    """As `OpLayers`: the passes of ranges of ops."""
    names = ["forward"] * len(graph)
    for name, (start, end) in passes.items():
        names[start:end] = [name] * (end - start)
    return SimpleNamespace(pass_name=names, in_layer=[False] * len(graph))


def found(lines: SourceLines, graph: Any, **spans: tuple[int, int]) -> list[str | None]:
    notes = GraphNotes()
    notes.spans = [Span(*span, 0, 0, kind, None) for kind, span in spans.items()]  # type: ignore[arg-type]
    return lines.of_graph(graph, layers(graph, **spans), notes)


def test_the_innermost_line_outside_of_libraries_is_that_of_an_op(lines: SourceLines) -> None:
    stacks = {"a": [TRAIN, LIBRARY, ("models/unet.py", 7), LIBRARY], "b": [LIBRARY], "c": [TRAIN], "d": None}
    graph = Graph(stacks, {"c": "Const"})
    for _ in range(2):
        assert found(lines, graph) == ["models/unet.py:7", None, None, None]
    # AND stacks are read once
    assert graph.reads == ["a", "b", "d"]
    # AND the line of a running call is the user's innermost
    line = lines.calling()
    assert line is not None and line.startswith(f"{pathlib.Path(__file__).name}:")


def test_gradients_have_the_line_of_their_forward_op_or_of_the_tape(lines: SourceLines) -> None:
    forward = {name: [("unet.py", line)] for line, name in enumerate(("a/MatMul", "b/Relu", "c/Exp", "c/Mul"), 2)}
    # The scope of the third gradient has two lines, and the fourth is in no scope.
    tape = ("a/MatMul/MatMul_1", "b/ReluGrad", "c/mul_1", "Reshape")
    graph = Graph(
        {
            **forward,
            "ones": [TAPE, LIBRARY],
            **{f"gradient_tape/{name}": [TAPE] for name in tape},
            **{name: [UPDATE] for name in ("adam/mul", "adam/sub")},
        }
    )
    made = found(lines, graph, backward=(4, 9), update=(9, 11))
    assert made[4:] == ["train.py:8", "unet.py:2", "unet.py:3", "train.py:8", "train.py:8", "train.py:9", "train.py:9"]
    # THEN of the calls of tape and optimizer, one stack each is read
    assert graph.reads[4:] == ["ones", "adam/mul"]


def test_a_recording_reads_the_lines_of_a_limited_number_of_ops(
    lines: SourceLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recording that may read three more ops
    monkeypatch.setattr(source_lines, "MAX_OPS", 3)
    lines = SourceLines()
    small, larger = Graph({"a": [TRAIN], "b": [TRAIN]}), Graph({"c": [TRAIN], "d": [TRAIN]})
    for _ in range(3):  # what was read once costs nothing
        assert found(lines, small) == ["train.py:1"] * 2
    # THEN a graph with more than that has no lines, and costs nothing
    assert found(lines, larger) == [None, None] and larger.reads == []
    # AND one that needs no more still has
    update = Graph({"f": [UPDATE], "g": [UPDATE], "h": [UPDATE], "x": [TRAIN]}, {"x": "Const"})
    assert found(lines, update, update=(0, 3)) == ["train.py:9"] * 3 + [None] and update.reads == ["f"]
    # UNTIL nothing is left
    assert found(lines, Graph({"e": [TRAIN]})) == [None]
    assert found(lines, small) == ["train.py:1"] * 2


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The working directory of a training, next to other directories."""
    directory = tmp_path / "alice" / "project"
    (directory / "models").mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("train.py", "train.py"),
        ("/project/train.py", "train.py"),
        ("/project/models/unet.py", "models/unet.py"),
        ("/project/models/../train.py", "train.py"),
        # Files outside have no directory.
        ("/shared/losses.py", "losses.py"),
        ("/project_2/train.py", "train.py"),
        ("../secret/losses.py", "losses.py"),
        # A link to the working directory is the working directory.
        ("/link/models/unet.py", "models/unet.py"),
        # Libraries, and code without a file, have no name.
        ("/project/keras/src/layer.py", None),
        ("/project/keras_models/unet.py", "keras_models/unet.py"),
        ("/project/.venv/lib/python3.11/site-packages/lib/a.py", None),
        (sysconfig.get_path("stdlib") + "/contextlib.py", None),
        *((name, None) for name in ("<string>", "<frozen runpy>", "<stdin>", "")),
    ],
)
def test_files_are_named_relative_to_the_working_directory(project: pathlib.Path, path: str, name: str | None) -> None:
    (project.parent / "link").symlink_to(project)
    inside = path.startswith(("/project", "/shared", "/link"))
    files = SourceFiles([str(project / "keras")])
    assert files.name(str(project.parent) + path if inside else path) == name


@pytest.mark.parametrize("directory", ["/", "home"])
def test_a_working_directory_above_the_home_directory_names_no_directories(
    directory: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/" if directory == "/" else tmp_path / directory)
    assert SourceFiles([]).name(str(home / "project" / "train.py")) == "train.py"


class Dense:
    def __init__(self, name: object) -> None:
        self.name = name


FIT = ("/venv/site-packages/keras/trainer.py", 7, "fit")


def test_layers_that_only_keras_calls_have_the_lines_that_made_them(
    lines: SourceLines, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('x = layers.Dense(4, name="outer")(x)\nfor at in range(3):\n    x = Dense(4, name=f"dense_{at}")(x)\n')
    monkeypatch.setattr(source_lines, "sys", SimpleNamespace(modules={"nets": SimpleNamespace(__file__=str(path))}))
    outer, inner, unknown = Dense("outer"), Dense("dense_2"), Dense("other")
    fitted = [TRAIN, FIT, LIBRARY]
    graph = Graph(
        {
            "outer/MatMul": fitted,
            "outer/inner/MatMul": fitted,
            "outer/own/MatMul": [*fitted, ("unet.py", 3), LIBRARY],
            "other/MatMul": fitted,
            "loop/MatMul": [TAPE, LIBRARY],
            "gradient_tape/outer/inner/MatMul_grad": fitted,
        }
    )
    notes = GraphNotes()
    notes.spans = [
        *(Span(0, 3, 0, 0, "layer", lambda: outer), Span(1, 2, 1, 0, "layer", lambda: inner)),
        *(Span(3, 4, 0, 0, "layer", lambda: unknown), Span(5, 6, 0, 0, "backward", None)),
    ]
    made = lines.of_graph(graph, layers(graph, backward=(5, 6)), notes)  # type: ignore[arg-type]
    # THEN a call of the program's own keeps its line, and a layer of an unknown origin that of `fit`
    assert made[:5] == ["program.py:1", "program.py:3", "unet.py:3", "train.py:1", "train.py:8"]
    # AND a gradient has the line of its forward op
    assert made[5] == "program.py:3"


SOURCE = """\
first = keras.layers.Dense(4, name="first")
second = keras.layers.Dense(
    4, name="second"
)
for at in range(3):
    each = layers.Conv2D(4, 3, name=f"block{at}_conv")
twice = Dense(4, name="twice"), Dense(5, name="twice")
again = Dense(5, name="twice")
model.get_layer(name="found")
broad = Dense(4, name=f"{prefix}_{at}")
plain = Dense(4, name=prefix)
"""


class Conv2D(Dense):
    pass


class Found(Dense):
    pass


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes and imports a module of the program, which is older than the process."""

    def writes(text: str = SOURCE, name: str = "program.py") -> pathlib.Path:
        path = tmp_path / name
        path.write_text(text)
        os.utime(path, (1, 1))
        monkeypatch.setitem(sys.modules, path.stem, SimpleNamespace(__file__=str(path)))
        return path

    return writes


@pytest.fixture
def made(tmp_path: pathlib.Path) -> ConstructorLines:
    return ConstructorLines(lambda path: os.path.basename(path) if path.startswith(str(tmp_path)) else None)


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        (Dense("first"), "program.py:1"),
        (Dense("second"), "program.py:2"),
        (Conv2D("block12_conv"), "program.py:6"),
        # None where it may be wrong: another class, two lines, no constructor, a name that can be any, none at all.
        *((kind("first"), None) for kind in (Conv2D, Found)),
        (Found("found"), None),
        *((Dense(name), None) for name in ("block1_conv", "twice", "head_1", "other", None)),
    ],
)
def test_a_layer_was_made_where_its_class_is_called_with_its_name(
    layer: Dense, line: str | None, write: Any, made: ConstructorLines
) -> None:
    write()
    assert made.of(layer) == line


def test_modules_that_are_imported_later_are_read_for_layers_made_then(write: Any, made: ConstructorLines) -> None:
    before = Dense("first")
    assert made.of(before) is None
    write()
    assert made.of(Dense("first")) == "program.py:1"
    assert made.of(before) is None  # looked for once


def test_files_that_cannot_be_relied_on_are_left_out(write: Any, made: ConstructorLines) -> None:
    # GIVEN a file that was changed after the program began, one that is no Python, and one that is gone
    os.utime(write(name="changed.py"), (time.time() + 10, time.time() + 10))
    write('x = Dense(name="first"', "broken.py")
    write(name="gone.py").unlink()
    assert made.of(Dense("first")) is None
    # THEN others are read all the same
    write('x = Dense(4, name="last")', "sound.py")
    assert made.of(Dense("last")) == "sound.py:1"


def test_a_program_that_is_not_read_whole_has_no_lines(
    write: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_lines, "MAX_BYTES", 1000)
    lines = ConstructorLines(lambda path: os.path.basename(path) if path.startswith(str(tmp_path)) else None)
    write()
    write("#" * 2000, "no_names.py")  # makes no layer with a name
    assert lines.of(Dense("first")) == "program.py:1"
    write('x = Dense(1, name="large")\n' + "#" * 1000, "large.py")
    assert lines.of(Dense("large")) is None and lines.of(Dense("second")) is None
