"""The status of runs with known histories, and the order in which to open them."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB, make_oom, make_run, make_samples, make_snapshot, write_samples

from tb_memplugin.analysis.answer import RunStatus, run_status, with_ranks, worst
from tb_memplugin.schema import Run
from tb_memplugin.server.handlers import Handlers
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.run_reader import Reader


def run_of(**parts: Any) -> Run:
    return make_run(make_samples(range(40), [900 * MIB] * 40), **parts)


def test_the_worst_condition_of_a_run_is_its_status() -> None:
    assert run_status(run_of(), grows=False) == "ok"
    assert run_status(run_of(), grows=True) == "growing"
    assert run_status(run_of(ooms=(make_oom(39),)), grows=True) == "failed"
    assert run_status(run_of(ooms=(dataclasses.replace(make_oom(12), status="survived"),)), grows=False) == "ok"
    assert run_status(make_run(make_samples([], [])), grows=False) == "unknown"


def test_a_run_with_much_free_memory_outside_its_largest_free_chunk_is_fragmented() -> None:
    # GIVEN a traced step whose pool takes the whole device
    traced = make_snapshot(3)
    pool = traced.pool_bytes or 0
    free = pool - traced.in_use_bytes

    def status(largest: int) -> RunStatus:
        one = dataclasses.replace(traced, largest_free_bytes=largest, capacity_bytes=pool)
        samples = make_samples(range(4), [MIB] * 4)
        samples.devices["CPU:0"].capacity_bytes[:] = pool
        return run_status(make_run(samples, snapshots=(one,)), grows=False)

    assert free > 0.1 * pool
    assert status(free) == "ok"
    assert status(free // 10) == "fragmented"


def test_a_run_of_several_workers_has_the_worst_status_of_them() -> None:
    assert worst(["ok", "fragmented", "growing"]) == "growing"
    assert worst(["unknown", "ok"]) == "ok"
    assert worst([]) == "unknown"


def entry(status: str, started: float, device: bool = True, **more: Any) -> dict[str, Any]:
    devices = ["CPU:0"] if device else []
    return {"status": status, "started": started, "devices": devices, "ended": True, "recorded_until": started, **more}


def test_failed_runs_come_first_then_growing_then_fragmented_then_the_newest() -> None:
    statuses = (("ok", 9.0), ("fragmented", 1.0), ("growing", 2.0), ("failed", 3.0), ("failed", 4.0))
    runs = [*(entry(*one) for one in statuses), entry("ok", 10.0, device=False), entry("ok", 8.0)]
    ranked = with_ranks(runs, now=1e9)
    assert [run["rank"] for run in ranked] == [4, 3, 2, 1, 0, 6, 5]
    assert [run["status"] for run in ranked] == [run["status"] for run in runs]


def test_a_healthy_run_that_recorded_just_now_and_is_not_closed_is_training() -> None:
    runs = [
        entry("ok", 0.0, ended=False, recorded_until=100.0),
        entry("ok", 0.0, ended=True, recorded_until=100.0),
        entry("growing", 0.0, ended=False, recorded_until=100.0),
    ]
    assert [run["status"] for run in with_ranks(runs, now=130.0)] == ["training", "ok", "growing"]
    assert [run["status"] for run in with_ranks(runs, now=161.0)] == ["ok", "ok", "growing"]


@pytest.mark.parametrize("grown", [0, MIB])
def test_the_list_of_runs_has_status_and_rank(tmp_path: pathlib.Path, grown: int) -> None:
    for name, slope in (("old", grown), ("new", 0)):
        in_use = (100 * MIB + slope * np.arange(200)).tolist()
        write_samples(tmp_path / name, make_samples(range(200), in_use, in_use=in_use))
    runs = {run["run"]: run for run in Handlers(Reader()).runs(FileSource(tmp_path))["runs"]}
    assert (runs["old"]["status"], runs["new"]["status"]) == ("growing" if grown else "ok", "ok")
    assert (runs["old"]["rank"], runs["new"]["rank"]) == ((0, 1) if grown else (1, 0))
    # A recorder that was killed wrote no end marker.
    last = Reader().run(FileSource(tmp_path), "old").run.samples.wall_time.max()
    assert (runs["old"]["ended"], runs["old"]["recorded_until"]) == (False, last)
