"""How long a recorder holds on to anything: what is readable when, and what is left of it after the
training."""

import pathlib

import pytest
from child import recorded, run_child

import tb_memplugin

MODEL = """
import gc, os, sys, threading, time, weakref
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.base import background
from tb_memplugin.recorder.loop import sender
original_call = keras.layers.Layer.__call__


def make_model():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, name="hidden"),
            keras.layers.Dense(4, name="logits"),
        ],
        name="net",
    )
    model.compile("adam", "mse")
    return model


def wrapped():
    return keras.layers.Layer.__call__ is not original_call


x, y = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32")
"""

LIKE_ANOTHER_PROCESS = """
from tb_memplugin.storage.write import recordings
def read(name, enough):
    recordings.forget_all()  # from here on like another process
    deadline, runs = time.monotonic() + 60, {}
    while time.monotonic() < deadline and not (name in runs and enough(runs[name])):
        time.sleep(0.05)
        runs = tb_memplugin.load(sys.argv[1])
    return runs[name]
"""
NO_TICKS = "\nsender.FLUSH_SECONDS = 3600.0\n"
"""Nothing is written because time passes."""


SLOW_ANALYSIS = """
from tb_memplugin.recorder.helper import Helper
records = Helper.records
def slowly(self, traced):
    time.sleep(0.4)
    return records(self, traced)
Helper.records = slowly
"""
"""The profile of a large model takes a second or more."""


def test_a_run_that_is_loaded_right_after_the_training_has_its_breakdown(
    tmp_path: pathlib.Path,
) -> None:
    code = """
runs = os.path.dirname(sys.argv[1])
model, callback = make_model(), tb_memplugin.MemoryCallback(sys.argv[1])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
run = tb_memplugin.load(runs)["run"]
dropped = os.path.join(runs, "dropped")
model.fit(x, y, batch_size=16, verbose=0, callbacks=[tb_memplugin.MemoryCallback(dropped)])
other = tb_memplugin.load(dropped)["."]
predicted = tb_memplugin.what_if(run, batch_size=32).prediction
with tb_memplugin.MemoryRecorder(os.path.join(runs, "loop"), model, trace_steps=[1]) as recorder:
    for step in range(3):
        with recorder.step(step):
            model(x[:4])
    open_run = tb_memplugin.load(runs)["loop"]
answer(
    {
        "steps": [
            [snapshot.step for snapshot in one.snapshots[:1]] for one in (run, other, open_run)
        ],
        "samples": [len(one.samples) for one in (run, other, open_run)],
        "notes": run.notes,
        "predicted": predicted.peak_bytes is not None,
    }
)
"""
    told = run_child(MODEL + SLOW_ANALYSIS + code, str(tmp_path / "run"))
    # Without waiting, none of the three has a breakdown: analyzing each trace takes 0.4 s.
    assert told["steps"] == [[1], [5], [1]]
    assert told["samples"] == [4, 4, 3]
    assert told["notes"] == [] and told["predicted"]


def test_another_process_is_told_of_a_step_that_is_still_being_analyzed(
    tmp_path: pathlib.Path,
) -> None:
    code = """
model, callback = make_model(), tb_memplugin.MemoryCallback(sys.argv[1])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
answer({"notes": read(".", lambda run: run.notes).notes})
os._exit(0)
"""
    never = SLOW_ANALYSIS.replace("0.4", "3600")
    told = run_child(MODEL + never + LIKE_ANOTHER_PROCESS + code, str(tmp_path / "run"))
    assert told["notes"] == [
        "Traced step 0 is still being analyzed, unless its process was killed."
    ]


def test_no_end_of_a_phase_waits_for_the_background(tmp_path: pathlib.Path) -> None:
    code = """
waits, wait = [], background._Thread.while_it_works
def noted(self, done):
    waits.append(self)
    return wait(self, done)
background._Thread.while_it_works = noted
busy, released = threading.Event(), threading.Event()
def job(): busy.set(); released.wait()
background._thread.submit(job)
busy.wait()
model, callback = make_model(), tb_memplugin.MemoryCallback(sys.argv[1])
for _ in range(3):
    model.fit(x, y, batch_size=16, verbose=0, validation_data=(x, y), callbacks=[callback])
model.evaluate(x, y, batch_size=16, verbose=0, callbacks=[callback])
model.predict(x, batch_size=16, verbose=0, callbacks=[callback])
before = len(waits), os.path.exists(os.path.join(sys.argv[1], "memory"))
released.set()
callback._recording.drain()
flush = len(waits)
run = tb_memplugin.load(os.path.dirname(sys.argv[1]))["run"]
answer({"before": before, "flush": flush, "samples": len(run.samples),
        "bytes": [layer.output_bytes for layer in run.layer_tables[-1].layers]})
"""
    told = run_child(MODEL + NO_TICKS + code, str(tmp_path / "run"))
    # GIVEN a background thread that is busy WHEN five calls of fit, evaluate and predict end THEN
    # none of them waited
    assert told["before"] == [0, False]
    # AND `flush` does, after which everything is in the file, also what a trace told of the layers'
    # sizes.
    assert told["flush"] == 1
    assert told["samples"] == 3 * (4 + 4) + 4 + 4
    assert told["bytes"][-1] == 16 * 4 * 4


def test_layers_are_observed_while_a_call_runs_and_not_after_it(tmp_path: pathlib.Path) -> None:
    code = """
model, callback = make_model(), tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 6])
during, after = [], []


class Look(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        during.append(wrapped())

    def on_test_batch_begin(self, batch, logs=None):
        during.append(wrapped())

    def on_predict_batch_begin(self, batch, logs=None):
        during.append(wrapped())


callbacks = [callback, Look()]
model.fit(x, y, batch_size=16, verbose=0, validation_data=(x, y), callbacks=callbacks)
after.append(wrapped())
model.evaluate(x, y, batch_size=16, verbose=0, callbacks=callbacks)
after.append(wrapped())
model.predict(x, batch_size=16, verbose=0, callbacks=callbacks)
after.append(wrapped())
model.compile("sgd", "mse")
model.fit(x, y, batch_size=16, verbose=0)  # its functions are traced unseen
model.fit(x, y, batch_size=16, verbose=0, callbacks=callbacks)
after.append(wrapped())
with tb_memplugin.MemoryRecorder(sys.argv[1] + "_own", model) as recorder:
    with recorder.step(0):
        model(x[:4])
    recorder._recording.pause()
    after.append(wrapped())
    with recorder.step(1):
        during.append(wrapped())
after.append(wrapped())
answer({"during": during, "after": after})
"""
    told = run_child(MODEL + code, str(tmp_path / "run"))
    assert all(told["during"]) and len(told["during"]) == 4 + 4 + 4 + 4 + 4 + 1
    assert not any(told["after"]) and len(told["after"]) == 6
    snapshots = {
        snapshot.step: snapshot for snapshot in tb_memplugin.load(tmp_path)["run"].snapshots
    }
    for step in (2, 6):
        saved = {row.layer for row in snapshots[step].saved_for_backward}
        assert saved & {"net/hidden", "net/logits"}, step


def test_a_recorder_that_is_dropped_writes_everything_and_makes_way_for_the_next(
    tmp_path: pathlib.Path,
) -> None:
    code = """
model = make_model()
for _ in range(3):
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[1])])


def interrupted():
    recorder = tb_memplugin.MemoryRecorder(sys.argv[1] + "_own", model)
    recorder.begin_step(0)
    model(x)
    recorder.begin_step(1)
    model(x)


interrupted()
gc.collect()
background.wait()
tf.errors.ResourceExhaustedError(
    None, None, "OOM when allocating tensor with shape[1024] and type float [Op:Fill]"
)
answer(
    {
        "wrapped": wrapped(),
        "files": sorted(name for name in os.listdir("/proc/self/fd")),
        "own": tb_memplugin.load(os.path.dirname(sys.argv[1]))["run_own"].samples.step.tolist(),
    }
)
"""
    told, run = recorded(tmp_path, MODEL + NO_TICKS + code)
    assert len(run.sessions) == 3 and run.workers == ("",)
    assert run.samples.step.tolist() == list(range(12))
    assert told["own"] == [0, 1]
    assert told["wrapped"] is False
    # AND memory that runs out afterwards is a failure of the last one
    (oom,) = tb_memplugin.load(tmp_path)["run_own"].ooms
    assert (oom.requested_bytes, oom.place, run.ooms) == (4096, "between steps, after step 1", ())


def test_a_callback_goes_on_with_the_same_session_and_file(tmp_path: pathlib.Path) -> None:
    code = """
model, callback = make_model(), tb_memplugin.MemoryCallback(sys.argv[1], overhead=0)
for _ in range(3):
    model.fit(x, y, batch_size=32, verbose=0, callbacks=[callback])
    model.evaluate(x, y, batch_size=32, verbose=0, callbacks=[callback])
    background.wait()
answer({}); os._exit(0)
"""
    _, run = recorded(tmp_path, MODEL + code)
    assert len(list((tmp_path / "run").rglob("*tfevents*"))) == 1
    assert len(run.sessions) == 1 and run.damage == ()
    assert run.samples.step.tolist() == [0, 1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5]


MANY = """
count = int(sys.argv[2])


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


figures, model = [], make_model()
for number in range(count):
    callback = tb_memplugin.MemoryCallback(os.path.join(sys.argv[1], str(number)))
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
    if number % (count // 10) == count // 10 - 1:
        while not background.wait():
            pass  # on a busy machine, steps wait for their helper processes to start
        gc.collect()
        counts = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]
        figures.append([resident_bytes(), *counts, wrapped()])
answer(figures)
"""


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.long)])
def test_recordings_of_one_model_leave_no_thread_no_file_and_no_wrapper_behind(
    tmp_path, count
) -> None:
    figures = run_child(MODEL + MANY, str(tmp_path), str(count), timeout=280)
    # But that the last dropped one has its helper process, as the one in use has, until there is a
    # next one: the very first recording comes after none.
    threads, files, wrapped = figures[0][1:]
    files += count == len(figures)
    assert {tuple(row[1:]) for row in figures[1:]} == {(threads, files, False)} and not wrapped
    # Memory does not grow: of the last fifty recordings, none leaves more than TensorFlow's own
    # profiler does.
    assert count < 100 or (figures[-1][0] - figures[4][0]) / 50 < 150_000, figures
    # AND each of them is a complete run
    runs = tb_memplugin.load(tmp_path)
    last = {tuple(run.samples.step.tolist())[-4:] for run in runs.values()}
    assert len(runs) == count and last == {
        tuple(range(at, at + 4)) for at in range(0, 4 * count, 4)
    }


UNCLOSED = """
x, y = np.zeros((32, 256), "float32"), np.zeros((32, 4), "float32")
eager, models, kept, count = sys.argv[2] != "graph", weakref.WeakSet(), [], 12


def make_model():
    model = keras.Sequential(
        [keras.Input((256,)), keras.layers.Dense(512), keras.layers.Dense(4)], name="net"
    )
    model.compile("adam", "mse", run_eagerly=eager)
    models.add(model)
    return model


def fit(directory):
    callbacks = []
    if directory:
        callbacks = [tb_memplugin.MemoryCallback(directory)]
        kept.extend(callbacks)
    make_model().fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)


def by_hand(directory):
    model = make_model()
    if directory:
        recorder = tb_memplugin.MemoryRecorder(directory, model)
        kept.append(recorder)
    for step in range(4):
        if directory:
            recorder.begin_step(step)
        model.train_on_batch(x[:16], y[:16])
    if directory:
        recorder.end_step()


def figures():
    background.wait()
    gc.collect()
    background.wait()
    return {
        "models": len(models),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "bytes": tf.config.experimental.get_memory_info("CPU:0")["current"],
        "wrapped": wrapped(),
        "gc": len(gc.callbacks),
        "dump": os.environ.get("TF_BFC_MEMORY_DUMP"),
    }


train = by_hand if sys.argv[2] == "by hand" else fit
for _ in range(count):
    train(None)
before = figures()
for number in range(count):
    train(os.path.join(sys.argv[1], f"run{number:02}"))
after = figures()
for one in kept:
    one.close()
answer({"before": before, "after": after, "closed": figures(), "kept": len(kept)})
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["graph", "eager", "by hand"])
def test_unclosed_recorders_leave_only_one_thread_and_the_directory_of_dumps(
    tmp_path: pathlib.Path, how: str
) -> None:
    told = run_child(MODEL + UNCLOSED, str(tmp_path), how)
    before, after, closed = told["before"], told["after"], told["closed"]
    assert told["kept"] == 12
    # THEN no model, file, wrapper, callback or variable is left after their trainings, as without
    # recorders (the one thread that writes for all recorders is among those before).
    for name in ("models", "threads", "wrapped", "gc"):
        assert after[name] == before[name] == closed[name], (name, told)
    # For failures after the training, TensorFlow writes its dumps into a directory, whose one lock
    # file is open.
    assert (before["dump"], closed["dump"]) == (None, None) and after["dump"] is not None
    assert after["files"] - 1 == before["files"] == closed["files"]
    assert before["models"] == 0 and before["wrapped"] is False
    # TensorFlow itself keeps memory of every graph.
    if how != "graph":
        assert after["bytes"] - before["bytes"] < 16 << 10
    # AND every run is complete before the process ends.
    runs = tb_memplugin.load(tmp_path)
    assert [run.samples.step.tolist() for run in runs.values()] == [list(range(4))] * 12


def test_two_callbacks_of_one_fit_both_record_what_failed_and_leave_no_wrapper(
    tmp_path: pathlib.Path,
) -> None:
    code = """
class Fails(keras.layers.Layer):
    def call(self, x):
        if len(seen) == 2:
            raise tf.errors.ResourceExhaustedError(
                None, None, "OOM when allocating tensor with shape[1024] and type float [Op:Fill]"
            )
        return x


class Count(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(batch)


places = [os.path.join(sys.argv[1], name) for name in ("first", "second")]
seen, told = [], []
for end in ("failure", "end"):
    del seen[:]
    model = keras.Sequential([keras.Input((8,)), Fails(), keras.layers.Dense(4)])
    model.compile("adam", "mse", run_eagerly=True)
    callbacks = [tb_memplugin.MemoryCallback(f"{place}_{end}") for place in places]
    try:
        model.fit(
            x, y, batch_size=32 if end == "end" else 16, verbose=0, callbacks=[*callbacks, Count()]
        )
    except tf.errors.ResourceExhaustedError:
        told.append(len(seen))
    told.append(hasattr(model.train_function, "tb_memplugin_original"))
    for callback in callbacks:
        callback.close()
answer(told)
"""
    assert run_child(MODEL + code, str(tmp_path)) == [2, False, False]
    runs = tb_memplugin.load(tmp_path)
    assert {
        name: [(oom.requested_bytes, oom.step) for oom in run.ooms] for name, run in runs.items()
    } == {
        "first_failure": [(4096, 2)],
        "second_failure": [(4096, 2)],
        "first_end": [],
        "second_end": [],
    }


def test_two_callbacks_of_one_fit_record_the_same_peaks(tmp_path: pathlib.Path) -> None:
    code = """
places = [os.path.join(sys.argv[1], name) for name in ("first", "second")]
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(4096, activation="relu"), keras.layers.Dense(4)]
)
model.compile("adam", "mse")
callbacks = [tb_memplugin.MemoryCallback(place, overhead=0) for place in places]
model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
for callback in callbacks:
    callback.close()
answer(1)
"""
    run_child(MODEL + code, str(tmp_path), environment={"TF_CPU_ALLOCATOR_USE_BFC": "1"})
    first, second = (tb_memplugin.load(tmp_path)[name].samples for name in ("first", "second"))
    assert first.step.tolist() == second.step.tolist() and len(first) >= 8
    peaks = [one.devices["CPU:0"].peak_bytes.tolist() for one in (first, second)]
    assert peaks[0] == peaks[1]
    assert min(peaks[0]) > max(second.devices["CPU:0"].in_use_bytes.tolist())
