"""What accumulated gradients and another precision change in a recorded step."""

import dataclasses

import numpy as np
import pytest
from reading_cases import DEVICE
from requests_cases import hand_made_requests, make_table, make_traced

from tb_memplugin.fit.changes import change_of
from tb_memplugin.fit.conditions import PRECISIONS, Conditions
from tb_memplugin.fit.prediction import Prediction
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.sized_steps import LEFT_OUT, event_order, in_use
from tb_memplugin.fit.what_if_evidence import recorded_program
from tb_memplugin.schema import Category, Layer


def test_zeros_of_each_shape_are_kept_and_shapes_of_one_size_are_told_apart_by_their_last_dimension() -> None:
    # GIVEN kernels of 12 × 48, 48 × 12 and again 12 × 48, and their biases
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((12,)), *[keras.layers.Dense(width) for width in (48, 12, 48)]])
    weights = [(f"net/{layer.name}", 4 * one.numpy().size) for layer in model.layers for one in layer.weights]
    layers = [
        Layer(f"net/{one.name}", "Dense", True, 0, 0, 4 * one.count_params(), 0, one.output.shape, "float32", None)
        for one in model.layers
    ]
    kind: Category = "weights"
    chunks = tuple((path, kind, "", size, at, at + len(weights)) for at, (path, size) in enumerate(weights))
    written = hand_made_requests(chunks)
    owners = tuple(dataclasses.replace(owner, trainable=True) for owner in written.owners)
    recorded = dataclasses.replace(written, birth=np.full(len(written), -1), owners=owners)
    # WHEN gradients are accumulated THEN each variable has a sum, and each of the four shapes zeros of its own
    extra = change_of(Conditions(accumulate=True), layers, recorded).extra
    sums = [(owner.layer, size) for owner, size in extra if owner.category == "optimizer_state"]
    zeros = [size for owner, size in extra if owner.category == "other_state"]
    assert sums == weights
    assert sorted(zeros) == sorted(4 * size for size in {one.shape: one.numpy().size for one in model.weights}.values())


WIDE = (*((f"net/dense{number}", True, 2_000_000, 400) for number in range(4)), ("net/head", True, 1_000, 400))
"""Layers whose weights and slots take most of the memory, so that gradients tell."""


def in_precision(recorded: str, asked: str) -> Prediction:
    steps = tuple(one.requests for one in make_traced(layers=WIDE).values())
    half = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16", "float32": "float32"}[recorded]
    layers = tuple(dataclasses.replace(layer, output_dtype=half) for layer in make_table(WIDE).layers)
    return Predictor(recorded_program(steps, DEVICE), layers).predict(Conditions(precision=asked))


def test_loss_scaling_keeps_all_gradients_until_the_update() -> None:
    # GIVEN a step that applies each of three gradients before it computes the next one
    chunks = []
    for at in range(3):
        kinds: tuple[tuple[Category, str], ...] = (
            ("weight_gradients", "gradient_tape/MatMul"),
            ("workspace", "adam/mul"),
        )
        for order, (kind, op) in enumerate(kinds):
            chunks.append((f"net/dense{at}", kind, f"{op}_{at}", 1024, 4 * at + order, 4 * at + 3 - order))
    step = hand_made_requests(tuple(chunks))
    sizes = step.requested
    assert in_use(step, sizes).max() == 2 * 1024
    layers = make_table(WIDE).layers
    scaled, plain = (change_of(Conditions(precision=one), layers, step) for one in PRECISIONS[1:])
    # WHEN it is scaled THEN all gradients and the temporaries of one update are there at once
    for sized in (scaled.most(step, sizes), scaled.least(step, sizes)):
        assert in_use(sized.requests, sized.sizes).max() >= 3 * 1024 + 512
    most = scaled.most(step, sizes)
    assert in_use(most.requests, most.sizes).max() == 4 * 1024
    assert sorted(event_order(most.requests)) == sorted(event_order(step))
    assert plain.most(step, sizes).requests is step
    assert "all of them are in memory at once" in scaled.sentences[0] and "Loss scaling" not in plain.sentences[0]


@pytest.mark.parametrize("asked", ["float32", "mixed_bfloat16"])
def test_without_loss_scaling_gradients_may_be_applied_one_by_one(asked: str) -> None:
    same, changed = in_precision("mixed_float16", "mixed_float16"), in_precision("mixed_float16", asked)
    assert same.method == "replay" and changed.method == "estimate"
    assert changed.low_bytes and changed.peak_bytes and changed.high_bytes and same.peak_bytes
    assert changed.low_bytes < changed.peak_bytes < changed.high_bytes
    # THEN the range begins with the largest gradient alone
    assert changed.low_bytes < same.peak_bytes and changed.ledger
    assert sum(row.bytes for row in changed.ledger) == changed.peak_bytes


def test_full_precision_has_no_copies_of_weights() -> None:
    table, steps = make_table(WIDE), make_traced(layers=WIDE)
    (step, *_) = [one.requests for one in steps.values() if not one.requests.first]
    # GIVEN a temporary of a layer with half the bytes of its weights
    row = next(
        row
        for row in np.flatnonzero(step.birth >= 0).tolist()
        if step.owners[int(step.owner[row])].layer == "net/dense1"
        and step.owners[int(step.owner[row])].category in ("activations", "workspace")
    )
    requested = step.requested.copy()
    requested[row] = 4_000_000
    cast = dataclasses.replace(step, requested=requested)
    half = tuple(dataclasses.replace(layer, output_dtype="bfloat16") for layer in table.layers)
    change = change_of(Conditions(precision="float32"), half, cast)
    # THEN full precision does not need it, and the other results of layers have up to twice their bytes
    least, most = (change.least(cast, requested).sizes, change.most(cast, requested).sizes)
    assert least[row] == most[row] == LEFT_OUT
    assert (most >= least).all() and set((most[most > 0] / requested[most > 0]).tolist()) == {1.0, 2.0}
