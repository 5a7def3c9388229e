"""Recording real trainings on the CPU's BFC allocator, against Keras's own counts and the
allocator's own figures."""

import json
import pathlib
from typing import Any

import pytest
from child import WARNINGS, recorded, run_child

import tb_memplugin
from tb_memplugin.schema import Run

MODEL = """
import keras, numpy as np, tensorflow as tf, tb_memplugin
def make_model():
    keras.utils.set_random_seed(7)
    return keras.Sequential([
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(8, 3, activation="relu", name="conv"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(32, activation="relu", name="hidden"),
        keras.layers.Dense(4, name="logits"),
    ], name="net")
def compile_model(model, optimizer="adam"):
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
random = np.random.default_rng(0)
x = random.random((160, 16, 16, 3), "float32"); y = random.integers(0, 4, 160)
"""


def trained(directory: pathlib.Path, code: str, *arguments: str, **options: Any) -> tuple[Any, Run]:
    return recorded(directory, WARNINGS + MODEL + code, *arguments, **options)


FIT = """
model = make_model()
model.get_layer("conv").trainable = False
compile_model(model)
callback = tb_memplugin.MemoryCallback(sys.argv[1])
model.fit(
    x, y, batch_size=16, epochs=2, verbose=0, validation_data=(x[:32], y[:32]), callbacks=[callback]
)


def counts():
    def size(variables):
        return sum(int(np.prod(v.shape)) * 4 for v in variables)

    return {
        "trainable": size(model.trainable_variables),
        "frozen": size(model.non_trainable_variables),
        "by_layer": {"net/" + layer.name: size(layer.weights) for layer in model.layers},
        "slots": sorted("net/" + layer.name for layer in model.layers if layer.trainable_variables),
    }


before = counts()
model.get_layer("conv").trainable = True
compile_model(model)
model.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[callback])
answer({"before": before, "after": counts(), "warnings": warnings})
"""


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[tb_memplugin.load, dict]:
    """A run recorded by `FIT`, and what Keras counted."""
    directory = tmp_path_factory.mktemp("fit")
    counted, run = trained(directory, FIT)
    return run, counted


def test_every_step_of_every_phase_has_a_sample(fit: tuple) -> None:
    run, counted = fit
    train = run.samples.step[run.samples.phase == 0].tolist()
    validation = run.samples.step[run.samples.phase == 1].tolist()
    # 160 / 16 steps in 2 + 1 epochs, counted through both calls of fit
    assert train == list(range(30))
    assert validation == [9, 9, 19, 19]
    assert counted["warnings"] == []
    assert run.damage == ()


def test_weights_and_slots_equal_kerass_own_counts_before_and_after_the_unfreezing(
    fit: tuple,
) -> None:
    run, counted = fit
    tables = [table for table in run.layer_tables if table.optimizer is not None]
    frozen = [table for table in tables if table.step < 20][-1]
    thawed = [table for table in tables if table.step >= 20][-1]
    for table, truth in ((frozen, counted["before"]), (thawed, counted["after"])):
        trainable = sum(layer.trainable_weight_bytes for layer in table.layers)
        assert trainable == truth["trainable"]
        assert sum(layer.weight_bytes for layer in table.layers) - trainable == truth["frozen"]
        sizes = {layer.path: layer.weight_bytes for layer in table.layers if layer.path != "net"}
        assert sizes == truth["by_layer"]
        assert (
            sorted(layer.path for layer in table.layers if layer.optimizer_bytes) == truth["slots"]
        )
        # Adam keeps two slots of the size of each trainable weight.
        assert sum(layer.optimizer_bytes for layer in table.layers) == 2 * truth["trainable"]
    assert thawed.reason == "conv became trainable"


def test_output_sizes_are_shape_times_dtype_times_batch(fit: tuple) -> None:
    run, _ = fit
    sizes = {
        layer.path: layer.output_bytes
        for layer in run.layer_tables[-1].layers
        if layer.path != "net"
    }
    # 16 examples a batch, float32; the convolution makes 14 × 14 × 8.
    conv = 16 * 14 * 14 * 8 * 4
    assert sizes == {
        "net/conv": conv,
        "net/norm": conv,
        "net/flat": conv,
        "net/hidden": 16 * 32 * 4,
        "net/logits": 16 * 4 * 4,
    }


def test_losses_are_bit_identical_with_and_without_the_callback(tmp_path: pathlib.Path) -> None:
    code = """
losses = {}
for name, callbacks in (
    ("without", []),
    ("with", [tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=range(0, 60, 3))]),
):
    model = make_model()
    compile_model(model)
    history = model.fit(x, y, batch_size=16, epochs=6, verbose=0, callbacks=callbacks).history
    losses[name] = [loss.hex() for loss in history["loss"]]
answer(losses)
"""
    losses, run = trained(tmp_path, code)
    assert losses["with"] == losses["without"]
    traced = [snapshot.step for snapshot in run.snapshots]
    assert len(traced) > 10 and set(traced) <= set(range(0, 60, 3))


def test_a_loop_of_ones_own_is_recorded_by_the_recorder(tmp_path: pathlib.Path) -> None:
    code = """
model = make_model(); optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        value = loss(labels, model(images, training=True))
    optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
    return value
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, optimizer=optimizer) as recorder:
    for step in range(12):
        with recorder.step(step):
            train_step(x[:16], y[:16])
    with recorder.step(11, phase="validation"):
        model(x[:16])
    recorder.begin_step(-1); recorder.end_step()
    recorder.begin_step(12, "training"); recorder.end_step()
answer({"warnings": warnings})
"""
    told, run = trained(tmp_path, code)
    assert run.samples.step.tolist() == [*range(12), 11]
    assert run.samples.phase.tolist() == [0] * 12 + [1]
    assert any(snapshot.phase == "train" for snapshot in run.snapshots)
    assert [
        layer.optimizer_bytes for layer in run.layer_tables[-1].layers if layer.path == "net/hidden"
    ] == [(14 * 14 * 8 + 1) * 32 * 4]
    # One warning for each kind of wrong step, and the training went on.
    assert len(told["warnings"]) == 2
    assert "step=-1" in told["warnings"][0] and "'training'" in told["warnings"][1]


def test_a_newer_recorder_of_the_process_takes_over_the_run(tmp_path: pathlib.Path) -> None:
    code = """
recorders = []
for first in (0, 5):
    recorder = tb_memplugin.MemoryRecorder(sys.argv[1], overhead=0); recorders.append(recorder)
    for step in range(first, first + 10):
        with recorder.step(step):
            tf.ones(1000)
answer({"warnings": warnings})
"""
    told, run = trained(tmp_path, code)
    assert len(run.sessions) == 2 and run.workers == ("",)
    assert run.samples.step.tolist() == list(range(15))
    assert (
        len(told["warnings"]) == 1
        and ("a newer recorder of this process took over") in told["warnings"][0]
    )
    assert str(tmp_path) not in " ".join(run.notes)


def test_a_device_or_a_limit_that_this_machine_does_not_have_is_said_once_and_training_goes_on(
    tmp_path,
) -> None:
    code = """
model = make_model(); compile_model(model)
callback = tb_memplugin.MemoryCallback(sys.argv[1], devices=["GPU:0", "CPU:0"])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
alone = tb_memplugin.MemoryCallback(sys.argv[1] + "_alone", devices=["GPU:0"])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[alone])
fits = []
for size in (300, 600):
    try: fits.append(bool(tf.zeros(size << 18).shape))
    except tf.errors.ResourceExhaustedError: fits.append(False)
answer({"warnings": warnings, "fits": fits})
"""
    told, _ = trained(tmp_path, code, environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "512MB"})
    runs = tb_memplugin.load(tmp_path)
    missing = "Not recording GPU:0: this process has only CPU:0."
    limit = (
        "TF_CPU_BFC_MEM_LIMIT_IN_MB must be a whole number of MiB: TensorFlow takes '512MB' as "
        "512 MiB."
    )
    # of 300 and 600 MiB: the allocator's limit is the one that is said
    assert told["fits"] == [True, False]
    assert told["warnings"] == [missing, limit, missing]
    assert runs["run"].notes == (missing, limit)
    assert set(runs["run"].samples.devices["CPU:0"].capacity_bytes.tolist()) == {512 << 20}
    assert len(runs["run_alone"].samples) == 10 and runs["run_alone"].samples.devices == {}


def test_another_model_is_trained_without_being_recorded_inside_a_fit_and_after_it(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN a fit in which another model is evaluated, fails, predicts and is trained, all with the
    # same callbacks
    code = """
model, teacher, second, third = (make_model() for _ in range(4))
for one in (model, teacher, second, third):
    compile_model(one)


class Others(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            teacher.evaluate(x, y, batch_size=16, verbose=0, callbacks=callbacks)
        if epoch == 1:
            try:
                teacher.evaluate(
                    x, y[:, None].repeat(3, 1), batch_size=16, verbose=0, callbacks=callbacks
                )
            except ValueError:
                failed.append(epoch)
        if epoch == 2:
            teacher.predict(x, verbose=0, callbacks=callbacks)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            teacher.fit(x, y, verbose=0, validation_data=(x, y), callbacks=callbacks)


failed = []
callbacks = [tb_memplugin.MemoryCallback(sys.argv[1])]
model.fit(
    x,
    y,
    batch_size=16,
    epochs=4,
    validation_data=(x, y),
    verbose=0,
    callbacks=[*callbacks, Others()],
)


def losses(other, callbacks):
    history = other.fit(
        x, y, batch_size=16, verbose=0, validation_data=(x, y), callbacks=callbacks
    ).history
    return [loss.hex() for loss in history["val_loss"]]


same = losses(second, callbacks) == losses(third, [])
model.fit(x, y, batch_size=16, verbose=0, callbacks=callbacks)
answer(
    {"failed": failed, "steps": int(model.optimizer.iterations), "same": same, "warnings": warnings}
)
"""
    told, run = trained(tmp_path, code)
    # THEN every step of the first model has its sample, and the run says once that it does not
    # contain the other one
    assert told["failed"] == [1] and told["steps"] == 50 and told["same"]
    train = run.samples.phase == 0
    assert run.samples.step[train].tolist() == list(range(50))
    assert run.samples.epoch[train].tolist()[:40] == [
        epoch for epoch in range(4) for _ in range(10)
    ]
    assert run.samples.step[run.samples.phase == 1].tolist() == [
        step for step in (9, 19, 29, 39) for _ in range(10)
    ]
    (sentence,) = told["warnings"]
    assert (
        "this MemoryCallback records model 'net'" in sentence
        and ("create a second callback") in sentence
    )


def test_a_model_without_layers_is_said_once_and_still_sampled(tmp_path: pathlib.Path) -> None:
    code = """
class Bare(keras.Model):
    def __init__(self):
        super().__init__(name="bare")
        self.w = self.add_weight(shape=(768, 4), name="w")

    def call(self, inputs):
        return tf.reshape(inputs, (-1, 768)) @ self.w


model = Bare()
compile_model(model)
model.fit(
    x, y, batch_size=16, epochs=2, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[1])]
)
answer({"warnings": warnings})
"""
    told, run = trained(tmp_path, code)
    assert (
        [sentence for sentence in told["warnings"] if "has no layers" in sentence]
        == told["warnings"]
        != []
    )
    assert run.samples.step.tolist() == list(range(20))
    assert [(layer.path, layer.weight_bytes) for layer in run.layer_tables[-1].layers] == [
        ("bare", 768 * 4 * 4)
    ]


def test_a_profile_that_starts_in_a_traced_step_is_the_users(tmp_path: pathlib.Path) -> None:
    code = """
import glob


class Profiles(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            tf.profiler.experimental.start(sys.argv[1] + "_started")
        if batch == 5:
            self.profile = tf.profiler.experimental.Profile(sys.argv[1] + "_entered")
            self.profile.__enter__()

    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            tf.profiler.experimental.stop()
        if batch == 5:
            self.profile.__exit__(None, None, None)


model = make_model()
compile_model(model)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[1, 2, 3, 5, 7])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback, Profiles()])
callback.close()


def found(name):
    return glob.glob(f"{sys.argv[1]}_{name}/**/*.xplane.pb", recursive=True)


profiles = {
    name: [len(open(path, "rb").read()) for path in found(name)] for name in ("started", "entered")
}
from tensorflow.python.profiler import profiler_v2

whose = [module.start.__closure__ for module in (tf.profiler.experimental, profiler_v2)]
tf.profiler.experimental.start(sys.argv[1] + "_user")
model.fit(
    x, y, batch_size=16, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[1] + "_beside")]
)
tf.profiler.experimental.stop()
profiles["user"] = [len(open(path, "rb").read()) for path in found("user")]
answer({"warnings": warnings, "profiles": profiles, "restored": whose == [None, None]})
"""
    told, run = trained(tmp_path, code)
    # THEN each of the user's profiles is whole, also that of a whole training, and each recorder
    # says once that it left these steps alone
    assert all(len(sizes) == 1 and sizes[0] > 1000 for sizes in told["profiles"].values()), told[
        "profiles"
    ]
    assert len(told["warnings"]) == 2 and all(
        "only one profiler" in text for text in told["warnings"]
    )
    assert run.notes == tuple(told["warnings"][:1])
    # AND the first traces the others
    assert {snapshot.step for snapshot in run.snapshots} == {1, 7}
    assert len(run.samples) == 10
    assert told["restored"]


FAULTS = {
    "files": "import tb_memplugin.storage.write.run_writer as m; m.RunWriter._opened = broken",
    "flush": "import tb_memplugin.storage.write.run_writer as m; m.RunWriter.flush = broken",
    "profiler start": "import tb_memplugin.recorder.tracing.windows as m; "
    "m.ProfilerWindow = broken",
    "profile": "import types, tb_memplugin.recorder.tracing.profiler as m; m.glob = "
    "types.SimpleNamespace(glob=broken)",
    "parsing": "import tb_memplugin.recorder.helper.process as m; m._Process.ask = broken",
    "attribution": "import tb_memplugin.recorder.helper.process as m; m.Helper.records = broken",
    "allocator": "import tb_memplugin.recorder.devices.statistics as m; m.memory_info = broken",
    "reset": "import tb_memplugin.recorder.devices.statistics as m; m.reset_peak = broken",
    "layer table": "import tb_memplugin.recorder.watch.observer "
    "as m; m.layer_table.build_layer_table = broken",
    "signature": "import tb_memplugin.recorder.watch.layer_table as m; m.signature = broken",
    "observer": "import tb_memplugin.recorder.watch.observer as m; m.LayerWatch.begin_window = "
    "broken",
    "host": "import tb_memplugin.recorder.devices.samples as m; m.ResidentMemory.resident_bytes = "
    "broken",
    "driver": "import tb_memplugin.recorder.devices.statistics as m; m.Driver.open = broken",
    "beginning": "import tb_memplugin.recorder.failure.post_mortems as m; m.OomWatch.__init__ = "
    "broken",
}


@pytest.mark.parametrize(
    "parts",
    [
        ("files", "attribution", "allocator", "driver", "beginning"),
        pytest.param(tuple(FAULTS), marks=pytest.mark.long),
    ],
)
def test_faults_of_each_part_are_reported_once_and_change_no_loss(tmp_path, parts) -> None:
    code = """
import importlib


def broken(*arguments, **named):
    raise RuntimeError("broken on purpose")


def losses(callbacks):
    model = make_model()
    compile_model(model)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks).history
    return [loss.hex() for loss in history["loss"]]


truth = losses([])
wrapped = keras.layers.Layer.__call__
result = {}
for name, fault in json.loads(sys.argv[2]).items():
    saved = {}
    module, _, change = fault.partition("; ")
    exec(module, globals())
    target, _, _ = change.partition(" = ")
    original = eval(target)
    exec(change)
    del warnings[:]
    callback = tb_memplugin.MemoryCallback(
        sys.argv[1] + "_" + name.replace(" ", "_"), trace_steps=[2, 5, 9]
    )
    same = losses([callback]) == truth
    callback.close()
    exec(f"{target} = original")
    restored = keras.layers.Layer.__call__ is wrapped
    result[name] = {"same": same, "restored": restored, "warnings": list(warnings)}
answer(result)
"""
    result = run_child(
        WARNINGS + MODEL + code,
        str(tmp_path / "run"),
        json.dumps({part: FAULTS[part] for part in parts}),
    )
    result.pop("stderr")
    assert set(result) == set(parts)
    maps = [
        text
        for text in result["allocator"]["warnings"]
        if text.startswith("Not reading the memory map of CPU:0")
    ]
    assert len(maps) == 1 and "broken on purpose" in maps[0]
    for name, told in result.items():
        assert told["same"] and told["restored"], name
        # The first reading of the memory map is compared with the allocator's statistics.
        told["warnings"] = [
            text for text in told["warnings"] if name != "allocator" or "memory map" not in text
        ]
        # Attribution costs a step each time, the third time all later steps. A process that answers
        # nothing has first batches, too, that are not read.
        told_times = {"attribution": 3, "parsing": 2}.get(name, 1)
        assert len(told["warnings"]) == told_times, (name, told["warnings"])
        assert all(
            "broken on purpose" in text and "training is not affected" in text
            for text in told["warnings"]
        )
