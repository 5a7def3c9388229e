"""Compiled trainings, which is Keras's default on one GPU: on the CPU they say `jit_compile=True`."""

import math
import pathlib

import pytest
from child import recorded

import tb_memplugin
from tb_memplugin.analysis import request_contents

CODE = """
import keras, numpy as np, os, tensorflow as tf, tb_memplugin
layers, batches = keras.layers, [int(size) for size in sys.argv[2:]]
inputs = hidden = keras.Input((64,), dtype="int32")
hidden = layers.Embedding(500, 64)(hidden)
for _ in range(2):
    hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(4, 16)(hidden, hidden))
    hidden = layers.LayerNormalization()(hidden + layers.Dense(64)(layers.Dense(256, activation="gelu")(hidden)))
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(hidden)), name="net")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 3])
tokens, classes = np.random.randint(0, 500, (768, 64)), np.random.randint(0, 10, 768)
failed = False
for batch in batches:
    try:
        model.fit(tokens, classes, batch_size=batch, steps_per_epoch=6, verbose=0, callbacks=[callback])
    except tf.errors.ResourceExhaustedError:
        failed = True
callback.close()
answer({"failed": failed})
sys.stdout.flush()
os._exit(0)  # TensorFlow aborts as it frees the variables of a compiled step that failed on the CPU
"""
TRAINED, LARGER = 8, 24
SMALL = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "64"}


def test_a_compiled_step_predicts_other_batches_from_its_buffers(tmp_path: pathlib.Path) -> None:
    runs = {size: recorded(tmp_path / str(size), CODE, str(size))[1] for size in (TRAINED, LARGER)}
    real = {size: max(one.in_use_bytes for one in run.snapshots) for size, run in runs.items()}
    for size, other in ((TRAINED, LARGER), (LARGER, TRAINED)):
        found = tb_memplugin.what_if(runs[size], batch_size=other).prediction
        assert found.method == "estimate"
        assert found.low_bytes is not None and found.peak_bytes is not None and found.high_bytes is not None
        assert found.low_bytes <= real[other] <= found.high_bytes
        assert found.peak_bytes == pytest.approx(real[other], rel=0.05)


@pytest.mark.parametrize("before", [(), pytest.param((TRAINED,), marks=pytest.mark.long)], ids=["first step", "later"])
def test_a_failed_compiled_step_says_what_its_request_holds_and_its_fix_passes(
    tmp_path: pathlib.Path, before: tuple[int, ...]
) -> None:
    # GIVEN a training whose compiled step for a larger batch does not fit
    found, run = recorded(tmp_path / "failed", CODE, *map(str, (*before, 256)), environment=SMALL)
    (oom,) = run.ooms
    assert found["failed"] and oom.verdict == "capacity"
    # THEN the request is known by layer, most of it what the feed-forward layers save
    assert oom.requested_bytes and sum(row.bytes for row in oom.request_ledger) == oom.requested_bytes
    largest = max(oom.request_ledger, key=lambda row: row.bytes)
    assert largest.layer in ("net/dense_1", "net/dense_3") and largest.category == "activations"
    assert largest.bytes >= 256 * 64 * 256 * 4
    # AND by tensor: they have the batch, and are inside the request
    first, *others = oom.request_tensors
    assert math.prod(first.shape) * first.count * 4 == first.bytes and 256 * 64 in (first.shape[0], 64 * first.shape[0])
    assert (
        first.layer in ("net/dense_1", "net/dense_3")
        and sum(one.bytes for one in (first, *others)) <= oom.requested_bytes
    )
    contents = request_contents(oom)
    assert contents is not None and contents.tensors[0].bytes >= first.bytes
    assert f"{contents.tensors[0].text()} of " in contents.sentence and "requested" in contents.sentence
    if not before:  # the failed step's own module says so, to the byte
        assert not any("exact size" in note or "estimate" in note for note in oom.not_available)
        return
    # AND the batch size that it advises passes
    advised = next(fix for fix in oom.fixes if fix.kind == "batch")
    assert advised.enough and advised.batch_size
    assert not recorded(tmp_path / "fixed", CODE, str(advised.batch_size), environment=SMALL)[0]["failed"]
