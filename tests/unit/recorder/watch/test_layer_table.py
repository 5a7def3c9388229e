"""When a model's layer table changes because layers are recomputed."""

import gc
from typing import Any

import keras
import pytest

from tb_memplugin.recorder.watch.layers import _recomputable_units, build_layer_table, signature
from tb_memplugin.recorder.watch.notes import CallNotes

L = keras.layers


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> CallNotes:
    notes = CallNotes()
    monkeypatch.setattr("tb_memplugin.recorder.watch.layers.call_notes", notes)
    return notes


def test_a_recomputed_layer_makes_a_new_table_that_says_so(notes: CallNotes) -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dense(2, name="dense")], name="net")
    before, table = signature(model, None), build_layer_table(model, None, step=0, previous=None)
    notes.recomputed[model.layers[0]] = False
    assert signature(model, None) != before
    table = build_layer_table(model, None, step=1, previous=table)
    assert table.reason == "dense runs again in the backward pass"
    assert [layer.recomputed for layer in table.layers] == [None, "anew"]


def test_recomputed_layers_of_another_model_change_nothing(notes: CallNotes) -> None:
    model, other = (keras.Sequential([keras.Input((4,)), L.Dense(2)]) for _ in range(2))
    before = signature(model, None)
    notes.recomputed[other.layers[0]] = True
    assert signature(model, None) == before
    # Nor does it when they are gone.
    del other
    gc.collect()
    assert signature(model, None) == before


L = keras.layers


def test_neighbors_between_cut_points_have_consecutive_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [L.Dense(4, name="first"), L.Dropout(0.1, name="drop"), L.Dense(2, name="last")]
    model = keras.Sequential([keras.Input((8,)), *layers])

    def made(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a model or an input was made: it would count among the program's and take a name")

    monkeypatch.setattr(keras.Model, "__init__", made)
    monkeypatch.setattr(keras, "Input", made)
    units = _recomputable_units(model)
    assert units["drop"] - units["first"] == 1
    # AND a model without a layer graph has none
    assert _recomputable_units(object()) == {}
