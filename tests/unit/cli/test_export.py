"""``tb-memplugin export``: what it prints, and its exit codes."""

import json
import pathlib

import pytest
from reading_cases import write_small_run

from tb_memplugin.cli import main


def test_tables_are_written_and_counted(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_small_run(tmp_path / "runs" / "small")
    to = str(tmp_path / "tables")
    assert main(["export", str(tmp_path / "runs"), "--to", to]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{to}: 1 worker exported, 0 unchanged",
        "rows written: samples 64, peaks 2, ledger 10, layers 4, held_tensors 2",
    ]
    assert main(["export", str(tmp_path / "runs"), "--to", to]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{to}: 0 workers exported, 1 unchanged",
        "rows written: none",
    ]


def test_a_worker_that_cannot_be_read_is_in_the_exit_code(tmp_path, capsys, monkeypatch) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_small_run(tmp_path / "runs" / "small")

    def fails(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("tb_memplugin.export.tables.read_unit", fails)
    assert main(["export", str(tmp_path / "runs"), "--to", str(tmp_path / "tables")]) == 1
    assert "1 worker could not be read: see the table dead_letters" in capsys.readouterr().out


@pytest.fixture
def traced(tmp_path: pathlib.Path) -> pathlib.Path:
    write_small_run(tmp_path / "runs" / "small", allocator=True)
    return tmp_path / "runs"


def test_a_step_is_written_for_perfetto(
    traced: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = traced.parent / "step.json"
    assert (
        main(["export", str(traced), "--step", "3", "--format", "perfetto", "--to", str(to)]) == 0
    )
    assert json.loads(to.read_bytes())["otherData"]["step"] == 3
    printed = capsys.readouterr().out
    assert printed.startswith(f"{to}: ") and printed.endswith(
        "run small, step 3, phase train, CPU:0 (4 rows)\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "perfetto"], "needs --step"),
        (["--step", "3"], "--step is for --format perfetto"),
        (["--device", "CPU:0"], "--device is for"),
        (["--format", "perfetto", "--step", "5"], "available steps: 3"),
        (
            ["--format", "perfetto", "--step", "3", "--run", "small", "--run", "other"],
            "takes one --run",
        ),
    ],
)
def test_options_that_do_not_fit_are_errors(traced, options, message, capsys) -> None:
    assert main(["export", str(traced), "--to", str(traced.parent / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (traced.parent / "out").exists()
