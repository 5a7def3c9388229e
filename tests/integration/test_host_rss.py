"""Host memory of a real training: the parts sum to RSS, and a leak is found with its part."""

import pathlib

import numpy as np
import pytest
from child import recorded

from tb_memplugin.analysis import host_growth
from tb_memplugin.analysis.host import host_parts
from tb_memplugin.schema import MISSING

MIB = 1 << 20

TRAIN = """
import numpy as np, tensorflow as tf, keras, time
import tb_memplugin
from tb_memplugin.recorder.tracing import measurements

# A measurement that a busy machine delays must not use up the budget of the whole run.
measurements.SHARE = 4.0
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile("sgd", "mse")
kept = []


class Leak(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        kept.append(np.ones(100_000))
        time.sleep(0.002)  # steps of a real size


data = tf.data.Dataset.from_tensors((tf.ones((32, 64)), tf.zeros((32, 1)))).repeat().prefetch(2)
model.fit(
    data,
    steps_per_epoch=400,
    verbose=0,
    callbacks=[Leak(), tb_memplugin.MemoryCallback(sys.argv[1], overhead=0.05)],
)
answer({})
"""


def test_arrays_kept_in_a_list_are_found_in_the_other_memory(tmp_path: pathlib.Path) -> None:
    _, run = recorded(tmp_path, TRAIN)
    # THEN at the steps at which they are known, the parts sum to RSS
    parts = host_parts(run.samples)
    known = np.flatnonzero(parts["other_bytes"] != MISSING)
    assert len(known) >= 2
    shown = {name: column[known] for name, column in parts.items()}
    total = sum(np.where(column == MISSING, 0, column) for column in shown.values())
    assert (total == run.samples.host_resident_bytes[known]).all()
    assert (shown["other_bytes"] > 50 * MIB).all()  # TensorFlow's libraries
    # AND the growth is that of the arrays
    found = host_growth(run)
    assert found is not None and found.trend.bytes_per_step == pytest.approx(800_000, rel=0.05)
    assert max(found.parts, key=lambda name: found.parts[name]) == "other_bytes"
    assert found.sentence() in [one.sentence for one in run.findings]
