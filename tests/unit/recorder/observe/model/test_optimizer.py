"""The variables of optimizers of Keras 3 and of Keras 2, and the weights that they serve."""

import os
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from tb_memplugin.recorder.observe.model.optimizer import all_variables, slots


def built(optimizer: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """The weights of an optimizer that is built for them."""
    weights = [keras.Variable(np.zeros(shape, np.float32), name=f"w{at}") for at, shape in enumerate(shapes)]
    optimizer.build(weights)
    return weights


def served(optimizer: Any, weights: list[Any]) -> dict[str, int | None]:
    """Path of each variable of the optimizer to the number of the weight that it serves."""
    numbers = {id(weight): number for number, weight in enumerate(weights)}
    found = slots(optimizer, weights)
    assert len({id(slot.variable) for slot in found}) == len(found)
    return {slot.variable.path: None if slot.of is None else numbers[id(slot.of)] for slot in found}


def test_moments_serve_their_weights_and_scalars_serve_none() -> None:
    optimizer = keras.optimizers.Adam(name="adam")  # Keras numbers the names that it gives
    weights = built(optimizer, (3, 2), (5,))
    assert served(optimizer, weights) == {
        "adam/iteration": None,
        "adam/learning_rate": None,
        "adam/w0_momentum": 0,
        "adam/w0_velocity": 0,
        "adam/w1_momentum": 1,
        "adam/w1_velocity": 1,
    }


def test_averages_and_accumulated_gradients_serve_their_weights() -> None:
    optimizer = keras.optimizers.SGD(use_ema=True, gradient_accumulation_steps=4)
    weights = built(optimizer, (3, 2), (5,))
    found = served(optimizer, weights)
    assert [number for number in found.values() if number is not None] == [0, 1, 0, 1]
    assert len(found) == len(optimizer.variables)


def test_one_weight_is_no_slot_of_itself() -> None:
    optimizer = keras.optimizers.SGD(momentum=0.9)
    weights = built(optimizer, (3,))
    found = slots(optimizer)
    assert not any(slot.variable is weights[0] for slot in found)
    assert sorted(slot.of is weights[0] for slot in found) == [False, False, True]


def test_a_weight_as_long_as_the_lists_is_no_slot() -> None:
    # GIVEN as many variables of the optimizer as weights: their own list is parallel to that of the weights, too
    optimizer = keras.optimizers.SGD()
    weights = built(optimizer, (3,), (4,))
    assert len(optimizer.variables) == len(weights)
    assert set(served(optimizer, weights).values()) == {None}


def test_placeholders_that_an_optimizer_does_not_list_serve_their_weights() -> None:
    # GIVEN Adafactor as some versions of Keras have it: placeholders for vectors, which its variables leave out
    weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in ((8, 6), (5,))]
    rows, placeholder = keras.Variable(np.zeros(8, np.float32)), keras.Variable(0.0)
    optimizer = SimpleNamespace(
        variables=[rows], _variables=[rows], _trainable_variables=weights, _r=[rows, placeholder]
    )
    expected = [(True, weights[0]), (False, weights[1])]
    assert [(slot.variable is rows, slot.of) for slot in slots(optimizer)] == expected
    # AND no other object in a list of this length is taken for one, nor are the weights themselves
    optimizer.names, optimizer.same = ["first", "second"], list(weights)
    optimizer.constants = [SimpleNamespace(value=1), SimpleNamespace(assign=print)]
    assert [(slot.variable is rows, slot.of) for slot in slots(optimizer)] == expected


def test_adafactors_placeholders_serve_vectors_and_its_rows_and_columns_matrices() -> None:
    optimizer = keras.optimizers.Adafactor()
    weights = built(optimizer, (8, 6), (5,))
    found = slots(optimizer)
    shapes = [sorted(tuple(slot.variable.shape) for slot in found if slot.of is weight) for weight in weights]
    assert shapes == [[(6,), (8,), (8, 6)], [(), (), (5,)]]


def test_the_variables_of_a_wrapped_optimizer_are_found_once() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    weights = built(optimizer, (3,))
    found = slots(optimizer)
    assert len({id(slot.variable) for slot in found}) == len(found)
    assert sum(slot.of is weights[0] for slot in found) == 2
    assert {id(variable) for variable in optimizer.variables} <= {id(slot.variable) for slot in found}


def test_variables_of_keras_3_are_a_list_and_of_legacy_optimizers_a_method() -> None:
    first, second = object(), object()
    assert all_variables(SimpleNamespace(variables=[first, second])) == [first, second]
    assert all_variables(SimpleNamespace(variables=(first,))) == [first]
    assert all_variables(SimpleNamespace(variables=lambda: (second,))) == [second]


@pytest.fixture(scope="module")
def keras_2() -> Any:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
    return pytest.importorskip("tf_keras")


def model_of(keras_2: Any, optimizer: Any) -> Any:
    model = keras_2.Sequential([keras_2.layers.Dense(2, input_shape=(3,))])
    model.compile(optimizer, "mse")
    return model


def test_an_optimizer_of_keras_2_serves_the_weights_by_its_keys(keras_2: Any) -> None:
    optimizer = keras_2.optimizers.Adam()
    kernel, bias = model_of(keras_2, optimizer).trainable_variables
    # The order of its keys is not that of its lists.
    optimizer.build([bias, kernel])
    found = slots(optimizer, [kernel, bias])
    shapes = sorted((slot.of is kernel, tuple(slot.variable.shape)) for slot in found if slot.of is not None)
    assert shapes == [(False, (2,)), (False, (2,)), (True, (3, 2)), (True, (3, 2))]


def test_a_legacy_optimizer_serves_the_weights_by_its_slots(keras_2: Any) -> None:
    optimizer = keras_2.optimizers.legacy.Adam()
    kernel, bias = model_of(keras_2, optimizer).trainable_variables
    optimizer._create_all_weights([kernel, bias])
    found = slots(optimizer, [kernel, bias])
    assert sum(slot.of is kernel for slot in found) == 2 and sum(slot.of is bias for slot in found) == 2
    assert {id(variable) for variable in optimizer.variables()} <= {id(slot.variable) for slot in found}
    # AND without the weights, nothing is served
    assert not any(slot.of for slot in slots(optimizer))


def test_a_distributed_variable_of_keras_2_has_the_key_of_its_container() -> None:
    container = SimpleNamespace(_unique_id="dense_1")
    weight = SimpleNamespace(_unique_id="dense_1_replica_0", _distributed_container=lambda: container)
    plain = SimpleNamespace(_unique_id="dense_2")
    first, second = SimpleNamespace(), SimpleNamespace()
    optimizer = SimpleNamespace(
        variables=[first, second], _slots={"dense_1": {"momentum": first}, "dense_2": {"momentum": second}}
    )
    found = slots(optimizer, [weight, plain])
    assert [(slot.variable is first, slot.of is weight, slot.of is plain) for slot in found] == [
        (True, True, False),
        (False, False, True),
    ]
