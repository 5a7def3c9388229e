"""The allocator's memory map, read from real TensorFlow: against its statistics, and for what it
costs.

With those of `test_allocator_map` against the allocator's own dump, they are the tests for a new
version of TensorFlow.
"""

import json

import pytest
from child import run_child

START = """
import gc, os, threading, time
import tensorflow as tf
from tb_memplugin.importers import read_dump, summarize_dump
from tb_memplugin.recorder.devices.memory_maps import MemoryMaps
tf.config.list_logical_devices()
said = []
def in_use(): return tf.config.experimental.get_memory_info("CPU:0")["current"]
def best(action, times=40):
    def timed():
        began = time.thread_time(); action(); return time.thread_time() - began
    return min(timed() for _ in range(times))
"""

TRAINING = """
import keras, numpy as np

maps = MemoryMaps(["CPU:0"], said.append)
first = maps.read("CPU:0")
keras.utils.set_random_seed(1)
layers = [keras.layers.Conv2D(8 * n, 3, padding="same", activation="relu") for n in range(1, 5)]
model = keras.Sequential(
    [keras.Input((16, 16, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
data = tf.data.Dataset.from_tensor_slices(
    (np.ones((64, 16, 16, 3), "float32"), np.zeros(64, "int64"))
).repeat(20)
stop = threading.Event()


def churn():
    while not stop.is_set():
        kept = [tf.zeros([n, 100]) for n in range(1, 40)]
        del kept[::2]


counts = {"read": 0, "agreed": 0, "torn": 0, "steps": 0}


def watch():
    while not stop.is_set():
        before = in_use()
        data = maps.read("CPU:0")
        after = in_use()
        if data is None:
            continue
        counts["read"] += 1
        counts["torn"] += not read_dump(data, 0.0).complete
        counts["agreed"] += summarize_dump(data).in_use_bytes in (before, after)
        time.sleep(0.002)


threads = [threading.Thread(target=target) for target in (churn, watch, watch)]
[thread.start() for thread in threads]


class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        data = maps.read("CPU:0")
        counts["torn"] += data is not None and not read_dump(data, 0.0).complete
        counts["steps"] += data is not None


model.fit(data.batch(8).prefetch(2), verbose=0, callbacks=[Steps()])
stop.set()
[thread.join() for thread in threads]
del data
gc.collect()
time.sleep(0.5)
quiet, kept = [], []
for n in range(200):
    kept.append(tf.zeros([n % 17 + 1, 333]))
    del kept[::5]
    data = maps.read("CPU:0")
    quiet.append(summarize_dump(data).in_use_bytes - in_use())
pid = os.fork()
if pid == 0:
    os._exit(0 if maps.read("CPU:0") is None and not maps.available("CPU:0") else 1)
child = os.waitpid(pid, 0)[1]
answer(
    {
        "said": said,
        "counts": counts,
        "quiet": quiet,
        "child": child,
        "first_is_none": first is None,
        "version": tf.__version__,
    }
)
"""

COST = """
import ctypes
from tb_memplugin.recorder.devices import memory_maps as framework
maps = MemoryMaps(["CPU:0"], said.append)
held = [tf.zeros([n % 97 + 1, 11]) for n in range(1500)][::2]
held += [tf.zeros([n % 91 * 3 + 1, 11]) for n in range(300)]
data = maps.read("CPU:0")
chunks = summarize_dump(data).chunks
def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
costs = {"read": best(lambda: maps.read("CPU:0")), "read_dump": best(lambda: read_dump(data, 0.0)),
         "set up": best(lambda: MemoryMaps(["CPU:0"], said.append), 5) * chunks / 1000}
for _ in range(500): maps.read("CPU:0")
before = resident()
for _ in range(20_000): maps.read("CPU:0")
grown = resident() - before
# How much of the space for the returned object TensorFlow fills, the rest keeps its pattern.
space = ctypes.create_string_buffer(b"\\xa5" * framework.OBJECT_BYTES, framework.OBJECT_BYTES)
library = maps._framework
library._record(ctypes.addressof(space), maps._allocators["CPU:0"])
used = len(space.raw.rstrip(b"\\xa5"))
library._destroy(ctypes.addressof(space))
answer({"said": said, "chunks": chunks, "bytes": len(data), "grown": grown, "used": used,
        "version": tf.__version__,
        "ms_per_1000": {name: seconds * 1e6 / chunks for name, seconds in costs.items()}})
"""


HANDLES = """
from tb_memplugin.recorder.devices.memory_maps import resource_handle_bytes
maps = MemoryMaps(["CPU:0"], said.append)
before = in_use()
sizes = [resource_handle_bytes(maps, "CPU:0") for _ in range(3)]
probed = in_use() - before
variables = [tf.Variable(tf.zeros([1000], tf.uint8)) for _ in range(50)]
dump = read_dump(maps.read("CPU:0"), 0.0)
answer({"said": said, "sizes": sizes, "probed": probed, "requested": dump.requested_bytes.tolist()})
"""

OFF = """
os.environ.update(json.loads(sys.argv[1]))
maps = MemoryMaps(["CPU:0"], said.append)
answer({"said": said, "none": maps.read("CPU:0") is None, "available": maps.available("CPU:0")})
"""


def test_the_map_agrees_with_the_statistics_during_and_after_training() -> None:
    told = run_child(START + TRAINING)
    counts = told["counts"]
    assert told["said"] == []
    # WHILE other threads allocate, each map is one instant: its chunks sum to its own statistics
    assert counts["read"] > 50 and counts["steps"] > 50 and counts["torn"] == 0
    # and it is the instant of the read
    assert counts["agreed"] > 0
    # WHEN nothing else runs, chunks in use and TensorFlow's statistics are equal, every time
    assert told["quiet"] == [0] * 200
    # A forked child does not read
    assert told["child"] == 0


@pytest.mark.long
def test_reading_costs_little_and_leaks_nothing() -> None:
    told = run_child(START + COST)
    print(told)
    assert told["said"] == [] and told["chunks"] > 1000
    assert told["ms_per_1000"]["read"] <= 1
    assert told["ms_per_1000"]["read_dump"] <= 2  # 1 on a machine that is not busy
    # One leaked map would be 40 KB: 800 MB in all
    assert told["grown"] < 4 << 20
    assert told["used"] <= 128


def test_the_size_of_variables_handles_is_measured_as_often_as_asked_and_leaves_nothing() -> None:
    told = run_child(START + HANDLES)
    assert told["said"] == []
    (size,) = set(told["sizes"])  # each recorder of a process measures it
    assert told["probed"] == 0
    assert told["requested"].count(1000) >= 50
    assert told["requested"].count(size) >= 50  # a handle for each variable


@pytest.mark.parametrize(
    ("variable", "late", "reason"),
    [
        (
            "TF_CPU_ALLOCATOR_USE_BFC",
            {},
            "the plain CPU allocator has none (TF_CPU_ALLOCATOR_USE_BFC is not set)",
        ),
        # The variable came too late: TensorFlow has made another allocator already.
        ("TF_CPU_ALLOCATOR_USE_BFC", {"TF_CPU_ALLOCATOR_USE_BFC": "1"}, "not a BFC allocator"),
        ("TB_MEMPLUGIN_MEMORY_MAP", {}, "TB_MEMPLUGIN_MEMORY_MAP=0 is set"),
    ],
    ids=["plain", "late", "switch"],
)
def test_where_it_cannot_be_read_it_is_off_and_says_why_once(variable, late, reason) -> None:
    told = run_child(START + OFF, json.dumps(late), environment={variable: "0"})
    assert told["none"] and not told["available"]
    (sentence,) = told["said"]
    assert sentence.startswith("Not reading the memory map of CPU:0: ")
    assert reason in sentence and sentence.endswith("Chunk sizes are rounded requests instead.")
