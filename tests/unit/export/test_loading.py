"""The mapping of runs that `tb_memplugin.load` returns, and a run of it in a terminal, a notebook
and a data frame."""

import copy
import dataclasses
import importlib.util
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from reading_cases import HELD_TENSORS, write_small_run

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.export import format_run
from tb_memplugin.export.tables import frame_tables
from tb_memplugin.fit import Advice
from tb_memplugin.schema import MISSING, Fix, Oom, Run, take_rows

STORED = pathlib.Path(__file__).parents[2] / "fixtures" / "runs"


def test_a_run_that_is_not_there_is_not_found() -> None:
    runs = tb_memplugin.load(STORED)
    with pytest.raises(tb_memplugin.NotFoundError) as raised:
        runs["smal"]
    assert str(raised.value) == (
        "no run 'smal'; did you mean 'small'? Available: finished, out_of_memory, small"
    )
    # AND the mapping is one like any other
    assert isinstance(raised.value, KeyError) and "smal" not in runs and runs.get("smal") is None
    with pytest.raises(tb_memplugin.NotFoundError):
        runs.by_worker("smal")


def test_a_directory_that_is_not_there_is_not_found(tmp_path: pathlib.Path) -> None:
    with pytest.raises(tb_memplugin.NotFoundError, match="no directory"):
        tb_memplugin.load(tmp_path / "missing")
    with pytest.raises(tb_memplugin.NotFoundError, match="available: none"):
        tb_memplugin.load(tmp_path)["any"]


def test_fixes_are_simulated_when_they_are_read_and_kept_then(tmp_path, monkeypatch) -> None:
    write_small_run(tmp_path / "small", allocator=True)
    simulated = []
    fix = Fix("batch", "a smaller batch", "Use batch size 4", True, 4)

    def counted(session: Run, oom: Oom) -> Advice:
        simulated.append(oom.device)
        return Advice((fix,), "a note")

    monkeypatch.setattr("tb_memplugin.export.loading.advice", counted)
    runs = tb_memplugin.load(tmp_path)
    run = runs["small"]
    failed = run.ooms[-1]
    # WHEN other figures of the failure are read, and the run is printed, shown and answers other
    # questions
    assert failed.in_use_bytes and failed.verdict is not None and "failure" in repr(run)
    tb_memplugin.what_if(run)
    assert "OOM at step 59" in str(run) and "OOM at step 59" in run._repr_html_()
    assert simulated == []
    # THEN the fixes are simulated once, as they are read, also of the same run loaded again
    assert failed.fixes == (fix,) and failed.not_available[-1] == "a note"
    assert failed.fixes == runs["small"].ooms[-1].fixes and simulated == ["CPU:0"]
    copies = (
        pickle.loads(pickle.dumps(failed)),
        copy.deepcopy(failed),
        dataclasses.replace(failed, device="GPU:0"),
    )
    assert [(one.fixes, one.not_available, one.ledger) for one in copies] == [
        (failed.fixes, failed.not_available, failed.ledger)
    ] * 3
    assert failed == runs["small"].ooms[-1] != copies[2] and simulated == ["CPU:0"]
    assert "Use batch size 4" in format_run(run) and simulated == ["CPU:0"]


@pytest.mark.parametrize("name", ["finished", "small"])
def test_print_shows_what_the_command_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(STORED), "--run", name]) == 0
    assert f"{tb_memplugin.load(STORED)[name]}\n\ntensorboard --logdir " in capsys.readouterr().out


def test_repr_is_one_short_line(tmp_path: pathlib.Path) -> None:
    runs = tb_memplugin.load(STORED)
    failed = runs["out_of_memory"]
    # The recorder traces as many steps as its budget allows.
    traced = f"{len(failed.snapshots)} snapshots"
    assert repr(failed) == (
        f"<RecordedRun 'out_of_memory': 13 samples, {traced}, 1 failure of CPU:0>"
    )
    # AND neither a name nor a device of a run directory breaks the line
    write_small_run(tmp_path / "a\nb\x1b[31m")
    (run,) = tb_memplugin.load(tmp_path).values()
    assert "\n" not in repr(run) and "\x1b" not in repr(run)


def test_a_notebook_shows_a_table_of_the_devices_and_escapes_names(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "<b>bold<")
    (run,) = tb_memplugin.load(tmp_path).values()
    shown = run._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;bold&lt;" in shown
    rows = [re.findall("<t[hd][^>]*>([^<]*)<", row) for row in re.findall("<tr>.*?</tr>", shown)]
    assert rows == [
        ["device", "peak GiB", "capacity GiB", "headroom GiB", "used", "peak at step", "snapshots"],
        ["CPU:0", "0.68", "2.0", "1.3", "34 %", "41", "2"],
    ]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is optional")
def test_data_frames_hold_the_tables() -> None:
    run = tb_memplugin.load(STORED)["out_of_memory"]
    frames, tables = run.to_pandas(), frame_tables(run)
    assert frames.keys() == tables.keys()
    for name, frame in frames.items():
        assert list(frame.columns) == list(tables[name])
        for column, values in tables[name].items():
            received = [None if str(one) == "<NA>" else one for one in frame[column].tolist()]
            assert received == [None if one == MISSING else one for one in list(values)], (
                name,
                column,
            )
    # AND arithmetic works where something is unknown
    ledger = frames["ledger"]
    sums = ledger.groupby(["step", "device"])["bytes"].sum()
    assert sums.max() == max(snapshot.in_use_bytes for snapshot in run.snapshots)
    types = [str(ledger[name].dtype) for name in ("rounding_bytes", "layer", "trainable")]
    assert types == ["Int64", "string", "boolean"] and ledger["rounding_bytes"].isna().any()
    assert frames["peaks"]["wall_time"].dtype == np.float64
    empty = dataclasses.replace(run, snapshots=()).to_pandas()["ledger"]
    assert len(empty) == 0 and str(empty["bytes"].dtype) == "Int64"


def test_without_pandas_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import tb_memplugin\n"
        f"tb_memplugin.load({str(STORED)!r})['small'].to_pandas()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (
        "ImportError: to_pandas needs pandas" in done.stderr
        and ("pip install pandas") in done.stderr
    )


def test_each_record_of_a_run_is_a_row(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    run = tb_memplugin.load(tmp_path)["small"]
    tables = frame_tables(run)
    assert list(tables) == ["peaks", "ledger", "layers", "held_tensors"]
    for table in tables.values():
        assert len({len(column) for column in table.values()}) == 1
    peaks = tables["peaks"]
    figures = run.samples.devices["CPU:0"]
    assert peaks["step"].tolist() == run.samples.step.tolist()
    assert peaks["peak_bytes"].tolist() == figures.peak_bytes.tolist()
    assert set(peaks["device"]) == {"CPU:0"} and "train" in peaks["phase"]
    empty = dataclasses.replace(
        run, samples=take_rows(run.samples, []), snapshots=(), layer_tables=()
    )
    assert all(
        len(column) == 0 for table in frame_tables(empty).values() for column in table.values()
    )
    held = tables["held_tensors"]
    assert held["count"].tolist() == [group.count for group in HELD_TENSORS]
    assert held["shape"][0] == "[32, 10]" and None in held["held_by"]
    for name in ("line", "retaining_path"):
        assert held[name] == [getattr(group, name) for group in HELD_TENSORS]
