"""What accumulated gradients add to a recorded step."""

import dataclasses

import numpy as np
import pytest
from requests_cases import hand_made_requests

from tb_memplugin.model import Category, Layer
from tb_memplugin.prediction.changes import change_of
from tb_memplugin.prediction.conditions import Conditions


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
