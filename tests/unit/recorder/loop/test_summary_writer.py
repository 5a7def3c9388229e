"""When the summary API's records reach the program's own writer, and what they are then."""

import itertools
import logging
import pathlib
from typing import Any

import pytest
import tensorflow as tf
from reading_cases import make_snapshot
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import tb_memplugin
from tb_memplugin.recorder.loop import SummaryWriter, recording_writer, summary_writer
from tb_memplugin.schema import MISSING


class Log:
    """A run with a `tf.summary` writer."""

    def __init__(self, logdir: pathlib.Path) -> None:
        self.logdir = logdir
        self.writer = tf.summary.create_file_writer(str(logdir / "run" / "memory"))

    @property
    def bytes(self) -> int:
        """Bytes on disk once TensorFlow has written what it was given."""
        type(self.writer).flush(self.writer)
        return sum(path.stat().st_size for path in self.logdir.rglob("events.out.tfevents.*"))

    def read(self) -> Any:
        return tb_memplugin.load(self.logdir)["run"]


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Log:
    return Log(tmp_path)


def accepted() -> SummaryWriter:
    """The state of the default writer, with a row that waits."""
    state = recording_writer("layer_activations")
    assert state is not None
    state.add_activations(3, {"a": 10})
    return state


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_writer, "_warned", set())


@pytest.mark.parametrize("method", ["flush", "close"])
def test_activations_wait_until_the_writer_is_flushed_or_closed(log: Log, method: str) -> None:
    state = SummaryWriter(log.writer)
    before = log.bytes
    state.add_activations(3, {"a": 10, "b": 20})
    state.add_activations(5, {"b": 30, "c": 40})
    assert log.bytes == before
    getattr(log.writer, method)()
    activations = log.read().activations
    assert activations.step.tolist() == [3, 5] and activations.layers == ("a", "b", "c")
    # AND a layer that a step does not name has no value there
    assert activations.bytes.tolist() == [[10, 20, MISSING], [MISSING, 30, 40]]
    # AND what was written once is not written again
    if method == "flush":
        written = log.bytes
        state.drain()
        assert log.bytes == written
        # AND a row that was accepted is written whatever the program records later
        with log.writer.as_default():
            accepted().add_activations(7, {"a": 10})
            with tf.summary.record_if(False):
                log.writer.flush()
        assert log.read().activations.step.tolist()[-1] == 7


def test_activations_are_written_after_five_seconds_or_when_there_are_many(
    log, monkeypatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(summary_writer.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(summary_writer, "MAX_ACTIVATION_VALUES", 8)
    state = SummaryWriter(log.writer)
    sizes = [log.bytes]
    for seconds, layers in ((0.0, 1), (4.9, 1), (0.1, 1), (4.9, 1), (0.0, 2), (0.0, 1)):
        now[0] += seconds
        state.add_activations(1, dict.fromkeys("abcd"[:layers], 1))
        sizes.append(log.bytes)
    # THEN at five seconds, and not at the next three values, but at four
    assert [later > before for before, later in itertools.pairwise(sizes)] == [
        False,
        False,
        True,
    ] * 2


def test_records_of_one_writer_are_one_session_that_is_described_once(log: Log) -> None:
    state = SummaryWriter(log.writer)
    for step in (4, 5):
        state.write_snapshot(make_snapshot(1), step)
    log.writer.close()
    (path,) = log.logdir.rglob("events.out.tfevents.*")
    events = EventFileLoader(str(path)).Load()
    tags = [value.tag.partition("/")[0] for event in events for value in event.summary.value]
    assert tags == ["meta", "snapshots", "snapshots"]
    run = log.read()
    assert [snapshot.step for snapshot in run.snapshots] == [4, 5] and len(run.sessions) == 1


def test_a_missing_writer_is_said_once_for_each_call(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        for call in ("layer_activations", "layer_activations", "allocator_snapshot"):
            assert recording_writer(call) is None
    reason = " recorded nothing: there is no default summary writer"
    said = [record.message.partition(reason)[0] for record in caplog.records]
    assert said == ["summary.layer_activations", "summary.allocator_snapshot"]


def test_a_failure_at_exit_is_said_and_keeps_no_other_row_back(
    log, tmp_path, caplog, monkeypatch
) -> None:
    failing = tf.summary.create_file_writer(str(tmp_path / "failing"))
    monkeypatch.setattr(summary_writer, "_states", type(summary_writer._states)())
    for writer in (failing, log.writer):
        with writer.as_default():
            accepted()

    def full() -> None:
        raise OSError("no space left")

    failing.flush = full
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        summary_writer._drain_all()
    assert [record.message for record in caplog.records] == [
        "the last layer activations could not be written: no space left"
    ]
    assert log.read().activations.step.tolist() == [3]


def test_a_forked_child_writes_none_of_its_parents_rows(log: Log) -> None:
    with log.writer.as_default():
        state = accepted()
        state._abandon()
        before = log.bytes
        log.writer.flush()
        summary_writer._drain_all()
        assert log.bytes == before
        # AND what it records itself has a session of its own
        assert recording_writer("layer_activations") is not state
