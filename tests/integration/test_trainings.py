"""The breakdown of real training steps against what Keras and the allocator say it has to be.

Small models of each kind, eight backbones of `keras.applications` and five models drawn at random.
Other models are drawn with another seed: ``TB_MEMPLUGIN_FAMILIES_SEED=7 pytest
tests/integration/test_trainings.py -k random``.
"""

import collections
import concurrent.futures
import os
import pathlib
from typing import Any

import pytest
from child import run_file

GRAPH = [
    *(
        "collision",
        "shared",
        "lstm",
        "transformer",
        "unet",
        "mobilenet",
        "efficientnet",
        "vgg16_frozen",
    ),
    *(f"convolutions{mode}" for mode in ("", ":mixed", ":steps", ":accumulation")),
    *("odd", "own_step", "rematerialised", "custom_loop"),
]
LARGE = ["vgg16_frozen", "mobilenet", "efficientnet", "transformer", "lstm", "unet"]
XLA = [f"{name}:xla" for name in ("convolutions", *LARGE)]
EAGER = [f"{name}:eager" for name in ("convolutions", *LARGE)]
OTHERS = ["vgg16", "two_models", "mirrored"]
SEED = int(os.environ.get("TB_MEMPLUGIN_FAMILIES_SEED", "1"))
FAMILIES = {
    "VGG16:96:4": "cached",
    "ResNet50:224:2": "arrays",
    "DenseNet121:224:2": "cached",
    "MobileNetV2:96:8": "batched",
    "EfficientNetB0:128:4": "cached",
    "Xception:128:4": "arrays",
    "InceptionV3:128:4": "cached",
    "ConvNeXtTiny:96:4": "batched",
    **{
        f"random:{SEED * 1000 + number}": ("cached", "arrays", "batched")[number % 3]
        for number in range(5)
    },
}
"""Model to how it is fed."""
QUICK = {
    *("collision", "convolutions", "convolutions:mixed", "own_step", "custom_loop", "two_models"),
    *("convolutions:xla", "convolutions:eager"),
}
"""Each kind of training; all others are trained by tests marked `long`."""
MOST_UNATTRIBUTED = {"xla": 0.005, "eager": 0.01}
"""Share of the bytes in use by mode; 0.001 in graph mode."""


def of(*scenarios: str) -> pytest.MarkDecorator:
    """A test that runs for each of some scenarios."""
    marks = {name: [] if name in QUICK else [pytest.mark.long] for name in scenarios}
    return pytest.mark.parametrize(
        "scenario", [pytest.param(name, marks=marks[name], id=name) for name in scenarios]
    )


def trained(scenario: str) -> Any:
    pipeline = [FAMILIES[scenario]] if scenario in FAMILIES else []
    return run_file(
        "trainings_child.py",
        scenario,
        *pipeline,
        environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "6144"},
    )


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Any:
    """Scenario to the future of what its child prints, for those of the selected tests; two train
    at a time."""
    wanted = {
        item.callspec.params["scenario"]: None
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == pathlib.Path(__file__)
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield {scenario: pool.submit(trained, scenario) for scenario in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def answer(answers: Any, scenario: str) -> Any:
    return answers[scenario].result()


def requested(snapshot: Any, category: str) -> dict[str | None, int]:
    """Bytes by layer, of one category."""
    totals: dict[str | None, int] = collections.Counter()
    for row in snapshot["ledger"]:
        if row["category"] == category:
            totals[row["layer"]] += row["bytes"]
    return totals


def held(answer: Any) -> dict[str | None, int]:
    return {row["layer"]: row["bytes"] for row in answer["snapshots"][-1]["saved_for_backward"]}


@of(*GRAPH, *OTHERS, *XLA, *EAGER, *FAMILIES)
def test_ledger_and_replay_are_the_allocators_and_almost_every_byte_has_an_owner(
    answer: Any, scenario: str
) -> None:
    steps = [3, 5] if scenario in FAMILIES else [3]
    assert [snapshot["step"] for snapshot in answer["snapshots"]] == steps
    assert answer["notes"] == []
    for snapshot in answer["snapshots"]:
        peak, replay = answer["peaks"][str(snapshot["step"])], snapshot["replay"]
        assert snapshot["in_use_bytes"] == peak == sum(row["bytes"] for row in snapshot["ledger"])
        assert snapshot["capacity_bytes"] == answer["limit"]
        assert replay is not None and replay["peak_bytes"] == peak
        assert (
            replay["addresses"] == replay["of_addresses"] > 0
            and replay["chunks"] == replay["of_chunks"] > 0
        )
        nobodys = sum(requested(snapshot, "unattributed").values())
        assert nobodys <= MOST_UNATTRIBUTED.get(scenario.rpartition(":")[2], 0.001) * peak


@of(*GRAPH, *XLA, *EAGER, *FAMILIES)
def test_weights_and_slots_of_every_layer_are_exact(answer: Any, scenario: str) -> None:
    for snapshot in answer["snapshots"]:
        for name, category in (("weights", "weights"), ("slots", "optimizer_state")):
            counts = {path: layer[name] for path, layer in answer["layers"].items() if layer[name]}
            found = {
                path: size
                for path, size in requested(snapshot, category).items()
                if path is not None
            }
            if scenario.endswith(":steps"):
                # Statistics that move at each step: between two steps of one window their buffer is
                # workspace.
                moving = {
                    path
                    for path, of in answer["layers"].items()
                    if of["weights"] != of["trainable"]
                }
                found, counts = (
                    {path: one[path] for path in one.keys() - moving} for one in (found, counts)
                )
            if name == "weights" or not scenario.endswith(":accumulation"):
                assert found == counts


@of(*FAMILIES)
def test_stored_requests_replay_at_every_recorded_address_the_first_step_too(answer: Any) -> None:
    requests = answer["requests"]
    assert [(one["step"], one["first"]) for one in requests] == [(0, True), (3, False), (5, False)]
    assert all(
        one["addresses"] == one["of"] > 0 and one["batch"] == answer["batch"] for one in requests
    )
    # AND a training that is simulated from its first step on has the measured peak
    prediction = answer["as_recorded"]
    assert prediction["method"] == "replay" and prediction["fits"]
    for snapshot in answer["snapshots"]:
        assert prediction["low_bytes"] <= snapshot["in_use_bytes"] <= prediction["high_bytes"]


@of("convolutions:accumulation")
def test_accumulated_gradients_are_optimizer_state_of_their_layers(answer: Any) -> None:
    slots = requested(answer["snapshots"][-1], "optimizer_state")
    for path, layer in answer["layers"].items():
        trainable = layer["trainable"]
        # Those of small weights were emptied before the peak: TensorFlow makes one buffer of zeros
        # for all of a shape.
        emptied = 256 if trainable > 1 << 16 else trainable  # the bias of a large layer is small
        # momentum and accumulator
        assert 2 * trainable - emptied <= slots.get(path, 0) <= 2 * trainable, path


# A loop computes a gradient for each of its steps, and several at once: recurrent layers are not in
# this test.
@of(*(name for name in [*GRAPH, *XLA] if not name.startswith("lstm")))
def test_only_trainable_weights_have_gradients(answer: Any) -> None:
    for path, size in requested(answer["snapshots"][-1], "weight_gradients").items():
        assert path is not None
        # Twice: before and after clipping or unscaling.
        assert 0 < size <= 2 * answer["layers"][path]["trainable"], path


@of("custom_loop")
def test_gradients_are_exact_where_all_of_them_are_there_at_the_peak(answer: Any) -> None:
    gradients = requested(answer["snapshots"][-1], "weight_gradients")
    large = {
        path: layer["trainable"]
        for path, layer in answer["layers"].items()
        if layer["trainable"] > 1 << 20
    }
    assert len(large) == 3 and large.items() <= gradients.items()


@of("collision")
def test_layers_whose_scopes_cross_keep_their_own_bytes(answer: Any) -> None:
    # The frozen output of `below` is the input of the first trainable layer's gradient.
    for name, units in [("below", 512), ("dense", 256), ("dense_1", 128)]:
        assert held(answer)[f"sequential/{name}"] == answer["batch"] * units * 4, name
    rows = [row for row in answer["snapshots"][-1]["ledger"] if row["category"] == "weights"]
    trainable = {row["layer"]: row["trainable"] for row in rows}
    assert (trainable["sequential/dense_1"], trainable["sequential/dense"]) == (False, True)


@of("shared")
def test_a_layer_called_twice_and_nested_models_with_equal_names(answer: Any) -> None:
    units = {"twice": 2 * 128, "middle": 128, "a/dense": 96, "b/dense": 96}
    assert {path: held(answer)[f"both/{path}"] for path in units} == {
        path: answer["batch"] * count * 4 for path, count in units.items()
    }
    slots = requested(answer["snapshots"][-1], "optimizer_state")
    assert "both/b/dense" in slots and "both/a/dense" not in slots


@of("odd")
def test_layers_with_scopes_models_and_loops_of_their_own(answer: Any) -> None:
    outputs = {
        "dense": 64,
        "scoped": 512,
        "plain": 512,
        "tower/inner/dense": 384,
        "tower/inner/dense_2": 256,
    }
    waiting, batch = held(answer), answer["batch"]
    for path, units in outputs.items():
        assert waiting[f"odd/{path}"] == batch * units * 4, path
    rounds = 3 * batch * 256 * 4
    assert rounds <= waiting["odd/loop"] <= 1.001 * rounds  # lists of tensors, with what lists need


@of("two_models")
def test_weights_of_a_model_that_only_ran_are_its_own_and_a_shared_layer_is_counted_once(
    answer: Any,
) -> None:
    weights = {
        path: size
        for path, size in requested(answer["snapshots"][-1], "weights").items()
        if path is not None
    }
    trunk, first, second = 4 * (4 * 512 + 512), 4 * (512 * 10 + 10), 4 * (512 * 700 + 700)
    assert weights == {"first/trunk": trunk, "first/head": first, "second/head": second}


@of("mirrored")
def test_the_replicas_of_a_distributed_step_have_their_own_weights_slots_and_activations(
    answer: Any,
) -> None:
    snapshot = answer["snapshots"][-1]
    weights, slots = requested(snapshot, "weights"), requested(snapshot, "optimizer_state")
    for path, layer in answer["layers"].items():
        # what is never written is one buffer for both, as both are of the CPU
        copies = 2 if layer["trainable"] else 1
        assert weights.get(path, 0) == copies * layer["weights"], path
        assert slots.get(path, 0) == 2 * 2 * layer["trainable"], path
    # The replicas run at their own pace: when most waits for the backward pass, it is one's or
    # both's.
    output = answer["batch"] * 512 * 4
    assert held(answer)["mirrored/below"] in (output // 2, output)
    assert not any(
        (row["layer"], row["category"]) == ("mirrored/above", "workspace")
        for row in snapshot["ledger"]
    )


@of("vgg16_frozen")
def test_frozen_backbone_below_the_first_trainable_layer_holds_nothing(answer: Any) -> None:
    waiting = held(answer)
    below = [
        f"sequential/vgg16/block{block}_conv{layer}" for block in (1, 2, 3) for layer in (1, 2)
    ]
    assert not any(waiting.get(path) for path in below)
    # of the trainable block's convolutions, at 96 × 96 pixels
    output = answer["batch"] * 6 * 6 * 512 * 4
    assert [waiting[f"sequential/vgg16/block5_conv{layer}"] for layer in (1, 2, 3)] == [output] * 3


@of("rematerialised")
def test_rematerialised_layers_are_known_in_both_passes(answer: Any) -> None:
    layers = {row["layer"] for row in answer["snapshots"][-1]["ledger"]}
    assert {"functional/again_1", "functional/again_2"} <= layers


@of("convolutions", "convolutions:xla", "convolutions:eager")
def test_mode_is_told(answer: Any, scenario: str) -> None:
    snapshot, mode = answer["snapshots"][-1], scenario.partition(":")[2] or "graph"
    assert snapshot["mode"] == mode
    assert (mode == "xla") == any(
        "compiler's plan" in sentence for sentence in snapshot["not_available"]
    )


@of("vgg16")
def test_vgg16_holds_what_its_layers_outputs_add_up_to(answer: Any) -> None:
    # 60,950,432 bytes an image: the inputs and every layer's output at 224 × 224 pixels, float32.
    assert sum(held(answer).values()) / answer["batch"] == pytest.approx(60_950_432, rel=0.03)
    outputs = [layer["output"] for path, layer in answer["layers"].items() if "conv" in path]
    assert sum(size for path, size in held(answer).items() if path and "conv" in path) == sum(
        outputs
    )
