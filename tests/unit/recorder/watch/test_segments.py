"""Cut points of layer graphs, and the segments that cuts form."""

from types import SimpleNamespace
from typing import Any

import keras
import pytest

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import cut_points, layer_order, segments_of

L = keras.layers
FIRST = ("first", "second", "add")


def nested() -> keras.Model:
    """A residual block, a nested model of three layers, a head."""
    inputs = keras.Input((8, 8, 3))
    first = L.Conv2D(4, 3, padding="same", name="first")(inputs)
    tensor = L.Add(name="add")([first, L.Conv2D(4, 3, padding="same", name="second")(first)])
    inner = keras.Sequential(
        [keras.Input((8, 8, 4)), L.Conv2D(4, 3, name="a"), L.ReLU(name="b"), L.Dense(3, name="c")]
    )
    inner.name = "inner"
    tensor = L.GlobalAveragePooling2D(name="pool")(inner(tensor))
    return keras.Model(inputs, L.Dense(2, name="out")(tensor))


def test_a_cut_point_is_passed_by_one_tensor_beside_the_inputs_and_none_goes_round_it() -> None:
    # After `second`, the addition needs two tensors; after `out`, nothing follows.
    assert cut_points(nested()) == ("first", "add", "inner/a", "inner/b", "inner", "pool")
    assert layer_order(nested()) == (
        "first",
        "second",
        "add",
        "inner/a",
        "inner/b",
        "inner/c",
        "inner",
        "pool",
        "out",
    )
    inputs = keras.Input((4,))
    tensor = L.Dense(4, name="before")(inputs)
    inner = keras.Sequential(
        [keras.Input((4,)), L.Dense(4, name="a"), L.Dense(4, name="b")], name="inner"
    )
    total = L.Add(name="add")([tensor, inner(tensor)])
    assert cut_points(keras.Model(inputs, L.Dense(1)(total))) == ("before", "add")
    inputs, mask = keras.Input((4,)), keras.Input((4,))
    tensor = L.Multiply(name="masked")([L.Dense(4, name="dense")(inputs), mask])
    tensor = L.Multiply(name="again")([L.Dense(4, name="next")(tensor), mask])
    assert cut_points(keras.Model([inputs, mask], tensor)) == ("dense", "masked", "next")


@pytest.mark.parametrize(
    ("parts", "segments"),
    [
        (["add", "inner/b", "pool"], [FIRST, ("inner/a", "inner/b"), ("inner/c",), ("pool",)]),
        # Without a cut inside, a nested model is one layer; what follows the last cut is in no
        # segment.
        (["add", "inner"], [FIRST, ("inner",)]),
        ([], []),
        # Pairs of layers with what lies between; a nested model that none names the inside of is
        # one layer.
        (
            [("first", "add"), ("inner/a", "inner/b"), ("pool", "pool")],
            [FIRST, ("inner/a", "inner/b"), ("pool",)],
        ),
        ([("second", "pool")], [("second", "add", "inner", "pool")]),
    ],
)
def test_a_segment_ends_at_each_cut_and_where_a_nested_model_begins_or_ends(
    parts: Any, segments: Any
) -> None:
    assert segments_of(nested(), parts) == tuple(segments)


def test_a_layer_that_is_called_twice_marks_no_place_but_begins_a_segment_at_its_next_call() -> (
    None
):
    shared = L.Dense(4, name="shared")
    inputs = keras.Input((4,))
    tensor = shared(L.ReLU(name="relu")(shared(inputs)))
    model = keras.Model(inputs, L.Dense(1, name="out")(L.Dense(4, name="last")(tensor)))
    assert cut_points(model) == ("relu", "last")
    assert segments_of(model, [("shared", "relu"), ("shared", "last")]) == (
        ("shared", "relu"),
        ("shared", "last"),
    )
    with pytest.raises(RecomputationError, match="shared is called 2 times"):
        segments_of(model, ["shared"])


def test_keras_own_models_have_the_cut_points_of_their_blocks() -> None:
    cuts = cut_points(
        keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), alpha=0.35)
    )
    assert {f"block_{at}_add" for at in (2, 4, 5, 7, 8, 9, 11, 12, 14, 15)} <= set(cuts)
    assert "block_2_expand" not in cuts


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["nowhere"], "no layer nowhere"),
        ([("first",)], "a pair of names"),
        ([("first", "none")], "no layer 'none'; in order: first, second, add"),
        ([("add", "first")], "no layer 'first' behind .* These follow: add, inner, pool, out"),
        (
            [("first", "add"), ("second", "pool")],
            "no layer 'second' behind .* These follow: inner, pool, out",
        ),
    ],
)
def test_places_that_make_no_segments_are_refused(parts: Any, words: str) -> None:
    with pytest.raises(RecomputationError, match=words):
        segments_of(nested(), parts)


def test_operations_that_are_no_layers_belong_to_the_layers_that_they_follow() -> None:
    inputs = keras.Input((4,))
    # a sum, which is no layer, behind each of two layers
    tensor = inputs + L.Dense(4, name="first")(inputs)
    tensor = tensor + L.Dense(4, name="inner")(L.Dense(8, name="wide")(tensor))
    model = keras.Model(inputs, L.Dense(1, name="out")(tensor))
    sums = [name for name in layer_order(model) if name.startswith("add")]
    assert len(sums) == 2
    expected = (("first", sums[0]), ("wide", "inner", sums[1]))
    # A pair names layers only, and so do a plan's segments: layer tables have no operations.
    assert segments_of(model, [("first", "first"), ("wide", "inner")]) == expected
    assert segments_of(model, SimpleNamespace(segments=[("first",), ("wide", "inner")])) == expected
    assert segments_of(model, sums) == expected
    (segment,) = segments_of(model, SimpleNamespace(segments=[("first", "wide", "inner")]))
    assert segment == tuple(name for name in layer_order(model) if name != "out")
