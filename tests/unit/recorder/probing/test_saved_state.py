"""What training changes in a model is taken back. tests/integration/test_probe.py compares whole models."""

from typing import Any

import keras
import numpy as np

from tb_memplugin.recorder.probing.saved_state import SavedState


def make_model() -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    return model


def dictionaries(owner: Any) -> dict[str, dict[Any, Any]]:
    """The contents of an object's dictionaries; TensorFlow puts some of them into wrappers that are no dictionaries."""
    return {name: dict(value.items()) for name, value in vars(owner).items() if hasattr(value, "items")}


def test_a_step_changes_neither_weights_nor_slots_nor_what_is_compiled() -> None:
    # GIVEN a model whose optimizer has no slots yet
    model = make_model()
    before, variables = [np.array(one) for one in model.get_weights()], len(model.optimizer.variables)
    tables = dictionaries(model.optimizer)
    state = SavedState(model)
    # WHEN it is trained, as often as one likes
    for _ in range(2):
        model.train_on_batch(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32))
        assert any((one != old).any() for one, old in zip(model.get_weights(), before, strict=True))
        state.restore()
        # THEN it is as before
        assert all((one == old).all() for one, old in zip(model.get_weights(), before, strict=True))
        assert len(model.optimizer.variables) == variables and not model.optimizer.built
        assert dictionaries(model.optimizer) == tables


def test_the_contents_of_lists_and_dictionaries_at_any_depth_are_restored() -> None:
    # GIVEN a model with an attribute of each kind, which TensorFlow puts into wrappers that track them
    model = make_model()
    model.table, model.names, model.seen = {"a": [1, {"b": 2}]}, ["x"], {1}
    state = SavedState(model)
    # WHEN all of them change
    model.table["a"][1]["b"] = 3
    model.table["a"].append(4)
    model.table["c"] = 5
    model.names.append("y")
    model.seen.add(2)
    # THEN they are as before
    state.restore()
    assert {key: list(value) for key, value in model.table.items()} == {"a": [1, {"b": 2}]}
    assert (list(model.names), set(model.seen)) == (["x"], {1})
