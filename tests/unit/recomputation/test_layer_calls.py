"""A recomputed layer of a subclassed model is the user's own again after each call."""

import keras
import pytest

from tb_memplugin.recomputation.layer_calls import RecomputedLayer


def made() -> keras.layers.Layer:
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    return layer


def test_the_layers_call_is_back_after_the_models_call() -> None:
    layer = made()
    with RecomputedLayer(layer).active():
        assert "call" in vars(layer)
    assert "call" not in vars(layer)


def test_a_call_that_the_user_had_replaced_is_back_too() -> None:
    layer = made()
    layer.call = own = lambda inputs: inputs
    with RecomputedLayer(layer).active():
        assert layer.call is not own
    assert layer.call is own


def test_it_is_back_after_a_call_that_failed() -> None:
    layer = made()
    layer.call = own = lambda inputs: inputs
    with pytest.raises(ZeroDivisionError), RecomputedLayer(layer).active():
        raise ZeroDivisionError
    assert layer.call is own
