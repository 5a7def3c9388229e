"""Restarted trainings: memory starts anew in each session, and its growth there is found."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB, START, make_run, make_samples

from tb_memplugin.analysis.facts import MAX_SESSIONS, session_spans
from tb_memplugin.analysis.growth import find_growth
from tb_memplugin.analysis.host import host_growth, host_summary
from tb_memplugin.analysis.questions import answers, describe_answers
from tb_memplugin.analysis.run_findings import findings
from tb_memplugin.export.describe import describe_run
from tb_memplugin.export.run_text import format_run
from tb_memplugin.schema import Run, Samples
from tb_memplugin.storage.read.columns import join_samples
from tb_memplugin.storage.read.worker_samples import samples_of_workers

LATER = START + 10_000


def session(first_step: int, steps: int, start: float, rate: int = MIB) -> Samples:
    """A session whose bytes in use and RSS grow by `rate` at each step, from 300 MiB on."""
    grown = 300 * MIB + np.arange(steps) * rate
    every = range(first_step, first_step + steps)
    samples = make_samples(every, [1500 * MIB] * steps, in_use=grown.tolist(), start=start)
    return dataclasses.replace(samples, host_resident_bytes=grown)


def restarted(*sessions: Samples, worker: str = "") -> Run:
    samples, _ = join_samples(sessions)
    starts = tuple(float(one.wall_time[0]) - 1 for one in sessions)
    return make_run(samples, sessions=("s", "t"), workers=(worker,), session_starts=starts)


def test_memory_that_grows_again_after_a_restart_is_found() -> None:
    run = restarted(session(0, 200, START), session(200, 240, LATER))
    (growth,) = find_growth(run)
    assert growth.trend.bytes_per_step == pytest.approx(MIB, rel=0.02)
    assert 200 < growth.trend.since_step < 220 and growth.trend.last_step == 439
    assert growth.trend.to_bytes == pytest.approx(539 * MIB, rel=0.02)
    assert answers(run, "CPU:0")[1].sentence.startswith("+1.0 MiB/step since step 2")


def test_host_rss_that_grows_again_after_a_restart_is_found() -> None:
    run = restarted(session(0, 200, START), session(200, 240, LATER))
    device = run.samples.devices["CPU:0"]
    flat = dataclasses.replace(device, in_use_bytes=device.in_use_bytes * 0 + 300 * MIB)
    samples = dataclasses.replace(run.samples, devices={"CPU:0": flat})
    run = dataclasses.replace(run, samples=samples)
    growth, summary = host_growth(run), host_summary(run)
    assert growth.trend.since_step > 200 and growth.trend.bytes_per_step == pytest.approx(MIB, rel=0.02)
    assert summary.sentence() == growth.sentence() == findings({"": run})[0]


def test_after_a_short_session_the_one_before_it_counts() -> None:
    (growth,) = find_growth(restarted(session(0, 200, START), session(200, 10, LATER)))
    assert growth.trend.last_step == 199


def test_each_worker_of_a_restarted_training_has_its_own_sessions() -> None:
    by_worker = {
        "a": restarted(session(0, 200, START), session(200, 240, LATER), worker="a"),
        "b": restarted(session(0, 440, START, rate=0), session(440, 5, LATER + 5, rate=0), worker="b"),
    }
    samples, _ = samples_of_workers({worker: run.samples for worker, run in by_worker.items()})
    starts = tuple(sorted(start for run in by_worker.values() for start in run.session_starts))
    run = make_run(samples, workers=("a", "b"), session_starts=starts)
    told = describe_run(run, by_worker=by_worker)
    for worker, own in by_worker.items():
        (alone,) = [answer for answer in describe_answers(own, "CPU:0") if answer["name"] == "growing"]
        (growing,) = [answer for answer in told["answers"][f"{worker}/CPU:0"] if answer["name"] == "growing"]
        assert growing == {**alone, "device": f"{worker}/CPU:0"}
        assert growing["sentence"].replace("\u202f", " ") in format_run(run, by_worker=by_worker)
    assert told["answers"]["a/CPU:0"][1]["sentence"].startswith("+1.0 MiB/step since step 2")
    assert told["answers"]["b/CPU:0"][1]["sentence"] == "No growth over 440 steps (under 3.0 MiB)"
    (finding,) = findings(by_worker)
    assert finding.startswith("a/CPU:0: memory in use at step end grows by 100 MiB every 100 steps since step 2")


def test_a_leak_that_a_restart_mended_is_no_finding() -> None:
    run = restarted(session(0, 200, START), session(200, 240, LATER, rate=0))
    assert findings({"": run}) == [] and host_growth(run) is None
    assert answers(run, "CPU:0")[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
    assert session_spans(dataclasses.replace(run, session_starts=(START,))) == []
    assert session_spans(dataclasses.replace(run, workers=("a", "b"))) == []
    many = session_spans(dataclasses.replace(run, session_starts=tuple(range(100))))
    assert len(many) == MAX_SESSIONS and many[0] == (99, np.inf) and many[-1] == (80, 81)
