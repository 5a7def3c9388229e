"""The layers that can be recomputed together, as the recorder knows them."""

from typing import Any

import keras
import pytest

from tb_memplugin.recorder.observe.units import recomputable_units

L = keras.layers


def model() -> Any:
    layers = [L.Dense(4, name="first"), L.Dropout(0.1, name="drop"), L.Dense(2, name="last")]
    return keras.Sequential([keras.Input((8,)), *layers])


def test_neighbors_between_cut_points_have_consecutive_numbers() -> None:
    units = recomputable_units(model())
    assert units["drop"] - units["first"] == 1


def test_nothing_is_made_in_the_program_to_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a model, and no way to make another one: it would count among the program's models and take a name
    given = model()

    def made(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a model or an input was made")

    monkeypatch.setattr(keras.Model, "__init__", made)
    monkeypatch.setattr(keras, "Input", made)
    assert recomputable_units(given)


def test_a_model_without_a_layer_graph_has_none() -> None:
    assert recomputable_units(object()) == {}
