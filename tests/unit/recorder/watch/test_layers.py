"""The tree of a model's layers or of a module's parts, the weights of each, and the layer table,
from real models."""

import collections
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.base import ByIdentity
from tb_memplugin.recorder.watch import call_notes, variable_address, variable_values, variables_of
from tb_memplugin.recorder.watch import variables as module
from tb_memplugin.recorder.watch.layer_table import build_layer_table, signature
from tb_memplugin.recorder.watch.layers import own_variables, walk
from tb_memplugin.recorder.watch.slots import slots
from tb_memplugin.recorder.watch.variable_values import AddressReader, variable_bytes
from tb_memplugin.recorder.watch.variables import FormerVariables, Variables, former_variables
from tb_memplugin.schema import VariableFact

L = keras.layers


class Dense(tf.Module):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones(size))
        self.fixed = tf.Variable(tf.ones(1), trainable=False)


class Mlp(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="mlp")
        self.layers, self.head, self.inner = [Dense(2), Dense(3)], {"out": Dense(4)}, L.Dense(5)
        self.inner.build((None, 2))


def paths(model: Any) -> list[str]:
    return [node.path for node in walk(model)]


def test_layers_are_walked_in_order_without_inputs_and_modules_by_their_attributes() -> None:
    inner = keras.Sequential(
        [keras.Input((4,)), L.Dense(3, name="a"), L.Dense(3, name="b")], name="inner"
    )
    model = keras.Sequential([keras.Input((4,)), inner, L.Dense(2, name="head")], name="net")
    assert paths(model) == ["net", "net/inner", "net/inner/a", "net/inner/b", "net/head"]
    found = list(dict.fromkeys(paths(Mlp())))
    assert found == ["mlp", "mlp/head/out", "mlp/inner", "mlp/layers/0", "mlp/layers/1"]


def test_a_shared_layer_is_walked_once_and_siblings_of_one_name_are_numbered() -> None:
    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="net")
            shared = L.Dense(2, name="shared")
            self.first = keras.Sequential([shared], name="block")
            self.second = keras.Sequential([L.Dense(2, name="own"), shared], name="block")
            self.third = keras.Sequential([], name="block")

    found = paths(Model())
    assert found == [
        "net",
        "net/block",
        "net/block/shared",
        "net/block#2",
        "net/block#2/own",
        "net/block#3",
    ]


@pytest.mark.parametrize("backbone_first", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_layers_shared_by_sub_models_own_their_weights(backbone_first: bool, nested: bool) -> None:
    """A feature extractor over a backbone's layers tracks them as well, wherever their node is."""
    inputs = keras.Input((8,))
    layers = [L.Dense(4, name="c1"), L.Dense(5, name="c2")]
    outputs = [inputs]
    for layer in [keras.Sequential(layers, name="block")] if nested else layers:
        outputs.append(layer(outputs[-1]))
    backbone = keras.Model(inputs, L.Dense(2, name="top")(outputs[-1]), name="backbone")
    features = keras.Model(backbone.inputs, outputs[1:], name="features")

    class Segmenter(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="net")
            parts = {"backbone": backbone, "features": features}
            for name in sorted(parts, reverse=not backbone_first):
                setattr(self, name, parts[name])
            self.head = L.Dense(3, name="head")

    model = Segmenter()
    model.head.build((None, 5))
    found = {
        path.rpartition("/")[2]: sum(sizes(own)) for path, own in own_variables(walk(model)).items()
    }
    expected = {"net": 0, "backbone": 0, "features": 0, "c1": 36, "c2": 25, "top": 12, "head": 18}
    assert found == expected | ({"block": 0} if nested else {})
    assert sum(found.values()) == sum(sizes(model.weights))


def sizes(variables: Any) -> list[int]:
    return [int(np.prod(variable.shape)) for variable in variables]


def test_weights_of_a_module_are_its_variables_and_those_of_its_layers_once() -> None:
    module = Mlp()
    module.again = module.inner
    assert sorted(sizes(variables_of(module, "weights"))) == [1, 1, 1, 2, 3, 4, 5, 10]
    assert sorted(sizes(variables_of(module, "trainable_weights"))) == [2, 3, 4, 5, 10]
    found = own_variables(walk(module))
    assert sorted(sizes(found["mlp/layers/1"])) == [1, 3] and found["mlp"] == []

    class Unbuilt:
        @property
        def weights(self) -> list[Any]:
            raise ValueError("it is not built")

    assert variables_of(Unbuilt(), "weights") == []


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool", "uint16"])
def test_bytes_of_a_variable_are_those_of_its_values(shape: tuple[int, ...], dtype: str) -> None:
    values = np.zeros(shape, dtype)
    assert variable_bytes(tf.Variable(values)) == values.nbytes
    assert variable_bytes(keras.Variable(values, dtype=dtype, trainable=False)) == values.nbytes
    # AND types that numpy does not know have their size
    for name, size in (("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1)):
        assert variable_bytes(SimpleNamespace(shape=shape, dtype=name)) == values.size * size


def test_reading_weights_leaves_no_garbage() -> None:
    """Garbage that refers to weights keeps a dropped model until a collection of old objects."""
    model = keras.Sequential([keras.Input((2,)), L.Dense(3), L.Dense(4)])
    own_variables(walk(model))  # what is made once
    gc.collect()
    gc.disable()
    try:
        assert len(own_variables(walk(model))) == 3
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("optimizer", "shapes", "served"),
    [
        (keras.optimizers.Adam, ((3, 2), (5,)), [2, 2]),
        (lambda: keras.optimizers.SGD(momentum=0.9), ((3,),), [1]),
        # Averages and accumulated gradients.
        (
            lambda: keras.optimizers.SGD(use_ema=True, gradient_accumulation_steps=4),
            ((3, 2), (5,)),
            [2, 2],
        ),
        # As many variables of the optimizer as weights: their own list is parallel to that of the
        # weights, too.
        (keras.optimizers.SGD, ((3,), (4,)), [0, 0]),
        # Rows and columns of matrices, placeholders for vectors.
        (keras.optimizers.Adafactor, ((8, 6), (5,)), [3, 3]),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), ((3,),), [2]),
    ],
)
def test_slots_serve_their_weights_and_scalars_serve_none(
    optimizer: Any, shapes: Any, served: list[int]
) -> None:
    made = optimizer()
    weights = [
        keras.Variable(np.zeros(shape, np.float32), name=f"w{at}")
        for at, shape in enumerate(shapes)
    ]
    made.build(weights)
    found = slots(made, weights)
    assert [sum(slot.of is weight for slot in found) for weight in weights] == served
    assert sum(slot.of is not None for slot in found) == sum(served)
    assert not any(slot.variable is weight for slot in found for weight in weights)
    # AND all variables of the optimizer are found, each once
    keys = [id(slot.variable) for slot in found]
    assert len(set(keys)) == len(keys) and {id(variable) for variable in made.variables} <= set(
        keys
    )


def test_placeholders_that_an_optimizer_does_not_list_serve_their_weights() -> None:
    # GIVEN Adafactor as some versions of Keras have it: placeholders for vectors, which its
    # variables leave out
    weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in ((8, 6), (5,))]
    rows = keras.Variable(np.zeros(8, np.float32))
    optimizer = SimpleNamespace(
        variables=[rows],
        _variables=[rows],
        _trainable_variables=weights,
        _r=[rows, keras.Variable(0.0)],
    )
    # THEN no other object in a list of this length is taken for one, nor are the weights themselves
    others = {
        "names": ["first", "second"],
        "same": list(weights),
        "constants": [SimpleNamespace(value=1)] * 2,
    }
    for more in ({}, others):
        vars(optimizer).update(more)
        found = [(slot.variable is rows, slot.of) for slot in slots(optimizer)]
        assert found == [(True, weights[0]), (False, weights[1])]


def test_a_distributed_variable_of_keras_2_has_the_key_of_its_container() -> None:
    container, plain = SimpleNamespace(_unique_id="dense_1"), SimpleNamespace(_unique_id="dense_2")
    weight = SimpleNamespace(
        _unique_id="dense_1_replica_0", _distributed_container=lambda: container
    )
    made = [SimpleNamespace(number=at) for at in range(2)]
    keys = {"dense_1": {"momentum": made[0]}, "dense_2": {"momentum": made[1]}}
    found = slots(SimpleNamespace(variables=made, _slots=keys), [weight, plain])
    assert [(slot.variable, slot.of) for slot in found] == [(made[0], weight), (made[1], plain)]


def test_a_recomputed_layer_makes_a_new_table_that_says_so_and_one_of_another_model_none() -> None:
    model, other = (
        keras.Sequential([keras.Input((4,)), L.Dense(2, name="dense")], name="net")
        for _ in range(2)
    )
    before, table = signature(model, None), build_layer_table(model, None, step=0, previous=None)
    call_notes.recomputed[other.layers[0]] = True
    assert signature(model, None) == before
    call_notes.recomputed[model.layers[0]] = False
    assert signature(model, None) != before
    table = build_layer_table(model, None, step=1, previous=table)
    assert table.reason == "dense runs again in the backward pass"
    assert [layer.recomputed for layer in table.layers] == [None, "resampled"]


def test_neighbors_between_cut_points_have_consecutive_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers = [L.Dense(4, name="first"), L.Dropout(0.1, name="drop"), L.Dense(2, name="last")]
    model, module = keras.Sequential([keras.Input((8,)), *layers], name="net"), Mlp()

    def made(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError(
            "a model or an input was made: it would count among the program's and take a name"
        )

    monkeypatch.setattr(keras.Model, "__init__", made)
    monkeypatch.setattr(keras, "Input", made)
    table = build_layer_table(model, None, step=0, previous=None)
    first, drop = (layer.unit for layer in table.layers if layer.path in ("net/first", "net/drop"))
    assert first is not None and drop == first + 1
    # AND a model without a layer graph has none
    assert {
        layer.unit for layer in build_layer_table(module, None, step=0, previous=None).layers
    } == {None}


CPU = "CPU:0"


class Stub:
    """Stands for a model or a variable's resource handle."""

    name = "fold"


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
    model = keras.Sequential(
        [keras.Input((2,)), frozen, Counting(name="count"), L.ReLU(name="relu")], name=name
    )
    if optimizer is not None:
        model.compile(optimizer, "mse", **compiled)
        model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def model() -> Any:
    return make_model()


def of(*models: Any, begun: bool = True) -> Variables:
    found = Variables([(model, None) for model in models], [])
    if begun:
        found.begin()
    return found


def owned(found: Variables) -> dict[tuple[str, str | None, bool | None], int]:
    """Bytes by role, layer and whether it is trained."""
    sums: collections.Counter[tuple[str, str | None, bool | None]] = collections.Counter()
    for fact in found.facts(CPU):
        sums[fact.role, fact.layer, fact.trainable] += fact.requested_bytes
    return sums


def test_each_variable_has_its_role_and_layer(model: Any) -> None:
    found = of(model)
    scalars = [variable for variable in model.optimizer.variables if len(variable.shape) == 0]
    sums = owned(found)
    assert sums["weights", "net/frozen", False] == 4 * (2 * 3 + 3)
    assert sums["weights", "net/count", True] == 4 * 3
    # AND the slots of the trained weight have its layer, while Adam's scalars have none
    assert sums["optimizer_state", "net/count", True] == 2 * 4 * 3
    assert sums["optimizer_state", None, None] == sum(
        variable.numpy().nbytes for variable in scalars
    )
    # AND an optimizer that is given replaces the model's
    other = keras.optimizers.SGD(momentum=0.9)
    other.build(model.trainable_variables)
    assert owned(Variables([(model, other)], []))["optimizer_state", "net/count", True] == 4 * 3
    # AND the state of a layer's generator is its own
    assert (
        sums["other_state", "net/count", None]
        == model.layers[1].seed_generator.state.numpy().nbytes
    )
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
    assert list(found.start_addresses()) == found.read_end()
    # AND the end is where the value was when the ends were read
    weight = model.layers[0].kernel
    before = weight.value.read_value()  # keeps the old value, so that the new one is elsewhere
    weight.assign(tf.ones((2, 3)) * 2)
    found.read_end()
    (moved,) = (fact for fact in found.facts(CPU) if fact.name == kernel.name)
    assert moved.start_address == kernel.start_address != moved.end_address
    del before
    # AND addresses are read only if they are asked for
    assert set(of(model, begun=False).start_addresses()) == {None}


def test_metrics_and_the_state_of_the_model_itself_belong_to_no_layer() -> None:
    model = make_model(metrics=["mae"])
    model.generator = keras.random.SeedGenerator(3)
    model.train_on_batch(tf.ones((1, 2)), tf.ones((1, 3)))
    # The generator, the loss, and the mean absolute error: a total and a count each.
    generator = model.generator.state.numpy().nbytes
    assert owned(of(model))["other_state", None, None] == 4 * 4 + generator


def test_layers_are_trained_if_any_of_their_own_weights_is(model: Any) -> None:
    found = of(model)
    assert found.trainable == {
        "net": True,
        "net/frozen": False,
        "net/count": True,
        "net/relu": True,
    }
    assert found.paths[id(model.layers[0])] == "net/frozen" and found.paths[id(model)] == "net"
    model.trainable = False
    assert of(model).trainable["net/relu"] is False
    # AND not if all of them are fixed, whatever the layer says
    fixed = keras.Sequential(
        [keras.Input((2,)), L.Normalization(name="norm"), L.Dense(1, name="dense")], name="net"
    )
    flags = of(fixed).trainable
    assert fixed.layers[0].trainable and (flags["net/norm"], flags["net/dense"]) == (False, True)


def test_models_with_an_optimizer_and_large_ones_are_read_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, trained = (
        keras.Sequential([keras.Input((2,)), L.Dense(1)], name=name)
        for name in ("small", "trained")
    )
    models = [
        (small, None),
        (make_model("large", optimizer=None), None),
        (trained, keras.optimizers.SGD()),
    ]
    monkeypatch.setattr(module, "MAX_MODELS", 1)
    assert set(Variables(models, []).paths.values()) == {
        "trained",
        "trained/" + trained.layers[0].name,
    }
    monkeypatch.setattr(module, "MAX_MODELS", 2)
    paths = Variables(models, []).paths.values()
    assert "large/frozen" in paths and "small" not in paths


def test_owners_are_found_by_variable_and_by_handle(model: Any) -> None:
    found, kernel = of(model), model.layers[0].kernel
    by_keras, *others = (
        found.owner_of(item) for item in (kernel, kernel.value, kernel.value.handle)
    )
    assert others == [by_keras] * 2 and by_keras is not None
    assert by_keras[1] == "net/frozen" and by_keras[0].startswith(kernel.path)
    assert found.owner_of(tf.Variable(1.0)) is None and found.owner_of(object()) is None
    assert found.knows(kernel.value) and not found.knows(tf.Variable(1.0))


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
    assert set(found.read_end()) == {None}
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
    found.add_unowned([free, gone, alias, model.layers[0].kernel.value], {variable_address(alias)})
    facts = {fact.shape: fact for fact in found.facts(CPU) if fact.requested_bytes >= 2000}
    assert facts.keys() == {(1000,), (500,)}
    fact = facts[1000,]
    assert (fact.role, fact.layer, fact.start_address) == (
        "other_state",
        None,
        variable_address(free),
    )
    assert fact.name.startswith("buffer") and found.owner_of(free.handle) == (fact.name, None)
    # AND one that is gone has no place any more
    del gone
    gc.collect()
    found.read_end()
    assert {one.shape: one.end_address for one in found.facts(CPU)}[500,] is None


def test_a_variable_that_is_copied_when_it_is_read_has_no_known_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = tf.Variable(tf.zeros((64, 1024)))
    assert variable_address(table) is not None
    in_use = iter((0, 64 * 1024 * 4))
    monkeypatch.setattr(variable_values, "bytes_in_use", lambda device: next(in_use))
    assert variable_address(table) is None
    # AND it is not read again
    assert variable_address(table) is None


def test_addresses_read_at_once_are_those_of_each_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_values, "_copied", ByIdentity[bool]())
    small = [tf.Variable([number, 2.0]) for number in range(20)]
    large = [tf.Variable(tf.fill((64, 1024), float(number))) for number in range(5)]
    inner, text = L.Dense(1), tf.Variable("text")
    inner.build((None, 2))
    sparse = tf.Variable(tf.zeros((64, 1024)))
    sparse.scatter_update(tf.IndexedSlices(tf.ones((1, 1024)), [0]))  # copied from now on
    variables = [*small, *large, tf.Variable(3, dtype=tf.int64), inner.kernel.value, text]
    reader = AddressReader([weakref.ref(one) for one in (*variables, sparse)])
    expected = [variable_address(one) for one in variables]
    assert None not in expected[:-1] and expected[-1] is None
    assert reader.read()[:-1] == expected
    # AND after one got another value, and one is gone
    before = small[0].read_value()
    small[0].assign([7.0, 7.0])
    del variables[1], small[1]
    gc.collect()
    found = reader.read()
    assert found[1] is None and found[0] == variable_address(small[0]) != expected[0]
    assert found[2:-1] == expected[2:] and before is not None
    # AND a copy that is seen costs only its own address, from now on
    in_use = iter(range(0, 10**12, 64 * 1024 * 4))
    monkeypatch.setattr(variable_values, "bytes_in_use", lambda device: next(in_use))
    assert reader.read()[:-1] == [
        variable_address(small[0]),
        None,
        *found[2:20],
        *[None] * 5,
        *found[25:-1],
    ]
    assert sparse in variable_values._copied and small[0] not in variable_values._copied


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ("fold/dense", "/dense"),
        ("fold#2/block#3/dense", "/block#3/dense"),
        ("fold#2", ""),
        (None, ""),
    ],
)
def test_a_model_that_is_gone_has_its_name_without_the_number_among_those_alive(
    layer: str | None, named: str
) -> None:
    former, handle, model = FormerVariables(), Stub(), Stub()
    former.note(
        handle, VariableFact("w", "weights", layer, True, 4, "CPU:0", None, None), model, None
    )
    owner = former._owners.get(handle)
    assert owner.path(exists=False) == layer
    del model
    assert owner.path(exists=False) == f"fold, no longer used{named}"


def test_the_weights_of_a_model_that_waits_for_the_collector_have_its_name() -> None:
    gc.disable()
    try:
        model = make_model()
        handles = [weight.value.handle for weight in model.weights]
        assert len(of(model).facts(CPU)) >= len(handles)
        gone = weakref.ref(model)
        del model
        assert gone() is not None
        facts = former_variables.facts(handles, lambda handle: None)
        assert {fact.layer for fact in facts} <= {
            f"net, no longer used/{name}" for name in ("frozen", "count")
        }
        assert len(facts) == len(handles) and all(fact.role == "weights" for fact in facts)
        # AND those that the program reaches are left out
        assert former_variables.facts(handles, lambda handle: ("known", None)) == []
    finally:
        gc.enable()


def test_the_keras_that_compiled_a_model_is_known_and_a_loop_has_none() -> None:
    keras_2 = pytest.importorskip("tf_keras")
    for package, api in (("keras", keras), ("tf_keras", keras_2)):
        model = api.Sequential([api.Input((2,)), api.layers.Dense(1)])
        assert build_layer_table(model, None, step=0, previous=None).compiled_with == "none"
        model.compile("sgd", "mse")
        assert build_layer_table(model, None, step=0, previous=None).compiled_with == package
    assert build_layer_table(Mlp(), None, step=0, previous=None).compiled_with == "none"
