"""The ledger of real training steps against what Keras and the allocator say it has to be."""

import collections
import functools
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from prepared_python import run_python

CHILD = pathlib.Path(__file__).parent / "attribution_child.py"
ROOT = CHILD.parent.parent.parent
GRAPH = [
    "collision:dump",
    "shared:dump",
    "lstm",
    "transformer",
    "unet",
    "mobilenet",
    "efficientnet",
    "vgg16_frozen",
    "convolutions",
    "convolutions:mixed",
    "convolutions:steps",
    "convolutions:accumulation",
    "odd",
    "own_step",
    "rematerialised",
    "custom_loop",
]
LARGE = ["vgg16_frozen", "mobilenet", "efficientnet", "transformer", "lstm", "unet"]
XLA = [f"{name}:xla" for name in ("convolutions", *LARGE)]
EAGER = [f"{name}:eager" for name in ("convolutions", *LARGE)]
OTHERS = ["vgg16", "two_models", "mirrored"]
QUICK = {
    "collision:dump",
    "convolutions",
    "convolutions:mixed",
    "own_step",
    "custom_loop",
    "two_models",
    "convolutions:xla",
    "convolutions:eager",
}
"""Each kind of training; all others are trained by tests marked `long`."""


def each(scenarios: Iterable[str], *values: object) -> list[ParameterSet]:
    """Parameters of a test that runs for each of some scenarios."""
    return [
        pytest.param(name, *values, marks=[] if name in QUICK else [pytest.mark.long], id=name) for name in scenarios
    ]


@functools.cache
def trained(scenario: str) -> Any:
    """What the child process prints for a scenario."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = run_python([str(CHILD), scenario], environment=environment, timeout=200)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, f"{scenario} gave no ledger:\n{done.stderr[-3000:]}"
    return json.loads(lines[0].removeprefix("ANSWER"))


def requested(answer: Any, category: str) -> dict[str | None, int]:
    """Bytes by layer, of one category."""
    totals: dict[str | None, int] = collections.Counter()
    for row in answer["snapshot"]["ledger"]:
        if row["category"] == category:
            totals[row["layer"]] += row["bytes"]
    return totals


def share(answer: Any, category: str) -> float:
    rows = answer["snapshot"]["ledger"]
    return sum(row["bytes"] for row in rows if row["category"] == category) / answer["snapshot"]["in_use_bytes"]


def held(answer: Any) -> dict[str | None, int]:
    return {row["layer"]: row["bytes"] for row in answer["snapshot"]["saved_for_backward"]}


@pytest.mark.parametrize("scenario", each([*GRAPH, *XLA, *EAGER]))
def test_ledger_closes_with_the_allocators_own_figures(scenario: str) -> None:
    answer = trained(scenario)
    snapshot = answer["snapshot"]
    assert answer["missed"] == 0
    assert snapshot["in_use_bytes"] == answer["peak"]
    assert answer["start"] == answer["traced_start"]
    assert sum(row["bytes"] for row in snapshot["ledger"]) == snapshot["in_use_bytes"]
    assert snapshot["capacity_bytes"] == answer["limit"]


@pytest.mark.parametrize("scenario", each([*GRAPH, *OTHERS, *XLA, *EAGER]))
def test_replay_ends_in_the_allocators_memory_map(scenario: str) -> None:
    answer = trained(scenario)
    replay = answer["snapshot"]["replay"]
    assert replay is not None
    assert replay["addresses"] == replay["of_addresses"] > 0
    assert replay["chunks"] == replay["of_chunks"] > 0
    assert replay["peak_bytes"] == answer["peak"]


@pytest.mark.parametrize(
    ("scenario", "most"),
    [*each([*GRAPH, *OTHERS], 0.001), *each(XLA, 0.005), *each(EAGER, 0.01)],
)
def test_almost_every_byte_has_an_owner(scenario: str, most: float) -> None:
    assert share(trained(scenario), "unattributed") <= most


@pytest.mark.parametrize("scenario", each([*GRAPH, *XLA, *EAGER]))
def test_weights_and_slots_of_every_layer_are_exact(scenario: str) -> None:
    answer = trained(scenario)
    weights, slots = requested(answer, "weights"), requested(answer, "optimizer_state")
    for path, layer in answer["layers"].items():
        if scenario.endswith(":steps") and layer["weights"] != layer["trainable"]:
            continue  # statistics that move at each step: between two steps of one window their buffer is workspace
        assert weights.get(path, 0) == layer["weights"], path
        if not scenario.endswith(":accumulation"):
            assert slots.get(path, 0) == 2 * layer["trainable"], path  # Adam keeps two
    assert set(weights) - {None} <= {path for path, layer in answer["layers"].items() if layer["weights"]}


def test_accumulated_gradients_are_optimizer_state_of_their_layers() -> None:
    answer = trained("convolutions:accumulation")
    slots = requested(answer, "optimizer_state")
    for path, layer in answer["layers"].items():
        trainable = layer["trainable"]
        # Those of small weights were emptied before the peak: TensorFlow makes one buffer of zeros for all of a shape.
        emptied = 256 if trainable > 1 << 16 else trainable  # the bias of a large layer is small
        assert 2 * trainable - emptied <= slots.get(path, 0) <= 2 * trainable, path  # momentum and accumulator


@pytest.mark.parametrize("scenario", each(name for name in [*GRAPH, *XLA] if not name.startswith("lstm")))
def test_only_trainable_weights_have_gradients(scenario: str) -> None:
    # A loop computes a gradient for each of its steps, and several at once: recurrent layers are not in this test.
    answer = trained(scenario)
    for path, size in requested(answer, "weight_gradients").items():
        assert path is not None
        assert 0 < size <= 2 * answer["layers"][path]["trainable"], (
            path
        )  # twice: before and after clipping or unscaling


def test_gradients_are_exact_where_all_of_them_are_there_at_the_peak() -> None:
    answer = trained("custom_loop")
    gradients = requested(answer, "weight_gradients")
    large = [path for path, layer in answer["layers"].items() if layer["trainable"] > 1 << 20]
    assert len(large) == 3
    for path in large:
        assert gradients[path] == answer["layers"][path]["trainable"], path


@pytest.mark.parametrize("scenario", each(["collision:dump", "shared:dump"]))
def test_pool_is_that_of_the_allocators_memory_dump(scenario: str) -> None:
    answer = trained(scenario)
    assert answer["snapshot"]["pool_bytes"] == answer["pool"]


def test_layers_whose_scopes_cross_keep_their_own_bytes() -> None:
    answer = trained("collision:dump")
    waiting, batch = held(answer), answer["batch"]
    assert "sequential/below" in waiting  # its frozen output is the input of the first trainable layer's gradient
    for name, units in [("below", 512), ("dense", 256), ("dense_1", 128)]:
        assert waiting[f"sequential/{name}"] == batch * units * 4, name
    frozen = {row["layer"]: row["trainable"] for row in answer["snapshot"]["ledger"] if row["category"] == "weights"}
    assert frozen["sequential/dense_1"] is False
    assert frozen["sequential/dense"] is True


@pytest.mark.long
def test_a_layer_called_twice_and_nested_models_with_equal_names() -> None:
    answer = trained("shared:dump")
    waiting, batch = held(answer), answer["batch"]
    assert waiting["both/twice"] == 2 * batch * 128 * 4
    assert waiting["both/middle"] == batch * 128 * 4
    for tower in ("a", "b"):
        assert waiting[f"both/{tower}/dense"] == batch * 96 * 4
    slots = requested(answer, "optimizer_state")
    assert "both/b/dense" in slots
    assert "both/a/dense" not in slots


@pytest.mark.long
def test_layers_with_scopes_models_and_loops_of_their_own() -> None:
    answer = trained("odd")
    outputs = {"dense": 64, "scoped": 512, "plain": 512, "tower/inner/dense": 384, "tower/inner/dense_2": 256}
    waiting, batch = held(answer), answer["batch"]
    for path, units in outputs.items():
        assert waiting[f"odd/{path}"] == batch * units * 4, path
    rounds = 3 * batch * 256 * 4
    assert rounds <= waiting["odd/loop"] <= 1.001 * rounds  # lists of tensors, with what lists need


def test_weights_of_a_model_that_only_ran_are_its_own_and_a_shared_layer_is_counted_once() -> None:
    answer = trained("two_models")
    weights = requested(answer, "weights")
    assert weights["first/trunk"] == 4 * (4 * 512 + 512)
    assert weights["first/head"] == 4 * (512 * 10 + 10)
    assert weights["second/head"] == 4 * (512 * 700 + 700)
    assert set(weights) - {None} == {"first/trunk", "first/head", "second/head"}


@pytest.mark.long
def test_the_replicas_of_a_distributed_step_have_their_own_weights_slots_and_activations() -> None:
    answer = trained("mirrored")
    snapshot = answer["snapshot"]
    assert snapshot["in_use_bytes"] == answer["peak"] == sum(row["bytes"] for row in snapshot["ledger"])
    weights, slots = requested(answer, "weights"), requested(answer, "optimizer_state")
    for path, layer in answer["layers"].items():
        copies = 2 if layer["trainable"] else 1  # what is never written is one buffer for both, as both are of the CPU
        assert weights.get(path, 0) == copies * layer["weights"], path
        assert slots.get(path, 0) == 2 * 2 * layer["trainable"], path
    # The replicas run at their own pace: when most waits for the backward pass, it is one's or both's.
    output = answer["batch"] * 512 * 4
    assert held(answer)["mirrored/below"] in (output // 2, output)
    assert not any((row["layer"], row["category"]) == ("mirrored/above", "workspace") for row in snapshot["ledger"])


@pytest.mark.long
def test_frozen_backbone_below_the_first_trainable_layer_holds_nothing() -> None:
    answer = trained("vgg16_frozen")
    waiting = held(answer)
    below = [f"sequential/vgg16/block{block}_conv{layer}" for block in (1, 2, 3) for layer in (1, 2)]
    assert not any(waiting.get(path) for path in below)
    output = answer["batch"] * 6 * 6 * 512 * 4  # of the trainable block's convolutions, at 96 × 96 pixels
    assert [waiting[f"sequential/vgg16/block5_conv{layer}"] for layer in (1, 2, 3)] == [output] * 3


@pytest.mark.long
def test_rematerialised_layers_are_known_in_both_passes() -> None:
    answer = trained("rematerialised")
    layers = {row["layer"] for row in answer["snapshot"]["ledger"]}
    assert {"functional/again_1", "functional/again_2"} <= layers


@pytest.mark.parametrize(
    ("scenario", "mode"), [("convolutions", "graph"), ("convolutions:xla", "xla"), ("convolutions:eager", "eager")]
)
def test_mode_is_told(scenario: str, mode: str) -> None:
    snapshot = trained(scenario)["snapshot"]
    assert snapshot["mode"] == mode
    assert (mode == "xla") == any("compiler's plan" in sentence for sentence in snapshot["not_available"])


@pytest.mark.long
def test_vgg16_holds_what_its_layers_outputs_add_up_to() -> None:
    # 60,950,432 bytes an image: the inputs and every layer's output at 224 × 224 pixels, float32.
    answer = trained("vgg16")
    total = sum(held(answer).values()) / answer["batch"]
    assert abs(total - 60_950_432) <= 0.03 * 60_950_432
    outputs = [layer["output"] for path, layer in answer["layers"].items() if "conv" in path]
    assert sum(size for path, size in held(answer).items() if path and "conv" in path) == sum(outputs)
