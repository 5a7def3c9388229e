"""Bytes that the model's layers and optimizers do not account for have an owner in real runs."""

from typing import Any

import pytest
from child import run_file

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_file("owners_child.py", str(tmp_path_factory.mktemp("runs")))


def size(run: Any, category: str, layer: str | None = "any") -> int:
    return sum(size for of, name, size in run["rows"] if name == category and layer in ("any", of))


def test_a_replay_buffer_is_a_variable_of_no_model(recorded: Any) -> None:
    assert ["variable `replay`", "other_state", 20_000 * 256 * 4, False] in recorded["buffer"]["groups"]
    assert size(recorded["buffer"], "unattributed") < 4096


def test_an_array_in_a_function_is_a_constant_with_its_line(recorded: Any) -> None:
    assert ["constant of function `step`", "other_state", 128 * 256 * 4, True] in recorded["constants"]["groups"]


def test_what_the_outer_gradient_reads_of_the_inner_one_is_saved(recorded: Any) -> None:
    # The layer's result, its derivative's factor and the gradient of x, which the square of the loss reads.
    assert recorded["penalty"]["saved"] >= 32 * 512 * 4 * 2 + 32 * 64 * 4


def test_gradients_for_each_example_are_weight_gradients(recorded: Any) -> None:
    assert size(recorded["examples"], "weight_gradients", "examples/wide") >= 16 * 256 * 512 * 4


def test_the_gradients_of_an_eager_loop_have_their_layers(recorded: Any) -> None:
    run = recorded["loop"]
    assert size(run, "weight_gradients", "loop/wide") == 4 * (256 * 512 + 512)
    assert size(run, "held_tensors") < 4096
