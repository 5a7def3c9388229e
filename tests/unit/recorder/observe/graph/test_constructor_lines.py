"""Lines that made layers, found in the sources of the program's modules."""

import os
import pathlib
import sys
import time
from types import SimpleNamespace

import pytest

from tb_memplugin.recorder.observe.graph import constructor_lines
from tb_memplugin.recorder.observe.graph.constructor_lines import ConstructorLines

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


class Dense:
    def __init__(self, name: object) -> None:
        self.name = name


class Conv2D(Dense):
    pass


class Found(Dense):
    pass


def write(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str = "program.py"
) -> pathlib.Path:
    path = directory / name
    path.write_text(text)
    os.utime(path, (1, 1))  # long before the program began
    monkeypatch.setitem(sys.modules, path.stem, SimpleNamespace(__file__=str(path)))
    return path


def own(directory: pathlib.Path) -> ConstructorLines:
    return ConstructorLines(lambda path: os.path.basename(path) if path.startswith(str(directory)) else None)


def test_a_layer_was_made_where_its_class_is_called_with_its_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, SOURCE)
    lines = own(tmp_path)
    found = {one.name: lines.of(one) for one in (Dense("first"), Dense("second"), Conv2D("block12_conv"))}
    assert found == {"first": "program.py:1", "second": "program.py:2", "block12_conv": "program.py:6"}


@pytest.mark.parametrize(
    "layer",
    [
        Conv2D("first"),
        Dense("block1_conv"),
        Dense("twice"),
        Found("found"),
        Dense("head_1"),
        Dense("other"),
        Dense(None),
    ],
)
def test_no_line_is_named_that_may_be_wrong(
    layer: Dense, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another class, two lines, no constructor, a name that can be any, none at all."""
    write(tmp_path, monkeypatch, SOURCE)
    assert own(tmp_path).of(layer) is None


def test_modules_that_are_imported_later_are_read_for_layers_made_then(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, before = own(tmp_path), Dense("first")
    assert lines.of(before) is None
    write(tmp_path, monkeypatch, SOURCE)
    assert lines.of(Dense("first")) == "program.py:1"
    assert lines.of(before) is None  # looked for once


def test_files_that_cannot_be_relied_on_are_left_out(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file that was changed after the program began, one that is no Python, and one that is gone
    changed = write(tmp_path, monkeypatch, SOURCE, "changed.py")
    os.utime(changed, (time.time() + 10, time.time() + 10))
    write(tmp_path, monkeypatch, 'x = Dense(name="first"', "broken.py")
    write(tmp_path, monkeypatch, SOURCE, "gone.py").unlink()
    lines = own(tmp_path)
    assert lines.of(Dense("first")) is None
    # THEN others are read all the same
    write(tmp_path, monkeypatch, 'x = Dense(4, name="last")', "sound.py")
    assert lines.of(Dense("last")) == "sound.py:1"


def test_a_program_that_is_not_read_whole_has_no_lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constructor_lines, "MAX_BYTES", 1000)
    write(tmp_path, monkeypatch, SOURCE)
    write(tmp_path, monkeypatch, "#" * 2000, "no_names.py")  # makes no layer with a name
    lines = own(tmp_path)
    assert lines.of(Dense("first")) == "program.py:1"
    write(tmp_path, monkeypatch, 'x = Dense(1, name="large")\n' + "#" * 1000, "large.py")
    assert lines.of(Dense("large")) is None and lines.of(Dense("second")) is None
