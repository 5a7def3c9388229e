"""The quick way to a worker's figures gives what the general way gives, and leaves anything unusual to that."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
from reading_cases import MIB, START, event_files, make_samples, make_snapshot, write_frames
from worker_runs import top_bytes, top_step, write_workers

from tb_memplugin.events import codec
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.events.sample_records import samples_frame
from tb_memplugin.reader import run_reader, sample_figures
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.catalog import of_worker
from tb_memplugin.reader.device_columns import DeviceColumns
from tb_memplugin.reader.file_source import FileSource
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.sample_figures import FIELDS


def both(directory: pathlib.Path, worker: str = "") -> tuple[LoadedRun, LoadedRun]:
    """The worker read in the quick and in the general way."""
    source = FileSource(directory)
    tags = of_worker(Reader().catalog(source)["run"], worker)
    return Reader().figures(source, tags), Reader().load(source, tags)


def agree(quick: LoadedRun, general: LoadedRun) -> bool:
    assert quick.by_worker.keys() == general.by_worker.keys()
    for worker, run in quick.by_worker.items():
        other = general.by_worker[worker]
        assert dataclasses.replace(run, samples=other.samples).snapshots == other.snapshots
        for name in ("step", "phase", "wall_time"):
            np.testing.assert_array_equal(getattr(run.samples, name), getattr(other.samples, name))
        assert list(run.samples.devices) == list(other.samples.devices)
        for device, figures in run.samples.devices.items():
            for field in FIELDS:
                np.testing.assert_array_equal(
                    getattr(figures, field), getattr(other.samples.devices[device], field), f"{device} {field}"
                )
    return True


@pytest.fixture
def general_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that `Reader.load` was asked for."""
    asked: list[str] = []
    load = Reader.load

    def counting(self: Reader, source: FileSource, tags: run_reader.RunTags, *rest: object) -> LoadedRun:
        asked.append(tags.name)
        return load(self, source, tags, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "load", counting)
    return asked


def test_the_figures_of_a_worker_are_those_of_its_frames(tmp_path: pathlib.Path, general_ways: list[str]) -> None:
    write_workers(tmp_path / "run", 2, 3, 950)
    quick, general = both(tmp_path, "worker_1")
    assert len(general_ways) == 1  # only the second of both
    assert agree(quick, general)
    peaks = quick.by_worker["worker_1"].samples.devices["GPU:2"].peak_bytes
    assert int(peaks.argmax()) == top_step(1, 2, 950) and int(peaks.max()) == top_bytes(1, 2)


def test_snapshots_and_a_second_phase_are_there(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(50), [MIB * (1 + at) for at in range(50)]))
    writer.samples(make_samples([49], [5 * MIB], phase="validation", start=START + 100))
    writer.snapshot(make_snapshot(3))
    writer.close()
    assert agree(*both(tmp_path))


def test_anything_unusual_is_read_in_the_general_way(tmp_path: pathlib.Path, general_ways: list[str]) -> None:
    # GIVEN a resumed training, whose second session repeats steps
    for first, peak in ((0, 3), (5, 9)):
        writer = RunWriter(tmp_path / "resumed" / "run")
        writer.samples(make_samples(range(first, first + 10), [peak * MIB] * 10, start=START + 1000 * first))
        writer.close()
    # AND a file with a damaged record, a device that comes later, and steps out of order
    writer = RunWriter(tmp_path / "damaged" / "run")
    for first in range(0, 300, 100):
        writer.samples(make_samples(range(first, first + 100), [MIB] * 100))
    writer.close()
    (path,) = event_files(tmp_path / "damaged")
    content = bytearray(path.read_bytes())
    # The session's facts, the first samples, their peak: the fourth frame has the second samples.
    starts = [match.start() for match in re.finditer(codec.MAGIC, content)]
    assert len(starts) == 5
    content[starts[3] + 60] ^= 0xFF
    path.write_bytes(content)
    writer = RunWriter(tmp_path / "late" / "run")
    writer.samples(make_samples(range(5), [MIB] * 5))
    writer.samples(make_samples(range(5, 9), [MIB] * 4, device="CPU:1"))
    writer.close()
    writer = RunWriter(tmp_path / "backward" / "run")
    writer.samples(make_samples([4, 5, 3], [MIB] * 3))
    writer.close()
    for name in ("resumed", "damaged", "late", "backward"):
        # THEN both ways end in the same
        general_ways.clear()
        assert agree(*both(tmp_path / name)), name
        assert len(general_ways) == 2, name


@pytest.mark.parametrize(("name", "limit"), [("MAX_RUN_ROWS", 399), ("LARGE_BYTES", 4_000), ("MAX_RUN_BYTES", 20_000)])
def test_a_worker_over_a_limit_is_read_in_the_general_way(
    name: str, limit: int, tmp_path: pathlib.Path, general_ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_workers(tmp_path / "run", 1, 1, 400)
    monkeypatch.setattr(run_reader, name, limit)
    quick, general = both(tmp_path, "worker_0")
    assert len(general_ways) == 2  # both
    assert agree(quick, general)


def test_figures_keep_no_larger_arrays_alive(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "run", 1, 2, 300)
    quick, _ = both(tmp_path, "worker_0")
    samples = quick.by_worker["worker_0"].samples
    assert samples.step.base is None and samples.wall_time.base is None
    assert isinstance(samples.devices, DeviceColumns)


def test_plans_of_frames_stay_within_their_limit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: ByteCache[object] = ByteCache(20_000)
    monkeypatch.setattr(sample_figures, "_plans", plans)
    write_workers(tmp_path / "run", 3, 2, 300)
    for worker in range(3):
        assert agree(*both(tmp_path, f"worker_{worker}"))
    assert 0 < plans.size <= 20_000 or len(plans._entries) == 1


def test_more_devices_than_a_session_has_are_refused(tmp_path: pathlib.Path, general_ways: list[str]) -> None:
    # GIVEN frames that name one device many times, which would be read as often
    part = samples_frame(make_samples([0, 1], [MIB, MIB]), 0)
    spoiled = dataclasses.replace(part, attributes={"devices": [*part.attributes["devices"]] * 1000})
    write_frames(tmp_path / "run" / "memory", [("samples/s/0", 0, codec.encode(spoiled))])
    quick, _ = both(tmp_path)
    assert len(general_ways) == 2 and not len(quick.run.samples) and quick.run.damage
