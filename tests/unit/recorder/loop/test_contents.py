"""What a device's memory holds now: figures from an allocator and a map made by hand, tensors from a real model."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import keras
import pytest
from dump_cases import make_dump

from tb_memplugin.device_contents import LayerSum
from tb_memplugin.recorder.devices import Device
from tb_memplugin.recorder.loop import contents as module
from tb_memplugin.recorder.loop import memory_summary
from tb_memplugin.recorder.loop.contents import _categories, _last_step, _layers
from tb_memplugin.schema import TensorFact, TraceFacts, VariableFact

KIB = 1 << 10


def memory(*chunks: tuple[int, int, int]) -> Any:
    """The map of chunks in use (address, bytes, requested bytes), and a free one behind them."""
    listed = [(address, size, requested, True) for address, size, requested in chunks]
    return module.read_dump(make_dump(listed=[*listed, (1 << 20, 4 * KIB, 0, False)]), 0.0)


def variable(role: Any, trainable: bool | None, layer: str | None, size: int, address: int | None) -> VariableFact:
    return VariableFact("v", role, layer, trainable, size, "GPU:0", address, address)


VARIABLES = (
    variable("weights", True, "net/a", 1000, 0x1000),
    variable("weights", True, "net/b", 200, 0x2000),
    variable("weights", False, "net/c", 300, None),
    variable("optimizer_state", True, "net/a", 2000, 0x3000),
    variable("optimizer_state", None, None, 8, 0x9000),
)
FACTS = TraceFacts(variables=VARIABLES, tensors=(TensorFact("held_tensors", 50, 0x4000),))


def test_the_categories_sum_to_the_allocated_bytes() -> None:
    # Two chunks are larger than what was asked for; one tensor's address is unknown, and two lie in no chunk in use.
    found = _categories(FACTS, memory((0x1000, 1024, 1000), (0x2000, 256, 200), (0x4000, 50, 50)), 10_000)
    sums = {(one.category, one.trainable): (one.bytes, one.tensors) for one in found}
    assert sums == {
        ("weights", True): (1200, 2),
        ("weights", False): (300, 1),
        ("optimizer_state", None): (2008, 2),
        ("held_tensors", None): (50, 1),
        ("rounding", None): (24 + 56, None),
        ("unattributed", None): (10_000 - 3558 - 80, None),
    }
    assert sum(one.bytes for one in found) == 10_000
    # AND unattributed memory is the top of the stack, weights the bottom
    assert [one.category for one in found][-2:] == ["weights", "weights"]


def test_layers_are_in_order_of_their_bytes_then_of_their_names() -> None:
    more = [variable("other_state", None, "net/z", 300, None), variable("weights", True, "net/d", 300, None)]
    assert _layers(dataclasses.replace(FACTS, variables=(*VARIABLES, *more))) == (
        LayerSum("net/a", 1000, 2000),
        LayerSum("net/c", 300, 0),
        LayerSum("net/d", 300, 0),
        LayerSum("net/z", 0, 300),
        LayerSum("net/b", 200, 0),
    )


def optimizer(iterations: int) -> Any:
    return SimpleNamespace(iterations=iterations)


FIRST = optimizer(5)


@pytest.mark.parametrize(
    ("optimizers", "given", "step"),
    [
        ([FIRST], None, 4),
        ([FIRST, optimizer(0)], None, 4),
        ([FIRST, None], None, 4),
        ([FIRST, FIRST], None, 4),  # two models of one optimizer
        ([FIRST, optimizer(5)], None, None),
        ([optimizer(0)], None, None),
        ([], None, None),
        ([FIRST], optimizer(9), 8),
    ],
)
def test_the_last_step_is_that_of_the_only_optimizer_that_trained(optimizers: Any, given: Any, step: Any) -> None:
    assert _last_step([SimpleNamespace(optimizer=one) for one in optimizers], given) == step


class Maps:
    dump: bytes | None = None

    def __init__(self, devices: list[str], report: Any) -> None:
        if Maps.dump is None:
            report(f"The map of {devices[0]} is unknown.")

    def read(self, device: str) -> bytes | None:
        return Maps.dump


def figures(monkeypatch: pytest.MonkeyPatch, dump: bytes | None, *names: str) -> None:
    devices = [Device(name, 1 << 30, None) for name in names]
    monkeypatch.setattr(module.allocator, "choose_devices", lambda chosen: (devices, ["a note"] if chosen else []))
    monkeypatch.setattr(module.allocator, "memory_info", lambda device: (3 * KIB * KIB, 5 * KIB * KIB))
    monkeypatch.setattr(module, "MemoryMaps", Maps)
    monkeypatch.setattr(Maps, "dump", dump)


def test_without_a_map_the_pool_is_unknown_and_a_note_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    figures(monkeypatch, None, "CPU:0", "GPU:0")
    found = memory_summary(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), devices=["CPU:0", "GPU:0"])
    assert [one.device for one in found.devices] == ["CPU:0", "GPU:0"]
    assert {(one.pool_bytes, one.free_bytes, one.largest_free_bytes) for one in found.devices} == {(None, None, None)}
    assert found.notes == ("a note", "The map of CPU:0 is unknown.")
    # AND the second device has none of the model's variables
    assert found.devices[1].layers == () and [one.category for one in found.devices[1].categories] == ["unattributed"]
