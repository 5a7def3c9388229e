"""The mapping of runs that `tb_memplugin.load` returns."""

import copy
import dataclasses
import pathlib
import pickle

import pytest
from reading_cases import write_small_run

import tb_memplugin
from tb_memplugin.analysis.fit.fixes import Advice
from tb_memplugin.commands import loading
from tb_memplugin.model import Fix, Oom, Run

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


def test_fixes_are_simulated_when_they_are_read_and_kept_then(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "small", allocator=True)
    simulated = []
    fix = Fix("batch", "a smaller batch", "Use batch size 4", True, 4)

    def counted(session: Run, oom: Oom) -> Advice:
        simulated.append(oom.device)
        return Advice((fix,), "a note")

    monkeypatch.setattr(loading, "advice", counted)
    runs = tb_memplugin.load(tmp_path)
    run = runs["small"]
    failed = run.ooms[-1]
    # WHEN other figures of the failure are read, and the run answers other questions
    assert failed.in_use_bytes and failed.verdict is not None and "failure" in repr(run)
    tb_memplugin.what_if(run)
    assert simulated == []
    # THEN the fixes are simulated once, as they are read, also of the same run loaded again
    assert failed.fixes == (fix,) and failed.not_available[-1] == "a note"
    assert failed.fixes == runs["small"].ooms[-1].fixes and simulated == ["CPU:0"]
    # AND the failure can be copied, changed and compared
    copies = pickle.loads(pickle.dumps(failed)), copy.deepcopy(failed), dataclasses.replace(failed, device="GPU:0")
    assert [(one.fixes, one.not_available, one.ledger) for one in copies] == [
        (failed.fixes, failed.not_available, failed.ledger)
    ] * 3
    assert failed == runs["small"].ooms[-1] != copies[2] and simulated == ["CPU:0"]
    assert "Use batch size 4" in str(run)
