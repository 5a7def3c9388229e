"""A training that recomputes layers by itself is recognized, with what that saves and what it
changes."""

import pathlib

import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.schema import Run, format_bytes
from tb_memplugin.server import Lookup, RunList
from tb_memplugin.server.run_list import describe
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource

BLOCKS, BATCH, TOKENS, WIDTH, INNER = 3, 16, 32, 32, 128
CODE = f"""
import contextlib
import tb_memplugin
import keras, numpy as np, tensorflow as tf
L = keras.layers
run, (kind, *options) = sys.argv[1], sys.argv[2].split()
dense = "dense" in options

class Block(L.Layer):
    def build(self, shape):
        self.wide = L.Dense({INNER}, "relu", name="wide")
        self.narrow = L.Dense({WIDTH}, name="narrow")
        self.norm, self.drop = L.BatchNormalization(name="norm"), L.Dropout(0.3, name="drop")
        self.wide.build(shape), self.narrow.build((*shape[:-1], {INNER})), self.norm.build(shape)

    def call(self, inputs):
        tensor = self.narrow(self.wide(inputs))
        if not dense:
            tensor = self.drop(self.norm(tensor, training=True), training=True)
        return inputs + tensor

class Recomputed(Block):
    def call(self, inputs):
        return tf.recompute_grad(super().call)(inputs)

keras.utils.set_random_seed(1)
with keras.RematScope(mode="full") if kind == "scope" else contextlib.nullcontext():
    of_kind = Recomputed if kind == "grad" else Block
    blocks = [of_kind(name=f"block{{at}}") for at in range({BLOCKS})]
layers = [keras.Input(({TOKENS}, {WIDTH})), *blocks, L.GlobalAveragePooling1D(), L.Dense(4)]
model = keras.Sequential(layers, name="net")
if kind == "remat":
    model = tb_memplugin.remat(model, ["block0", "block1"])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, jit_compile="xla" in options)
x, y = np.ones((4 * {BATCH}, {TOKENS}, {WIDTH}), "float32"), np.zeros(4 * {BATCH}, int)
callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
model.fit(x, y, batch_size={BATCH}, verbose=0, validation_data=(x, y), callbacks=[callback])
answer([float(blocks[0].norm.moving_variance[0])])
"""


def recorded(directory: pathlib.Path, kind: str) -> tuple[Run, float, list[str]]:
    """The run, the first moving variance after its training, and its findings on recomputed
    layers."""
    (variance,) = run_child(CODE, str(directory / kind), kind)
    run = tb_memplugin.load(directory)[kind]
    source, reader = FileSource(directory), Reader()
    told = describe(Lookup(reader, source, RunList()), reader.catalog(source)[kind]).findings
    found = [one for one in run.findings if one.kind == "recomputed"]
    assert [one for one in told if one.kind == "recomputed"] == found
    return run, variance, [one.sentence for one in found]


def test_a_second_run_is_found_with_its_bytes_and_what_it_changes(tmp_path: pathlib.Path) -> None:
    plain, once, nothing = recorded(tmp_path, "plain")
    assert not nothing and not any(layer.recomputed for layer in plain.layer_tables[-1].layers)
    run, twice, (sentence,) = recorded(tmp_path, "grad")
    again = {
        layer.path: layer.recomputed for layer in run.layer_tables[-1].layers if layer.recomputed
    }
    assert again == {
        f"net/block{at}/{name}": "resampled"
        for at in range(BLOCKS)
        for name in ("wide", "narrow", "norm", "drop")
    }
    # A moving variance that begins at 1 moves toward the smaller one of the batches, twice in each
    # step.
    assert twice < once < 1
    norms, drops = (
        ", ".join(f"net/block{at}/{name}" for at in range(BLOCKS)) for name in ("norm", "drop")
    )
    assert f"Each step updates the moving statistics of {norms} twice." in sentence
    assert (
        f"The second run of {drops} draws other random numbers, so gradients are wrong."
    ) in sentence


@pytest.mark.parametrize("kind", ["grad", pytest.param("scope", marks=pytest.mark.long)])
def test_the_bytes_are_what_the_forward_pass_no_longer_saves(
    tmp_path: pathlib.Path, kind: str
) -> None:
    runs = {name: recorded(tmp_path, f"{name} dense") for name in ("plain", kind)}
    saved = [
        sum(row.bytes for row in run.snapshots[-1].saved_for_backward)
        for run, _, _ in runs.values()
    ]
    _, _, (sentence,) = runs[kind]
    # The results of the wide layers, and nothing else: the sums of the blocks are their outputs.
    assert saved[0] - saved[1] == BLOCKS * 4 * BATCH * TOKENS * INNER
    assert f": {format_bytes(saved[0] - saved[1])} of activations" in sentence.replace("). ", "): ")
    assert "statistics" not in sentence and "random" not in sentence


@pytest.mark.long
def test_a_compiled_step_says_from_its_buffers_whether_layers_run_again(
    tmp_path: pathlib.Path,
) -> None:
    runs = {kind: recorded(tmp_path, f"{kind} dense xla") for kind in ("plain", "grad", "remat")}
    saved = {
        kind: {row.layer: row.bytes for row in run.snapshots[-1].saved_for_backward}
        for kind, (run, _, _) in runs.items()
    }
    assert {run.snapshots[-1].mode for run, _, _ in runs.values()} == {"xla"} and not runs["plain"][
        2
    ]
    # A second run that depends on the gradients stays: the sentence has what the plain training
    # keeps in addition.
    (sentence,) = runs["grad"][2]
    less = sum(saved["plain"].values()) - sum(saved["grad"].values())
    assert less > 0 and f"{format_bytes(less)} of activations are not kept until then" in sentence
    # That of `remat` does so, too, and trains the same, which is no finding.
    assert not runs["remat"][2]
    assert sum(saved["remat"].values()) < sum(saved["plain"].values())
    assert "jit_compile=False" in " ".join(
        tb_memplugin.plan(runs["plain"][0], budget="1MiB").sentences
    )


def test_what_remat_recomputes_trains_the_same_and_is_no_finding(tmp_path: pathlib.Path) -> None:
    run, _, found = recorded(tmp_path, "remat")
    again = {
        layer.path: layer.recomputed for layer in run.layer_tables[-1].layers if layer.recomputed
    }
    assert {path for path in again if path.count("/") == 1} == {"net/block0", "net/block1"}
    assert {*again.values()} == {"exact"} and not found
    plan = tb_memplugin.plan(run, budget="1MiB")
    assert not plan.segments and "recomputes layers already" in " ".join(plan.sentences)
