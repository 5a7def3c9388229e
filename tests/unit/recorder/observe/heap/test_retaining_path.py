"""Paths from the program's modules and running functions to an object, found among real Python objects.

As in test_holders.py, helper functions hold the tensors.
"""

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.observe.heap.holders import find_holders
from tb_memplugin.recorder.observe.heap.retaining_path import MAX_NAME_CHARACTERS, MAX_PATH_CHARACTERS

history: list[Any] = []
MODULE = f"module {__name__}"
HOLD = "hold() in test_retaining_path.py"


class Tensor:
    """Replaces a tensor: only its identity matters."""


class Trainer:
    kept: list[Any] = []  # noqa: RUF012

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def on_train_batch_end(self) -> None:
        """A callback's method."""


class Slotted:
    __slots__ = ("cache",)


@pytest.fixture(autouse=True)
def clear_kept() -> Iterator[None]:
    yield
    history.clear()
    Trainer.kept.clear()


def path_to(tensor: Any) -> str | None:
    holder = find_holders([tensor], seconds=5.0).get(id(tensor))
    return None if holder is None else holder.path


def hold(make: Callable[[Any], Any]) -> str | None:
    tensor = Tensor()
    results = make(tensor)
    path = path_to(tensor)
    del results
    return path


def test_a_list_of_a_module() -> None:
    history.extend([Tensor(), Tensor(), {"loss": Tensor()}])
    assert path_to(history[1]) == f"{MODULE} › history (list) › [1]"
    assert path_to(history[2]["loss"]) == f'{MODULE} › history (list) › [2] (dict) › "loss"'


def test_a_class_attribute() -> None:
    Trainer.kept.append(Tensor())
    assert path_to(Trainer.kept[0]) == f"{MODULE} › Trainer (class) › kept (list) › [0]"


def closure(kept: Any) -> Callable[[], Any]:
    return lambda: kept


def default(kept: Any) -> Callable[[], Any]:
    def step(batch: Any = kept) -> Any:
        return batch

    return step


def slotted(tensor: Any) -> Slotted:
    owner = Slotted()
    owner.cache = tensor
    return owner


def in_a_cycle(tensor: Any) -> Trainer:
    """A trainer and a callback that refer to each other."""
    trainer = Trainer()
    trainer.callback = Trainer(trainer=trainer, outputs=[tensor])  # type: ignore[attr-defined]
    return trainer


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda tensor: [tensor], "results (list) › [0]"),
        (lambda tensor: collections.deque([1, 2, tensor]), "results (deque) › [2]"),
        (lambda tensor: collections.defaultdict(list, loss=[tensor]), 'results (defaultdict) › "loss" (list) › [0]'),
        (lambda tensor: {"epochs": {3: {"val/loss": [0, tensor]}}}, 'epochs" (dict) › [3] (dict) › "val/loss" (list)'),
        (lambda tensor: Trainer(outputs=tensor), "results (Trainer) › outputs"),
        (lambda tensor: [Trainer(outputs=[tensor])], "results (list) › [0] (Trainer) › outputs (list) › [0]"),
        (slotted, "results (Slotted) › cache"),
        (closure, "results (function) › kept"),
        (lambda tensor: closure([tensor]), "results (function) › kept (list) › [0]"),
        (default, "results (function) › …"),
        (lambda tensor: functools.partial(print, 1, tensor), "results (partial) › args (tuple) › [1]"),
        (
            lambda tensor: Trainer(outputs=[tensor]).on_train_batch_end,
            "results (method) › __self__ (Trainer) › outputs",
        ),
        (in_a_cycle, "results (Trainer) › callback (Trainer) › outputs (list) › [0]"),
        (lambda tensor: {tensor}, "results (set) › …"),
    ],
)
def test_references_of_a_running_function(make: Callable[[Any], Any], path: str) -> None:
    found = hold(make)
    assert found is not None and found.startswith(f"{HOLD} › results (") and path in found


def test_a_variable_of_a_running_function() -> None:
    assert hold(lambda tensor: None) == "path_to() in test_retaining_path.py › tensor"


@pytest.mark.parametrize(
    "key", ["/home/jane/data", "jane@example.org", "C:\\data", "two words", ("jane", 1), 10**12, 1.5]
)
def test_keys_that_may_identify_a_person_or_a_machine_are_left_out(key: Any) -> None:
    assert hold(lambda tensor: {key: tensor}) == f"{HOLD} › results (dict) › […]"
    if isinstance(key, str):
        assert hold(lambda tensor: Trainer(**{key: tensor})) == f"{HOLD} › results (Trainer) › …"


class Key(str):
    """A key that notices if it is looked up."""

    __slots__ = ()

    def __hash__(self) -> int:
        looked_up.append(self)
        return super().__hash__()

    def __repr__(self) -> str:
        looked_up.append(self)
        return ""


looked_up: list[str] = []


def test_no_code_of_keys_runs() -> None:
    history.append({Key("loss"): Tensor()})
    tensor = next(iter(history[0].values()))
    looked_up.clear()
    assert path_to(tensor) == f"{MODULE} › history (list) › [0] (dict) › […]"
    assert looked_up == []


def test_long_names_are_whole() -> None:
    """A display may shorten them."""
    module = types.ModuleType("experiments_of_the_second_year_" * 5)
    module.__file__ = "experiments.py"
    attribute, kind = "predictions_for_the_validation_set_" * 5, type("Evaluator" * 12, (), {})
    setattr(module, attribute, kind())
    vars(getattr(module, attribute))["last_batch_" * 10] = Tensor()
    sys.modules[module.__name__] = module
    try:
        path = path_to(vars(getattr(module, attribute))["last_batch_" * 10])
    finally:
        del sys.modules[module.__name__]
    assert path == f"module {module.__name__} › {attribute} ({kind.__name__}) › {'last_batch_' * 10}"


def test_a_long_path_is_cut_in_the_middle_and_a_text_as_key() -> None:
    name = "a" * 300
    found = hold(lambda tensor: functools.reduce(lambda inner, _: {name: inner}, range(7), [tensor]))
    assert found is not None and len(found) <= MAX_PATH_CHARACTERS
    assert found.startswith(f'{HOLD} › results (dict) › … › "{name}" (dict)') and found.endswith('" (list) › [0]')
    text = "a" * 10_000
    assert hold(lambda tensor: {text: tensor}) == f'{HOLD} › results (dict) › "{text[: MAX_NAME_CHARACTERS - 1]}…"'


def test_each_of_many_tensors_has_its_own_index() -> None:
    history.extend(Tensor() for _ in range(500))
    paths = [holder.path for holder in find_holders(list(history), seconds=5.0).values()]
    assert paths == [f"{MODULE} › history (list) › [{at}]" for at in range(500)]
