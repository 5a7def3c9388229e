"""The mapping of runs that `tb_memplugin.load` returns."""

import pathlib

import pytest

import tb_memplugin

STORED = pathlib.Path(__file__).parents[2] / "fixtures" / "runs"


def test_a_run_that_is_not_there_is_not_found() -> None:
    runs = tb_memplugin.load(STORED)
    with pytest.raises(tb_memplugin.NotFoundError) as raised:
        runs["smal"]
    assert str(raised.value) == "no run 'smal'; did you mean 'small'? Available: finished, out_of_memory, small"
    # AND the mapping is one like any other
    assert isinstance(raised.value, KeyError) and "smal" not in runs and runs.get("smal") is None
    with pytest.raises(tb_memplugin.NotFoundError):
        runs.by_worker("smal")


def test_a_directory_that_is_not_there_is_not_found(tmp_path: pathlib.Path) -> None:
    with pytest.raises(tb_memplugin.NotFoundError, match="no directory"):
        tb_memplugin.load(tmp_path / "missing")
    # AND an empty one has no runs
    with pytest.raises(tb_memplugin.NotFoundError, match="available: none"):
        tb_memplugin.load(tmp_path)["any"]


def test_runs_are_read_after_the_program_has_changed_its_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(STORED.parent)
    runs = tb_memplugin.load("runs")
    monkeypatch.chdir(tmp_path)
    assert len(runs["small"].samples) == len(tb_memplugin.load(STORED)["small"].samples)
