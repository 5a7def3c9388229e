"""What counts as turned off."""

import pathlib
import sys
from types import SimpleNamespace

import pytest

from tb_memplugin import environment as module
from tb_memplugin.environment import SWITCH, VARIABLE, absolute, is_off, keras_backend, prefer_bfc


@pytest.mark.parametrize(
    ("value", "off"),
    [("0", True), (" 0 ", True), ("1", False), ("", False), ("false", False), (None, False)],
)
def test_only_a_zero_turns_off(value: str | None, off: bool) -> None:
    assert is_off({} if value is None else {SWITCH: value}) is off


@pytest.mark.parametrize(
    ("variable", "file", "backend"),
    [
        (None, None, "tensorflow"),
        ("jax", None, "jax"),
        ("jax", '{"backend": "torch"}', "jax"),
        (None, '{"backend": "torch"}', "torch"),
        ("", '{"backend": "torch"}', "torch"),
        (None, '{"floatx": "float32"}', "tensorflow"),
        (None, '{"backend": 5}', "tensorflow"),
        (None, "[]", "tensorflow"),
        (None, "{", "tensorflow"),
    ],
)
def test_the_backend_is_that_of_the_variable_or_of_keras_s_file(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    file: str | None,
    backend: str,
) -> None:
    if file is not None:
        (tmp_path / "keras.json").write_text(file, encoding="utf-8")
    given = {
        "KERAS_HOME": str(tmp_path),
        **({} if variable is None else {"KERAS_BACKEND": variable}),
    }
    monkeypatch.setitem(sys.modules, "keras", None)
    assert keras_backend(given) == backend
    # AND once Keras is imported, it says what it runs on
    monkeypatch.setitem(
        sys.modules, "keras", SimpleNamespace(backend=SimpleNamespace(backend=lambda: "numpy"))
    )
    assert keras_backend(given) == "numpy"


@pytest.mark.parametrize(
    ("given", "has_file", "value"),
    [
        ({}, False, "1"),
        ({}, True, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, True, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, True, "1"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, True, "1"),
        ({VARIABLE: "0"}, False, "0"),
        ({VARIABLE: ""}, False, ""),
        ({SWITCH: "0", "CUDA_VISIBLE_DEVICES": ""}, False, None),
    ],
)
def test_bfc_is_asked_for_without_a_gpu_unless_the_variable_or_the_switch_is_set(
    given: dict[str, str],
    has_file: bool,
    value: str | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        module, "_GPU_FILES", (str(tmp_path if has_file else tmp_path / "nvidiactl"),)
    )
    environment = dict(given)
    prefer_bfc(environment)
    assert environment.get(VARIABLE) == value


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GPU_FILES", ())
    monkeypatch.setattr("sys.platform", "darwin")
    environment: dict[str, str] = {}
    prefer_bfc(environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("runs", "{here}/runs"),
        ("./runs/", "{here}/runs"),
        ("../runs", "{parent}/runs"),
        (".", "{here}"),
        ("/data/runs", "/data/runs"),
        ("gs://bucket/runs", "gs://bucket/runs"),
        ("s3://bucket//runs/", "s3://bucket//runs/"),
        ("ram://runs", "ram://runs"),
    ],
)
def test_local_paths_become_absolute(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(path) == expected.format(here=tmp_path, parent=tmp_path.parent)
