"""The search from the program's modules and running functions down to tensors, arrays and
iterators, and how what holds them is described: the holder, and the path from a root to it.

pytest makes functions with an assertion read their own variables, and the search skips such
functions. So helper functions hold the tensors.
"""

import functools
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.heap import find_holders, kept_objects, running_functions

history: list[Any] = []
LIST = "list in dict `results`"
MODULE = f"module {__name__}"
HOLD = "hold() in test_holders.py"
OUTPUTS, PARTIAL = "attribute `outputs` of Trainer", "tuple in attribute `args` of partial"


class Tensor:
    """Replaces a tensor: only its identity matters."""


class Trainer:
    kept: list[Any] = []  # noqa: RUF012

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def end(self) -> None:
        """A callback's method."""


class Slotted:
    __slots__ = ("cache", "empty")

    def __init__(self, cache: Any) -> None:
        self.cache = cache


@pytest.fixture(autouse=True)
def clear_kept() -> Iterator[None]:
    yield
    history.clear()
    Trainer.kept.clear()


def held(tensor: Any) -> tuple[str | None, str | None]:
    """The holder of a tensor, and the path to it."""
    return find_holders([tensor], seconds=5.0).get(id(tensor), (None, None))


def hold(make: Callable[[Any], Any]) -> tuple[str, str]:
    tensor = Tensor()
    results = make(tensor)
    holder, path = held(tensor)
    del results
    return holder or "", path or ""


def test_a_list_of_a_module_and_of_a_class() -> None:
    history.append((Tensor(), 1.0))
    text = f"tuple in list `history` in {MODULE}"
    assert held(history[0][0]) == (text, f"{MODULE} › history (list) › [0] (tuple) › [0]")
    Trainer.kept.append(Tensor())
    path = f"{MODULE} › Trainer (class) › kept (list) › [0]"
    assert held(Trainer.kept[0]) == ("list in attribute `kept` of class Trainer", path)
    # AND each of many tensors has its own index
    history[:] = [Tensor() for _ in range(500)]
    paths = [path for _, path in find_holders(list(history), seconds=5.0).values()]
    assert paths == [f"{MODULE} › history (list) › [{at}]" for at in range(500)]


def closure(kept: Any) -> Callable[[], Any]:
    return lambda: kept


def unassigned(tensor: Any) -> Callable[[], Any]:
    """A function that closes over a variable that is not assigned yet, too."""

    def inner() -> Any:
        return late, kept

    kept = tensor
    if tensor is None:
        late = 2
    return inner


def in_a_cycle(tensor: Any) -> Trainer:
    """A trainer and a callback that refer to each other."""
    trainer = Trainer()
    trainer.callback = Trainer(trainer=trainer, outputs=[tensor])  # type: ignore[attr-defined]
    return trainer


@pytest.mark.parametrize(
    ("make", "text", "path"),
    [
        (lambda tensor: [tensor], "list `results`", "(list) › [0]"),
        (lambda tensor: deque([1, 2, tensor]), "deque `results`", "(deque) › [2]"),
        (
            lambda tensor: defaultdict(list, loss=[tensor]),
            LIST,
            '(defaultdict) › "loss" (list) › [0]',
        ),
        (
            lambda tensor: {"epochs": {3: {"val/loss": [0, tensor]}}},
            *(LIST, '(dict) › "epochs" (dict) › [3] (dict) › "val/loss" (list) › [1]'),
        ),
        (lambda tensor: Trainer(outputs=tensor), OUTPUTS, "(Trainer) › outputs"),
        (
            lambda tensor: [Trainer(outputs=[(tensor,)])],
            *(f"tuple in {OUTPUTS}", "(list) › [0] (Trainer) › outputs (list) › [0] (tuple) › [0]"),
        ),
        (Slotted, "attribute `cache` of Slotted", "(Slotted) › cache"),
        (closure, "variable `kept` of <lambda>()", "(function) › kept"),
        (unassigned, "variable `kept` of inner()", "(function) › kept"),
        (
            lambda tensor: closure([tensor]),
            "list in variable `kept` of <lambda>()",
            "(function) › kept (list) › [0]",
        ),
        (
            lambda tensor: lambda kept=tensor: kept,
            "variable of the defaults of <lambda>()",
            "(function) › …",
        ),
        (
            lambda tensor: functools.partial(print, 1, tensor),
            PARTIAL,
            "(partial) › args (tuple) › [1]",
        ),
        (
            lambda tensor: Trainer(outputs=tensor).end,
            OUTPUTS,
            "(method) › __self__ (Trainer) › outputs",
        ),
        (in_a_cycle, f"list in {OUTPUTS}", "(Trainer) › callback (Trainer) › outputs (list) › [0]"),
        (lambda tensor: {tensor}, "an object of type set", "(set) › …"),
    ],
)
def test_references_of_a_running_function(make: Callable[[Any], Any], text: str, path: str) -> None:
    expected = f"{text} in {HOLD}" if text.endswith("`results`") else text
    assert hold(make) == (expected, f"{HOLD} › results {path}")


def test_a_variable_of_a_running_function() -> None:
    place = "held() in test_holders.py"
    assert hold(lambda tensor: None) == (f"variable `tensor` in {place}", f"{place} › tensor")


@pytest.mark.parametrize(
    "key",
    ["/home/jane/data", "jane@example.org", "C:\\data", "two words", ("jane", 1), 10**12, 1.5],
)
def test_keys_that_may_identify_a_person_or_a_machine_are_left_out(key: Any) -> None:
    assert hold(lambda tensor: {key: tensor})[1] == f"{HOLD} › results (dict) › […]"
    if isinstance(key, str):
        assert hold(lambda tensor: Trainer(**{key: tensor}))[1] == f"{HOLD} › results (Trainer) › …"


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
    assert (held(tensor)[1], looked_up) == (f"{MODULE} › history (list) › [0] (dict) › […]", [])


def test_a_long_path_is_cut_in_the_middle_and_a_text_as_key() -> None:
    name = "a" * 300
    _, found = hold(
        lambda tensor: functools.reduce(lambda inner, _: {name: inner}, range(7), [tensor])
    )
    assert len(found) <= 2_000
    assert found.startswith(f'{HOLD} › results (dict) › … › "{name}" (dict)') and found.endswith(
        '" (list) › [0]'
    )
    text = "a" * 10_000
    assert hold(lambda tensor: {text: tensor})[1] == f'{HOLD} › results (dict) › "{text[:399]}…"'


class Careful:
    """Fails if its attributes are read by its own code."""

    __slots__ = ("__dict__", "slot", "unset")

    def __getattribute__(self, name: str) -> Any:
        assert name in ("__class__", "__dict__")
        return object.__getattribute__(self, name)

    @property
    def computed(self) -> Any:
        raise AssertionError


@pytest.mark.parametrize("name", ["slot", "own"])
def test_attributes_are_read_without_running_code(name: str) -> None:
    def make(tensor: Any) -> Any:
        made = Careful()
        object.__setattr__(made, name, tensor)
        return made

    assert hold(make) == (f"attribute `{name}` of Careful", f"{HOLD} › results (Careful) › {name}")


def test_the_search_stops_at_its_time_limit() -> None:
    times = iter(range(10**6))
    history = [Tensor() for _ in range(200_000)]
    assert find_holders([history[-1]], seconds=20, clock=lambda: float(next(times))) == {}
    assert next(times) < 40
    assert kept_objects(seconds=-1) == []


def test_reading_variables_keeps_no_value_alive() -> None:
    def runs_on() -> bool:
        tensor = Tensor()
        reference = weakref.ref(tensor)
        for _ in running_functions():
            pass
        del tensor, _
        return reference() is None

    assert runs_on()

    def reads_locals() -> dict[str, Any]:
        mine = locals()
        assert "reads_locals" not in [frame.f_code.co_name for frame, _ in running_functions()]
        return mine

    assert reads_locals() == {}
