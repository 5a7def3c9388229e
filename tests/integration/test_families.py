"""Traced steps of whole model families, under `fit` with the callback, against Keras's counts and the allocator.

Eight backbones of `keras.applications` and five models drawn at random. Other models are drawn with another seed:
``TB_MEMPLUGIN_FAMILIES_SEED=7 pytest tests/integration/test_families.py -k random``; models made of the same seed are
the same.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
from typing import Any

import pytest
from prepared_python import run_python

CHILD = pathlib.Path(__file__).parent / "families_child.py"
ROOT = CHILD.parent.parent.parent
STEPS = [3, 5]
MOST_UNATTRIBUTED = 0.001
SEED = int(os.environ.get("TB_MEMPLUGIN_FAMILIES_SEED", "1"))
MODELS = {
    "VGG16:96:4": "cached",
    "ResNet50:224:2": "arrays",
    "DenseNet121:224:2": "cached",
    "MobileNetV2:96:8": "batched",
    "EfficientNetB0:128:4": "cached",
    "Xception:128:4": "arrays",
    "InceptionV3:128:4": "cached",
    "ConvNeXtTiny:96:4": "batched",
    **{f"random:{SEED * 1000 + number}": ("cached", "arrays", "batched")[number % 3] for number in range(5)},
}
"""Model, as the child takes it, to how it is fed."""


def trained(model: str, pipeline: str) -> Any:
    """What the child process prints of a model."""
    paths = f"{ROOT}{os.pathsep}{CHILD.parent}"
    environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = run_python([str(CHILD), model, pipeline], environment=environment, timeout=280)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert lines, f"{model} gave no snapshots:\n{done.stderr[-3000:]}"
    return json.loads(lines[0].removeprefix("ANSWER "))


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Any:
    """Model to the future of what its child prints, for the models of the selected tests; two train at a time."""
    wanted = {
        item.callspec.params["model"]: None
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == pathlib.Path(__file__)
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield {model: pool.submit(trained, model, MODELS[model]) for model in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def answer(answers: Any, model: str) -> Any:
    print(f"model {model}, {MODELS[model]}")
    return answers[model].result()


def requested(snapshot: Any, category: str) -> dict[str, int]:
    """Requested bytes by layer, of one category."""
    totals: dict[str, int] = collections.Counter()
    for row in snapshot["ledger"]:
        if row["category"] == category and row["layer"] is not None:
            totals[row["layer"]] += row["bytes"] - row["rounding_bytes"]
    return totals


pytestmark = [pytest.mark.long, pytest.mark.parametrize("model", MODELS)]


def test_traced_steps_are_in_the_run(answer: Any) -> None:
    assert [snapshot["step"] for snapshot in answer["snapshots"]] == STEPS
    assert answer["notes"] == []


def test_ledger_sums_to_the_allocators_peak(answer: Any) -> None:
    for snapshot in answer["snapshots"]:
        assert snapshot["in_use_bytes"] == answer["peaks"][str(snapshot["step"])]
        assert sum(row["bytes"] for row in snapshot["ledger"]) == snapshot["in_use_bytes"]


def test_replay_ends_in_the_allocators_memory_map(answer: Any) -> None:
    for snapshot in answer["snapshots"]:
        replay = snapshot["replay"]
        assert replay is not None
        assert replay["addresses"] == replay["of_addresses"] > 0
        assert replay["chunks"] == replay["of_chunks"] > 0
        assert replay["peak_bytes"] == snapshot["in_use_bytes"]


def test_stored_requests_replay_at_every_recorded_address_the_first_step_too(answer: Any) -> None:
    requests = answer["requests"]
    assert [one["step"] for one in requests] == [0, *STEPS] and [one["first"] for one in requests] == [
        True,
        False,
        False,
    ]
    for one in requests:
        assert one["addresses"] == one["of"] > 0
        assert one["batch"] == answer["batch"]


def test_a_training_simulated_from_its_first_step_has_the_measured_peak(answer: Any) -> None:
    prediction = answer["as_recorded"]
    assert prediction["method"] == "replay" and prediction["fits"]
    for snapshot in answer["snapshots"]:
        assert prediction["low_bytes"] <= snapshot["in_use_bytes"] <= prediction["high_bytes"]


def test_almost_every_byte_has_an_owner(answer: Any) -> None:
    for snapshot in answer["snapshots"]:
        rows = snapshot["ledger"]
        unattributed = sum(row["bytes"] for row in rows if row["category"] == "unattributed")
        assert unattributed <= MOST_UNATTRIBUTED * snapshot["in_use_bytes"]


@pytest.mark.parametrize(("category", "name"), [("weights", "weights"), ("optimizer_state", "slots")])
def test_weights_and_slots_of_every_layer_are_kerass_counts(answer: Any, category: str, name: str) -> None:
    counts = {path: layer[name] for path, layer in answer["layers"].items() if layer[name]}
    for snapshot in answer["snapshots"]:
        assert requested(snapshot, category) == counts
