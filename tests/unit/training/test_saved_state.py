"""What training changes in a model is taken back. tests/integration/test_probe.py compares whole models."""

import keras
import numpy as np
import pytest

from tb_memplugin.training.saved_state import restored


def test_the_contents_of_lists_and_dictionaries_at_any_depth_are_restored() -> None:
    # GIVEN a model with an attribute of each kind, which TensorFlow puts into wrappers that track them
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.table, model.names, model.seen = {"a": [1, {"b": 2}]}, ["x"], {1}
    variables = len(model.optimizer.variables)
    # WHEN it is trained, as often as one likes, and all of them change
    for _ in range(2):
        with restored(model):
            model.train_on_batch(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32))
            model.table["a"][1]["b"] = 3
            model.table["a"].append(4)
            model.table["c"] = 5
            model.names.append("y")
            model.seen.add(2)
        # THEN they are as before, and the optimizer has no slots
        assert {key: list(value) for key, value in model.table.items()} == {"a": [1, {"b": 2}]}
        assert (list(model.names), set(model.seen)) == (["x"], {1})
        assert len(model.optimizer.variables) == variables and not model.optimizer.built


def test_the_model_is_restored_after_an_error_as_well() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", run_eagerly=True)
    before = [value.copy() for value in model.get_weights()]
    with pytest.raises(KeyError), restored(model):
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
        assert not all((new == old).all() for new, old in zip(model.get_weights(), before, strict=True))
        raise KeyError
    assert all((new == old).all() for new, old in zip(model.get_weights(), before, strict=True))
    assert int(model.optimizer.iterations) == 0
