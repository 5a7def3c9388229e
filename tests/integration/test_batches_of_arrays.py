"""Batches that a step is given as arrays are inputs, however often the program is recorded."""

import pathlib

import pytest
from child import run_child

CODE = """
import keras, numpy as np
import tb_memplugin


def placed(array):
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + int(sys.argv[2])
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(64), keras.layers.Dense(8)])
model.compile("sgd", "mse")
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, trace_steps=[2, 4, 6, 8]) as recorder:
    for step in range(10):
        x, y = (
            placed(np.random.rand(32, 128).astype("float32")),
            placed(np.zeros((32, 8), "float32")),
        )
        with recorder.step(step):
            model.train_on_batch(x, y)
(run,) = tb_memplugin.load(sys.argv[1]).values()
rows = [[(row.category, row.bytes) for row in snapshot.ledger] for snapshot in run.snapshots]
answer([rows, [snapshot.in_use_bytes for snapshot in run.snapshots]])
"""


BATCH = {0, 32 * 128 * 4, 32 * 8 * 4, 32 * (128 + 8) * 4}
OTHERS = {
    "weights": 34_000 + 4_000,
    "weight_gradients": 36_000,
    "activations": 32 * (64 + 8) * 4,
    "activation_gradients": 32 * (64 + 8) * 4,
    "optimizer_state": 1_000,
    # The squares of the loss, a copy of the last layer's kernel that is still read, half a KiB of a
    # sum, scalars.
    "workspace": 32 * 8 * 4 + 64 * 8 * 4 + 512 + 400,
    "other_state": 4_000,
}
"""Most bytes that each other category has by the shapes of this model: too few for the 16 KiB of
the batch as well. A step's peak may come while the loss is computed or while weights are updated,
as its operations overlap."""


@pytest.mark.parametrize("offset", [0, 4])
def test_a_batch_of_train_on_batch_is_inputs_at_every_step(
    offset: int, tmp_path: pathlib.Path
) -> None:
    """Whether TensorFlow copies an array into the device's memory depends on the array's alignment
    and on who else refers to it as the step begins, so one program may show both. What it copies is
    inputs, and nothing else is."""
    ledgers, in_use = run_child(CODE, str(tmp_path), str(offset))
    assert len(ledgers) == 4
    for ledger, whole in zip(ledgers, in_use, strict=True):
        sums: dict[str, int] = {}
        for category, size in ledger:
            sums[category] = sums.get(category, 0) + size
        assert sums.pop("inputs", 0) in BATCH
        assert sums.pop("unattributed", 0) <= 0.001 * whole
        sums.pop("rounding", 0)
        assert {
            category: size for category, size in sums.items() if size > OTHERS.get(category, 0)
        } == {}
