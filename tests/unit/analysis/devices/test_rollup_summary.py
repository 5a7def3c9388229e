"""A worker's summary from roll-ups, against that from its history; where only the history tells it, there is none."""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import pytest
from reading_cases import MIB, START, make_oom, make_samples, make_snapshot
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis.devices.rollup_summary import summarize_rollups
from tb_memplugin.analysis.devices.worker_summary import WorkerSummary, summarize_worker
from tb_memplugin.analysis.growth.levelling import levelled
from tb_memplugin.analysis.growth.trend import find_trend, may_rise
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import MISSING, Phase


def write_session(
    run: pathlib.Path, first: int, peaks: list[int], epoch_steps: int = 10, delay: float = 0.0, ends: bool = True
) -> None:
    """A session with these peaks in MiB from step `first` on."""
    writer = RunWriter(run)
    for at, peak in enumerate(peaks):
        step = first + at
        writer.samples(make_samples([step], [peak * MIB], epoch=step // epoch_steps, start=START + delay))
    if ends:
        writer.end()
    else:
        writer.roll_up()
    writer.close()


def summaries(directory: pathlib.Path, phase: Phase = "train") -> tuple[WorkerSummary | None, WorkerSummary]:
    """From the roll-ups, and from the history."""
    last = {session: rollup for session, _, rollup in rollups_of(directory)}
    rolled_up = summarize_rollups("", sorted(last.values(), key=lambda one: one.first_wall_time or 0.0), phase)
    return rolled_up, summarize_worker("", tb_memplugin.load(directory)["run"], phase, with_steps=False)


def alike(rolled_up: WorkerSummary | None, whole: WorkerSummary, with_rows: bool = True) -> None:
    assert rolled_up is not None
    for name in ("sessions", "ended", "status", "first_step", "last_step", "last_wall_time"):
        assert getattr(rolled_up, name) == getattr(whole, name), name
    assert rolled_up.rows == (whole.rows if with_rows else None)
    for own, expected in zip(rolled_up.devices, whole.devices, strict=True):
        assert own.rows == (expected.rows if with_rows else None)
        for name in ("name", "peak_bytes", "peak_step", "capacity_bytes", "last_in_use_bytes", "pool_bytes", "ooms"):
            assert getattr(own, name) == getattr(expected, name), name


def test_one_session(tmp_path: pathlib.Path) -> None:
    write_session(tmp_path / "run", 0, [10, 30, 20] * 10)
    alike(*summaries(tmp_path))


def test_a_session_that_goes_on_after_another_adds_to_it(tmp_path: pathlib.Path) -> None:
    write_session(tmp_path / "run", 0, [10, 90, 10], ends=False)
    write_session(tmp_path / "run", 3, [20, 30], delay=1000)
    alike(*summaries(tmp_path))


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
def test_a_failure_is_the_status_unless_steps_followed_it(
    tmp_path: pathlib.Path, failed: int | None, survives: bool, later: Sequence[int], status: str
) -> None:
    # GIVEN a failure in the last step or the one before it, or none, and perhaps a later session
    writer = RunWriter(tmp_path / "run")
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
        write_session(tmp_path / "run", 30, list(later), delay=time.time() - START + 100)  # after its own start
    # THEN the roll-ups say so as the history does
    rolled_up, whole = summaries(tmp_path)
    alike(rolled_up, whole)
    assert whole.status == status


@pytest.mark.parametrize("first", [20, 25])
def test_steps_that_were_trained_again_do_not_count(tmp_path: pathlib.Path, first: int) -> None:
    # GIVEN a session with its highest peak in steps that the next one trained again
    peaks = [100 + at for at in range(10)] + [300] * 5 + [200] * 7 + [900] + [200] * 7
    write_session(tmp_path / "run", 0, peaks, ends=False)
    write_session(tmp_path / "run", first, [250] * 20, delay=1000)
    rolled_up, whole = summaries(tmp_path)
    assert whole.devices[0].peak_bytes == (300 * MIB if first == 20 else 900 * MIB)
    if first == 20:
        # THEN whole epochs that were trained again are left out
        alike(rolled_up, whole, with_rows=False)
    else:
        # AND in an epoch that was trained again in part, the peak may still be one that counts
        alike(rolled_up, whole, with_rows=False)


def test_a_peak_hidden_by_one_that_was_trained_again_needs_the_history(tmp_path: pathlib.Path) -> None:
    # GIVEN an epoch whose highest peak was trained again and whose others were not
    write_session(tmp_path / "run", 0, [100] * 12 + [700] * 4 + [900] * 4, ends=False)
    write_session(tmp_path / "run", 16, [250] * 20, delay=1000)
    rolled_up, whole = summaries(tmp_path)
    assert rolled_up is None and whole.devices[0].peak_bytes == 700 * MIB


def test_sessions_at_the_same_time_need_the_history(tmp_path: pathlib.Path) -> None:
    write_session(tmp_path / "run", 0, [100] * 10)
    write_session(tmp_path / "run", 5, [100] * 10)
    assert summaries(tmp_path)[0] is None


@pytest.mark.parametrize("steps", [40, 400, 3000])
@pytest.mark.parametrize("grows_mib", [0, 200])
def test_growth_is_found_as_in_the_history(tmp_path: pathlib.Path, steps: int, grows_mib: int) -> None:
    # GIVEN memory at step end that grows evenly, under noise, and a jump after the first steps
    noise = np.random.default_rng(7).integers(0, 2 * MIB, steps)
    in_use = 500 * MIB + grows_mib * MIB * np.arange(steps) // steps + noise
    in_use[:3] -= 100 * MIB
    writer = RunWriter(tmp_path / "run")
    for begin in range(0, steps, 50):
        rows = range(begin, min(begin + 50, steps))
        own = in_use[begin : begin + 50]
        writer.samples(make_samples(rows, (own + 900 * MIB).tolist(), in_use=own.tolist()))
    writer.end()
    writer.close()
    rolled_up, whole = summaries(tmp_path)
    assert rolled_up is not None
    assert rolled_up.status == whole.status == ("growing" if grows_mib else "ok")


def test_a_fragmented_pool_is_found_as_in_the_history(tmp_path: pathlib.Path) -> None:
    for name, largest in (("fragmented", 100), ("ok", 1500)):
        writer = RunWriter(tmp_path / name / "run")
        pools = {4: (2047 * MIB, largest * MIB)}
        writer.samples(make_samples(range(10), [400 * MIB] * 10, in_use=[300 * MIB] * 10, pools=pools))
        writer.end()
        writer.close()
        rolled_up, whole = summaries(tmp_path / name)
        assert rolled_up is not None and rolled_up.status == whole.status == name


def test_the_breakdown_is_that_of_the_traced_step_with_the_highest_peak(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(10), [400 * MIB] * 10))
    for step, activations in ((2, 200), (5, 350), (8, 100)):
        writer.snapshot(make_snapshot(step, activations=activations * MIB))
    writer.end()
    writer.close()
    rolled_up, whole = summaries(tmp_path)
    assert rolled_up is not None
    (traced,) = rolled_up.devices[0].traced
    assert dataclasses.asdict(traced) == dataclasses.asdict(whole.devices[0].traced[1]) and traced.step == 5


def test_no_growth_is_missed_by_the_quick_look() -> None:
    # GIVEN series that grow or not, with jumps, some with unknown values
    random = np.random.default_rng(11)
    grew = 0
    for _ in range(150):
        count = int(random.integers(36, 81))
        rate = random.choice([0, 0, 1, 3]) * MIB
        values = 200 * MIB + rate * np.arange(count) + random.integers(0, 3 * MIB, count)
        values[int(random.integers(0, count)) :] += int(random.choice([0, 0, 80])) * MIB
        if random.random() < 0.2:
            values[int(random.integers(0, count))] = MISSING
        known = values != MISSING
        steps = np.arange(count)[known]
        grows = find_trend(steps, levelled(steps, values[known], ()).values) is not None
        grew += grows
        # THEN what grows is never left out
        assert may_rise(values[None])[0] or not grows
    assert 30 < grew < 120
