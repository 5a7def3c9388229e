"""Host memory of real trainings: the parts sum to RSS, leaks are found with their part, healthy runs are not."""

import pathlib
from typing import Any

import numpy as np
import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.analysis.host import host_growth, host_parts, host_summary
from tb_memplugin.schema import MISSING

MIB = 1 << 20

TRAIN = """
import numpy as np, tensorflow as tf, keras, time
import tb_memplugin
from tb_memplugin.recorder.tracing import schedule as step_ends
step_ends.SHARE = 4.0  # a measurement that a busy machine delays must not use up the budget of the whole run
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


def check_parts(run: Any) -> Any:
    """The parts at the steps at which they are known, after a check of every row."""
    parts = host_parts(run.samples)
    known = np.flatnonzero(parts["other_bytes"] != MISSING)
    assert len(known) >= 2
    shown = {name: column[known] for name, column in parts.items()}
    total = sum(np.where(column == MISSING, 0, column) for column in shown.values())
    assert (total == run.samples.host_resident_bytes[known]).all()
    assert (shown["other_bytes"] > 50 * MIB).all()  # TensorFlow's libraries
    return run.samples.step[known], shown


def test_arrays_kept_in_a_list_are_found_in_the_other_memory(tmp_path: pathlib.Path) -> None:
    run = train("arrays", tmp_path, 400)
    check_parts(run)
    found = host_growth(run)
    assert found is not None and found.trend.bytes_per_step == pytest.approx(800_000, rel=0.05)
    assert max(found.parts, key=lambda name: found.parts[name]) == "other_bytes"
    assert found.sentence() in run.findings


@pytest.mark.long
def test_a_growing_cache_is_found_in_the_buffers_of_tf_data(tmp_path: pathlib.Path) -> None:
    run = train("cache", tmp_path, 400)
    steps, parts = check_parts(run)
    # An element is 256 × 65 floats; as many were cached as steps were trained, and some lie in the other buffers.
    cached = (steps[-1] - steps[0]) * 256 * 65 * 4
    assert parts["tf_data_bytes"][-1] - parts["tf_data_bytes"][0] == pytest.approx(cached, rel=0.1)
    summary = host_summary(run)
    found = None if summary is None else summary.growth
    assert found is not None and found.trend.bytes_per_step == pytest.approx(256 * 65 * 4, rel=0.1)
    assert max(found.parts, key=lambda name: found.parts[name]) == "tf_data_bytes"
    assert "tf.data buffers" in found.sentence()
    # The CPU's allocator holds the cache: it is one finding, on CPU:0, with its cause.
    (finding,) = run.findings
    assert finding.startswith("CPU:0: ") and "the dataset is cached in memory" in finding


@pytest.mark.long
def test_a_healthy_run_gives_no_finding(tmp_path: pathlib.Path) -> None:
    run = train("healthy", tmp_path, 1200)
    check_parts(run)
    summary = host_summary(run)
    assert run.findings == () and summary is not None
    assert summary.sentence().startswith("Host RSS: no growth of ")
