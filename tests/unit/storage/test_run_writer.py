"""A session's event files, and the directories that are being recorded into."""

import dataclasses
import functools
import logging
import os
import pathlib
import socket
import time

import numpy as np
import pytest
from reading_cases import event_files, make_activations, make_samples, write_records
from rollup_cases import rollups_of
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

import tb_memplugin
from tb_memplugin.analysis import summarize_session
from tb_memplugin.export import load
from tb_memplugin.schema import LayerActivations, Samples
from tb_memplugin.storage.frames import Frame, codec, read_frame
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS, RunWriter, recordings


def written(directory: pathlib.Path, stream: str) -> dict[bytes, str]:
    """The frames of a stream, in the order of the files' names, with their tags."""
    events = [
        raw for path in event_files(directory) for raw in RawEventFileLoader(str(path)).Load()
    ]
    values = [value for raw in events for value in event_pb2.Event.FromString(raw).summary.value]
    return {
        value.tensor.string_val[0]: value.tag
        for value in values
        if value.tag.startswith(f"{stream}/")
    }


def frames_of(directory: pathlib.Path, stream: str) -> list[Frame]:
    return [codec.decode(frame) for frame in written(directory, stream)]


def test_files_lie_in_a_directory_of_their_own_and_name_no_machine(tmp_path: pathlib.Path) -> None:
    RunWriter(tmp_path / "exp1", worker="worker_1").close()
    (name,) = [str(path.relative_to(tmp_path)) for path in event_files(tmp_path)]
    assert name.startswith("exp1/memory/worker_1/events.out.tfevents.")
    assert socket.gethostname() not in name and f".{os.getpid()}." not in name


def test_frames_are_numbered_without_gaps(tmp_path: pathlib.Path) -> None:
    many = make_samples(range(MAX_SAMPLE_ROWS + 1), [7] * (MAX_SAMPLE_ROWS + 1))
    write_records(tmp_path, many, make_samples([MAX_SAMPLE_ROWS + 1], [7]))
    frames = [(frame.sequence, frame.rows) for frame in frames_of(tmp_path, "samples")]
    assert frames == [(0, MAX_SAMPLE_ROWS), (1, 1), (2, 1)]


def test_each_devices_highest_peak_is_written_again_when_it_is_new(tmp_path: pathlib.Path) -> None:
    one = make_samples([0, 1, 2, 3], [100, 900, 200, 300])
    (figures,) = one.devices.values()
    devices = {
        f"GPU:{at}": dataclasses.replace(figures, peak_bytes=np.roll(figures.peak_bytes, at))
        for at in range(3)
    }
    write_records(tmp_path / "devices", dataclasses.replace(one, devices=devices))
    write_records(
        tmp_path / "steps",
        *(make_samples([step], [peak]) for step, peak in enumerate([10, 30, 20, 40])),
    )
    for name, steps in (("devices", [1, 2, 3]), ("steps", [0, 1, 3])):
        assert [
            read_frame(Samples, one).step.tolist() for one in frames_of(tmp_path / name, "peak")
        ] == [[step] for step in steps]


def test_a_new_file_begins_past_the_size_that_was_set(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path, max_file_bytes=2000)
    for step in range(40):
        writer.samples(make_samples([step], [step]))
        writer.flush()
    writer.close()
    sizes = [path.stat().st_size for path in event_files(tmp_path)]
    assert len(sizes) > 3 and max(sizes) < 4000 and len(written(tmp_path, "samples")) == 40


def test_activations_are_split_into_frames_of_bounded_size(tmp_path: pathlib.Path) -> None:
    values = np.arange(2000 * 300).reshape(2000, 300)
    write_records(
        tmp_path, make_activations(range(2000), [f"layer_{at}" for at in range(300)], values)
    )
    read = [
        read_frame(LayerActivations, frame).bytes for frame in frames_of(tmp_path, "activations")
    ]
    assert len(read) > 1
    np.testing.assert_array_equal(np.concatenate(read), values)


def test_a_second_living_writer_gets_its_own_directory_and_a_closed_one_does_not_count(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN a writer that lives, in its second file, WHEN another one writes into the same run
    first = RunWriter(tmp_path, max_file_bytes=1)
    first.samples(make_samples([0], [1]))
    first.note("a note")
    first.flush()
    assert len(event_files(tmp_path)) == 2
    second, third = RunWriter(tmp_path), RunWriter(tmp_path, worker="worker_1")
    # THEN each has a directory of its own
    assert [
        pathlib.Path(writer.directory).relative_to(tmp_path).as_posix()
        for writer in (first, second, third)
    ] == [
        "memory",
        "memory/process_2",
        "memory/worker_1",
    ]
    # AND a later session of the same run goes where the first one was
    first.close()
    fourth, before = RunWriter(tmp_path), first.session
    assert fourth.directory == first.directory
    # WHEN the first one goes on THEN it is a session of its own in another directory, with its
    # notes
    first.samples(make_samples([1], [1000]))
    assert first.directory != fourth.directory and first.session not in (before, fourth.session)
    assert first.info.notes == ("a note",)


@pytest.mark.parametrize("ended", [False, True])
def test_a_session_says_that_it_ended_only_if_it_did(tmp_path: pathlib.Path, ended: bool) -> None:
    writer = RunWriter(tmp_path / "run", worker="w")
    writer.note("a note")
    writer.samples(make_samples([0], [100]))
    if ended:
        writer.end()
    writer.close()
    runs = tb_memplugin.load(tmp_path)
    assert runs["run"].notes == ("w: a note",) and runs.by_worker("run")["w"].ended is ended


def test_a_traced_step_without_breakdown_is_noted_while_it_is_analyzed(
    tmp_path: pathlib.Path,
) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.analyzing(3)
    notes = tb_memplugin.load(tmp_path)["run"].notes
    writer.analyzing(None)
    assert notes == ("Traced step 3 is still being analyzed, unless its process was killed.",)
    assert tb_memplugin.load(tmp_path)["run"].notes == ()
    writer.close()


def test_flushes_write_a_roll_up_on_a_schedule(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a writer that flushes every 5 seconds for two hours
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    written = []
    for flush in range(1440):
        now[0] += 5
        writer.samples(make_samples([flush], [100]))
        before = len(rollups_of(tmp_path)) if flush < 20 else 0
        writer.flush()
        if flush < 20:
            written += [flush] if len(rollups_of(tmp_path)) > before else []
    # THEN the first flush writes one, then there is one every 30 seconds, later when a hundredth of
    # the time has passed
    assert written == [0, 1, 3, 7, 13, 19]
    steps = [rollup.last_step for _, _, rollup in rollups_of(tmp_path)]
    gaps = np.diff([0, *steps]) * 5
    assert gaps.max() <= 0.01 * 7200 + 10 and gaps[100:].min() >= 30 and gaps[-1] > 60
    # AND one that is killed now has a recent one
    assert 1439 - steps[-1] <= 15
    writer.close()


def test_a_session_says_how_many_were_there_before(tmp_path: pathlib.Path) -> None:
    first = RunWriter(tmp_path / "exp")
    first.samples(make_samples([1, 2, 3], [1, 2, 3], start=5000.0))
    first.close()
    second = RunWriter(tmp_path / "exp")
    second.samples(make_samples([3, 4], [3, 4], start=1000.0))  # the clock was set back
    beside = RunWriter(tmp_path / "exp")  # while the second one still records
    assert (first.info.earlier, second.info.earlier, beside.info.earlier) == (0, 1, 0)
    beside.samples(make_samples([1], [1], start=1001.0))
    second.close()
    beside.close()
    # WHEN the first one goes on after the second
    first.samples(make_samples([5], [5], start=6000.0))
    first.end()
    first.close()
    assert first.info.earlier == 2
    run = tb_memplugin.load(tmp_path)["exp"]
    assert run.workers == ("", "process_2") and len(run.sessions) == 4
    assert run.by_worker[""].samples.step.tolist() == [1, 2, 3, 4, 5]
    assert run.by_worker[""].ended is True
    # AND a session that ended says nothing more after another one began
    third = RunWriter(tmp_path / "exp")
    files = event_files(tmp_path)
    first.end()
    assert event_files(tmp_path) == files
    third.close()
    first.end()
    assert tb_memplugin.load(tmp_path)["exp"].by_worker[""].ended is False


@pytest.fixture(autouse=True)
def _no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_writers", {})


def test_only_directories_at_or_below_the_one_that_is_read_are_waited_for(
    tmp_path: pathlib.Path,
) -> None:
    written: list[str] = []

    def write(name: str) -> bool:
        written.append(name)
        return True

    for name in ("runs/a", "runs/b/c", "runs2"):
        (tmp_path / name).mkdir(parents=True)
        recordings.register(str(tmp_path / name), functools.partial(write, name))
    recordings.register("gs://bucket/runs/a/", functools.partial(write, "remote"))
    (tmp_path / "link").symlink_to(tmp_path / "runs/a")
    for place, expected in {
        str(tmp_path / "runs"): ["runs/a", "runs/b/c"],
        str(tmp_path / "runs/b/c/"): ["runs/b/c"],
        str(tmp_path / "link"): ["runs/a"],
        "gs://bucket/runs": ["remote"],
        str(tmp_path / "other"): [],
    }.items():
        written.clear()
        recordings.write_under(place)
        assert written == expected, place


def test_a_wait_that_takes_too_long_is_a_warning(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    RunWriter(tmp_path / "run").close()
    recordings.register(str(tmp_path / "run"), lambda: False)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        assert list(load(tmp_path)) == ["run"]
    assert "run is incomplete: traced steps are still being analyzed" in caplog.text
