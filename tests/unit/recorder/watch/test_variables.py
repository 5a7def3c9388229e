"""The variables of models and optimizers with their roles and owners, from small real ones."""

import gc
import weakref
from typing import Any

import keras
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch import variables as module
from tb_memplugin.recorder.watch.variables import FormerVariables, Variables
from tb_memplugin.schema import VariableFact

L = keras.layers
CPU = "CPU:0"


class Counting(L.Layer):  # type: ignore[misc]
    """A layer with a counter beside its weights."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.seed_generator = keras.random.SeedGenerator(3)
        self.scale = self.add_weight(shape=(3,), name="scale", initializer="ones")

    def call(self, x: Any) -> Any:
        return x * self.scale


def make_model(name: str = "net", optimizer: Any = "adam", **compiled: Any) -> Any:
    frozen = L.Dense(3, name="frozen", trainable=False)
    model = keras.Sequential([keras.Input((2,)), frozen, Counting(name="count"), L.ReLU(name="relu")], name=name)
    if optimizer is not None:
        model.compile(optimizer, "mse", **compiled)
        model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def model() -> Any:
    return make_model()


def of(*models: Any, optimizers: tuple[Any, ...] = (), **named: Any) -> Variables:
    return Variables([(model, None) for model in models], list(optimizers), **named)


def owned(found: Variables) -> dict[tuple[str, str | None, bool | None], int]:
    """Bytes by role, layer and whether it is trained."""
    sums: dict[tuple[str, str | None, bool | None], int] = {}
    for fact in found.facts(CPU):
        key = fact.role, fact.layer, fact.trainable
        sums[key] = sums.get(key, 0) + fact.requested_bytes
    return sums


def test_each_variable_has_its_role_and_layer(model: Any) -> None:
    found = of(model)
    scalars = [variable for variable in model.optimizer.variables if len(variable.shape) == 0]
    sums = owned(found)
    assert sums["weights", "net/frozen", False] == 4 * (2 * 3 + 3)
    assert sums["weights", "net/count", True] == 4 * 3
    # AND the slots of the trained weight have its layer, while Adam's scalars have none
    assert sums["optimizer_state", "net/count", True] == 2 * 4 * 3
    assert sums["optimizer_state", None, None] == sum(variable.numpy().nbytes for variable in scalars)
    # AND the state of a layer's generator is its own
    assert sums["other_state", "net/count", None] == model.layers[1].seed_generator.state.numpy().nbytes
    names = [fact.name for fact in found.facts(CPU)]
    assert len(set(names)) == len(names)
    assert found.facts("GPU:0") == ()
    # AND a model is read once
    twice = of(model, model)
    assert owned(twice) == sums and len(twice.paths) == 4 and len(twice.trainable) == 4


def test_facts_have_the_shape_dtype_and_address_of_the_value(model: Any) -> None:
    found = of(model)
    kernel = next(fact for fact in found.facts(CPU) if fact.shape == (2, 3))
    assert (kernel.dtype, kernel.device) == ("float32", CPU)
    assert kernel.start_address is not None and kernel.end_address == kernel.start_address
    assert list(found.start_addresses()) == list(found.addresses())
    # AND the end is where the value is now
    weight = model.layers[0].kernel
    before = weight.value.read_value()  # keeps the old value, so that the new one is elsewhere
    weight.assign(tf.ones((2, 3)) * 2)
    (moved,) = (fact for fact in found.facts(CPU) if fact.name == kernel.name)
    assert moved.start_address == kernel.start_address != moved.end_address
    del before
    # AND addresses are read only if they are asked for
    assert set(of(model, addresses=False).start_addresses()) == {None}


def test_metrics_and_the_state_of_the_model_itself_belong_to_no_layer() -> None:
    model = make_model(metrics=["mae"])
    model.generator = keras.random.SeedGenerator(3)
    model.train_on_batch(tf.ones((1, 2)), tf.ones((1, 3)))
    # The generator, the loss, and the mean absolute error: a total and a count each.
    generator = model.generator.state.numpy().nbytes
    assert owned(of(model))["other_state", None, None] == 4 * 4 + generator


@pytest.mark.parametrize("given", [False, True])
def test_an_optimizer_is_the_given_one_or_the_models(given: bool, model: Any) -> None:
    other = keras.optimizers.SGD(momentum=0.9)
    other.build(model.trainable_variables)
    sums = owned(Variables([(model, other if given else None)], []))
    assert sums["optimizer_state", "net/count", True] == (1 if given else 2) * 4 * 3


def test_layers_are_trained_if_any_of_their_own_weights_is(model: Any) -> None:
    found = of(model)
    assert found.trainable == {"net": True, "net/frozen": False, "net/count": True, "net/relu": True}
    assert found.paths[id(model.layers[0])] == "net/frozen" and found.paths[id(model)] == "net"
    model.trainable = False
    assert of(model).trainable["net/relu"] is False
    # AND not if all of them are fixed, whatever the layer says
    fixed = keras.Sequential([keras.Input((2,)), L.Normalization(name="norm"), L.Dense(1, name="dense")], name="net")
    flags = of(fixed).trainable
    assert fixed.layers[0].trainable and (flags["net/norm"], flags["net/dense"]) == (False, True)


def test_models_with_an_optimizer_and_large_ones_are_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    small, trained = (keras.Sequential([keras.Input((2,)), L.Dense(1)], name=name) for name in ("small", "trained"))
    models = [(small, None), (make_model("large", optimizer=None), None), (trained, keras.optimizers.SGD())]
    monkeypatch.setattr(module, "MAX_MODELS", 1)
    assert set(Variables(models, []).paths.values()) == {"trained", "trained/" + trained.layers[0].name}
    monkeypatch.setattr(module, "MAX_MODELS", 2)
    paths = Variables(models, []).paths.values()
    assert "large/frozen" in paths and "small" not in paths


def test_owners_are_found_by_variable_and_by_handle(model: Any) -> None:
    found, kernel = of(model), model.layers[0].kernel
    by_keras, *others = (found.owner_of(item) for item in (kernel, kernel.value, kernel.value.handle))
    assert others == [by_keras] * 2 and by_keras is not None
    assert by_keras[1] == "net/frozen" and by_keras[0].startswith(kernel.path)
    assert found.owner_of(tf.Variable(1.0)) is None and found.owner_of(object()) is None
    assert id(kernel.value) in found.ids()


def test_what_the_program_drops_is_freed() -> None:
    model = make_model()
    found = of(model)
    kernel = model.layers[0].kernel.value
    handle, gone = kernel.handle, weakref.ref(model)
    before = len(found.facts(CPU))
    del model, kernel
    gc.collect()
    assert gone() is None
    # AND its layers have no paths any more, which another object of the same id could take over
    assert found.paths == {}
    # AND what was known of its variables stays, with a handle that a function may still refer to
    facts = found.facts(CPU)
    assert len(facts) == before and {fact.end_address for fact in facts} == {None}
    owner = found.owner_of(handle)
    assert owner is not None and owner[1] == "net/frozen"


def test_the_signature_changes_with_the_variables(model: Any) -> None:
    first, second = (of(model).signature() for _ in range(2))
    assert first == second != of(make_model()).signature()
    model.optimizer.add_variable((2,), name="new")
    assert of(model).signature() != first


def test_a_variable_of_unknown_shape_has_neither_shape_nor_bytes() -> None:
    holder = tf.Module()
    holder.weight = tf.Variable([1.0, 2.0], shape=tf.TensorShape(None))
    (fact,) = of(holder).facts(CPU)
    assert (fact.shape, fact.dtype, fact.requested_bytes, fact.role) == ((), "", 0, "weights")


def test_variables_of_no_model_are_state_and_are_not_kept_alive(model: Any) -> None:
    found = of(model)
    free, gone = tf.Variable(tf.zeros(1000), name="buffer"), tf.Variable(tf.zeros(500))
    alias = tf.Variable(tf.zeros(1000))
    found.add_unowned([free, gone, alias, model.layers[0].kernel.value], {layers.variable_address(alias)})
    facts = {fact.shape: fact for fact in found.facts(CPU) if fact.requested_bytes >= 2000}
    assert facts.keys() == {(1000,), (500,)}
    fact = facts[1000,]
    assert (fact.role, fact.layer, fact.start_address) == ("other_state", None, layers.variable_address(free))
    assert fact.name.startswith("buffer") and found.owner_of(free.handle) == (fact.name, None)
    # AND one that is gone has no place any more
    del gone
    gc.collect()
    assert {one.shape: one.end_address for one in found.facts(CPU)}[500,] is None


def test_a_variable_that_is_copied_when_it_is_read_has_no_known_address(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tf.Variable(tf.zeros((64, 1024)))
    assert layers.variable_address(table) is not None
    in_use = iter((0, 64 * 1024 * 4))
    monkeypatch.setattr(layers, "bytes_in_use", lambda device: next(in_use))
    assert layers.variable_address(table) is None
    # AND it is not read again
    assert layers.variable_address(table) is None


@pytest.mark.parametrize(
    ("layer", "named"),
    [("fold/dense", "/dense"), ("fold#2/block#3/dense", "/block#3/dense"), ("fold#2", ""), (None, "")],
)
def test_a_model_that_is_gone_has_its_name_without_the_number_among_those_alive(layer: str | None, named: str) -> None:
    class Model:
        name = "fold"

    class Handle:
        """Stands for a variable's resource handle."""

    former, handle, model = FormerVariables(), Handle(), Model()
    former.note(handle, VariableFact("w", "weights", layer, True, 4, "CPU:0", None, None), model, None)
    owner = former._owners[id(handle)]
    assert owner.path() == layer
    del model
    assert owner.path() == f"fold, no longer used{named}"
