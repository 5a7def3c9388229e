"""A worker's summary from those of its sessions, against that from its history."""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import pytest
from reading_cases import MIB, START, equal, make_oom, make_samples
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis.workers import of_sessions, summarize_session
from tb_memplugin.schema.worker_summary import WorkerSummary
from tb_memplugin.storage.write.run_writer import RunWriter


def write_session(run: pathlib.Path, first: int, peaks: Sequence[int], delay: float = 0.0, ends: bool = True) -> None:
    """A session with these peaks in MiB from step `first` on."""
    writer = RunWriter(run, summarize=summarize_session)
    steps = range(first, first + len(peaks))
    writer.samples(make_samples(steps, [peak * MIB for peak in peaks], start=START + delay))
    writer.end() if ends else writer.roll_up()
    writer.close()


def summaries(directory: pathlib.Path) -> tuple[WorkerSummary, WorkerSummary]:
    last = {session: rollup for session, _, rollup in rollups_of(directory)}
    sessions = sorted(last.values(), key=lambda one: one.started or 0.0)
    return of_sessions("", sessions), summarize_session(tb_memplugin.load(directory)["run"])


def alike(rolled_up: WorkerSummary, whole: WorkerSummary) -> None:
    devices = [dataclasses.replace(one, rows=None) for one in whole.devices]
    assert equal(rolled_up, dataclasses.replace(whole, rows=None, devices=tuple(devices), started=rolled_up.started))


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("peaks", [(10, 90, 10), (10, 30, 20, 40)])
def test_sessions_are_put_together(tmp_path: pathlib.Path, peaks: Sequence[int], ends: bool) -> None:
    write_session(tmp_path / "run", 0, peaks, ends=False)
    write_session(tmp_path / "run", len(peaks), [20, 40], delay=1000, ends=ends)
    alike(*summaries(tmp_path))


def test_peaks_of_steps_that_were_trained_again_count(tmp_path: pathlib.Path) -> None:
    write_session(tmp_path / "run", 0, [100, 300, 900], ends=False)
    write_session(tmp_path / "run", 2, [200, 200], delay=1000)
    rolled_up, whole = summaries(tmp_path)
    assert (rolled_up.devices[0].peak_bytes, whole.devices[0].peak_bytes) == (900 * MIB, 300 * MIB)
    assert (rolled_up.first_step, rolled_up.last_step, rolled_up.sessions) == (0, 3, 2)


@pytest.mark.parametrize(
    ("failed", "survives", "later", "status"),
    [
        (29, True, (), "failed"),
        (28, True, (), "ok"),
        (28, False, (), "failed"),
        (28, False, (10, 12), "ok"),
        (None, False, (10,), "ok"),
    ],
)
def test_a_failure_is_the_status_unless_steps_followed_it(tmp_path, failed, survives, later, status) -> None:
    # GIVEN a failure in the last step or the one before it, or none, and perhaps a later session
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    writer.samples(make_samples(range(30), [10 * MIB] * 30))
    if failed is not None:
        oom = make_oom(failed)
        oom = dataclasses.replace(oom, wall_time=oom.wall_time - 0.25)  # the step's own sample is later
        writer.oom(oom)
        if survives:
            writer.oom(dataclasses.replace(oom, status="survived", ledger=(), map=None))
    writer.end()
    writer.close()
    if later:
        write_session(tmp_path / "run", 30, later, delay=time.time() - START + 100)  # after its own start
    rolled_up, whole = summaries(tmp_path)
    alike(rolled_up, whole)
    assert whole.status == status


@pytest.mark.parametrize("steps", [40, 400, 3000])
@pytest.mark.parametrize("grows_mib", [0, 200])
def test_growth_is_found_as_in_the_history(tmp_path: pathlib.Path, steps: int, grows_mib: int) -> None:
    # GIVEN memory at step end that grows evenly, under noise, and a jump after the first steps
    noise = np.random.default_rng(7).integers(0, 2 * MIB, steps)
    in_use = 500 * MIB + grows_mib * MIB * np.arange(steps) // steps + noise
    in_use[:3] -= 100 * MIB
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    for begin in range(0, steps, 50):
        own = in_use[begin : begin + 50]
        rows = range(begin, begin + len(own))
        writer.samples(make_samples(rows, (own + 900 * MIB).tolist(), in_use=own.tolist()))
    writer.end()
    writer.close()
    assert [one.status for one in summaries(tmp_path)] == ["growing" if grows_mib else "ok"] * 2


@pytest.mark.parametrize(("status", "largest"), [("fragmented", 100), ("ok", 1500)])
def test_a_fragmented_pool_is_found_as_in_the_history(tmp_path: pathlib.Path, status: str, largest: int) -> None:
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    pools = {4: (2047 * MIB, largest * MIB)}
    writer.samples(make_samples(range(10), [400 * MIB] * 10, in_use=[300 * MIB] * 10, pools=pools))
    writer.end()
    writer.close()
    assert [one.status for one in summaries(tmp_path)] == [status] * 2
