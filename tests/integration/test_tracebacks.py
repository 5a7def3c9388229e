"""Tracebacks of trainings that fail while they are recorded, in processes of their own."""

import pathlib

import pytest
from child import child_environment
from prepared_python import run_python

FAILS = """
import sys, keras, numpy as np, tensorflow as tf, tb_memplugin

L = keras.layers
model = keras.Sequential(
    [
        keras.Input((256,)),
        L.Dense(2048, activation="gelu"),
        L.Dense(2048, activation="relu"),
        L.Dense(3),
    ]
)
optimizer, loss = (
    keras.optimizers.Adam(),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
x, y = np.ones((8000, 256), "float32"), np.zeros(8000, "int32")


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
"""
HOW = {
    "fit": """
model.compile(optimizer, loss, jit_compile=False)
model.fit(x, y, batch_size=8000, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[1])])
""",
    "loop": """
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, optimizer=optimizer) as recorder:
    with recorder.step(0):
        train(x, y)
""",
}


@pytest.mark.parametrize("how", ["fit", pytest.param("loop", marks=pytest.mark.long)])
def test_a_failed_training_shows_no_frame_of_the_recorder(how: str, tmp_path: pathlib.Path) -> None:
    environment = child_environment({"TF_CPU_BFC_MEM_LIMIT_IN_MB": "128"})
    done = run_python(["-c", FAILS + HOW[how], str(tmp_path)], environment=environment, timeout=240)
    # THEN neither Python's frames nor the lines at which TensorFlow says that the op was defined
    # are ours
    assert "ResourceExhaustedError" in done.stderr and "defined at" in done.stderr
    assert "relu" in done.stderr or "gelu" in done.stderr
    assert "tb_memplugin/" not in done.stderr and list(tmp_path.iterdir())
