"""Trainings that end by an exception, of which Keras tells no callback: nothing stays wrapped."""

import pathlib

import pytest
from child import run_child

import tb_memplugin

INTERRUPTED = """
import os, signal, time
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.base import background

original_call = keras.layers.Layer.__call__
traces = []


class Counting(keras.layers.Dense):
    def call(self, inputs):
        traces.append(1)
        return super().call(inputs)


x, y = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32")
model = keras.Sequential([keras.Input((8,)), Counting(4)], name="net")
model.compile("sgd", "mse")


def left():
    functions = [
        getattr(model, name) for name in ("train_function", "test_function", "predict_function")
    ]
    return {
        "wrapped": keras.layers.Layer.__call__ is not original_call,
        "guarded": any(hasattr(function, "tb_memplugin_original") for function in functions),
    }


class Raise(keras.callbacks.Callback):
    def __init__(self, hook, action):
        super().__init__()
        setattr(self, hook, lambda *arguments, **named: action())


def interrupt():
    raise KeyboardInterrupt


def sigint():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def fault():
    raise ValueError("on purpose")


def batches():
    yield x[:16], y[:16]
    yield x[:16], y[:16]
    raise KeyboardInterrupt


cases = {
    "train batch": lambda: Raise("on_train_batch_begin", interrupt),
    "train batch end": lambda: Raise("on_train_batch_end", interrupt),
    "epoch end": lambda: Raise("on_epoch_end", interrupt),
    "validation": lambda: Raise("on_test_batch_begin", interrupt),
    "signal": lambda: Raise("on_train_batch_end", sigint),
    "error": lambda: Raise("on_epoch_begin", fault),
}
told, kept = {}, []
for name, make in cases.items():
    callback = tb_memplugin.MemoryCallback(
        os.path.join(sys.argv[1], name.replace(" ", "_")), overhead=0
    )
    kept.append(callback)
    try:
        model.fit(
            x, y, batch_size=16, verbose=0, validation_data=(x, y), callbacks=[callback, make()]
        )
    except (KeyboardInterrupt, ValueError):
        pass
    told[name] = left()


# The step function itself raises, and the traceback is kept, as in a notebook.
def interrupted_fit(hook, directory, **more):
    callback = tb_memplugin.MemoryCallback(os.path.join(sys.argv[1], directory), overhead=0)
    kept.append(callback)
    try:
        model.fit(
            x, y, batch_size=16, verbose=0, callbacks=[callback, *more.pop("callbacks", [])], **more
        )
    except KeyboardInterrupt as error:
        kept.append(error)


model.compile("sgd", "mse", run_eagerly=True)


def step(*arguments):
    raise KeyboardInterrupt


train_step, model.train_step = model.train_step, step
interrupted_fit(None, "step")
told["step"] = left()
model.train_step = train_step
model.compile("sgd", "mse")
interrupted_fit(None, "kept", callbacks=[Raise("on_epoch_end", interrupt)])
deadline = time.monotonic() + 60
while any(left().values()) and time.monotonic() < deadline:
    time.sleep(0.05)
told["kept"] = left()
# A training that goes on after one that was interrupted is recorded as before.
model.fit(x, y, batch_size=16, verbose=0, callbacks=[kept[0]])
told["again"] = left()
background.wait()
answer(told)
"""


def test_an_interrupted_training_leaves_no_wrapper_behind(tmp_path: pathlib.Path) -> None:
    told = run_child(INTERRUPTED, str(tmp_path), timeout=120)
    told.pop("stderr")
    assert len(told) == 9
    for name, left in told.items():
        assert left == {"wrapped": False, "guarded": False}, name
    runs = tb_memplugin.load(tmp_path)
    assert {name: len(run.samples) for name, run in runs.items()}["epoch_end"] == 8
    assert len(runs["train_batch"].samples) >= 4 and not any(run.damage for run in runs.values())


RETRACED = (
    INTERRUPTED[: INTERRUPTED.index("cases = {")]
    + """
def count(*callbacks, method="fit"):
    before = len(traces)
    data = {"fit": (x, y), "evaluate": (x, y), "predict": (x,)}[method]
    try:
        getattr(model, method)(*data, batch_size=16, verbose=0, callbacks=list(callbacks))
    except KeyboardInterrupt:
        pass
    return len(traces) - before


def callback(name):
    return tb_memplugin.MemoryCallback(os.path.join(sys.argv[1], name))


told = {"first": count(callback("a")), "second": count(callback("b"))}
model.compile("sgd", "mse")
same = callback("c")
told["compiled"], told["interrupted"] = (
    count(same),
    count(same, Raise("on_train_batch_end", interrupt)),
)
told["after the interrupt"] = count(same)
model.compile("sgd", "mse")
told["compiled and interrupted"] = count(same, Raise("on_train_batch_end", interrupt))
told["after both"] = count(same)
told["unseen evaluation"] = count(method="evaluate")
told["fit after it"] = count(callback("d"))
told["unseen evaluation again"] = count(method="evaluate")
told["recorded evaluation"] = count(callback("e"), method="evaluate")
told["recorded evaluation again"] = count(callback("f"), method="evaluate")
told["recorded prediction"] = count(callback("g"), method="predict")
told["again"] = count(callback("h"), method="predict")
answer(told)
"""
)


@pytest.mark.long
def test_a_function_is_traced_once_more_only_if_it_was_traced_unseen(
    tmp_path: pathlib.Path,
) -> None:
    told = run_child(RETRACED, str(tmp_path), timeout=120)
    told.pop("stderr")
    assert told == {
        "first": told["first"],
        "second": 0,
        "compiled": told["compiled"],
        "interrupted": 0,
        "after the interrupt": 0,
        "compiled and interrupted": told["compiled"],
        "after both": 0,
        "unseen evaluation": 1,
        "fit after it": 0,
        "unseen evaluation again": 0,
        "recorded evaluation": 1,
        "recorded evaluation again": 0,
        "recorded prediction": 1,
        "again": 0,
    }
    # AND the runs in which one was traced again say so
    runs = tb_memplugin.load(tmp_path)
    again = {
        name for name, run in runs.items() if "traced the model's function again" in str(run.notes)
    }
    assert again == {"e"}
