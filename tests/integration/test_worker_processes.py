"""Several processes in one run directory, and several devices in one process: real trainings, one
picture."""

import os
import pathlib
import subprocess
from typing import Any

import pytest
from child import start_child
from handlers import Handlers

from tb_memplugin.export import load
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parents[1]


def start(*arguments: object) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "demo" / "scenarios")])
    return start_child(*map(str, arguments), environment={"PYTHONPATH": path})


def finish(process: "subprocess.Popen[str]") -> str:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, f"{out[-1000:]}\n{errors[-4000:]}"
    return out


def devices_of(logdir: pathlib.Path, run: str) -> dict[str, Any]:
    return Handlers(Reader()).devices(FileSource(logdir), run, "train")


@pytest.mark.long
def test_two_processes_that_train_together_are_one_picture(tmp_path: pathlib.Path) -> None:
    # GIVEN MultiWorkerMirroredStrategy in two processes, both tracing step 3
    code = (
        "import pathlib, data_parallel; "
        f"data_parallel.train_two_processes(pathlib.Path({str(tmp_path / 'run')!r}))"
    )
    finish(start("-c", code))
    told = devices_of(tmp_path, "run")
    # THEN each replica has the weights and Adam's slots: (256+1)·512 + (512+1)·512 + (512+1)·10
    # numbers, and twice that
    parameters = 257 * 512 + 513 * 512 + 513 * 10
    assert [one["device"] for one in told["devices"]] == ["worker_0/CPU:0", "worker_1/CPU:0"]
    for one in told["devices"]:
        assert one["breakdown"]["step"] == 3
        sums: dict[str, int] = {}
        for part in one["breakdown"]["parts"]:
            sums[part["category"]] = sums.get(part["category"], 0) + part["bytes"]
        assert sums["weights"] == 4 * parameters
        assert sums["optimizer_state"] == pytest.approx(8 * parameters, rel=0.001)
        assert sum(sums.values()) == one["breakdown"]["peak_bytes"]
    # AND their clocks are one clock: both are processes of this machine
    assert [one["ended"] for one in told["workers"]] == [True, True]
    assert [one["stopped_early"] for one in told["workers"]] == [None, None]
    offset = told["workers"][1]["clock_offset_seconds"]
    assert offset is None or abs(offset) < 1
    assert (
        told["steps"]["step"] == [0, 1, 2, 3, 4] and None not in told["steps"]["sum_in_use_bytes"]
    )


@pytest.mark.long
def test_every_step_of_replicas_can_be_traced_after_they_met(tmp_path: pathlib.Path) -> None:
    finish(start(HERE / "workers_child.py", tmp_path / "every", "every"))
    steps = [snapshot.step for snapshot in load(tmp_path)["every"].snapshots]
    assert steps == list(range(1, 300))


SEARCH = """
import os
os.environ.update(TF_CPU_ALLOCATOR_USE_BFC="1", TF_CPU_BFC_MEM_LIMIT_IN_MB="200")
import keras, numpy as np, tensorflow as tf, tb_memplugin
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    layers = [keras.layers.Dense(512, "relu") for _ in range(4)]
    model = keras.Sequential([keras.Input((256,)), *layers, keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [np.array(one.value.values) for one in model.variables]
    found = tb_memplugin.largest_batch_size(model, (np.ones((64, 256), "float32"), np.ones(64)))
    same = [np.array_equal(old, one.value.values) for old, one in zip(before, model.variables)]
print(found.batch_size, found.verified, all(same))
"""


@pytest.mark.long
def test_the_largest_batch_size_of_replicas_is_found_in_the_scope_of_their_strategy() -> None:
    size, verified, restored = finish(start("-c", SEARCH)).split()
    assert (verified, restored) == ("True", "True")
    assert int(size) % 2 == 0 and int(size) > 256


LOOP = """
import os, sys
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
import keras, tensorflow as tf, tb_memplugin
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
def train(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(batch))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
@tf.function
def step(batch):
    strategy.run(train, args=(batch,))
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices(tf.ones((64, 8))).batch(16))
recorder = tb_memplugin.MemoryRecorder(sys.argv[1], trace_steps=[2])
for number, batch in enumerate(data):
    with recorder.step(number):
        step(batch)
recorder.close()
"""


@pytest.mark.long
def test_a_loop_outside_the_scope_has_the_batch_of_all_replicas(tmp_path: pathlib.Path) -> None:
    finish(start("-c", LOOP, tmp_path / "loop"))
    assert [one.batch_size for one in load(tmp_path)["loop"].snapshots] == [16]


ATTENTION = """
import os, sys
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
import keras, numpy as np, tensorflow as tf, tb_memplugin
batch = int(sys.argv[2])
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
L, width, length = keras.layers, 64, 32
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    tokens = keras.Input((length,), dtype="int32")
    hidden = L.Embedding(1000, width)(tokens)
    hidden = L.LayerNormalization()(hidden + L.MultiHeadAttention(8, 8)(hidden, hidden))
    inner = L.Dense(width)(L.Dense(4 * width, activation="gelu")(hidden))
    model = keras.Model(tokens, L.Dense(10)((hidden + inner)[:, 0]))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
examples = np.ones((6 * batch, length), "int32"), np.ones(6 * batch, "int32")
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[4])
data = tf.data.Dataset.from_tensor_slices(examples).batch(batch)
model.fit(data, verbose=0, callbacks=[callback])
callback.close()
"""


@pytest.mark.long
def test_sizes_of_replicas_follow_the_batch_where_a_product_is_as_large_as_a_weight(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN 8 examples of 32 tokens for each replica, as many as a layer has features: 256
    finish(start("-c", ATTENTION, tmp_path / "16", 16))
    finish(start("-c", ATTENTION, tmp_path / "32", 32))
    runs = load(tmp_path)
    (small,), (large,) = runs["16"].requests, runs["32"].requests
    new = small.birth >= 0
    power, requested = small.batch_power[new], small.requested[new]
    # THEN it is known of each request whether it grows, and twice the batch requests that much
    assert set(power.tolist()) == {0, 1}
    doubled = int((requested * (1 + power)).sum())
    assert doubled == pytest.approx(int(large.requested[large.birth >= 0].sum()), rel=0.01)


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> "Mirrored":
    """Runs of one training by four replicas: `asked` for traces of steps, and as by `default`; and
    the losses of each, and of one that is not recorded."""
    logdir = tmp_path_factory.mktemp("mirrored")
    names = ("asked", "default", "none")
    processes = [start(HERE / "workers_child.py", logdir / name, name) for name in names]
    printed = [finish(process).splitlines() for process in processes]
    return logdir, {
        name: [line for line in lines if line.startswith("loss ")]
        for name, lines in zip(names, printed, strict=True)
    }


Mirrored = tuple[pathlib.Path, dict[str, list[str]]]


def test_logical_devices_of_one_cpu_are_recorded_once(mirrored: Mirrored) -> None:
    logdir, _ = mirrored
    told = devices_of(logdir, "asked")
    assert [one["device"] for one in told["devices"]] == ["CPU:0"]
    assert told["imbalance"] is None
    sums: dict[str, int] = {}
    for part in told["devices"][0]["breakdown"]["parts"]:
        sums[part["category"]] = sums.get(part["category"], 0) + part["bytes"]
    assert sums["weights"] == 4 * 65 * 256 * 4  # four replicas in the one allocator
    (note,) = [note for note in load(logdir)["asked"].notes if "CPU:1" in note]
    assert "CPU:1, CPU:2, CPU:3: logical devices of the CPU share one allocator" in note


def test_the_arrays_that_replicas_share_have_an_owner(mirrored: Mirrored) -> None:
    logdir, _ = mirrored
    (snapshot,) = load(logdir)["asked"].snapshots
    without = sum(row.bytes for row in snapshot.ledger if row.category == "unattributed")
    # Batches of 32 examples that wait for the replicas have none; TensorFlow's copy of the 320 of
    # both arrays would be ten batches.
    waiting = 2 * 4 * 32 * (64 + 256)
    assert without - waiting <= snapshot.in_use_bytes / 1000


def test_steps_of_replicas_are_traced_but_the_one_in_which_they_meet(mirrored: Mirrored) -> None:
    logdir, _ = mirrored
    runs = load(logdir)
    steps = {name: [one.step for one in run.snapshots] for name, run in runs.items()}
    assert steps["asked"] == [2] and min(steps["default"]) == 1
    # AND the run says why an earlier one is missing, if it was asked for
    said = {name: [one for one in run.notes if "traced" in one] for name, run in runs.items()}
    assert [one[:22] for one in said["asked"]] == ["step 0 was not traced:"] and not said["default"]


def test_a_replica_sends_all_of_its_gradients_in_one_piece(mirrored: Mirrored) -> None:
    logdir, _ = mirrored
    gradients = 4 * 65 * 256
    for run in load(logdir).values():
        largest = max(
            tensor.bytes // tensor.count
            for snapshot in run.snapshots
            for tensor in snapshot.largest_tensors
            if tensor.category == "communication"
        )
        assert largest == gradients


def test_recording_changes_no_loss_of_replicas(mirrored: Mirrored) -> None:
    _, losses = mirrored
    assert len(losses["none"]) == 10
    assert losses["asked"] == losses["default"] == losses["none"]
