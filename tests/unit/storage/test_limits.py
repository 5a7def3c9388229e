"""Runs that are large or made to exhaust a reader: what is cut, and what says so."""

import dataclasses
import gc
import pathlib
import threading
import tracemalloc
import types
from typing import Any

import numpy as np
import pytest
from handlers import Handlers
from reading_cases import (
    DEVICE,
    equal,
    make_activations,
    make_samples,
    write_frames,
    write_records,
    write_small_run,
)
from worker_runs import MIB, write_workers

from tb_memplugin.analysis import epochs, step_range
from tb_memplugin.schema import MISSING, Counters, Run, take_rows
from tb_memplugin.server import Stretch
from tb_memplugin.storage import (
    ACTIVATIONS,
    ALL,
    BASIC,
    MAPS,
    TIMELINES,
    Reader,
    join_samples,
    samples_bytes,
)
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.frames import codec, frame_of
from tb_memplugin.storage.write import RunWriter


def read_run(logdir: pathlib.Path, name: str = "exp") -> Run:
    return Reader().run(FileSource(logdir), name).run


@pytest.mark.parametrize("frames_per_tag", [40, 8])  # no writer makes tags of more than eight
def test_a_run_over_the_limit_shows_what_fits_and_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, frames_per_tag: int
) -> None:
    parts = [
        frame_of("samples", make_samples(range(100 * at, 100 * at + 100), [1] * 100), at)
        for at in range(40)
    ]
    frames = [
        (f"samples/s/{at // frames_per_tag}", at, codec.encode(part))
        for at, part in enumerate(parts)
    ]
    write_frames(tmp_path / "exp" / "memory", frames)
    monkeypatch.setattr("tb_memplugin.storage.run_reader.MAX_RUN_BYTES", 100_000)
    run = read_run(tmp_path)
    assert 0 < len(run.samples) < 4000
    assert any(
        "not shown: the run exceeds the limit of its size" in sentence for sentence in run.damage
    )


def test_stored_bytes_of_a_tag_are_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(
        tmp_path / "exp" / "memory", [("samples/s/0", at, bytes(1000)) for at in range(10)]
    )
    monkeypatch.setattr("tb_memplugin.storage.files.file_source.MAX_TAG_BYTES", 4_500)
    source = FileSource(tmp_path)
    (content,) = source.read({run: list(tags) for run, tags in source.listing().items()})
    assert len(content.frames) == 4 and "6 events are not read" in content.damage[0]


def test_many_devices_workers_and_sessions_are_limited_and_counted(tmp_path: pathlib.Path) -> None:
    # GIVEN 300 devices in frames of 100, 130 workers, and 1,100 sessions
    def frame(step: int, devices: list[str], sequence: int = 0) -> bytes:
        part = make_samples([step], [step])
        part = dataclasses.replace(part, devices=dict.fromkeys(devices, part.devices[DEVICE]))
        return codec.encode(frame_of("samples", part, sequence))

    names = [f"GPU:{at}" for at in range(300)]
    parts = [
        ("samples/s/0", at, frame(at, names[100 * at : 100 * at + 100], at)) for at in range(3)
    ]
    write_frames(tmp_path / "devices" / "memory", parts)
    for at in range(130):
        write_frames(
            tmp_path / "workers" / "memory" / f"w{at:03}", [("samples/s/0", 0, frame(0, ["GPU:0"]))]
        )
    parts = [(f"samples/s{at:04}/0", at, frame(at, ["GPU:0"])) for at in range(1100)]
    write_frames(tmp_path / "sessions" / "memory", parts)
    devices, workers, sessions = (
        read_run(tmp_path, name) for name in ("devices", "workers", "sessions")
    )
    assert len(devices.samples.devices) == 256 and ("44 of 300 devices are not shown") in " ".join(
        devices.damage
    )
    assert len(workers.workers) == 128 and "2 of 130 workers" in " ".join(workers.damage)
    assert len(sessions.sessions) == 1000 and "100 of 1100 sessions" in " ".join(sessions.damage)
    assert sessions.samples.step[-1] == 1099


def test_64_workers_of_8_devices_are_all_shown(tmp_path: pathlib.Path) -> None:
    part = make_samples(range(20), range(20))
    figures = part.devices[DEVICE]
    for at in range(64):
        of_worker = dataclasses.replace(
            part, devices={f"GPU:{device}": figures for device in range(8)}
        )
        write_records(tmp_path / "exp", of_worker, worker=f"worker_{at:02}")
    run = read_run(tmp_path)
    assert len(run.samples.devices) == 512 and run.damage == ()
    peaks = run.samples.devices["worker_07/GPU:3"].peak_bytes
    assert sorted(peaks[peaks != MISSING].tolist()) == list(range(20)) and len(peaks) == 64 * 20
    assert run.samples.step[peaks != MISSING].tolist() == list(range(20))


def test_a_lack_of_memory_is_damage_of_the_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "exp")

    def no_memory(*args: object, **kwargs: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(codec, "decode_columns", no_memory)
        damage = read_run(tmp_path).damage
    assert damage and all("not enough memory to read it" in sentence for sentence in damage)
    monkeypatch.setattr("tb_memplugin.storage.run_reader.sessions_of", no_memory)
    assert read_run(tmp_path).damage == ("the run is not shown: there is not enough memory for it",)


def test_a_run_that_takes_long_does_not_delay_another(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a reader that is in the middle of one run
    write_small_run(tmp_path / "slow")
    write_small_run(tmp_path / "quick")
    reader = Reader()
    inside, release, waited = threading.Event(), threading.Event(), list[bool]()

    class SlowSource(FileSource):
        def read(self, wanted: Any) -> Any:
            if threading.current_thread().name == "slow":
                inside.set()
                waited.append(release.wait(10))
            return super().read(wanted)

    source = SlowSource(tmp_path)
    thread = threading.Thread(target=lambda: reader.run(source, "slow"), name="slow")
    thread.start()
    assert inside.wait(30)
    # THEN another one is read meanwhile
    assert len(reader.run(source, "quick").run.samples)
    release.set()
    thread.join(30)
    assert waited == [True]


def test_activations_over_the_limit_are_counted_alike_in_the_list_and_in_the_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (
        make_activations(range(at, at + 100), ["x", "y"], [[1, 2]] * 100)
        for at in range(0, 4000, 100)
    )
    write_records(tmp_path / "exp", *parts)
    source, reader = FileSource(tmp_path), Reader()
    monkeypatch.setattr("tb_memplugin.storage.run_reader.MAX_ACTIVATION_BYTES", 53_000)
    _, surveyed = reader.survey_activations(source, reader.catalog(source)["exp"])
    loaded = reader.run(source, "exp", {*BASIC, ACTIVATIONS}).run
    assert len(loaded.activations) == 1500 and set(surveyed) == set(loaded.damage)
    told = " ".join(surveyed)
    assert "3 tags are not shown" in told and "1 frames are not shown" in told


def test_samples_are_joined_once_for_all_loads_of_a_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    # GIVEN a reader for which every run is large, so that it keeps no frames
    monkeypatch.setattr("tb_memplugin.storage.tables.LARGE_BYTES", 0)
    source, reader = FileSource(tmp_path), Reader()
    first = reader.run(source, "exp").run
    with_maps = reader.run(source, "exp", {*BASIC, MAPS, TIMELINES}).run
    # THEN a load with more streams has the same samples, not copies, and nothing is lost
    assert with_maps.samples.step is first.samples.step
    assert with_maps.samples.devices[DEVICE].peak_bytes is first.samples.devices[DEVICE].peak_bytes
    usual = Reader().run(FileSource(tmp_path), "exp", {*BASIC, MAPS, TIMELINES}).run
    assert equal(with_maps, dataclasses.replace(usual))


def write_long_run(
    directory: pathlib.Path, steps: int, peaks: dict[int, int], flush: int = 100
) -> None:
    """A run with a validation step after each 50 training steps."""
    records = []
    for first in range(0, steps, flush):
        block = [peaks.get(step, 256 * (step % 7)) for step in range(first, first + flush)]
        records.append(make_samples(range(first, first + flush), block))
        records.append(make_samples([first + flush - 1], [first], phase="validation"))
    write_records(directory, *records)


@pytest.mark.parametrize(
    ("steps", "flush", "thinning"), [(600, 100, 1), (2_000, 100, 4), (20_000, 25, 41)]
)
def test_a_run_with_too_many_samples_keeps_its_peaks_and_its_newest_steps(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, steps: int, flush: int, thinning: int
) -> None:
    # GIVEN peaks in a first step, in the middle of a group, and in one of the last steps
    peaks = {0: 5_000, steps // 3: 9_000, steps - 2: 7_000}
    write_long_run(tmp_path / "exp", steps, peaks, flush)
    monkeypatch.setattr("tb_memplugin.storage.tables.MAX_SAMPLE_BYTES", 1_050 * 64)
    loaded = Reader().run(FileSource(tmp_path), "exp")
    run, figures = loaded.run, loaded.run.samples.devices[DEVICE]
    # THEN nothing counts as damaged, and what is shown are recorded rows from all over the run
    assert not run.damage and run.thinning == pytest.approx(thinning, rel=0.1)
    assert len(run.samples) <= 1_050 and (thinning == 1 or len(run.samples) > 250)
    assert (np.diff(run.samples.wall_time) >= 0).all()
    training = run.samples.phase == 0
    shown = dict(
        zip(run.samples.step[training].tolist(), figures.peak_bytes[training].tolist(), strict=True)
    )
    assert shown.items() >= {0: 5_000, steps // 3: 9_000, steps - 2: 7_000}.items()
    assert all(peak == peaks.get(step, 256 * (step % 7)) for step, peak in shown.items())
    assert max(np.diff(sorted(shown))) <= 8 * thinning and max(shown) == steps - 1
    validation = run.samples.step[~training]
    assert validation[-1] == steps - 1 and int(figures.peak_bytes[~training].max()) == steps - flush
    # AND the number of steps is still that of the run, which says once that it is thinned
    assert (step_range(run).steps, step_range(run).first_step, step_range(run).last_step) == (
        steps,
        0,
        steps - 1,
    )
    note = f"of about {run.thinning} in a row, the one with the highest peak is shown"
    assert [note in one for one in run.notes] == [True] * (thinning > 1)
    assert loaded.by_worker[""].notes == run.notes
    # AND further streams have the same samples
    more = Reader().run(FileSource(tmp_path), "exp", {*BASIC, MAPS}).run
    assert equal(more.samples, run.samples) and more.notes == run.notes


@pytest.mark.parametrize("most_rows", [1 << 20, 1_050], ids=["whole", "thinned"])
def test_a_run_that_is_read_while_it_grows_is_the_run_that_is_read_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    monkeypatch.setattr("tb_memplugin.storage.tables.MAX_SAMPLE_BYTES", most_rows * 64)
    source, reader, writer = FileSource(tmp_path), Reader(), RunWriter(tmp_path / "exp")
    for first in range(0, 3_000, 30):
        steps = range(first, first + 30)
        writer.samples(make_samples(steps, [256 * (step * 7919 % 997) for step in steps]))
        writer.activations(make_activations(steps, ["x"], [[step] for step in steps]))
        writer.flush()
        grown = reader.run(source, "exp", {*BASIC, ACTIVATIONS}).run
    writer.close()
    whole = Reader().run(FileSource(tmp_path), "exp", {*BASIC, ACTIVATIONS}).run
    assert equal(grown.activations, whole.activations) and grown.damage == whole.damage == ()
    if most_rows > 3_000:
        assert equal(grown.samples, whole.samples)
    # AND a run that is thinned stays even, and keeps its peaks
    steps, peaks = grown.samples.step, grown.samples.devices[DEVICE].peak_bytes
    assert (np.diff(steps) > 0).all() and steps[-1] == 2_999 and len(steps) <= most_rows
    assert np.diff(steps).max() <= 2 * np.diff(whole.samples.step).max()
    assert peaks.max() == 256 * 996


def test_the_samples_of_all_sessions_and_workers_are_thinned_alike(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in range(70):
        samples = make_samples(range(100), [worker + 1] * 50 + [1000 + worker] + [1] * 49)
        write_records(tmp_path / "exp", samples, worker=f"w{worker:02}")
    monkeypatch.setattr("tb_memplugin.storage.tables.MAX_SAMPLE_BYTES", 1_050 * 64)
    run = Reader().run(FileSource(tmp_path), "exp").run
    assert not run.damage and len(run.workers) == 70 and len(run.samples) <= 1_050
    for worker in range(70):
        (figures,) = (
            one for name, one in run.samples.devices.items() if name.startswith(f"w{worker:02}/")
        )
        assert figures.peak_bytes.max() == 1000 + worker
    rows = [int((one.peak_bytes != MISSING).sum()) for one in run.samples.devices.values()]
    assert max(rows) - min(rows) <= 3


def test_many_devices_are_limited_by_their_bytes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, random = make_samples(range(2_000), [1] * 2_000), np.random.default_rng(1)
    devices = {
        f"GPU:{at}": dataclasses.replace(
            part.devices[DEVICE], peak_bytes=random.integers(1, 1 << 40, 2_000)
        )
        for at in range(8)
    }
    write_records(tmp_path / "exp", dataclasses.replace(part, devices=devices))
    everything = read_run(tmp_path)
    monkeypatch.setattr("tb_memplugin.storage.tables.MAX_SAMPLE_BYTES", 100_000)
    run = read_run(tmp_path)
    assert not run.damage and run.thinning > 1 and samples_bytes(run.samples) <= 100_000
    for name, figures in everything.samples.devices.items():
        assert run.samples.devices[name].peak_bytes.max() == figures.peak_bytes.max()


def test_activations_whose_bytes_exceed_the_limit_are_told_in_the_list_of_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN values that differ from row to row, of which the survey cannot tell how much they take
    values = np.random.default_rng(1).integers(0, 2**40, (20, 100, 1))
    parts = (
        make_activations(range(100 * at, 100 * at + 100), ["x"], part)
        for at, part in enumerate(values)
    )
    write_records(tmp_path / "exp", *parts)
    monkeypatch.setattr("tb_memplugin.storage.run_reader.MAX_ACTIVATION_BYTES", 8_000)
    source, reader = FileSource(tmp_path), Reader()
    _, damage = reader.survey_activations(source, reader.catalog(source)["exp"])
    run = reader.run(source, "exp", {ACTIVATIONS}).run
    assert 0 < len(run.activations) < 2000 and run.damage and set(run.damage) == set(damage)


def test_columns_of_one_value_take_no_memory_however_they_are_joined_and_taken() -> None:
    # GIVEN frames in which only the step, the time, host memory, the bytes in use and the peak
    # differ from row to row
    parts = [
        make_samples(range(first, first + 100), np.arange(100) % 3 * 256)
        for first in range(0, 20_000, 100)
    ]
    joined, _ = join_samples(parts)
    keep = np.arange(20_000) % 2 == 0
    taken = take_rows(joined, keep)
    for samples in (joined, taken):
        figures = samples.devices[DEVICE]
        varying = [column for column in dataclasses.astuple(figures) if (column != column[0]).any()]
        assert samples_bytes(samples) < (3 + len(varying)) * 8 * len(samples) + 3000
        assert (figures.driver_used_bytes == MISSING).all() and len(
            figures.driver_used_bytes
        ) == len(samples)
    assert (
        taken.devices[DEVICE].peak_bytes.tolist()
        == joined.devices[DEVICE].peak_bytes[keep].tolist()
    )


def test_epochs_without_end_are_told_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = dataclasses.replace(make_samples(range(50), [1] * 50), epoch=np.arange(50) // 5)
    run: Any = types.SimpleNamespace(samples=samples)
    assert [epoch.epoch for epoch in epochs(run)] == list(range(10))
    monkeypatch.setattr("tb_memplugin.analysis.composition.MAX_SPANS", 3)
    assert [(epoch.epoch, epoch.last_step) for epoch in epochs(run)] == [(0, 4), (1, 9), (2, 14)]


def test_counters_count_against_the_limit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN 4,000 rows of counters with texts of their own
    kinds, unknown = ("traces",) * 500, np.full(500, MISSING)
    counters = [
        Counters(steps, kinds, tuple(f"{step:090}" for step in steps), steps, unknown)
        for steps in np.arange(4000).reshape(8, 500)
    ]
    write_records(tmp_path / "exp", make_samples(range(10), range(10)), *counters)
    # WHEN a run may take less than they do, THEN the first frames are shown and the others counted
    for most, whole in ((96 << 20, True), (300_000, False)):
        monkeypatch.setattr("tb_memplugin.storage.run_reader.MAX_RUN_BYTES", most)
        run = read_run(tmp_path)
        assert len(run.counters[0]) == 4000 if whole else 0 < len(run.counters[0]) < 4000
        assert ("not shown" in " ".join(run.damage)) is not whole


def test_a_value_is_found_under_its_mark_until_it_is_the_least_recently_used() -> None:
    cache = Reader(cache_bytes=100).cache
    cache.put("a", 1, "old", 10)
    assert (cache.get("a", 1), cache.get("a", 2)) == ("old", None)
    cache.put("a", 2, "new", 50)
    assert (cache.get("a", 1), cache.get("a", 2), cache.size) == (None, "new", 50)
    for key in "bc":
        cache.put(key, 0, key, 50)
        assert cache.get("a", 2) == "new"
    assert [cache.get(key, 0) for key in "bc"] == [None, "c"]
    # AND what is larger than the budget is not kept, and displaces only what it replaces
    cache.put("huge", 0, "huge", 1000)
    assert (cache.get("huge", 0), cache.get("a", 2)) == (None, "new")
    cache.put("a", 3, "huge", 1000)
    assert cache.get("a", 2) is None and cache.size == 50
    # AND all is let go at once
    cache.clear()
    assert (cache.size, cache.get("c", 0)) == (0, None)


def test_all_that_a_server_keeps_is_within_the_budget_as_the_allocator_measures_it(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN runs whose samples, activations and records take several times the budget
    budget = 4 * MIB
    for name in "abc":
        write_workers(tmp_path / name, 2, 2, 4000)
    layers = [f"layer_{at}" for at in range(100)]
    for name, seed in (("d", 1), ("e", 2)):
        values = np.random.default_rng(seed).integers(0, 2**31, (20, 200, 100))
        parts = (
            make_activations(range(200 * at, 200 * at + 200), layers, part)
            for at, part in enumerate(values)
        )
        write_records(tmp_path / name, *parts)
    write_small_run(tmp_path / "f", allocator=True)
    source, reader = FileSource(tmp_path), Reader(cache_bytes=budget)
    handlers = Handlers(reader)
    handlers.runs(source)  # what is imported and indexed at first is none of the reader's
    reader.cache.clear()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = []
        for name in "abcdef":
            handlers.activations(source, name, (None, None), 100)
            handlers.devices(source, name, "train")
            handlers.maps(source, name, None)
            reader.run(source, name, ALL)
            if name in "abc":
                handlers.overview(source, name, Stretch("worker_1/GPU:0", "train", None, None, 100))
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0] - before)
            # THEN what is kept is within the budget after each request, and the budget is used
            assert reader.cache.size <= budget
        assert max(kept) <= 1.1 * budget and kept[-1] > budget / 4, kept
    finally:
        tracemalloc.stop()
