"""Host memory of real trainings: the parts sum to RSS, leaks are found with their part, healthy runs are not."""

import pathlib
from typing import Any

import numpy as np
import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.analysis.host.host_memory import host_growths, host_summaries
from tb_memplugin.model import MISSING

MIB = 1 << 20

TRAIN = """
import numpy as np, tensorflow as tf, keras, time
import tb_memplugin
from tb_memplugin.recorder import host_parts
host_parts.SHARE = 4.0  # a measurement that a busy machine delays must not use up the budget of the whole run
kind, directory, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile("sgd", "mse")
kept = []
class Leak(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if kind == "arrays":
            kept.append(np.ones(100_000))
        time.sleep(0.002)  # steps of a real size
if kind == "cache":
    data = tf.data.Dataset.range(10**6).map(lambda i: (tf.fill((256, 64), tf.cast(i, tf.float32)), tf.zeros((256, 1))))
    data = data.cache().prefetch(2)
else:
    data = tf.data.Dataset.from_tensors((tf.ones((32, 64)), tf.zeros((32, 1)))).repeat().prefetch(2)
model.fit(data, steps_per_epoch=steps, verbose=0,
          callbacks=[Leak(), tb_memplugin.MemoryCallback(directory, overhead=0.05)])
answer({})
"""


def train(kind: str, directory: pathlib.Path, steps: int) -> Any:
    run_child(TRAIN, kind, str(directory / kind), str(steps))
    return tb_memplugin.load(directory)[kind]


def check_rows(run: Any) -> Any:
    """The measured parts, after a check of every row against the sample of its step."""
    parts = run.host[""].parts
    assert len(parts) >= 2
    assert (parts.known_parts_bytes() + parts.other_bytes() == parts.resident_bytes).all()
    assert (parts.other_bytes() >= 0).all()
    place = np.searchsorted(run.samples.step, parts.step)
    assert (run.samples.host_resident_bytes[place] == parts.resident_bytes).all()
    assert (parts.file_bytes > 50 * MIB).all()  # TensorFlow's libraries
    return parts


def test_arrays_kept_in_a_list_are_found_in_the_c_heap(tmp_path: pathlib.Path) -> None:
    run = train("arrays", tmp_path, 400)
    check_rows(run)
    (found,) = host_growths(run)
    assert found.trend.bytes_per_step == pytest.approx(800_000, rel=0.05)
    grown = max(found.parts, key=lambda name: found.parts[name])
    assert grown == "other_bytes"
    if "c_heap_bytes" in found.allocated:
        assert found.allocated["c_heap_bytes"] == pytest.approx(found.parts[grown], rel=0.1)
    assert found.sentence() in run.findings


@pytest.mark.long
def test_a_growing_cache_is_found_in_the_buffers_of_tf_data(tmp_path: pathlib.Path) -> None:
    run = train("cache", tmp_path, 400)
    parts = check_rows(run)
    known = np.flatnonzero(parts.tf_data_bytes != MISSING)
    assert len(known) >= 2
    # An element is 256 × 65 floats; as many were cached as steps were trained, and some lie in the other buffers.
    first, last = known[0], known[-1]
    cached = (parts.step[last] - parts.step[first]) * 256 * 65 * 4
    assert parts.tf_data_bytes[last] - parts.tf_data_bytes[first] == pytest.approx(cached, rel=0.1)
    found = host_summaries(run)[""].growth
    assert found is not None and found.trend.bytes_per_step == pytest.approx(256 * 65 * 4, rel=0.1)
    assert max(found.parts, key=lambda name: found.parts[name]) == "cpu_pool_bytes"
    assert "tf.data buffers" in found.sentence()
    # The CPU's allocator holds the cache: it is one finding, on CPU:0, with its cause.
    (finding,) = run.findings
    assert finding.startswith("CPU:0: ") and "the dataset is cached in memory" in finding


@pytest.mark.long
def test_a_healthy_run_gives_no_finding(tmp_path: pathlib.Path) -> None:
    run = train("healthy", tmp_path, 1200)
    check_rows(run)
    assert run.findings == ()
    assert host_summaries(run)[""].sentence().startswith("Host RSS: no growth of ")
