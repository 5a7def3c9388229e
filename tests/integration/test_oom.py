"""Real deaths on the CPU's BFC allocator, in processes of their own, against TensorFlow's own log
of them.

The processes run side by side: each waits the ten seconds that TensorFlow waits for memory.
"""

import concurrent.futures
import functools
import json
import pathlib
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from child import ANSWER, PRELUDE, child_environment
from prepared_python import run_python

import tb_memplugin
from tb_memplugin.schema import CATEGORIES, FREE, GRADIENTS, IN_USE, Oom, Run

BEGIN = """
import logging, os, pathlib, threading, time
import keras, numpy as np, tensorflow as tf, tb_memplugin

MIB = 1 << 20


def mib(n):
    return tf.zeros([n * MIB // 4])


def in_use():
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def make_model(width=512, jit=False):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((width,)),
            *(keras.layers.Dense(width, activation="relu", name=f"hidden_{n}") for n in range(4)),
            keras.layers.Dense(4, name="logits"),
        ],
        name="net",
    )
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit
    )
    return model


class Leak(keras.callbacks.Callback):
    held = []

    def on_train_batch_begin(self, batch, logs=None):
        if batch >= 10:
            self.held.append(mib(1))


def data(batch, steps, width=512):
    one = (np.ones((batch, width), "float32"), np.zeros((batch,), "int64"))
    return tf.data.Dataset.from_tensors(one).repeat(steps)


def dies(run):
    try:
        run()
    except tf.errors.ResourceExhaustedError as error:
        answer(
            {
                "error": str(error),
                "type": type(error).__name__,
                "dumps": os.environ.get("TF_BFC_MEMORY_DUMP"),
            }
        )
"""

FIRST_STEP = """
os.environ.pop(
    "TF_BFC_MEMORY_DUMP", None
)  # whatever TensorFlow would write, nothing of it is used here
from tb_memplugin.recorder.failure.dumps import DumpFiles

DumpFiles.acquire = lambda self: None


def run():
    callback = tb_memplugin.MemoryCallback(sys.argv[1])
    model = make_model(1024)
    model.run_eagerly = EAGERLY
    failed = None
    try:
        model.fit(data(6000, 3, 1024), verbose=0, callbacks=[callback])
    except tf.errors.ResourceExhaustedError as error:
        failed = str(error)
    import gc

    gc.collect()  # Keras's own frames hold the tensors of an eager step in a cycle
    model.fit(data(8, 4, 1024), verbose=0, callbacks=[callback])
    callback.close()
    if failed:
        raise tf.errors.ResourceExhaustedError(None, None, failed)


dies(run)
"""

CHILDREN = {
    # 4 MiB free in pieces of 1 MiB, 2 MiB asked for.
    "fragmentation": """
def run():
    with tb_memplugin.MemoryRecorder(sys.argv[1]) as recorder:
        held = []
        while 32 * MIB - in_use() > 1.5 * MIB: held.append(mib(1))
        for place in (3, 5, 7): held[place] = None
        with recorder.step(7):
            mib(2)
dies(run)
""",
    # Of 79 MiB, the leak and the last batch leave 14 or less, and a layer's results of that batch
    # take 16.
    "fit": """
model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
batches = data(64, 45).concatenate(data(8192, 1))
dies(lambda: model.fit(batches, verbose=0, callbacks=[Leak(), callback]))
""",
    "tape": """
model = make_model()
optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function(reduce_retracing=True)
def train_step(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)


def run():
    with tb_memplugin.MemoryRecorder(
        sys.argv[1], model=model, optimizer=optimizer, trace_steps=[1, 3]
    ) as recorder:
        for step in range(6):
            batch = 2048 if step == 5 else 256
            with recorder.step(step):
                train_step(tf.ones([batch, 512]), tf.zeros([batch], tf.int64))


dies(run)
""",
    "validation": """
model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2])
dies(lambda: model.fit(data(64, 6), validation_data=data(4096, 1), verbose=0, callbacks=[callback]))
""",
    # Compiled by XLA, which asks for the memory of all layers in one piece.
    "compiled": """
model = make_model(jit=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
dies(lambda: model.fit(data(512, 100), verbose=0, callbacks=[Leak(), callback]))
os._exit(0)  # as it ends, TensorFlow itself aborts after a compiled step that failed
""",
    # The same with a batch that was never traced.
    "compiled_anew": """
model = make_model(jit=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
model.fit(data(64, 6), verbose=0, callbacks=[callback])
dies(lambda: model.fit(data(4096, 6), verbose=0, callbacks=[callback]))
os._exit(0)
""",
    # Eagerly, and the program goes on with a smaller batch.
    "eager": """
model = make_model()
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[1])
model.fit(data(64, 4), verbose=0, callbacks=[callback])
dies(lambda: model.fit(data(6000, 1), verbose=0, callbacks=[callback]))
model.fit(data(64, 2), verbose=0, callbacks=[callback])
""",
    # Another thread frees memory while TensorFlow waits: the step goes on.
    "tolerated": """
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
    # The machine's own killer comes while TensorFlow waits for memory.
    "killed": """
def end(dumps):
    while not os.listdir(dumps):
        time.sleep(0.05)  # TensorFlow writes the first one as it begins to wait
    # `load` would simulate the fixes, which beside busy processes takes longer than the ten
    # seconds of that wait.
    files = lambda: pathlib.Path(sys.argv[1]).rglob("*tfevents*")
    while not any(b"oom/" in path.read_bytes() for path in files()):
        time.sleep(0.05)
    time.sleep(0.2)  # the record is whole
    os.kill(os.getpid(), 9)


class End(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        dumps = os.path.dirname(os.environ["TF_BFC_MEMORY_DUMP"])
        threading.Thread(target=end, args=[dumps], daemon=True).start()


model = make_model()
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[0, 1, 2, 3])
model.fit(data(64, 6), verbose=0, callbacks=[callback])
tb_memplugin.load(sys.argv[1])  # waits until the traced steps are analyzed
answer({})
model.fit(data(6000, 3), verbose=0, callbacks=[End(), callback])
""",
    # The user reads the dumps himself; nothing catches the exception.
    "uncaught": """
recorder = tb_memplugin.MemoryRecorder(sys.argv[1])
recorder.begin_step(4)
answer({"directory": os.path.dirname(os.environ["TF_BFC_MEMORY_DUMP"])})
held = mib(16)
mib(20)
""",
    "first_step": "EAGERLY = False" + FIRST_STEP,
    "first_step_eager": "EAGERLY = True" + FIRST_STEP,
}
LIMITS = {
    "first_step": 160,
    "first_step_eager": 160,
    "fit": 79,
    "compiled": 72,
    "compiled_anew": 72,
    "killed": 72,
    "eager": 48,
    "tape": 40,
    "validation": 40,
    "fragmentation": 32,
    "tolerated": 32,
    "uncaught": 32,
}
"""MiB that the allocator may have in each child."""

ONLY_LONG = {"eager", "tape", "validation", "compiled_anew", "first_step_eager"}
"""Children that only tests marked `long` read."""


def start(name: str, directory: pathlib.Path) -> dict[str, Any]:
    """Runs a child to its end and returns what it answered, with its log and its exit code."""
    more = {
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMITS[name]),
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_CPP_MIN_LOG_LEVEL": "0",
    }
    environment = child_environment(more)
    environment.pop("TF_BFC_MEMORY_DUMP", None)
    if name == "uncaught":
        environment["TF_BFC_MEMORY_DUMP"] = str(directory / "mine")
    done = run_python(
        ["-c", PRELUDE + BEGIN + CHILDREN[name], str(directory / name)],
        environment=environment,
        timeout=200,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    assert answers, (
        f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return {**json.loads(answers[-1][len(ANSWER) :]), "log": done.stderr, "code": done.returncode}


Deaths = Callable[[str], tuple[Run, dict[str, Any]]]


@pytest.fixture(scope="module")
def deaths(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deaths]:
    """What a child recorded and what it answered, by name; all start together, since most wait for
    memory."""
    every = any(
        item.get_closest_marker("long")
        for item in request.session.items
        if item.path == request.path
    )
    directory = tmp_path_factory.mktemp("deaths")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        started = CHILDREN if every else CHILDREN.keys() - ONLY_LONG
        told = {name: pool.submit(start, name, directory) for name in started}

        @functools.cache
        def died(name: str) -> tuple[Run, dict[str, Any]]:
            answer = told[name].result()
            (run,) = tb_memplugin.load(directory / name).values()
            return run, answer

        yield died


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
    account = next(
        (text for text in by_op if named is None or text.splitlines()[0].endswith(named[1])),
        accounts[-1],
    )
    assert not by_op or account in by_op
    chunks = re.findall(r"(InUse|Free ) at ([0-9a-f]+) of size (\d+)", account)
    return {
        "rounded": int(re.findall(r"rounded to (\d+)", account)[0]),
        "chunks": [
            (int(address, 16), int(size), kind == "InUse") for kind, address, size in chunks
        ],
        "regions": [int(size) for size in re.findall(r"Next region of size (\d+)", account)],
    }


@pytest.mark.parametrize(
    "name",
    [
        *("fragmentation", "fit", "compiled"),
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("eager", "tape", "validation", "compiled_anew")
        ),
    ],
)
def test_a_death_has_the_figures_and_chunks_of_tensorflows_own_log(
    deaths: Deaths, name: str
) -> None:
    # GIVEN a step that died, and TensorFlow's log of it
    run, told = deaths(name)
    assert told["type"] == "ResourceExhaustedError" and told["code"] == 0
    truth = logged(told["log"], told["error"])
    # WHEN its post-mortem is read
    oom = only(run)
    # THEN request, free bytes, largest block and chunks are those of the log
    assert oom.failed
    if name == "compiled_anew":  # XLA's message rounds it
        assert oom.requested_bytes == pytest.approx(truth["rounded"], rel=1e-3)
        assert any(
            "exact size of the request is unknown" in sentence for sentence in oom.not_available
        )
    else:
        assert -(-oom.requested_bytes // 256) * 256 == truth["rounded"]
    free = [size for _, size, in_use in truth["chunks"] if not in_use]
    assert (oom.free_bytes, oom.largest_free_bytes) == (sum(free), max(free, default=0))
    assert oom.in_use_bytes == sum(size for _, size, in_use in truth["chunks"] if in_use)
    taken = oom.map
    states = {FREE: False, IN_USE: True}
    columns = (
        taken.address.tolist(),
        taken.bytes.tolist(),
        [states[state] for state in taken.state.tolist()],
    )
    assert list(zip(*columns, strict=True)) == truth["chunks"]
    assert sorted(taken.region_bytes.tolist()) == sorted(truth["regions"])
    assert oom.pool_bytes == sum(truth["regions"])
    assert sum(row.bytes for row in oom.ledger) == oom.in_use_bytes
    assert oom.verdict == ("fragmentation" if sum(free) >= truth["rounded"] else "capacity")


@pytest.mark.parametrize(
    "name", ["first_step", pytest.param("first_step_eager", marks=pytest.mark.long)]
)
def test_a_failure_in_the_very_first_step_has_owners_without_any_dump(
    deaths: Deaths, name: str
) -> None:
    # GIVEN activations of 6,000 × 1,024 floats a layer, of which five fit beside batch and weights
    run, told = deaths(name)
    assert told["type"] == "ResourceExhaustedError" and told["dumps"] is None
    oom = only(run)
    assert (oom.step, oom.phase, oom.status) == (0, "train", "survived")  # the program goes on
    # Steps of a smaller batch are traced afterwards.
    traced = [snapshot.step for snapshot in run.snapshots if not snapshot.at_failure]
    assert traced and min(traced) > 0
    # The failed step was traced as well, but does not show what a whole step requests.
    assert all(one.step > 0 for one in run.requests)
    assert oom.requested_bytes == 6000 * 1024 * 4 and oom.verdict is not None
    assert (oom.layer or "").startswith("net/hidden_")
    held = {
        category: sum(row.bytes for row in oom.ledger if row.category == category)
        for category in CATEGORIES
    }
    assert sum(held.values()) == oom.in_use_bytes
    assert held["unattributed"] <= 0.001 * (oom.in_use_bytes or 0)
    assert held["weights"] == 4 * (4 * (1024 * 1024 + 1024) + 1024 * 4 + 4)
    # THEN the layers' results that are there wait for the backward pass, and there are no gradients
    # in the forward pass
    if "gradient" not in (oom.op or ""):
        assert not any(held[category] for category in GRADIENTS)
        assert held["activations"] >= 6000 * 1024 * 4


def test_free_memory_in_pieces_is_fragmentation(deaths: Deaths) -> None:
    oom = only(deaths("fragmentation")[0])
    assert (oom.step, oom.phase, oom.device, oom.op) == (7, "train", "CPU:0", "Fill")
    assert (oom.requested_bytes, oom.free_bytes, oom.largest_free_bytes) == (
        2 << 20,
        4 << 20,
        1 << 20,
    )
    assert oom.verdict == "fragmentation"


@pytest.mark.parametrize(
    ("name", "step", "phase", "layer"),
    [
        ("fit", None, "train", ""),
        ("compiled", None, "train", None),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("compiled_anew", None, "train", None),
                ("tape", 5, "train", "net/"),
                ("validation", 5, "validation", ""),
                ("eager", 4, "train", "net/hidden_"),
            )
        ),
    ],
)
def test_a_death_says_where_it_was_and_who_held_the_memory(
    deaths, name, step, phase, layer
) -> None:
    run, _ = deaths(name)
    oom = only(run)
    assert oom.phase == phase and oom.verdict is not None and (step is None or oom.step == step)
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    assert owned >= 0.9 * oom.in_use_bytes
    held = {(row.layer, row.category): row.bytes for row in oom.ledger}
    # THEN the operation that failed has its layer; a compiled step's request, which is one piece,
    # has all of them
    if layer is None:
        assert (
            oom.layer is None
            and sum(row.bytes for row in oom.request_ledger) == oom.requested_bytes
        )
    elif name != "tape" or re.search(r"hidden_\d|logits", oom.op or ""):
        assert (oom.layer or "").startswith(layer)
    if name in ("fit", "compiled", "compiled_anew"):
        assert held["net/hidden_1", "weights"] >= 512 * 512 * 4
        assert held["net/hidden_1", "optimizer_state"] >= 2 * 512 * 512 * 4
    if name == "fit":
        assert oom.verdict == "capacity" and oom.step > 40
        # The leak: a MiB of every step from 10 on, in no layer. The recorded steps do not have it,
        # so that their simulation does not explain the failure.
        assert held[None, "held_tensors"] >= (oom.step - 10) << 20
        assert oom.fixes == () and any(
            one.startswith("No fix could be simulated") for one in oom.not_available
        )
    if name == "eager":  # the program goes on, and so does its recording
        assert run.samples.step.max() >= 6


def test_a_failure_that_passes_is_no_death(deaths: Deaths) -> None:
    run, told = deaths("tolerated")
    assert told["code"] == 0 and "ran out of memory" not in told["log"].replace("not a failure", "")
    assert run.ooms == () and run.damage == ()


def test_a_process_that_is_killed_while_tensorflow_waits_leaves_what_was_known(
    deaths: Deaths,
) -> None:
    run, told = deaths("killed")
    assert told["code"] == -signal.SIGKILL
    oom = only(run)
    assert (oom.status, oom.step, oom.requested_bytes, oom.batch_size) == ("failing", 6, None, 6000)
    assert oom.in_use_bytes >= 16 << 20 and len(oom.map) > 1
    unknown = "TensorFlow did not report the size of the request"
    assert any(unknown in sentence for sentence in oom.not_available)
    # The process had no time to simulate anything: the fixes come from the steps that it recorded.
    fixes = {fix.kind: fix for fix in oom.fixes}
    assert fixes["batch"].enough and 64 < fixes["batch"].batch_size < 6000 and fixes["limit"].enough


def test_an_exception_that_nobody_catches_is_read_at_exit_and_the_users_dumps_stay(
    deaths: Deaths,
) -> None:
    run, told = deaths("uncaught")
    assert told["code"] == 1
    oom = only(run)
    assert (oom.status, oom.step, oom.requested_bytes, oom.verdict) == (
        "failed",
        4,
        20 << 20,
        "capacity",
    )
    assert list(pathlib.Path(told["directory"]).glob("mine_*"))


@pytest.mark.parametrize(
    "name", ["fragmentation", "tolerated", pytest.param("tape", marks=pytest.mark.long)]
)
def test_a_recorder_that_is_closed_also_by_an_exception_leaves_no_directory(
    deaths: Deaths, name: str
) -> None:
    assert deaths(name)[1]["dumps"] is None
