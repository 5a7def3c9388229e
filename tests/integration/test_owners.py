"""Programs of tests/programs/reported whose bytes once had no owner: what the tool says of them,
against formulas."""

import pathlib
import re
import sys

import pytest
from child import recorded

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "programs"))

from reported_table import CASES

EXAMPLES = 64 * 4 * (256 * 128 + 128 + 128 + 1)
"""Bytes of the gradients for each of 64 examples of two dense layers."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "begin", "least", "more"),
    [
        ("replaybuf", "other_state", 160_000 * 64 * 4, 8192),
        ("consts", "other_state", 20 * 512 * 512 * 4, 20 * 512 * 4),
        ("const_layer", "other_state", 16 << 20, 0),
        ("vecmap", "weight gradients", 64 * 4 * 256 * 128, EXAMPLES // 50),
        ("jacobian", "weight gradients", 64 * 4 * 256 * 128, EXAMPLES // 50),
        # KiB that the outer gradient's ops read.
        ("gp", "outer gradient's ops: 9600 KiB; saved for backward:", 9600, 96),
        # The optimizer's and the metrics' scalars; no teacher.
        ("ema", "", 1, 8192),
    ],
)
def test_bytes_have_their_owner(
    name: str, begin: str, least: int, more: int, tmp_path: pathlib.Path
) -> None:
    said = CASES[name](tmp_path)
    assert said.startswith(begin), said
    assert (
        least
        <= int(re.findall(r"[\d,]+", said.removeprefix(begin))[0].replace(",", ""))
        <= least + more
    ), said


POOLED = """
import keras, numpy as np, tb_memplugin

layers = keras.layers
pooled = layers.MaxPooling2D(name="pool")(
    layers.ReLU()(layers.Conv2D(16, 3, padding="same")(inputs := keras.Input((32, 32, 3))))
)
model = keras.Model(inputs, layers.Dense(10)(layers.Flatten()(pooled)), name="net")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[3])
model.fit(
    np.zeros((160, 32, 32, 3), "float32"),
    np.zeros(160),
    batch_size=32,
    verbose=0,
    callbacks=[callback],
)
callback.close()
answer(None)
"""


@pytest.mark.long
@pytest.mark.parametrize(("on", "each"), [("1", 4 + 1), ("0", 4)])
def test_pooling_saves_a_byte_for_each_result_with_onednn(
    on: str, each: int, tmp_path: pathlib.Path
) -> None:
    # The graph does not show it: oneDNN's pooling keeps which of the values was the largest for its
    # gradient.
    _, run = recorded(tmp_path, POOLED, environment={"TF_ENABLE_ONEDNN_OPTS": on})
    saved = {row.layer: row.bytes for row in run.snapshots[-1].saved_for_backward}
    assert saved["net/pool"] == 32 * 16 * 16 * 16 * each
