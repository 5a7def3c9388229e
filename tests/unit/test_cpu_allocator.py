"""On a machine without a GPU the CPU's BFC allocator is asked for, and what the user set stays."""

import pathlib

import pytest

from tb_memplugin import cpu_allocator
from tb_memplugin.cpu_allocator import VARIABLE, prefer_bfc


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
    ],
)
def test_bfc_is_asked_for_without_a_gpu_unless_the_variable_is_set(
    given: dict[str, str],
    has_file: bool,
    value: str | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_allocator, "_GPU_FILES", (str(tmp_path if has_file else tmp_path / "nvidiactl"),))
    environment = dict(given)
    prefer_bfc(environment)
    assert environment.get(VARIABLE) == value


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_allocator, "_GPU_FILES", ())
    monkeypatch.setattr("sys.platform", "darwin")
    environment: dict[str, str] = {}
    prefer_bfc(environment)
    assert environment == {}
