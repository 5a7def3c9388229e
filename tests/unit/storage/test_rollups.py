"""Stored summaries of workers: written, found from a file's end, and read."""

import dataclasses
import pathlib
import tracemalloc

import numpy as np
import pytest
from cluster_cases import Fault, NotingSource, name_of, write_cluster
from reading_cases import MIB, equal, event_files, make_oom, make_samples, make_snapshot
from rollup_cases import rollups_of
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext

import tb_memplugin
from tb_memplugin.analysis import summarize_session
from tb_memplugin.schema import Phase, Samples, WorkerSummary
from tb_memplugin.storage import Reader, decode_tag
from tb_memplugin.storage.files import ByteBudget, FileSource, NewestFrames, ProviderSource, Source
from tb_memplugin.storage.frames import parse_tag
from tb_memplugin.storage.write import RunWriter


def test_only_workers_that_recorded_since_are_read_again(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 4, 1, 20, [])
    source, reader = NotingSource(tmp_path), Reader()
    workers = reader.workers(source, "run")
    for worker, of in reader.rollups(source, workers).items():
        assert equal(of.sessions, (rollups_of(tmp_path, worker)[0][2],))
    assert len(source.ends) == 4 and reader.workers(source, "other").of_worker == {}
    assert reader.workers(source, "run").version == workers.version
    # WHEN one is restarted
    writer = RunWriter(tmp_path / "run", worker=name_of(2), summarize=summarize_session)
    writer.samples(make_samples([20, 21], [MIB, MIB], start=2e9))
    writer.end()
    writer.close()
    changed = reader.workers(source, "run")
    read = reader.rollups(source, changed)
    assert changed.version != workers.version
    assert source.ends[4:] == [f"run/memory/{name_of(2)}"]
    assert [rollup.last_step for rollup in read[name_of(2)].sessions] == [19, 21]
    assert source.asked == set() and source.listed == 0


def test_one_worker_is_indexed_alone_and_the_whole_listing_is_right_afterwards(
    tmp_path: pathlib.Path,
) -> None:
    write_cluster(tmp_path / "run", 3, 1, 20, [])
    source, reader = FileSource(tmp_path), Reader()
    whole = FileSource(tmp_path).listing()
    tags = reader.worker_tags(source, reader.workers(source, "run"), name_of(1))
    assert {entry[0] for entry in tags.tags} == {name_of(1)}
    assert {str(entry[2]) for entry in tags.tags} == set(whole[f"run/memory/{name_of(1)}"])
    assert len(reader.load(source, tags).run.samples) == 20
    assert source.listing() == whole
    # WHEN it goes on THEN the index of all follows, though it was read alone first
    writer = RunWriter(tmp_path / "run", worker=name_of(1))
    writer.samples(make_samples([20], [MIB], start=2e9))
    writer.close()
    reader.worker_tags(source, reader.workers(source, "run"), name_of(1))
    assert source.listing() == FileSource(tmp_path).listing() != whole


@pytest.fixture(params=["files", "provider"])
def source(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Source:
    """The files of a directory, or TensorBoard's data provider over the same files."""
    faults = [Fault(2, restarts=30), Fault(1, stops=30)]
    write_cluster(tmp_path / "run", 3, 2, 60, faults, flush_steps=10)
    if request.param == "files":
        return FileSource(tmp_path)
    multiplexer = plugin_event_multiplexer.EventMultiplexer(
        tensor_size_guidance={"tb_memplugin": 10}
    )
    multiplexer.AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    return ProviderSource(
        data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path)), RequestContext(), ""
    )


def test_files_and_tensorboards_reader_give_the_same_roll_ups(source: Source) -> None:
    reader = Reader()
    read = reader.rollups(source, reader.workers(source, "run"))
    assert {
        worker: [rollup.last_step for rollup in of.sessions] for worker, of in read.items()
    } == {
        name_of(0): [59],
        name_of(1): [9],
        name_of(2): [9, 59],
    }
    assert all(of.missing is None for of in read.values())
    assert [one.ended for one in read[name_of(2)].sessions] == [False, True]
    tags = reader.worker_tags(source, reader.workers(source, "run"), name_of(2))
    assert len({entry[2].session for entry in tags.tags}) == 2


def tail_of(path: pathlib.Path) -> NewestFrames:
    """The newest roll-up of the only worker."""
    (newest,) = FileSource(path.parents[2]).newest(["run/memory"], "rollups")
    return newest


def write(directory: pathlib.Path, rollups: int, after: int = 0) -> pathlib.Path:
    """Writes roll-ups, each after ten steps, and then as many samples and traced steps without
    one."""
    writer = RunWriter(directory / "run", summarize=summarize_session)
    for at in range(rollups):
        writer.samples(make_samples(range(10 * at, 10 * at + 10), [100 * MIB] * 10))
        writer.roll_up()
    for step in range(after):
        writer.samples(make_samples([1000 + step], [MIB]))
        writer.traced(make_snapshot(1000 + step))
    writer.close()
    (path,) = event_files(directory)
    return path


@pytest.mark.parametrize(("rollups", "after"), [(1, 0), (20, 0), (3, 50), (1, 800)])
def test_it_is_the_last_one_of_the_file(tmp_path: pathlib.Path, rollups: int, after: int) -> None:
    path = write(tmp_path, rollups, after)
    assert (path.stat().st_size > 64 << 10) == (after == 800)
    tail = tail_of(path)
    (content,) = tail.contents
    assert len(content.frames) == 1 and tail.missing is None
    tag = parse_tag(content.tag)
    assert tag is not None
    decoded = decode_tag(tag, content, ByteBudget(1 << 30))
    (*_, (session, _, expected)) = rollups_of(tmp_path)
    assert equal(decoded.pieces[0].value, expected) and expected.last_step == 10 * rollups - 1
    assert tag.session == session and content.frames[0].step == expected.last_step


@pytest.mark.parametrize("cut", [1, 100, 400])
def test_one_that_is_still_being_written_is_skipped(tmp_path: pathlib.Path, cut: int) -> None:
    path = write(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    (content,) = tail_of(path).contents
    assert content.frames[0].step == 19


def test_a_damaged_one_is_no_roll_up(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, 3)
    whole = path.read_bytes()
    place = whole.rindex(b"rollups/")
    for at in (place - 30, place + 100):  # its header, its content
        damaged = bytearray(whole)
        for byte in range(at, at + 8):
            damaged[byte] ^= 0x5A
        path.write_bytes(damaged)
        assert tail_of(path) == NewestFrames("run/memory", (), "its newest roll-up is damaged")


@pytest.mark.parametrize(
    ("after", "missing"), [(1, "it has no roll-up"), (900, "it has no roll-up"), (0, None)]
)
def test_a_file_without_one_says_so_if_it_has_samples(
    tmp_path: pathlib.Path, after: int, missing: str | None
) -> None:
    assert tail_of(write(tmp_path, 0, after)) == NewestFrames("run/memory", (), missing)


DEVICES = ("GPU:0", "GPU:1")


def uneven(steps: range, epoch: int, phase: Phase = "train", seed: int = 0) -> Samples:
    """Samples of two devices with uneven peaks; in training the pool is measured at every seventh
    step."""
    parts = []
    for at, device in enumerate(DEVICES):
        random = np.random.default_rng([seed, steps[0], at])
        in_use = 200 * MIB + random.integers(0, 40, len(steps)) * 256
        peaks = in_use + (100 + 50 * at) * MIB + random.integers(0, 1000, len(steps)) * 4096
        pools = {
            step: (512 * MIB, 100 * MIB + step)
            for step in steps
            if step % 7 == 0 and phase == "train"
        }
        figures = {
            "in_use": in_use.tolist(),
            "epoch": epoch,
            "phase": phase,
            "device": device,
            "pools": pools,
        }
        parts.append(make_samples(steps, peaks.tolist(), **figures))  # type: ignore[arg-type]
    return dataclasses.replace(
        parts[0], devices={name: of for part in parts for name, of in part.devices.items()}
    )


def checked(directory: pathlib.Path) -> tuple[int, WorkerSummary]:
    """Bytes and content of the only roll-up: what the history says, of the traced step with the
    highest peak."""
    ((_, size, stored),) = rollups_of(directory)
    summary = summarize_session(tb_memplugin.load(directory)["run"])
    devices = [
        dataclasses.replace(
            one, rows=None, traced=tuple(sorted(one.traced, key=lambda of: of.peak_bytes)[-1:])
        )
        for one in summary.devices
    ]
    assert equal(
        stored,
        dataclasses.replace(summary, rows=None, devices=tuple(devices), started=stored.started),
    )
    return size, stored


@pytest.mark.parametrize("steps", [90, 2 * 1024])  # all samples are kept, or few of them
def test_a_roll_up_says_what_the_history_says(tmp_path: pathlib.Path, steps: int) -> None:
    # GIVEN three epochs of training and validation, with flushes within epochs, and traced steps
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    for epoch in range(3):
        first = epoch * steps
        for begin in range(first, first + steps, 25):
            writer.samples(uneven(range(begin, min(begin + 25, first + steps)), epoch))
        validation = uneven(range(first, first + 5), epoch, "validation", seed=1)
        writer.samples(dataclasses.replace(validation, step=np.full(5, first + steps - 1)))
    for device in DEVICES:
        for step, activations in ((10, 300), (20, 250)):
            writer.traced(make_snapshot(step, device=device, activations=activations * MIB))
    writer.end()
    writer.close()
    size, stored = checked(tmp_path)
    assert len(stored.devices) == 4 and stored.devices[0].snapshots == 2 and size < 2048


def test_failed_steps_count_and_tolerated_failures_do_not(tmp_path: pathlib.Path) -> None:
    # GIVEN a failure, and another that TensorFlow went on from
    oom = make_oom(4)
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    writer.samples(make_samples(range(4), [MIB] * 4))
    for one in (
        oom,
        *(
            dataclasses.replace(oom, identifier="2", status=status)
            for status in ("failing", "tolerated")
        ),
    ):
        writer.oom(one)
    writer.end()
    writer.close()
    _, stored = checked(tmp_path)
    (device,) = stored.devices
    assert (
        stored.status == "failed"
        and device.ooms == 1
        and device.traced[0].step == device.peak_step == 4
    )


def test_what_is_kept_is_bounded(tmp_path: pathlib.Path) -> None:
    writer, random, kept = (
        RunWriter(tmp_path / "run", summarize=summarize_session),
        np.random.default_rng(3),
        [],
    )
    tracemalloc.start()
    for begin in range(0, 20_000, 100):
        writer.samples(
            make_samples(range(begin, begin + 100), random.integers(MIB, 1 << 36, 100).tolist())
        )
        if begin % 10_000 == 9_900:
            writer.flush()
            kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    writer.close()
    assert kept[1] - kept[0] < 200_000
