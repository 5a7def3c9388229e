"""Cut points of layer graphs, and the segments that cuts form."""

from types import SimpleNamespace
from typing import Any

import keras
import pytest

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import cut_points, layer_order, segments_of

L = keras.layers


def nested() -> keras.Model:
    """A residual block, a nested model of three layers, a head."""
    inputs = keras.Input((8, 8, 3))
    first = L.Conv2D(4, 3, padding="same", name="first")(inputs)
    tensor = L.Add(name="add")([first, L.Conv2D(4, 3, padding="same", name="second")(first)])
    inner = keras.Sequential([keras.Input((8, 8, 4)), L.Conv2D(4, 3, name="a"), L.ReLU(name="b"), L.Dense(3, name="c")])
    inner.name = "inner"
    tensor = L.GlobalAveragePooling2D(name="pool")(inner(tensor))
    return keras.Model(inputs, L.Dense(2, name="out")(tensor))


def test_a_cut_point_is_passed_by_one_tensor_beside_the_inputs_and_none_goes_round_it() -> None:
    # After `second`, the addition needs two tensors; after `out`, nothing follows.
    assert cut_points(nested()) == ("first", "add", "inner/a", "inner/b", "inner", "pool")
    assert layer_order(nested()) == ("first", "second", "add", "inner/a", "inner/b", "inner/c", "inner", "pool", "out")
    inputs = keras.Input((4,))
    tensor = L.Dense(4, name="before")(inputs)
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4, name="a"), L.Dense(4, name="b")], name="inner")
    total = L.Add(name="add")([tensor, inner(tensor)])
    assert cut_points(keras.Model(inputs, L.Dense(1)(total))) == ("before", "add")
    inputs, mask = keras.Input((4,)), keras.Input((4,))
    tensor = L.Multiply(name="masked")([L.Dense(4, name="dense")(inputs), mask])
    tensor = L.Multiply(name="again")([L.Dense(4, name="next")(tensor), mask])
    assert cut_points(keras.Model([inputs, mask], tensor)) == ("dense", "masked", "next")


def test_a_segment_ends_at_each_cut_and_where_a_nested_model_begins_or_ends() -> None:
    expected = (("first", "second", "add"), ("inner/a", "inner/b"), ("inner/c",), ("pool",))
    assert segments_of(nested(), ["add", "inner/b", "pool"]) == expected
    # Without a cut inside, a nested model is one layer; what follows the last cut is in no segment.
    assert segments_of(nested(), ["add", "inner"]) == (("first", "second", "add"), ("inner",))
    assert segments_of(nested(), []) == ()


def test_a_layer_that_is_called_twice_marks_no_place_and_wrong_cuts_are_refused() -> None:
    shared = L.Dense(4, name="shared")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, L.Dense(1, name="out")(shared(L.ReLU(name="relu")(shared(inputs)))))
    assert cut_points(model) == ("relu",)
    with pytest.raises(RecomputationError, match="shared is called 2 times"):
        segments_of(model, ["shared"])
    with pytest.raises(RecomputationError, match="no layer nowhere"):
        segments_of(nested(), ["nowhere"])


def test_keras_own_models_have_the_cut_points_of_their_blocks() -> None:
    cuts = cut_points(keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), alpha=0.35))
    assert {f"block_{at}_add" for at in (2, 4, 5, 7, 8, 9, 11, 12, 14, 15)} <= set(cuts)
    assert "block_2_expand" not in cuts


def test_pairs_of_layers_are_segments_with_what_lies_between() -> None:
    pairs = [("first", "add"), ("inner/a", "inner/b"), ("pool", "pool")]
    expected = (("first", "second", "add"), ("inner/a", "inner/b"), ("pool",))
    assert segments_of(nested(), pairs) == expected
    # A nested model that no pair names the inside of is one layer.
    assert segments_of(nested(), [("second", "pool")]) == (("second", "add", "inner", "pool"),)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("first",)], "a pair of names"),
        ([("first", "none")], "no layer 'none'; in order: first, second, add"),
        ([("add", "first")], "no layer 'first' behind .* These follow: add, inner, pool, out"),
        ([("first", "add"), ("second", "pool")], "no layer 'second' behind .* These follow: inner, pool, out"),
    ],
)
def test_pairs_that_are_no_segments_are_refused(pairs: list[tuple[str, ...]], words: str) -> None:
    with pytest.raises(RecomputationError, match=words):
        segments_of(nested(), pairs)


def test_a_shared_layer_begins_a_segment_at_its_next_call() -> None:
    shared = L.Dense(4, name="shared")
    inputs = keras.Input((4,))
    tensor = L.ReLU(name="relu")(shared(inputs))
    model = keras.Model(inputs, L.Dense(1, name="out")(L.Dense(4, name="last")(shared(tensor))))
    assert segments_of(model, [("shared", "relu"), ("shared", "last")]) == (("shared", "relu"), ("shared", "last"))


def residual() -> Any:
    """Two dense layers with a sum, which is no layer, behind each; the second sum is of a branch."""
    inputs = keras.Input((4,))
    tensor = inputs + L.Dense(4, name="first")(inputs)
    tensor = tensor + L.Dense(4, name="inner")(L.Dense(8, name="wide")(tensor))
    return keras.Model(inputs, L.Dense(1, name="out")(tensor))


def test_operations_that_are_no_layers_belong_to_the_layers_that_they_follow() -> None:
    model = residual()
    sums = [name for name in layer_order(model) if name.startswith("add")]
    assert len(sums) == 2
    expected = (("first", sums[0]), ("wide", "inner", sums[1]))
    # A pair names layers only, and so do a plan's segments: layer tables have no operations.
    assert segments_of(model, [("first", "first"), ("wide", "inner")]) == expected
    assert segments_of(model, SimpleNamespace(segments=[("first",), ("wide", "inner")])) == expected
    assert segments_of(model, sums) == expected
    model = residual()
    (segment,) = segments_of(model, SimpleNamespace(segments=[("first", "wide", "inner")]))
    assert segment == tuple(name for name in layer_order(model) if name != "out")
