"""What a session and a memory summary say: files that a fault stops alone, counters, and the
contents of devices."""

import collections
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import keras
import numpy as np
import pytest
import tensorflow as tf
from dump_cases import make_dump
from reading_cases import MIB, make_samples, make_table
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.device_contents import LayerSum
from tb_memplugin.recorder.base import Faults, Settings, checked_settings
from tb_memplugin.recorder.devices import Device, SampleBuffer
from tb_memplugin.recorder.devices import samples as sample_buffer
from tb_memplugin.recorder.heap import Kept
from tb_memplugin.recorder.loop import (
    MemoryCallback,
    counts,
    is_recording,
    memory_summary,
    run_file,
)
from tb_memplugin.recorder.loop import contents as module
from tb_memplugin.recorder.loop.contents import _categories, _last_step, _layers
from tb_memplugin.recorder.loop.counts import (
    DENSE_ROWS,
    CounterRows,
    ProgramCounts,
    earlier_sessions,
)
from tb_memplugin.recorder.loop.run_file import FILES, RemoteRecordFile, RunFile
from tb_memplugin.recorder.loop.scalars import RUN_TAG, PeakScalars
from tb_memplugin.schema import MISSING, SAMPLES, TensorFact, TraceFacts, VariableFact
from tb_memplugin.storage import join_samples
from tb_memplugin.storage.write import RunWriter

Make = Callable[..., RunFile]


@pytest.fixture
def make(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes outputs, opened or not, whose file is in `tmp_path`."""

    def make(faults: Faults | None = None, scalars: bool = False, opens: bool = True) -> RunFile:
        settings = cast(Settings, SimpleNamespace(scalars=scalars))
        notes: collections.deque[str] = collections.deque()
        given = faults or Faults()
        made = RunFile(settings, given, notes, SampleBuffer(["GPU:0"]), CounterRows())
        if opens:
            made.open()
        return made

    monkeypatch.setattr(run_file, "open_run_writer", lambda *_: RunWriter(tmp_path))
    return make


def on_disk(directory: pathlib.Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("events.out.tfevents.*"))


def is_open(directory: pathlib.Path) -> bool:
    """Whether this process has the event file open."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return any(
        os.path.exists(link) and os.readlink(link).startswith(str(directory)) for link in links
    )


def test_flushed_records_are_on_disk_while_the_file_is_open_also_at_the_end_until_it_rests(
    make, tmp_path
) -> None:
    made = make()
    made.do(RunWriter.note, "step 7 was not analyzed")
    before = on_disk(tmp_path)
    made.do(RunWriter.flush)
    assert len(on_disk(tmp_path)) > len(before) and is_open(tmp_path)
    made.do(RunWriter.end)
    assert is_open(tmp_path)
    made.rest()
    assert tb_memplugin.load(tmp_path)["."].ended


def test_a_full_disk_is_reported_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def full(writer: RunWriter, record: str) -> None:
        raise OSError("no space left")

    made = make()
    made.do(full, "one")
    made.do(full, "two")
    for method in (RunWriter.flush, RunWriter.end):
        made.do(method)
    made.rest()
    assert [record.message for record in caplog.records] == [
        "writing the memory run stopped: OSError: no space left; training is not affected"
    ]


def test_without_a_file_nothing_is_written_and_nothing_fails(
    make, tmp_path, monkeypatch, caplog
) -> None:
    def refuse(*_: object) -> RunWriter:
        raise PermissionError("read-only")

    def do_all(made: RunFile) -> None:
        made.do(RunWriter.note, "x")
        for method in (RunWriter.flush, RunWriter.roll_up, RunWriter.end):
            made.do(method)
        for action in (made.rest, made.wake, made.abandon):
            action()

    faults = Faults()
    made = make(faults, opens=False)
    do_all(made)
    assert not faults.stopped(FILES)
    # AND the same holds for one that cannot be opened, which is tried once
    with monkeypatch.context() as patch:
        patch.setattr(run_file, "open_run_writer", refuse)
        made.open()
    made.open()
    do_all(made)
    assert faults.stopped(FILES) and len(caplog.records) == 1 and not list(tmp_path.iterdir())


def test_a_resting_file_is_closed_between_writes_until_it_is_woken(
    make: Make, tmp_path: pathlib.Path
) -> None:
    made = make()
    assert is_open(tmp_path)
    made.rest()
    before = len(on_disk(tmp_path))
    assert not is_open(tmp_path)
    made.do(RunWriter.note, "one")
    assert not is_open(tmp_path) and len(on_disk(tmp_path)) > before
    made.wake()
    made.do(RunWriter.note, "two")
    assert is_open(tmp_path)
    made.rest()
    made.do(RunWriter.end)
    run = tb_memplugin.load(tmp_path)["."]
    assert not is_open(tmp_path) and run.notes == ("one", "two") and run.ended


@pytest.mark.parametrize("fails", [False, True])
def test_a_fault_in_a_roll_up_stops_only_these(tmp_path, monkeypatch, fails) -> None:
    if fails:
        monkeypatch.setattr(run_file, "summarize_session", lambda run: 1 // 0)
    settings, faults = checked_settings(str(tmp_path), 0.005, None, None, False, ""), Faults()
    made = RunFile(settings, faults, collections.deque(), SampleBuffer(["GPU:0"]), CounterRows())
    made.open()
    made.do(RunWriter.samples, make_samples([1], [MIB]))
    made.do(RunWriter.roll_up)
    made.do(RunWriter.end)
    made.rest()
    assert faults.stopped(run_file.ROLL_UPS) == fails and not faults.stopped(run_file.FILES)
    assert tb_memplugin.load(tmp_path)["."].ended
    assert [one.ended for _, _, one in rollups_of(tmp_path)] == ([] if fails else [False, True])


def sample(made: RunFile, step: int, peak: int, epoch: int = 0) -> None:
    figures = (peak // 2, peak, *[MISSING] * 6)
    made._samples.append(1000.0 + step, (step, 0, epoch, 300 * MIB, 7 * MIB, MISSING, *figures))


def test_samples_and_counters_are_written_once(make: Make, tmp_path: pathlib.Path) -> None:
    made = make()
    made.write_out()
    empty = len(on_disk(tmp_path))
    sample(made, 3, 5 * MIB)
    made._counters.add(3, [("models_built", None, 2, MISSING)])
    made.write_out()
    written = len(on_disk(tmp_path))
    assert written > empty
    made.write_out()
    assert len(on_disk(tmp_path)) == written
    run = tb_memplugin.load(tmp_path)["."]
    assert run.samples.step.tolist() == [3] and run.samples.devices[
        "GPU:0"
    ].peak_bytes.tolist() == [5 * MIB]
    (counters,) = run.counters
    assert counters.kind == ("models_built",) and counters.count.tolist() == [2]
    assert run.samples.tf_data_bytes.tolist() == [
        7 * MIB
    ] and run.samples.pinned_pool_bytes.tolist() == [MISSING]


def test_dropped_steps_are_counted_in_one_sentence(make, monkeypatch, caplog) -> None:
    monkeypatch.setattr(sample_buffer, "MAX_ROWS", 2)
    made = make()
    for step in range(5):
        sample(made, step, MIB)
    made.write_samples()
    made.write_samples()
    (record,) = caplog.records
    assert record.message == (
        f"{SAMPLES} stopped for 3 steps: earlier ones could not be written in time"
    )


def test_after_a_fault_of_the_file_samples_are_still_taken_and_not_written(
    make, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(sample_buffer, "MAX_ROWS", 1)
    faults = Faults()
    made = make(faults, scalars=True)
    faults.stop(FILES, "no space left")
    for step in range(3):
        sample(made, step, MIB)
    made.write_out()
    # THEN they do not fill the memory, and nothing is said of those that were dropped
    assert made._samples.take() is None and len(caplog.records) == 1
    assert not made._scalars or made._scalars.end_epoch() == []


def test_a_fault_of_taking_samples_is_said_once_and_leaves_the_file(
    make, tmp_path, monkeypatch, caplog
) -> None:
    made = make()
    taken: list[int] = []

    def fail() -> None:
        taken.append(1)
        raise ValueError("a row is too short")

    monkeypatch.setattr(made._samples, "take", fail)
    made.write_samples()
    made.write_samples()
    assert [record.message.partition(" stopped")[0] for record in caplog.records] == [run_file.KEPT]
    assert taken == [1]
    made.do(RunWriter.layer_table, make_table(7, unfrozen=True))
    made.do(RunWriter.flush)
    assert [table.step for table in tb_memplugin.load(tmp_path)["."].layer_tables] == [7]


@pytest.mark.parametrize("remote", [False, True])
def test_the_file_of_a_run_is_local_or_written_by_tensorflow(
    tmp_path: pathlib.Path, remote: bool
) -> None:
    log_dir = f"ram://{tmp_path}/run" if remote else str(tmp_path / "run")
    settings = checked_settings(log_dir, 0.005, None, None, False, "worker_1")
    writer = run_file.open_run_writer(settings)
    writer.close()
    directory = f"{log_dir}/memory/worker_1"
    (name,) = tf.io.gfile.listdir(directory)
    assert tf.io.gfile.stat(f"{directory}/{name}").length > 0
    assert os.path.isdir(str(tmp_path / "run")) is not remote
    assert writer._max_file_bytes == (8 << 20 if remote else None)  # each flush uploads the file
    assert writer.info.versions["tensorflow"] == tf.__version__


class File:
    """TensorFlow's file, whose calls fail as told."""

    fails: str = ""
    calls: list[str]  # of the last file
    destroyed: int

    def __init__(self, path: str, mode: str) -> None:
        File.calls = [path, mode]

    def __getattr__(self, name: str) -> Callable[..., None]:
        def called(*data: bytes) -> None:
            File.calls.append(name)
            if name == File.fails:
                raise tf.errors.AbortedError(None, None, "All 10 retry attempts failed")

        return called

    def __del__(self) -> None:
        File.destroyed += 1


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> list[RemoteRecordFile]:
    """A file of a store, of which the list holds the only reference."""
    File.fails, File.destroyed = "", 0
    monkeypatch.setattr(tf.io.gfile, "GFile", File)
    return [RemoteRecordFile("gs://bucket/run")]


def test_what_is_closed_is_destroyed(file: list[RemoteRecordFile]) -> None:
    for record in (b"a", b"b"):
        file[0].write(record)
    assert File.calls == ["gs://bucket/run", "wb"]  # records wait for the next upload
    for act in (RemoteRecordFile.flush, RemoteRecordFile.flush, RemoteRecordFile.close):
        act(file[0])
    assert File.calls[2:] == ["write", "flush", "flush", "close"]
    file.clear()
    assert File.destroyed == 1


@pytest.mark.parametrize(("fails", "calls"), [("write", 1), ("flush", 2), ("close", 4)])
def test_after_a_failure_nothing_is_tried_again(
    file: list[RemoteRecordFile], fails: str, calls: int
) -> None:
    File.fails = fails
    with pytest.raises(tf.errors.AbortedError):
        file[0].write(b"a")
        file[0].flush()
        file[0].write(b"b")
        file[0].close()
    file[0].write(b"c")
    with pytest.raises(OSError, match="could not be uploaded before"):
        file[0].flush()
    file[0].close()
    assert len(File.calls) == 2 + calls and File.calls[-1] == fails
    # AND TensorFlow's destructor, which would try it again, never runs
    file.clear()
    assert File.destroyed == 0


TRAIN, VALIDATION = (
    "memory/epoch_peak_bytes/train/CPU:0",
    "memory/epoch_peak_bytes/validation/CPU:0",
)


def test_an_epochs_peaks_are_due_when_the_next_epoch_begins() -> None:
    scalars = PeakScalars()
    first, _ = join_samples(
        [
            make_samples([0, 1], [100, 300], epoch=0),
            make_samples([1, 1], [50, 70], phase="validation", epoch=0),
        ]
    )
    assert scalars.add(first) == [(RUN_TAG, 1, 300)]
    # A second piece of the same epoch, then the next epoch, in one piece
    second, _ = join_samples(
        [make_samples([2], [310], epoch=0), make_samples([3, 4], [200, 250], epoch=1)]
    )
    assert scalars.add(second) == [
        (RUN_TAG, 2, 310),
        (TRAIN, 2, 310),
        (VALIDATION, 2, 70),
        (RUN_TAG, 2, 310),
    ]
    # The run's peak stays when an epoch's is lower
    assert scalars.end_epoch() == [(TRAIN, 4, 250), (RUN_TAG, 4, 310)]
    assert scalars.end_epoch() == []
    # The same epoch number after the end is another epoch
    scalars.add(make_samples([5], [100], epoch=1))
    assert scalars.end_epoch()[0] == (TRAIN, 5, 100)


def test_without_epochs_only_a_rise_of_the_peak_is_written_and_an_unknown_one_is_no_point() -> None:
    scalars = PeakScalars()
    assert scalars.add(make_samples([0, 1], [100, 90], epoch=MISSING)) == [(RUN_TAG, 1, 100)]
    assert scalars.add(make_samples([2], [100], epoch=MISSING)) == []
    assert scalars.end_epoch() == []
    unknown = PeakScalars()
    assert (
        unknown.add(make_samples([0], [MISSING], in_use=[5], epoch=0)) == [] == unknown.end_epoch()
    )


def rows_of(rows: CounterRows) -> list[tuple[Any, ...]]:
    taken = rows.take()
    if taken is None:
        return []
    return list(
        zip(
            taken.step.tolist(),
            taken.kind,
            taken.name,
            taken.count.tolist(),
            taken.bytes.tolist(),
            strict=True,
        )
    )


def test_only_changes_are_kept_and_a_counter_that_is_missing_became_zero() -> None:
    rows = CounterRows()
    rows.add(3, [("models_alive", "CPU:0", 1, 100), ("traces", "f", 2, MISSING)])
    rows.add(4, [("models_alive", "CPU:0", 1, 100), ("traces", "f", 3, MISSING)])
    rows.add(5, [("models_alive", "CPU:0", 1, 160), ("traces", "f", 3, MISSING)])
    assert rows_of(rows) == [
        (3, "models_alive", "CPU:0", 1, 100),
        (3, "traces", "f", 2, MISSING),
        (4, "traces", "f", 3, MISSING),
        (5, "models_alive", "CPU:0", 1, 160),
    ]
    assert rows.take() is None
    rows = CounterRows()
    rows.add(1, [("models_gone", "CPU:0", 2, 64)])
    rows.add(2, [])
    rows.add(3, [])
    assert rows_of(rows)[1:] == [(2, "models_gone", "CPU:0", 0, 0)]


def test_many_changes_cost_one_row_for_each_take() -> None:
    rows = CounterRows()
    for step in range(10 * DENSE_ROWS):
        rows.add(step, [("traces", "f", step, MISSING)])
    taken = rows_of(rows)
    # The last value is there, and the first ones are.
    assert len(taken) == DENSE_ROWS + 1 and taken[-1][3] == 10 * DENSE_ROWS - 1
    rows.add(10**6, [("traces", "f", 10**6, MISSING)])
    assert len(rows_of(rows)) == 1


def test_a_session_is_told_the_ends_of_those_before_it_in_order_and_of_many_some(
    monkeypatch,
) -> None:
    monkeypatch.setattr(counts, "session_ends", {})
    monkeypatch.setattr(counts, "_numbers", itertools.count(1))
    first, second, third = (ProgramCounts(0.0) for _ in range(3))
    second.note_end({"CPU:0": 25}, {"CPU:0": 5})
    first.note_end({"CPU:0": 5}, {})
    first.note_end({"CPU:0": 10, "GPU:0": 1}, {"CPU:0": 0})  # it went on
    assert earlier_sessions(1) == []
    assert earlier_sessions(3) == [
        [("earlier_sessions", "CPU:0", 1, 10), ("earlier_sessions", "GPU:0", 1, 1)],
        [("earlier_sessions", "CPU:0", 2, 20)],
    ]
    third.count(7, lambda: False)
    assert (7, "earlier_sessions", "CPU:0", 2, 20) in rows_of(third.rows)
    for _ in range(997):
        ProgramCounts(0.0).note_end({"CPU:0": 1}, {})
    third.note_end({"CPU:0": 1}, {})
    numbers = [values[0][2] for values in earlier_sessions(1001)]
    assert len(numbers) == counts.MAX_SESSIONS and numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 1000)


def test_it_looks_at_objects_if_memory_grew_and_the_budget_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    kept = [Kept("kept_arrays", "list", 2, 8), Kept("kept_iterators", "dict", 3, None)]
    monkeypatch.setattr(counts, "kept_objects", lambda *_: (looks.append(1), kept)[1])
    counting = ProgramCounts(0.005)
    counting.count(1, lambda: False)
    assert looks == []
    counting.count(2, lambda: True)
    found = rows_of(counting.rows)
    assert (2, "kept_arrays", "list", 2, 8) in found and (
        2,
        "kept_iterators",
        "dict",
        3,
        MISSING,
    ) in found
    ProgramCounts(0.0).count(1, lambda: True)
    monkeypatch.setattr(counts, "FREE_SECONDS", -1.0)
    counting.count(3, lambda: True)
    assert looks == [1]


def memory(*chunks: tuple[int, int, int]) -> Any:
    """The map of chunks in use (address, bytes, requested bytes), and a free one behind them."""
    listed = [(address, size, requested, True) for address, size, requested in chunks]
    return module.read_dump(make_dump(listed=[*listed, (1 << 20, 4096, 0, False)]), 0.0)


def variable(
    role: Any, trainable: bool | None, layer: str | None, size: int, address: int | None
) -> VariableFact:
    return VariableFact("v", role, layer, trainable, size, "GPU:0", address, address)


VARIABLES = (
    variable("weights", True, "net/a", 1000, 0x1000),
    variable("weights", True, "net/b", 200, 0x2000),
    variable("weights", False, "net/c", 300, None),
    variable("optimizer_state", True, "net/a", 2000, 0x3000),
    variable("optimizer_state", None, None, 8, 0x9000),
)
FACTS = TraceFacts(variables=VARIABLES, tensors=(TensorFact("held_tensors", 50, 0x4000),))


def test_the_categories_sum_to_the_allocated_bytes() -> None:
    # Two chunks are larger than what was asked for; one tensor's address is unknown, and two lie in
    # no chunk in use.
    found = _categories(
        FACTS, memory((0x1000, 1024, 1000), (0x2000, 256, 200), (0x4000, 50, 50)), 10_000
    )
    sums = {(one.category, one.trainable): (one.bytes, one.tensors) for one in found}
    assert sums == {
        ("weights", True): (1200, 2),
        ("weights", False): (300, 1),
        ("optimizer_state", None): (2008, 2),
        ("held_tensors", None): (50, 1),
        ("rounding", None): (24 + 56, None),
        ("unattributed", None): (10_000 - 3558 - 80, None),
    }
    assert sum(one.bytes for one in found) == 10_000
    # AND unattributed memory is the top of the stack, weights the bottom
    assert [one.category for one in found][-2:] == ["weights", "weights"]


def test_layers_are_in_order_of_their_bytes_then_of_their_names() -> None:
    more = [
        variable("other_state", None, "net/z", 300, None),
        variable("weights", True, "net/d", 300, None),
    ]
    assert _layers(dataclasses.replace(FACTS, variables=(*VARIABLES, *more))) == (
        LayerSum("net/a", 1000, 2000),
        LayerSum("net/c", 300, 0),
        LayerSum("net/d", 300, 0),
        LayerSum("net/z", 0, 300),
        LayerSum("net/b", 200, 0),
    )


def optimizer(iterations: int) -> Any:
    return SimpleNamespace(iterations=iterations)


FIRST = optimizer(5)


@pytest.mark.parametrize(
    ("optimizers", "given", "step"),
    [
        ([FIRST], None, 4),
        ([FIRST, optimizer(0)], None, 4),
        ([FIRST, None], None, 4),
        ([FIRST, FIRST], None, 4),  # two models of one optimizer
        ([FIRST, optimizer(5)], None, None),
        ([optimizer(0)], None, None),
        ([], None, None),
        ([FIRST], optimizer(9), 8),
    ],
)
def test_the_last_step_is_that_of_the_only_optimizer_that_trained(
    optimizers: Any, given: Any, step: Any
) -> None:
    assert _last_step([SimpleNamespace(optimizer=one) for one in optimizers], given) == step


def test_without_a_map_the_pool_is_unknown_and_a_note_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def maps(devices: list[str], report: Callable[[str], None]) -> Any:
        report(f"The map of {devices[0]} is unknown.")
        return SimpleNamespace(read=lambda device: None)

    devices = [Device(name, 1 << 30, None) for name in ("CPU:0", "GPU:0")]
    monkeypatch.setattr(module.allocator, "choose_devices", lambda chosen: (devices, ["a note"]))
    monkeypatch.setattr(module.allocator, "memory_info", lambda device: (3 * MIB, 5 * MIB))
    monkeypatch.setattr(module, "MemoryMaps", maps)
    found = memory_summary(
        keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), devices=["CPU:0", "GPU:0"]
    )
    assert [one.device for one in found.devices] == ["CPU:0", "GPU:0"]
    assert {(one.pool_bytes, one.free_bytes, one.largest_free_bytes) for one in found.devices} == {
        (None, None, None)
    }
    assert found.notes == ("a note", "The map of CPU:0 is unknown.")
    # AND the second device has none of the model's variables
    assert found.devices[1].layers == () and [
        one.category for one in found.devices[1].categories
    ] == ["unattributed"]


def test_an_open_recorder_records_unless_it_is_paused_or_left_out(tmp_path: pathlib.Path) -> None:
    """A newer one takes a run over: see tests/integration/test_recorder.py."""
    callback, seen = MemoryCallback(tmp_path / "a"), []
    look = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: seen.append(
            (is_recording([]), is_recording([str(tmp_path / "a")]))
        )
    )
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert not is_recording([])
    for _ in range(2):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback, look], verbose=0)
        assert not is_recording([])
    assert seen == [(True, False)] * 2
    callback.close()
