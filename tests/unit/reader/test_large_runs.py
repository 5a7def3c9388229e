"""Runs that take much memory: frames are let go once they are joined, and what is shown does not depend on it."""

import dataclasses
import pathlib

import numpy as np
import pytest
from reading_cases import DEVICE, equal, make_activations, make_samples, write_small_run

from tb_memplugin.analysis.steps import changes
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import HOST_COLUMNS, MISSING, Counters, HostSamples
from tb_memplugin.reader import run_reader as reader_module
from tb_memplugin.reader.decode import reading
from tb_memplugin.reader.decode.columns import join_samples, samples_bytes, take_rows
from tb_memplugin.reader.decode.streams import BASIC, MAPS, TIMELINES
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader


def test_samples_are_joined_once_for_all_loads_of_a_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    # GIVEN a reader for which every run is large, so that it keeps no frames
    monkeypatch.setattr(reader_module, "LARGE_BYTES", 0)
    source, reader = FileSource(tmp_path), Reader()
    first = reader.run(source, "exp").run
    with_maps = reader.run(source, "exp", {*BASIC, MAPS, TIMELINES}).run
    # THEN a load with more streams has the same samples, not copies, and nothing is lost
    assert with_maps.samples.step is first.samples.step
    assert with_maps.samples.devices[DEVICE].peak_bytes is first.samples.devices[DEVICE].peak_bytes
    usual = Reader().run(FileSource(tmp_path), "exp", {*BASIC, MAPS, TIMELINES}).run
    assert equal(with_maps, dataclasses.replace(usual))


def test_a_run_that_grows_is_read_anew_even_if_its_samples_are_known(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), range(10)))
    writer.flush()
    source, reader = FileSource(tmp_path), Reader()
    before = reader.run(source, "exp").run
    writer.samples(make_samples(range(10, 15), range(10, 15)))
    writer.close()
    after = reader.run(source, "exp").run
    assert len(before.samples) == 10 and after.samples.step.tolist() == list(range(15))
    assert after.samples.devices[DEVICE].peak_bytes.tolist() == list(range(15))


def test_rows_over_the_limit_are_left_out_and_counted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(tmp_path / "exp")
    for first in range(0, 2000, 100):
        writer.samples(make_samples(range(first, first + 100), [1] * 100))
    writer.close()
    monkeypatch.setattr(reading, "MAX_RUN_ROWS", 1_050)
    run = Reader().run(FileSource(tmp_path), "exp").run
    assert run.samples.step.tolist() == list(range(1_000))
    assert "frames are not shown" in " ".join(run.damage) and "tags are not shown" in " ".join(run.damage)


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
    samples = make_samples(range(50), [1] * 50)
    samples = dataclasses.replace(samples, epoch=np.arange(50) // 5)
    assert [epoch.epoch for epoch in changes.epochs(samples)] == list(range(10))
    monkeypatch.setattr(changes, "MAX_SPANS", 3)
    assert [(epoch.epoch, epoch.last_step) for epoch in changes.epochs(samples)] == [(0, 4), (1, 9), (2, 14)]


def test_counters_and_host_memory_count_against_the_limit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN 4,000 rows of counters with texts of their own, and 4,000 of the parts of host memory
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), range(10)))
    for first in range(0, 4000, 500):
        steps = np.arange(first, first + 500)
        unknown = np.full(500, MISSING)
        texts = tuple(f"{step:090}" for step in steps)
        writer.counters(Counters(steps, ("traces",) * 500, texts, steps, unknown, (None,) * 500))
        writer.host(HostSamples.of({name: steps if name == "step" else [0] * 500 for name in HOST_COLUMNS}))
    writer.close()
    everything = Reader().run(FileSource(tmp_path), "exp").run
    assert len(everything.counters[0]) == 4000 and len(everything.host[""].parts) == 4000 and not everything.damage
    # WHEN a run may take less than either of them does
    monkeypatch.setattr(reader_module, "MAX_RUN_BYTES", 300_000)
    run = Reader().run(FileSource(tmp_path), "exp").run
    # THEN the first frames are shown and the others counted
    assert 0 < len(run.counters[0]) < 4000 and len(run.host[""].parts) < 4000
    assert "not shown" in " ".join(run.damage)
    # AND the host memory of the worker has the run's samples, not copies
    assert run.host[""].samples is run.samples
