"""``tb-memplugin export``: what it prints, and its exit codes."""

import pathlib

import pytest
from reading_cases import write_small_run

from tb_memplugin.cli import main
from tb_memplugin.export import rows


def test_tables_are_written_and_counted(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_small_run(tmp_path / "runs" / "small")
    to = str(tmp_path / "tables")
    assert main(["export", str(tmp_path / "runs"), "--to", to]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{to}: 1 worker exported, 0 unchanged",
        "rows written: samples 64, peaks 2, ledger 10, layers 4, held_tensors 2",
    ]
    assert main(["export", str(tmp_path / "runs"), "--to", to]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{to}: 0 workers exported, 1 unchanged", "rows written: none"]


def test_a_worker_that_cannot_be_read_is_in_the_exit_code(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_small_run(tmp_path / "runs" / "small")

    def fails(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(rows, "read_unit", fails)
    assert main(["export", str(tmp_path / "runs"), "--to", str(tmp_path / "tables")]) == 1
    assert "1 worker could not be read: see the table dead_letters" in capsys.readouterr().out


def test_errors_are_one_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "none"), "--to", str(tmp_path / "tables")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
