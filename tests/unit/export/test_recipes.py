"""The recipes of docs/export.md, run as they stand on runs of known size."""

import pathlib
import re

import pytest
from cluster_cases import NOISE_MIB, Fault, name_of, write_cluster
from export_cases import COMMITS, FAILED, GIB, GPU_PEAKS, write_weeks
from reading_cases import MIB

from tb_memplugin.export import export_parquet

pytest.importorskip("pyarrow", reason="needs the extra parquet")
duckdb = pytest.importorskip("duckdb", reason="needs duckdb")

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "export.md"
RECIPE = re.compile(r"<!-- not run: test_recipes\.py [^\n]*-->\n```sql\n(.*?)^```$", re.M | re.S)
NEEDED = {"wider": 41 * GIB, "failed": FAILED[1] + FAILED[2]}
"""Runs that do not fit into 40 GiB, and the bytes that they need."""


def recipes() -> list[str]:
    """The recipes of the page, in order."""
    return RECIPE.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def weeks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory has the exported tables and the table of commits."""
    write_weeks(tmp_path / "runs")
    export_parquet(tmp_path / "runs", tmp_path / "tables")
    (tmp_path / "commits.csv").write_text(COMMITS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("weeks")
def test_duckdb_answers() -> None:
    by_week, too_large, regressions = (duckdb.sql(code).fetchall() for code in recipes()[:3])
    assert {
        (run, worker, week.strftime("%m-%d")): peak * GIB for run, worker, week, peak in by_week
    } == {
        (run, worker, ("09-21", "09-28", "10-05")[week]): peak
        for (run, worker, week), peak in GPU_PEAKS.items()
    }
    assert {run: needed * GIB for run, needed in too_large} == NEEDED
    # `base` has its peak in its second week; `wider` regresses, `reverted` does not
    assert regressions == [("bbb222", 41 * GIB, 8 * GIB)]


def test_duckdb_finds_planted_faults_of_a_cluster(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [
        Fault(3, 2, mib=900),
        Fault(8, 0, mib=-1300),
        Fault(13, mib=800),
        Fault(5, stops=20),
        Fault(22, stops=90),
    ]
    write_cluster(tmp_path / "runs" / "big", 24, 4, 200, faults)
    export_parquet(tmp_path / "runs", tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    apart, stopped = (duckdb.sql(code).fetchall() for code in recipes()[3:])
    assert {
        (worker, device): difference for worker, device, _, difference in apart
    } == pytest.approx(
        {
            (name_of(fault.worker), f"GPU:{device}"): fault.mib * MIB
            for fault in faults
            for device in (range(4) if fault.device is None else [fault.device])
            if fault.mib
        },
        abs=2 * NOISE_MIB * MIB,
    )
    assert [(run, worker, step) for run, worker, step, _ in stopped] == [
        ("big", name_of(5), 19),
        ("big", name_of(22), 89),
    ]
