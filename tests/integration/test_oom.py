"""Real deaths on the CPU's BFC allocator, in processes of their own, against TensorFlow's own log of them.

The processes run side by side: each waits the ten seconds that TensorFlow waits for memory.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from child import BFC

import tb_memplugin
from tb_memplugin.model import CATEGORIES, FREE, GRADIENTS, IN_USE, Oom, Run

PRELUDE = """
import json, logging, os, sys, threading, time
def answer(value): print("ANSWER " + json.dumps(value), flush=True)
import keras, numpy as np, tensorflow as tf, tb_memplugin
MIB = 1 << 20
def mib(n): return tf.zeros([n * MIB // 4])
def in_use(): return tf.config.experimental.get_memory_info("CPU:0")["current"]
def make_model(width=512, jit=False):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((width,)), *(
        keras.layers.Dense(width, activation="relu", name=f"hidden_{n}") for n in range(4)),
        keras.layers.Dense(4, name="logits")], name="net")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit)
    return model
class Leak(keras.callbacks.Callback):
    held = []
    def on_train_batch_begin(self, batch, logs=None):
        if batch >= 10: self.held.append(mib(1))
def data(batch, steps, width=512):
    one = (np.ones((batch, width), "float32"), np.zeros((batch,), "int64"))
    return tf.data.Dataset.from_tensors(one).repeat(steps)
def dies(run):
    try:
        run()
    except tf.errors.ResourceExhaustedError as error:
        answer({"error": str(error), "type": type(error).__name__, "dumps": os.environ.get("TF_BFC_MEMORY_DUMP")})
"""

CHILDREN = {
    # 4 MiB free in pieces of 1 MiB, 2 MiB asked for.
    "fragmentation": (
        32,
        """
def run():
    with tb_memplugin.MemoryRecorder(sys.argv[1]) as recorder:
        held = []
        while 32 * MIB - in_use() > 1.5 * MIB: held.append(mib(1))
        for place in (3, 5, 7): held[place] = None
        with recorder.step(7):
            mib(2)
dies(run)
""",
    ),
    # Of 79 MiB, the leak and the last batch leave 14 or less, and a layer's results of that batch take 16.
    "fit": (
        79,
        """
model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
batches = data(64, 45).concatenate(data(8192, 1))
dies(lambda: model.fit(batches, verbose=0, callbacks=[Leak(), callback]))
""",
    ),
    "tape": (
        40,
        """
model = make_model(); optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
@tf.function(reduce_retracing=True)
def train_step(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
def run():
    with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, optimizer=optimizer, trace_steps=[1, 3]) as recorder:
        for step in range(6):
            batch = 2048 if step == 5 else 256
            with recorder.step(step):
                train_step(tf.ones([batch, 512]), tf.zeros([batch], tf.int64))
dies(run)
""",
    ),
    "validation": (
        40,
        """
model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2])
dies(lambda: model.fit(data(64, 6), validation_data=data(4096, 1), verbose=0, callbacks=[callback]))
""",
    ),
    # A batch as large as the layers are wide: a result has the shape of a gradient.
    "square": (
        72,
        """
model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
dies(lambda: model.fit(data(512, 100), verbose=0, callbacks=[Leak(), callback]))
""",
    ),
    # Compiled by XLA, which asks for the memory of all layers in one piece.
    "compiled": (
        72,
        """
model = make_model(jit=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
dies(lambda: model.fit(data(512, 100), verbose=0, callbacks=[Leak(), callback]))
os._exit(0)  # as it ends, TensorFlow itself aborts after a compiled step that failed
""",
    ),
    # The same with a batch that was never traced.
    "compiled_anew": (
        72,
        """
model = make_model(jit=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
model.fit(data(64, 6), verbose=0, callbacks=[callback])
dies(lambda: model.fit(data(4096, 6), verbose=0, callbacks=[callback]))
os._exit(0)
""",
    ),
    # Eagerly, and the program goes on with a smaller batch.
    "eager": (
        48,
        """
model = make_model()
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[1])
model.fit(data(64, 4), verbose=0, callbacks=[callback])
dies(lambda: model.fit(data(6000, 1), verbose=0, callbacks=[callback]))
model.fit(data(64, 2), verbose=0, callbacks=[callback])
""",
    ),
    # Another thread frees memory while TensorFlow waits: the step goes on.
    "tolerated": (
        32,
        """
held = {}
def free():
    time.sleep(8); held.clear()
with tb_memplugin.MemoryRecorder(sys.argv[1]) as recorder:
    with recorder.step(0):
        held["first"], held["second"] = mib(16), mib(8)
        threading.Thread(target=free).start()
        mib(12)
    with recorder.step(1):
        pass
answer({"dumps": os.environ.get("TF_BFC_MEMORY_DUMP")})
""",
    ),
    # The machine's own killer comes while TensorFlow waits for memory.
    "killed": (
        32,
        """
def end():
    time.sleep(9.5); os.kill(os.getpid(), 9)
with tb_memplugin.MemoryRecorder(sys.argv[1]) as recorder:
    with recorder.step(3):
        held = mib(16)
        answer({}); threading.Thread(target=end).start()
        mib(20)
""",
    ),
    # The user reads the dumps himself; nothing catches the exception.
    "uncaught": (
        32,
        """
recorder = tb_memplugin.MemoryRecorder(sys.argv[1])
recorder.begin_step(4)
answer({"directory": os.path.dirname(os.environ["TF_BFC_MEMORY_DUMP"])})
held = mib(16)
mib(20)
""",
    ),
}

FIRST_STEP = """
os.environ.pop("TF_BFC_MEMORY_DUMP", None)  # whatever TensorFlow would write, nothing of it is used here
from tb_memplugin.recorder.oom.dump_files import DumpFiles
DumpFiles.acquire = lambda self: None
def run():
    callback = tb_memplugin.MemoryCallback(sys.argv[1])
    model = make_model(1024)
    model.run_eagerly = sys.argv[2:] == ["eager"]
    failed = None
    try:
        model.fit(data(6000, 3, 1024), verbose=0, callbacks=[callback])
    except tf.errors.ResourceExhaustedError as error:
        failed = str(error)
    import gc; gc.collect()  # Keras's own frames hold the tensors of an eager step in a cycle
    model.fit(data(8, 4, 1024), verbose=0, callbacks=[callback])
    callback.close()
    if failed: raise tf.errors.ResourceExhaustedError(None, None, failed)
dies(run)
"""


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_failure_in_the_very_first_step_has_owners_without_any_dump(mode: str, tmp_path: pathlib.Path) -> None:
    # GIVEN activations of 6,000 × 1,024 floats a layer, of which five fit beside batch and weights
    environment = {**os.environ, **BFC, "TF_CPU_BFC_MEM_LIMIT_IN_MB": "160", "TF_ENABLE_ONEDNN_OPTS": "0"}
    environment.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    environment.pop("TF_BFC_MEMORY_DUMP", None)
    command = [sys.executable, "-c", PRELUDE + FIRST_STEP, str(tmp_path / "run"), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert "ResourceExhaustedError" in done.stdout, done.stderr[-3000:]
    run = tb_memplugin.load(tmp_path)["run"]
    oom = only(run)
    assert (oom.step, oom.phase, oom.status) == (0, "train", "failed")
    # Steps of a smaller batch are traced afterwards.
    assert run.snapshots and min(snapshot.step for snapshot in run.snapshots) > 0
    # The failed step was traced as well, but does not show what a whole step requests.
    assert all(one.step > 0 for one in run.requests)
    assert oom.requested_bytes == 6000 * 1024 * 4 and oom.verdict is not None
    assert (oom.layer or "").startswith("net/hidden_")
    held = {category: sum(row.bytes for row in oom.ledger if row.category == category) for category in CATEGORIES}
    assert sum(held.values()) == oom.in_use_bytes
    assert held["unattributed"] <= 0.001 * (oom.in_use_bytes or 0)
    assert held["weights"] == 4 * (4 * (1024 * 1024 + 1024) + 1024 * 4 + 4)
    # THEN the layers' results that are there wait for the backward pass, and there are no gradients in the forward pass
    if "gradient" not in (oom.op or ""):
        assert not any(held[category] for category in GRADIENTS)
        assert held["activations"] >= 6000 * 1024 * 4


def start(name: str, directory: pathlib.Path) -> dict[str, Any]:
    """Runs a child to its end and returns what it answered, with its log and its exit code."""
    limit, code = CHILDREN[name]
    environment = {**os.environ, **BFC, "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit), "TF_ENABLE_ONEDNN_OPTS": "0"}
    environment.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="0")
    environment.pop("TF_BFC_MEMORY_DUMP", None)
    if name == "uncaught":
        environment["TF_BFC_MEMORY_DUMP"] = str(directory / "mine")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, str(directory / name)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return {**json.loads(answers[-1][7:]), "log": done.stderr, "code": done.returncode}


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, dict[str, Any]]]:
    """What every child recorded, and what it answered."""
    directory = tmp_path_factory.mktemp("deaths")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        told = dict(zip(CHILDREN, pool.map(lambda name: start(name, directory), CHILDREN), strict=True))
    runs = tb_memplugin.load(directory)
    return {name: (runs[name], told[name]) for name in CHILDREN}


def only(run: Run) -> Oom:
    assert len(run.ooms) == 1, [(oom.status, oom.reason) for oom in run.ooms]
    assert run.damage == () and run.notes == ()
    return run.ooms[0]


def logged(log: str, error: str) -> dict[str, Any]:
    """TensorFlow's own account of the death, read here and not by the package.

    Of several operations that failed side by side, the account of the one that the exception names.
    """
    accounts = log.split("ran out of memory trying to allocate")[1:]
    named = re.search(r"\{\{node (\S+)\}\}", error)
    by_op = [text for text in accounts if "requested by op" in text.splitlines()[0]]
    # A compiled module's request names no op.
    account = next((text for text in by_op if named is None or text.splitlines()[0].endswith(named[1])), accounts[-1])
    assert not by_op or account in by_op
    chunks = re.findall(r"(InUse|Free ) at ([0-9a-f]+) of size (\d+)", account)
    return {
        "rounded": int(re.findall(r"rounded to (\d+)", account)[0]),
        "chunks": [(int(address, 16), int(size), kind == "InUse") for kind, address, size in chunks],
        "regions": [int(size) for size in re.findall(r"Next region of size (\d+)", account)],
    }


@pytest.mark.parametrize(
    "name", ["fragmentation", "fit", "tape", "validation", "square", "compiled", "compiled_anew", "eager"]
)
def test_a_death_has_the_figures_and_chunks_of_tensorflows_own_log(deaths: dict, name: str) -> None:
    # GIVEN a step that died, and TensorFlow's log of it
    run, told = deaths[name]
    assert told["type"] == "ResourceExhaustedError" and told["code"] == 0
    truth = logged(told["log"], told["error"])
    # WHEN its post-mortem is read
    oom = only(run)
    # THEN request, free bytes, largest block and chunks are those of the log
    assert oom.status == "failed"
    if name == "compiled_anew":  # XLA's message rounds it
        assert oom.requested_bytes == pytest.approx(truth["rounded"], rel=1e-3)
        assert any("exact size of the request is unknown" in sentence for sentence in oom.not_available)
    else:
        assert -(-oom.requested_bytes // 256) * 256 == truth["rounded"]
    free = [size for _, size, in_use in truth["chunks"] if not in_use]
    assert (oom.free_bytes, oom.largest_free_bytes) == (sum(free), max(free, default=0))
    assert oom.in_use_bytes == sum(size for _, size, in_use in truth["chunks"] if in_use)
    taken = oom.map
    states = {FREE: False, IN_USE: True}
    columns = (taken.address.tolist(), taken.bytes.tolist(), [states[state] for state in taken.state.tolist()])
    assert list(zip(*columns, strict=True)) == truth["chunks"]
    assert sorted(taken.region_bytes.tolist()) == sorted(truth["regions"])
    assert oom.pool_bytes == sum(truth["regions"])
    assert sum(row.bytes for row in oom.ledger) == oom.in_use_bytes
    assert oom.verdict == ("fragmentation" if sum(free) >= truth["rounded"] else "capacity")


def test_free_memory_in_pieces_is_fragmentation(deaths: dict) -> None:
    oom = only(deaths["fragmentation"][0])
    assert (oom.step, oom.phase, oom.device, oom.op) == (7, "train", "CPU:0", "Fill")
    assert (oom.requested_bytes, oom.free_bytes, oom.largest_free_bytes) == (2 << 20, 4 << 20, 1 << 20)
    assert oom.verdict == "fragmentation"
    assert [(remedy.kind, remedy.bytes, remedy.enough) for remedy in oom.fixes] == [("one_piece", 3 << 20, None)]


def test_a_plain_death_in_fit_at_a_late_step_is_capacity_and_names_who_held_the_memory(deaths: dict) -> None:
    oom = only(deaths["fit"][0])
    assert oom.verdict == "capacity" and oom.phase == "train" and oom.step > 40
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes
    held = {(row.layer, row.category): row.bytes for row in oom.ledger}
    assert held["net/hidden_1", "weights"] >= 512 * 512 * 4
    assert held["net/hidden_1", "optimizer_state"] >= 2 * 512 * 512 * 4
    # The leak: a MiB of every step from 10 on, in no layer.
    assert held[None, "held_tensors"] >= (oom.step - 10) << 20
    kinds = {remedy.kind: remedy for remedy in oom.fixes}
    short = -(-oom.requested_bytes // 256) * 256 - oom.free_bytes
    assert kinds["limit"].bytes == short
    assert kinds["freezing"].bytes >= short and re.search(r"net/hidden_[0-3]", kinds["freezing"].sentence)


def test_a_batch_as_large_as_a_layer_is_wide_has_its_remedy_or_none(deaths: dict) -> None:
    oom = only(deaths["square"][0])
    batches = [remedy for remedy in oom.fixes if remedy.kind == "batch"]
    # Results of layers and gradients of weights are equally large. Where most of them have no owner, what is known of
    # an example is far too little, so nothing is said of the batch.
    held = sum(row.bytes for row in oom.ledger if row.category in ("activations", "activation_gradients", "inputs"))
    unknown = sum(row.bytes for row in oom.ledger if row.category == "unattributed")
    assert len(batches) == (unknown <= held + oom.requested_bytes)
    for batch in batches:
        assert "instead of 512" in batch.sentence or "even a batch of 1" in batch.sentence
        # Of an example, each hidden layer holds 512 figures of 4 bytes, and the step's inputs as many.
        each = int(re.findall(r"takes ([\d.]+) KiB", batch.sentence)[0].split(".")[0])
        assert held // 512 // 1024 <= each <= held // 512 // 1024 + 2 + oom.requested_bytes // 512 // 1024


@pytest.mark.parametrize("name", ["compiled", "compiled_anew"])
def test_a_compiled_steps_death_names_its_owners_and_says_what_one_piece_hides(deaths: dict, name: str) -> None:
    oom = only(deaths[name][0])
    assert oom.phase == "train" and oom.verdict is not None and oom.layer is None
    assert "all its layers in one piece" in " ".join(oom.not_available)
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes
    held = {(row.layer, row.category): row.bytes for row in oom.ledger}
    assert held["net/hidden_1", "weights"] >= 512 * 512 * 4
    assert held["net/hidden_1", "optimizer_state"] >= 2 * 512 * 512 * 4
    kinds = {remedy.kind for remedy in oom.fixes}
    assert "batch" not in kinds and ("limit" in kinds) == (oom.verdict == "capacity")


def test_a_death_in_a_tape_loop_names_the_operations_layer(deaths: dict) -> None:
    oom = only(deaths["tape"][0])
    assert (oom.step, oom.phase) == (5, "train")
    assert oom.op is not None
    layer = re.search(r"(hidden_\d|logits)", oom.op)
    assert layer is None or (oom.layer or "").startswith("net/")
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes


def test_a_death_in_validation_says_so(deaths: dict) -> None:
    oom = only(deaths["validation"][0])
    assert (oom.phase, oom.step) == ("validation", 5)
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes


def test_a_death_in_eager_mode_names_the_layer_that_was_called_and_recording_goes_on(deaths: dict) -> None:
    run, _ = deaths["eager"]
    oom = only(run)
    assert (oom.step, oom.phase) == (4, "train") and (oom.layer or "").startswith("net/hidden_")
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes
    assert run.samples.step.max() >= 6


def test_a_failure_that_passes_is_no_death(deaths: dict) -> None:
    run, told = deaths["tolerated"]
    assert told["code"] == 0 and "ran out of memory" not in told["log"].replace("not a failure", "")
    assert run.ooms == () and run.damage == ()


def test_a_process_that_is_killed_while_tensorflow_waits_leaves_what_was_known(deaths: dict) -> None:
    run, told = deaths["killed"]
    assert told["code"] == -signal.SIGKILL
    oom = only(run)
    assert (oom.status, oom.step, oom.requested_bytes) == ("failing", 3, None)
    assert oom.in_use_bytes >= 16 << 20 and len(oom.map) > 1
    assert any("size of the request is unknown" in sentence for sentence in oom.not_available)


def test_an_exception_that_nobody_catches_is_read_at_exit_and_the_users_dumps_stay(deaths: dict) -> None:
    run, told = deaths["uncaught"]
    assert told["code"] == 1
    oom = only(run)
    assert (oom.status, oom.step, oom.requested_bytes, oom.verdict) == ("failed", 4, 20 << 20, "capacity")
    assert list(pathlib.Path(told["directory"]).glob("mine_*"))


def test_nothing_of_ours_stays_behind(deaths: dict) -> None:
    for name in ("fragmentation", "tape"):  # their recorder was closed as the exception passed
        assert deaths[name][1]["dumps"] is None
    assert deaths["tolerated"][1]["dumps"] is None
