"""How the object that holds a tensor is described, from chains of references made by hand."""

import collections
import types
from typing import Any

import pytest

from tb_memplugin.recorder.observe.heap.holder_names import (
    Node,
    attributes,
    closure,
    describe_holder,
    describe_variable,
    is_attribute_dict,
)


class Tensor:
    """Replaces a tensor: only its identity matters."""


class Owner:
    pass


class Slotted:
    __slots__ = ("cache", "empty")


def chain(*values: Any) -> Node:
    """The last of some objects, each of which refers to the next one; the first one is a module's variables."""
    node = Node(values[0], None, "module train")
    for depth, value in enumerate(values[1:], 1):
        node = Node(value, node, depth=depth)
    return node


def owner_of(**values: Any) -> Owner:
    made = Owner()
    vars(made).update(values)
    return made


T = Tensor()


def test_a_variable_of_a_root_is_the_tensor() -> None:
    assert describe_variable(Node({"a": 1, "x": T}, None, "fit()"), T) == "variable `x` in fit()"


@pytest.mark.parametrize(
    ("kind", "value"),
    [("list", [T]), ("tuple", (T,)), ("dict", {"k": T}), ("deque", collections.deque([T]))],
)
def test_a_container_is_named_by_its_variable(kind: str, value: Any) -> None:
    assert describe_holder(chain({"kept": value}, value), T) == f"{kind} `kept` in module train"


def test_a_container_in_a_container_is_in_that_of_the_variable() -> None:
    inner = (T,)
    outer = [inner]
    assert describe_holder(chain({"kept": outer}, outer, inner), T) == "tuple in list `kept` in module train"
    between = {"k": inner}
    most = [between]
    assert describe_holder(chain({"kept": most}, most, between, inner), T) == "tuple in list `kept` in module train"


def test_a_container_of_an_object_is_named_by_its_attribute() -> None:
    outputs = [T]
    owner = owner_of(outputs=outputs)
    # With and without the dict of the object's attributes among the references.
    for values in ((owner, outputs), (owner, vars(owner), outputs)):
        assert describe_holder(chain({"o": owner}, *values), T) == "list in attribute `outputs` of Owner"
    inner = (T,)
    outputs[:] = [inner]
    expected = "tuple in attribute `outputs` of Owner"
    assert describe_holder(chain({"o": owner}, owner, vars(owner), outputs, inner), T) == expected


def test_an_object_is_named_by_its_attribute() -> None:
    owner = owner_of(last=T)
    for values in ((owner,), (owner, vars(owner))):
        assert describe_holder(chain({"o": owner}, *values), T) == "attribute `last` of Owner"
    assert describe_holder(chain({"o": owner_of(other=1)}, owner_of(other=1)), T) == "an object of type Owner"


def test_a_class_is_named_as_such() -> None:
    kept = type("Kept", (), {"last": T})
    assert describe_holder(chain({"Kept": kept}, kept), T) in (
        "attribute `last` of class Kept",
        "an object of type class Kept",
    )


def test_a_root_that_refers_to_the_tensor_itself_is_named_by_its_variable() -> None:
    assert describe_holder(Node({"x": T}, None, "module train"), T) == "`x` in module train"


def test_a_function_holds_what_it_closes_over_and_its_defaults() -> None:
    tensor = T

    def closes() -> Any:
        return tensor

    def defaults(x: Any = T) -> Any:
        return x

    assert describe_holder(chain({"f": closes}, closes), T) == "variable `tensor` of closes()"
    assert describe_holder(chain({"f": defaults}, defaults), T) == "variable of the defaults of defaults()"


def test_only_the_dict_of_an_objects_attributes_is_left_out() -> None:
    owner = owner_of(last=T)
    root = Node({"o": owner}, None, "module train")
    node = Node(owner, root)
    assert is_attribute_dict(Node(vars(owner), node), node)
    assert not is_attribute_dict(Node(dict(vars(owner)), node), node)
    assert not is_attribute_dict(Node(T, node), node)
    assert not is_attribute_dict(Node(vars(owner), root), root)  # the dict of a root

    class Named(dict):  # type: ignore[type-arg]
        pass

    container = Named()
    assert not is_attribute_dict(Node(vars(container), Node(container, root)), Node(container, root))


def test_attributes_are_read_without_running_code() -> None:
    class Careful:
        __slots__ = ("__dict__", "slot", "unset")

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        @property
        def computed(self) -> Any:
            raise AssertionError

    made = Careful()
    object.__setattr__(made, "slot", 1)
    object.__getattribute__(made, "__dict__")["own"] = 2
    assert attributes(made) == {"own": 2, "slot": 1}
    slotted = Slotted()
    slotted.cache = T  # type: ignore[attr-defined]
    assert attributes(slotted) == {"cache": T}
    assert describe_holder(chain({"s": slotted}, slotted), T) == "attribute `cache` of Slotted"


def test_variables_that_are_not_assigned_yet_are_left_out_of_a_closure() -> None:
    def make(assign: bool) -> types.FunctionType:
        def inner() -> Any:
            return early, late

        early = 1
        if assign:
            late = 2
        return inner  # type: ignore[return-value]

    assert closure(make(True)) == {"early": 1, "late": 2}
    assert closure(make(False)) == {"early": 1}
    assert closure(lambda: None) == {}  # type: ignore[arg-type]
