"""`release_unused` frees what nothing can reach, by the allocator's own figure, and changes nothing
else."""

import pathlib

import pytest
from child import run_child

SETUP = """
import gc
import keras, numpy as np, tensorflow as tf
import tb_memplugin
from tb_memplugin.importers import read_dump
from tb_memplugin.schema.chunks import IN_USE
from tb_memplugin.recorder.devices.memory_maps import MemoryMaps

rng = np.random.default_rng(0)
x, y = rng.random((96, 256)).astype("float32"), rng.random((96, 256)).astype("float32")


def make(name):
    layers = [
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(256),
    ]
    return keras.Sequential([keras.Input((256,)), *layers], name=name)


def fit(model, optimizer=None, **options):
    if optimizer is not None:
        model.compile(optimizer, "mse")
    return model.fit(x, y, batch_size=32, verbose=0, **options).history["loss"]


def in_use():
    gc.collect()
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def requested():
    # What chunks keep unsplit depends on the requests before; what was requested does not.
    gc.collect()
    chunks = read_dump(MemoryMaps(["CPU:0"], print).read("CPU:0"), 0.0)
    return int(chunks.requested_bytes[chunks.state == IN_USE].sum())


def sizes(variables):
    return sum(v.numpy().nbytes for v in variables)
"""

FREED = """
first = make("first")
fit(first, "adam")
alone = requested()
slots = sizes(first.optimizer.variables)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[1, 4])
fit(first, "adam", callbacks=[callback])
fit(first, "adam", callbacks=[callback])
second = make("second")
weights = sizes(second.weights)
fit(second, "adam")
del second
left = requested() - alone
held = in_use()
freed = tb_memplugin.release_unused()
after = in_use()
remaining = requested() - alone
again = tb_memplugin.release_unused()
answer(
    {
        "slots": slots,
        "weights": weights,
        "left": left,
        "held": held,
        "freed": freed,
        "after": after,
        "remaining": remaining,
        "again": again,
    }
)
"""


def test_earlier_optimizers_and_models_are_freed_by_the_allocators_figure(
    tmp_path: pathlib.Path,
) -> None:
    told = run_child(SETUP + FREED, str(tmp_path / "run"))
    # Two earlier optimizers of the first model; the second model with its weights and slots.
    left_behind = 3 * told["slots"] + told["weights"]
    assert told["left"] >= left_behind
    assert told["freed"] == told["held"] - told["after"]
    assert told["freed"] >= left_behind
    assert told["remaining"] <= 64 * 1024  # constants and handles
    assert told["again"] == 0


LOSSES = """
keras.utils.set_random_seed(3)
losses, model = [], make("net")
for optimizer in ("adam", "rmsprop", None):
    losses += fit(model, optimizer, epochs=2)
    if sys.argv[1] == "release":
        print(tb_memplugin.release_unused())
answer({"losses": losses, "weights": [v.numpy().tobytes().hex() for v in model.weights]})
"""


@pytest.mark.long
def test_training_afterwards_gives_the_same_bits() -> None:
    with_call, without = (run_child(SETUP + LOSSES, which) for which in ("release", "leave"))
    assert len(with_call["losses"]) == 6
    assert (with_call["losses"], with_call["weights"]) == (without["losses"], without["weights"])


USED = """
@tf.custom_gradient
def doubled(value):
    return (
        value * 2.0,
        lambda gradient: gradient * 7.0,
    )  # not its true gradient: shows that this function is called


def make_function(scale):
    inner = tf.function(lambda value: doubled(value) * scale)
    return tf.function(lambda value: inner(value) + 1.0)


def gradient_of(function):
    value = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = function(value)
    return tape.gradient(result, value).numpy().tolist()


kept = [make("listed")]
fit(kept[0], "adam")
before = kept[0].predict(x, verbose=0)
variable = tf.Variable([3.0, 4.0])
function = make_function(variable)
function(tf.constant([1.0, 2.0]))  # traced without a tape: its gradient is not built yet
concrete = make_function(2.0).get_concrete_function(tf.TensorSpec((2,)))
saved = tf.Module()
saved.call = tf.function(make_function(5.0), input_signature=[tf.TensorSpec((2,))])
tf.saved_model.save(
    saved, sys.argv[1], options=tf.saved_model.SaveOptions(experimental_custom_gradients=True)
)
loaded = tf.saved_model.load(sys.argv[1])
dropped = make("dropped")
fit(dropped, "adam")
del dropped
freed = tb_memplugin.release_unused()
same = bool((kept[0].predict(x, verbose=0) == before).all())
loss = fit(kept[0])
tf.saved_model.save(
    saved, sys.argv[2], options=tf.saved_model.SaveOptions(experimental_custom_gradients=True)
)
answer(
    {
        "freed": freed,
        "same": same,
        "loss": loss,
        "function": gradient_of(function),
        "concrete": gradient_of(concrete),
        "loaded": gradient_of(loaded.call),
        "saved again": gradient_of(tf.saved_model.load(sys.argv[2]).call),
    }
)
"""


@pytest.mark.long
def test_what_the_program_can_still_reach_goes_on_working(tmp_path: pathlib.Path) -> None:
    told = run_child(SETUP + USED, str(tmp_path / "one"), str(tmp_path / "two"))
    assert told["freed"] > 0
    assert told["same"] and len(told["loss"]) == 1
    assert told["function"] == [21.0, 28.0]
    assert told["concrete"] == [14.0, 14.0]
    assert told["loaded"] == told["saved again"] == [35.0, 35.0]


def test_without_statistics_the_bytes_are_unknown() -> None:
    code = "import tensorflow as tf\nimport tb_memplugin\nanswer([tb_memplugin.release_unused()])"
    assert run_child(code, environment={"TF_CPU_ALLOCATOR_USE_BFC": "0"}) == [None]
