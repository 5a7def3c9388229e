"""A run in a terminal, a notebook and a data frame."""

import dataclasses
import importlib.util
import pathlib
import re
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
from reading_cases import write_small_run
from worker_runs import write_workers

import tb_memplugin
from tb_memplugin.analysis.steps.run_tables import run_tables
from tb_memplugin.cli import main
from tb_memplugin.model import MISSING

STORED = pathlib.Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.mark.parametrize("name", ["finished", pytest.param("out_of_memory", marks=pytest.mark.long), "small"])
def test_print_shows_what_the_command_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(STORED), "--run", name]) == 0
    assert f"{tb_memplugin.load(STORED)[name]}\n" == capsys.readouterr().out


def test_print_shows_the_workers_of_a_run(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_workers(tmp_path / "many", workers=2, devices=1, steps=10)
    assert main(["inspect", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"{tb_memplugin.load(tmp_path)['many']}\n" == printed and "worker_1         1" in printed


def test_repr_is_one_short_line(tmp_path: pathlib.Path) -> None:
    runs = tb_memplugin.load(STORED)
    failed = runs["out_of_memory"]
    # The recorder traces as many steps as its budget allows.
    traced = f"{len(failed.snapshots)} snapshots"
    assert repr(failed) == f"<RecordedRun 'out_of_memory': 13 samples, {traced}, 1 failure of CPU:0>"
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


class FakePandas(types.ModuleType):
    """The calls of pandas that are made, with their results."""

    def __init__(self) -> None:
        super().__init__("pandas")
        self.arrays = types.SimpleNamespace(IntegerArray=lambda values, mask: ("Int64", values, mask))

    @staticmethod
    def array(values: list[Any], dtype: str) -> tuple[str, list[Any]]:
        return dtype, values

    @staticmethod
    def DataFrame(columns: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return columns


def test_columns_have_types_that_can_say_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", FakePandas())
    write_small_run(tmp_path / "small")
    run = tb_memplugin.load(tmp_path)["small"]
    frames = run.to_pandas()
    kind, values, mask = frames["ledger"]["rounding_bytes"]
    assert kind == "Int64" and mask.any() and not mask.all()
    assert np.array_equal(mask, values == MISSING)
    assert frames["ledger"]["layer"][0] == "string" and frames["ledger"]["trainable"][0] == "boolean"
    assert frames["peaks"]["wall_time"].dtype == np.float64


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is optional")
def test_data_frames_hold_the_tables() -> None:
    run = tb_memplugin.load(STORED)["out_of_memory"]
    frames, tables = run.to_pandas(), run_tables(run)
    assert frames.keys() == tables.keys()
    for name, frame in frames.items():
        assert list(frame.columns) == list(tables[name])
        for column, values in tables[name].items():
            received = [None if str(one) == "<NA>" else one for one in frame[column].tolist()]
            assert received == [None if one == MISSING else one for one in list(values)], (name, column)
    # AND arithmetic works where something is unknown
    ledger = frames["ledger"]
    sums = ledger.groupby(["step", "device"])["bytes"].sum()
    assert sums.max() == max(snapshot.in_use_bytes for snapshot in run.snapshots)
    empty = dataclasses.replace(run, snapshots=()).to_pandas()["ledger"]
    assert len(empty) == 0 and str(empty["bytes"].dtype) == "Int64"


def test_without_pandas_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import tb_memplugin\n"
        f"tb_memplugin.load({str(STORED)!r})['small'].to_pandas()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "ImportError: to_pandas needs pandas" in done.stderr and "pip install pandas" in done.stderr
