"""Runs that take much memory: frames are let go once they are joined, and what is shown does not depend on it."""

import dataclasses
import pathlib
import types
from typing import Any

import numpy as np
import pytest
from reading_cases import DEVICE, equal, make_activations, make_samples, write_small_run

from tb_memplugin.analysis import epochs
from tb_memplugin.analysis.facts import step_range
from tb_memplugin.schema import MISSING, Counters, take_rows
from tb_memplugin.storage import Reader
from tb_memplugin.storage import run_reader as reader_module
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.read import BASIC, MAPS, TIMELINES, join_samples, reading, samples_bytes
from tb_memplugin.storage.write import RunWriter


def test_samples_are_joined_once_for_all_loads_of_a_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    # GIVEN a reader for which every run is large, so that it keeps no frames
    monkeypatch.setattr(reading, "LARGE_BYTES", 0)
    source, reader = FileSource(tmp_path), Reader()
    first = reader.run(source, "exp").run
    with_maps = reader.run(source, "exp", {*BASIC, MAPS, TIMELINES}).run
    # THEN a load with more streams has the same samples, not copies, and nothing is lost
    assert with_maps.samples.step is first.samples.step
    assert with_maps.samples.devices[DEVICE].peak_bytes is first.samples.devices[DEVICE].peak_bytes
    usual = Reader().run(FileSource(tmp_path), "exp", {*BASIC, MAPS, TIMELINES}).run
    assert equal(with_maps, dataclasses.replace(usual))


def write_long_run(directory: pathlib.Path, steps: int, peaks: dict[int, int], flush: int = 100) -> None:
    """A run with a validation step after each 50 training steps."""
    writer = RunWriter(directory)
    for first in range(0, steps, flush):
        block = [peaks.get(step, 256 * (step % 7)) for step in range(first, first + flush)]
        writer.samples(make_samples(range(first, first + flush), block))
        writer.samples(make_samples([first + flush - 1], [first], phase="validation"))
    writer.close()


@pytest.mark.parametrize(("steps", "flush", "thinning"), [(600, 100, 1), (2_000, 100, 4), (20_000, 25, 41)])
def test_a_run_with_too_many_samples_keeps_its_peaks_and_its_newest_steps(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, steps: int, flush: int, thinning: int
) -> None:
    # GIVEN peaks in a first step, in the middle of a group, and in one of the last steps
    peaks = {0: 5_000, steps // 3: 9_000, steps - 2: 7_000}
    write_long_run(tmp_path / "exp", steps, peaks, flush)
    monkeypatch.setattr(reading, "MAX_RUN_ROWS", 1_050)
    loaded = Reader().run(FileSource(tmp_path), "exp")
    run, figures = loaded.run, loaded.run.samples.devices[DEVICE]
    # THEN nothing counts as damaged, and what is shown are recorded rows from all over the run
    assert not run.damage and run.thinning == pytest.approx(thinning, rel=0.1)
    assert len(run.samples) <= 1_050 and (thinning == 1 or len(run.samples) > 250)
    assert (np.diff(run.samples.wall_time) >= 0).all()
    training = run.samples.phase == 0
    shown = dict(zip(run.samples.step[training].tolist(), figures.peak_bytes[training].tolist(), strict=True))
    assert shown.items() >= {0: 5_000, steps // 3: 9_000, steps - 2: 7_000}.items()
    assert all(peak == peaks.get(step, 256 * (step % 7)) for step, peak in shown.items())
    assert max(np.diff(sorted(shown))) <= 8 * thinning and max(shown) == steps - 1
    validation = run.samples.step[~training]
    assert validation[-1] == steps - 1 and int(figures.peak_bytes[~training].max()) == steps - flush
    # AND the number of steps is still that of the run, which says once that it is thinned
    assert (step_range(run).steps, step_range(run).first_step, step_range(run).last_step) == (steps, 0, steps - 1)
    note = f"of about {run.thinning} in a row, the one with the highest peak is shown"
    assert [note in one for one in run.notes] == [True] * (thinning > 1)
    assert loaded.by_worker[""].notes == run.notes
    # AND further streams have the same samples
    more = Reader().run(FileSource(tmp_path), "exp", {*BASIC, MAPS}).run
    assert equal(more.samples, run.samples) and more.notes == run.notes


def test_the_samples_of_all_sessions_and_workers_are_thinned_alike(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in range(70):
        writer = RunWriter(tmp_path / "exp", worker=f"w{worker:02}")
        writer.samples(make_samples(range(100), [worker + 1] * 50 + [1000 + worker] + [1] * 49))
        writer.close()
    monkeypatch.setattr(reading, "MAX_RUN_ROWS", 1_050)
    run = Reader().run(FileSource(tmp_path), "exp").run
    assert not run.damage and len(run.workers) == 70 and len(run.samples) <= 1_050
    for worker in range(70):
        (figures,) = (one for name, one in run.samples.devices.items() if name.startswith(f"w{worker:02}/"))
        assert figures.peak_bytes.max() == 1000 + worker
    rows = [int((one.peak_bytes != MISSING).sum()) for one in run.samples.devices.values()]
    assert max(rows) - min(rows) <= 3


def test_many_devices_are_limited_by_their_bytes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(tmp_path / "exp")
    random = np.random.default_rng(1)
    for first in range(0, 2_000, 100):
        part = make_samples(range(first, first + 100), [1] * 100)
        of_device = part.devices[DEVICE]
        devices = {
            f"GPU:{at}": dataclasses.replace(of_device, peak_bytes=random.integers(1, 1 << 40, 100)) for at in range(8)
        }
        writer.samples(dataclasses.replace(part, devices=devices))
    writer.close()
    everything = Reader().run(FileSource(tmp_path), "exp").run
    monkeypatch.setattr(reading, "MAX_SAMPLE_BYTES", 100_000)
    run = Reader().run(FileSource(tmp_path), "exp").run
    assert not run.damage and run.thinning > 1 and samples_bytes(run.samples) <= 100_000
    for name, figures in everything.samples.devices.items():
        assert run.samples.devices[name].peak_bytes.max() == figures.peak_bytes.max()


def test_activations_whose_bytes_exceed_the_limit_are_told_in_the_list_of_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN values that differ from row to row, of which the survey cannot tell how much they take
    writer = RunWriter(tmp_path / "exp")
    random = np.random.default_rng(1)
    for first in range(0, 2000, 100):
        writer.activations(make_activations(range(first, first + 100), ["x"], random.integers(0, 2**40, (100, 1))))
    writer.close()
    for module in (reader_module, reading):
        monkeypatch.setattr(module, "MAX_ACTIVATION_BYTES", 8_000)
    source, reader = FileSource(tmp_path), Reader()
    _, damage = reader.survey_activations(source, reader.catalog(source)["exp"])
    rows = reader.activation_rows(source, "exp")
    assert 0 < len(rows) < 2000 and rows.damage and set(rows.damage) == set(damage)


def test_columns_of_one_value_take_no_memory_however_they_are_joined_and_taken() -> None:
    # GIVEN frames in which only the step, the time, host memory, the bytes in use and the peak differ from row to row
    parts = [make_samples(range(first, first + 100), np.arange(100) % 3 * 256) for first in range(0, 20_000, 100)]
    joined, _ = join_samples(parts)
    keep = np.arange(20_000) % 2 == 0
    taken = take_rows(joined, keep)
    for samples in (joined, taken):
        figures = samples.devices[DEVICE]
        varying = [column for column in dataclasses.astuple(figures) if (column != column[0]).any()]
        assert samples_bytes(samples) < (3 + len(varying)) * 8 * len(samples) + 3000
        assert (figures.driver_used_bytes == MISSING).all() and len(figures.driver_used_bytes) == len(samples)
    assert taken.devices[DEVICE].peak_bytes.tolist() == joined.devices[DEVICE].peak_bytes[keep].tolist()


def test_epochs_without_end_are_told_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = dataclasses.replace(make_samples(range(50), [1] * 50), epoch=np.arange(50) // 5)
    run: Any = types.SimpleNamespace(samples=samples)
    assert [epoch.epoch for epoch in epochs(run)] == list(range(10))
    monkeypatch.setattr("tb_memplugin.analysis.rows.MAX_SPANS", 3)
    assert [(epoch.epoch, epoch.last_step) for epoch in epochs(run)] == [(0, 4), (1, 9), (2, 14)]


def test_counters_count_against_the_limit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN 4,000 rows of counters with texts of their own
    writer, unknown = RunWriter(tmp_path / "exp"), np.full(500, MISSING)
    writer.samples(make_samples(range(10), range(10)))
    for first in range(0, 4000, 500):
        steps = np.arange(first, first + 500)
        texts = tuple(f"{step:090}" for step in steps)
        writer.counters(Counters(steps, ("traces",) * 500, texts, steps, unknown, (None,) * 500))
    writer.close()
    # WHEN a run may take less than they do, THEN the first frames are shown and the others counted
    for most, whole in ((reading.MAX_RUN_BYTES, True), (300_000, False)):
        monkeypatch.setattr(reading, "MAX_RUN_BYTES", most)
        run = Reader().run(FileSource(tmp_path), "exp").run
        assert len(run.counters[0]) == 4000 if whole else 0 < len(run.counters[0]) < 4000
        assert ("not shown" in " ".join(run.damage)) is not whole
