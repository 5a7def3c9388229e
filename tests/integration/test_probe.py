"""The probe: what it records, that it leaves no trace in the training, and the batch size that
follows."""

import pathlib
from typing import Any

import pytest
from child import run_child

MODEL = """
import hashlib, random, keras, numpy as np, tensorflow as tf, tb_memplugin
mode = sys.argv[1]
if mode == "mixed":
    keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(7)
tf.random.set_global_generator(tf.random.Generator.from_seed(3))
def network(width=32, blocks=1):
    layers = [keras.Input((32, 32, 3))]
    for _ in range(blocks):
        layers += [keras.layers.Conv2D(width, 3, padding="same"), keras.layers.BatchNormalization(),
                   keras.layers.ReLU()]
    layers += [keras.layers.MaxPool2D(4), keras.layers.Flatten(), keras.layers.Dropout(0.5),
               keras.layers.Dense(10, dtype="float32", kernel_regularizer="l2")]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.9)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
        jit_compile=mode == "xla")
    return model
x = np.random.default_rng(0).random((48, 32, 32, 3), dtype="float32")
y = np.random.default_rng(1).integers(0, 10, 48)
"""

TRAINING = """
model = network()
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48).cache().shuffle(48).batch(16)
found, runs = [], []


def state():
    digest = hashlib.sha256()
    for variable in [*model.variables, *model.optimizer.variables, *model.metrics_variables]:
        digest.update(np.asarray(variable.value.numpy()).tobytes())
    return (
        digest.hexdigest(),
        len(model.optimizer.variables),
        model.optimizer.built,
        model.stop_training,
        repr(getattr(model, "history", None)),
        [m.name for m in model.metrics],
        str(random.getstate()),
        str(np.random.get_state()),
        tf.random.get_global_generator().state.numpy().tolist(),
    )


def probe():
    if sys.argv[2] == "probe":
        before, functions = (
            state(),
            (model.train_function, model.test_function, model.predict_function),
        )
        gone = set(model.__dict__)
        runs.append(tb_memplugin.probe(model, data, batch_sizes=(4, 8)))
        assert state() == before
        assert (model.train_function, model.test_function, model.predict_function) == functions
        assert set(model.__dict__) == gone


def fitted(history):
    found.append(
        [float(loss).hex() for loss in history.history["loss"]] + history.history["accuracy"]
    )


probe()
tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(sys.argv[3] + "/checkpoint")
fitted(model.fit(data, epochs=2, verbose=0))
probe()
fitted(model.fit(x, y, batch_size=16, epochs=2, verbose=0))
found.append(
    [
        random.random(),
        float(np.random.random()),
        float(tf.random.uniform(())),
        float(keras.random.uniform(())),
        float(tf.random.get_global_generator().uniform(())),
    ]
)
recorded = [
    [(one.step, one.first, one.batch_size, one.mode) for one in run.requests] for run in runs
]
answers = [tb_memplugin.what_if(run, batch_size=32).prediction for run in runs]
answer(
    {
        "found": found,
        "recorded": recorded,
        "methods": [one.method for one in answers],
        "whole": [one.reproduced.whole and one.reproduced.of > 0 for one in answers],
    }
)
"""


@pytest.mark.long
@pytest.mark.parametrize("mode", ["graph", "xla", "mixed"])
def test_a_training_after_a_probe_is_the_one_without_it(tmp_path: pathlib.Path, mode: str) -> None:
    # GIVEN trainings whose optimizer is built after the first probe and before the second one
    without = run_child(MODEL + TRAINING, mode, "none", str(tmp_path))
    probed = run_child(MODEL + TRAINING, mode, "probe", str(tmp_path))
    # THEN losses and random numbers are the same to the bit
    assert probed["found"] == without["found"]
    # AND the probes recorded a step that compiles and three others of each batch size
    recorded_mode = "xla" if mode == "xla" else "graph"
    for start, run in zip((0, 6), probed["recorded"], strict=True):
        steps = [
            (start, True, 4),
            *((start + n, False, 4) for n in (1, 2, 3)),
            *((start + n, False, 8) for n in (5, 6, 7)),
        ]
        assert [tuple(one) for one in run] == [(*step, recorded_mode) for step in steps]
    assert probed["whole"] == [True, True]
    assert mode != "xla" or probed["methods"] == ["compiled", "compiled"]


COMPILED = """
model = network(width=48, blocks=1)
if sys.argv[2] == "probe":
    from tb_memplugin.importers import read_dump
    from tb_memplugin.schema import IN_USE
    from tb_memplugin.recorder.devices.memory_maps import MemoryMaps
    maps = MemoryMaps(["CPU:0"], print)
    def requested():
        found = read_dump(maps.read("CPU:0"), 0.0)
        return int(found.requested_bytes[found.state == IN_USE].sum())
    in_use = requested()
    run = tb_memplugin.probe(model, (x, y), batch_sizes=(8, 16))
    left = requested() - in_use
    answers = {size: tb_memplugin.what_if(run, batch_size=size).prediction for size in (32, 64)}
    answer({"left": left, "weights": 4 * model.count_params(),
        "predicted": {size: (one.peak_bytes, one.method) for size, one in answers.items()}})
else:
    peaks = []
    for size in (32, 64):
        batches = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(size)
        model.fit(batches, steps_per_epoch=2, verbose=0)
        tf.config.experimental.reset_memory_stats("CPU:0")
        model.fit(batches, steps_per_epoch=2, verbose=0)
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    answer(peaks)
"""


@pytest.mark.long
def test_a_compiled_step_is_predicted_for_larger_batch_sizes() -> None:
    # GIVEN a probe of a compiled model, and trainings with two and four times its larger batch
    environment = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "2048"}
    probed = run_child(MODEL + COMPILED, "xla", "probe", environment=environment)
    measured = run_child(MODEL + COMPILED, "xla", "none", environment=environment)
    # THEN the prediction is within 3 %
    for (predicted, method), peak in zip(probed["predicted"].values(), measured, strict=True):
        assert method == "compiled"  # XLA is asked
        assert predicted == pytest.approx(peak, rel=0.03)
    # AND the probe's slots, two for each weight, are gone. (What was requested counts: a weight may
    # have moved into a chunk of nearly twice its size.)
    assert probed["left"] < probed["weights"]


PARTIAL = """
model = network()
data = tf.data.Dataset.from_tensor_slices((x[:44], y[:44])).batch(16)
callback = tb_memplugin.MemoryCallback(sys.argv[2], trace_steps=[1, 4, 5, 7, 8])
model.fit(data, epochs=3, verbose=0, callbacks=[callback])
callback.close()
prediction = tb_memplugin.what_if(tb_memplugin.load(sys.argv[2])["."], batch_size=48).prediction
answer([prediction.method, prediction.peak_bytes])
"""


def test_a_partial_last_batch_serves_as_second_batch_size(tmp_path: pathlib.Path) -> None:
    # GIVEN a compiled training of which steps with full and with partial batches were traced
    method, peak = run_child(MODEL + PARTIAL, "xla", str(tmp_path / "run"))
    # THEN they tell what another batch size needs
    assert method == "two_sizes"
    assert peak > 0


LARGEST = """
model = network(width=48)
def told(one):
    return {"batch_size": one.batch_size, "verified": one.verified, "peak": one.peak_bytes,
        "predicted": one.predicted.prediction.peak_bytes, "sentences": one.sentences,
        "restored": not model.optimizer.built and model.train_function is None}
def search(*arguments):
    return told(tb_memplugin.largest_batch_size(model, (x, y), *arguments, batch_sizes=(8, 16)))
answer({"own": search(), "smaller": search("200MiB"), "none": search("2MiB")})
"""


@pytest.mark.long
def test_the_largest_batch_size_is_predicted_and_verified() -> None:
    # GIVEN a model on a device with 512 MiB
    found: dict[str, Any] = run_child(
        MODEL + LARGEST, "xla", environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "512"}
    )
    # THEN the largest batch runs within the device, or within a smaller capacity, and needs most of
    # it
    for name, capacity in (("own", 512 << 20), ("smaller", 200 << 20)):
        one = found[name]
        assert one["verified"] is True and 0.6 * capacity < one["peak"] <= capacity
        assert any("is predicted to need" in sentence for sentence in one["sentences"])
        assert any("Verified: two steps ran" in sentence for sentence in one["sentences"])
    assert found["own"]["batch_size"] > found["smaller"]["batch_size"] > 16
    # AND if no batch fits, it says so
    assert found["none"]["batch_size"] is None and found["none"]["verified"] is None
    # AND everything is as before
    assert all(found[name]["restored"] for name in ("own", "smaller", "none"))


UNSEEDED = """
import random, keras, numpy as np, tensorflow as tf, tb_memplugin
model = keras.Sequential([keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(4)])
model.compile("adam", "mse")
x, y = np.ones((32, 8), "float32"), np.ones((32, 4), "float32")
run = tb_memplugin.probe(model, (x, y), batch_sizes=(4, 8))
best = tb_memplugin.largest_batch_size(model, (x, y), "4MiB", batch_sizes=(4, 8))
first = float(tf.random.uniform(()))
tf.random.set_seed(3)
seeded = float(tf.random.uniform(()))
tb_memplugin.probe(model, (x, y), batch_sizes=(4,))
tf.random.set_seed(3)
answer({"sizes": sorted({one.batch_size for one in run.requests}), "best": best.batch_size,
    "same": seeded == float(tf.random.uniform(()))})
"""


def test_a_process_that_set_no_seed() -> None:
    found = run_child(UNSEEDED)
    assert found["sizes"] == [4, 8] and found["best"] > 8 and found["same"]
