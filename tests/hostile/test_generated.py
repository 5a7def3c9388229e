"""Generated damage: never a wrong number, a silent loss or a traceback, in Python, the terminal,
the tab or a report.

HOSTILE_SECONDS is the time for generated runs (default 5), HOSTILE_SEED the seed (default 1). By
hand for longer: HOSTILE_SECONDS=3600 HOSTILE_SEED=$RANDOM PYTHONPATH=.:tests python -m pytest
tests/hostile/test_generated.py
"""

import io
import json
import os
import pathlib
import time
from contextlib import redirect_stderr, redirect_stdout

import pytest
from damage import Case, faults, make_case
from servers import start
from serving import memory_mb, shown

from tb_memplugin import load
from tb_memplugin.analysis import device_facts
from tb_memplugin.cli import main
from tb_memplugin.cli.report import collect
from tb_memplugin.export import export_units, unit_tables

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "5"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
BATCH = 20
SERVED = 20
MOST_SECONDS = 5.0
MOST_MB = 300


def check(logdir: pathlib.Path, cases: list[Case]) -> None:
    runs = load(logdir)
    wrong = {}
    for case in cases:
        began = time.process_time()
        run = runs.get(case.name)
        found = faults(case, run)
        if found:
            wrong[case.name] = found[:3]
        assert time.process_time() - began < MOST_SECONDS, case.name
        if run is not None:
            assert str(logdir) not in " ".join(run.damage)
    assert not wrong, f"seed {SEED}: {wrong}"
    # AND an export has the same samples
    for unit in export_units(str(logdir)):
        tables, readable = unit_tables(unit)
        assert readable, unit.run
        run = runs[unit.run]
        exported = sorted(
            zip(tables["samples"]["step"], tables["samples"]["peak_bytes"], strict=True)
        )
        figures = [
            zip(run.samples.step, one.peak_bytes, strict=True)
            for one in run.samples.devices.values()
        ]
        assert exported == sorted(pair for of_device in figures for pair in of_device), unit.run
    for arguments in (["inspect", str(logdir)], ["inspect", str(logdir), "--format", "json"]):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            assert main(arguments) == 0
        assert "Traceback" not in err.getvalue()
    described = json.loads(out.getvalue())["runs"]
    assert described.keys() == set(runs)
    assert all(tuple(described[name]["damage"]) == runs[name].damage for name in runs)
    report = collect(logdir, list(runs)[:8])
    assert len(report.runs) == min(8, len(runs))


@pytest.mark.timeout(SECONDS + 120)
def test_generated_damage(tmp_path: pathlib.Path) -> None:
    began, number = time.monotonic(), 0
    while number == 0 or time.monotonic() - began < SECONDS:
        logdir = tmp_path / str(number)
        check(logdir, [make_case(logdir, number + at, SEED) for at in range(BATCH)])
        number += BATCH


@pytest.mark.timeout(300)
@pytest.mark.parametrize("load_fast", ["true", "false"], ids=["fast", "python"])
def test_the_tab_shows_the_same(load_fast: str, tmp_path: pathlib.Path) -> None:
    logdir = tmp_path / "runs"
    cases = [make_case(logdir, at, SEED + 1_000_000) for at in range(SERVED)]
    for path in logdir.rglob("*tfevents*"):
        os.utime(path, (1.7e9, 1.7e9))  # not written a moment ago
    runs = load(logdir)
    with start(logdir, tmp_path, load_fast) as server:
        listed = shown(server)
        assert memory_mb(server) < MOST_MB
    assert listed.keys() == set(runs)
    for case in cases:
        if case.name not in runs:
            continue
        run, facts = runs[case.name], listed[case.name]
        peaks = {one.device: one.peak_bytes for one in device_facts(run)}
        assert {one["device"]: one["peak_bytes"] for one in facts["devices"]} == peaks, case.name  # type: ignore[attr-defined]
        assert set(facts["damage"]) == set(run.damage), case.name  # type: ignore[call-overload]
