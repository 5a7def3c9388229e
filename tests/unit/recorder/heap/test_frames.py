"""Running functions and what ends with their frames, names of the user's files, and the lines that
made layers."""

import os
import pathlib
import sys
import sysconfig
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.heap import SourceLines, frames, running_functions
from tb_memplugin.recorder.heap.frames import ConstructorLines, SourceFiles, keep_with


class Marker:
    def __init__(self, gone: Callable[[], None]) -> None:
        self.gone = gone

    def __del__(self) -> None:
        self.gone()


def run(gone: list[int], error: type[BaseException] | None, seen: list[set[str]]) -> None:
    # Without `assert`, for which pytest puts a call of `locals()` here: such functions are not
    # read.
    keep_with(sys._getframe(), Marker(lambda: gone.append(1)))
    for frame, variables in running_functions():
        if frame.f_code is run.__code__:
            seen.append(set(variables))
    seen.append({"gone"} if gone else set())
    del frame, variables
    if error is not None:
        raise error


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_it_ends_with_the_function_or_with_the_traceback_of_its_exception(
    error: type[BaseException] | None,
) -> None:
    gone: list[int] = []
    seen: list[set[str]] = []
    try:
        run(gone, error, seen)
    except (KeyboardInterrupt, ValueError):
        assert gone == []
    # THEN reading the variables, as the search for holders does, does not show the marker and keeps
    # it
    variables, gone_meanwhile = seen
    assert {"gone", "error", "seen"} <= variables <= {"gone", "error", "seen", "frame", "variables"}
    assert gone_meanwhile == set() and gone == [1]


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
def test_files_are_named_relative_to_the_working_directory(
    project, monkeypatch, path, name
) -> None:
    (project.parent / "link").symlink_to(project)
    inside = path.startswith(("/project", "/shared", "/link"))
    monkeypatch.setitem(
        sys.modules, "tf_keras", SimpleNamespace(__file__=str(project / "keras" / "__init__.py"))
    )
    files = SourceFiles()
    assert files.name(str(project.parent) + path if inside else path) == name


@pytest.mark.parametrize("directory", ["/", "home"])
def test_a_working_directory_above_the_home_directory_names_no_directories(
    directory, tmp_path, monkeypatch
) -> None:
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/" if directory == "/" else tmp_path / directory)
    assert SourceFiles().name(str(home / "project" / "train.py")) == "train.py"


def test_the_line_of_a_running_call_is_the_users_innermost(project: pathlib.Path) -> None:
    line = SourceLines().calling()
    assert line is not None and line.startswith(f"{pathlib.Path(__file__).name}:")


class Dense:
    def __init__(self, name: object) -> None:
        self.name = name


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
    return constructors(tmp_path)


def constructors(directory: pathlib.Path) -> ConstructorLines:
    files: Any = SimpleNamespace(
        name=lambda path: os.path.basename(path) if path.startswith(str(directory)) else None
    )
    return ConstructorLines(files)


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        (Dense("first"), "program.py:1"),
        (Dense("second"), "program.py:2"),
        (Conv2D("block12_conv"), "program.py:6"),
        # None where it may be wrong: another class, two lines, no constructor, a name that can be
        # any, none at all.
        *((kind("first"), None) for kind in (Conv2D, Found)),
        (Found("found"), None),
        *((Dense(name), None) for name in ("block1_conv", "twice", "head_1", "other", None)),
    ],
)
def test_a_layer_was_made_where_its_class_is_called_with_its_name(layer, line, write, made) -> None:
    write()
    assert made.of(layer) == line


def test_modules_that_are_imported_later_are_read_for_layers_made_then(
    write: Any, made: ConstructorLines
) -> None:
    before = Dense("first")
    assert made.of(before) is None
    write()
    assert made.of(Dense("first")) == "program.py:1"
    assert made.of(before) is None  # looked for once


def test_files_that_cannot_be_relied_on_are_left_out(write: Any, made: ConstructorLines) -> None:
    # GIVEN a file that was changed after the program began, one that is no Python, and one that is
    # gone
    os.utime(write(name="changed.py"), (time.time() + 10, time.time() + 10))
    write('x = Dense(name="first"', "broken.py")
    write(name="gone.py").unlink()
    assert made.of(Dense("first")) is None
    # THEN others are read all the same
    write('x = Dense(4, name="last")', "sound.py")
    assert made.of(Dense("last")) == "sound.py:1"


def test_a_program_that_is_not_read_whole_has_no_lines(write, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(frames, "MAX_BYTES", 1000)
    lines = constructors(tmp_path)
    write()
    write("#" * 2000, "no_names.py")  # makes no layer with a name
    assert lines.of(Dense("first")) == "program.py:1"
    write('x = Dense(1, name="large")\n' + "#" * 1000, "large.py")
    assert lines.of(Dense("large")) is None and lines.of(Dense("second")) is None
