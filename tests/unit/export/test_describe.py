"""The JSON object of ``inspect``: documented fields with the recorded values."""

import json

import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot, write_small_run

from tb_memplugin import load
from tb_memplugin.analysis import DeviceFacts, StepRange, device_facts, phases, step_range
from tb_memplugin.export.describe import Selection, describe_run
from tb_memplugin.schema import MISSING, Run
from tb_memplugin.storage.read.columns import empty_samples, join_samples


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "exp")
    return load(directory)["exp"]


def test_a_breakdown_sums_to_the_bytes_in_use_and_rounding_is_a_category(run: Run) -> None:
    for snapshot in describe_run(run)["snapshots"]:
        # Bytes are requested bytes, except in category rounding.
        known = [row for row in snapshot["ledger"] if row["rounding_bytes"] is not None]
        assert all(row["rounding_bytes"] == (row["bytes"] if row["category"] == "rounding" else 0) for row in known)
        assert sum(row["rounding_bytes"] for row in known) == snapshot["rounding_bytes"] == 512
        assert sum(row["bytes"] for row in snapshot["ledger"]) == snapshot["in_use_bytes"]


def test_the_figures_are_those_that_were_written(run: Run) -> None:
    described = describe_run(run)
    assert [described[name] for name in ("sessions", "steps", "first_step", "last_step", "oom")] == [1, 60, 0, 59, []]
    assert described["devices"] == {DEVICE: {"capacity_bytes": 2048 * MIB, "peak_bytes": 700 * MIB, "peak_step": 41}}
    assert [(layer["path"], layer["trainable"], layer["weight_bytes"]) for layer in described["layers"]] == [
        ("model/backbone", True, 4_000_000),
        ("model/head", True, 2_000),
    ]
    assert described["activations"] == [
        {"layer": "model/backbone", "steps": 3, "max_bytes": 300, "max_step": 1, "last_bytes": 200},
        {"layer": "model/head", "steps": 3, "max_bytes": 30, "max_step": 2, "last_bytes": 30},
    ]
    assert [snapshot["step"] for snapshot in described["snapshots"]] == [3, 41]


def test_the_pool_is_described_in_spans(run: Run) -> None:
    pool = describe_run(run)["pool"][DEVICE]
    assert [(span["first_step"], span["last_step"], span["known_steps"], span["source"]) for span in pool["spans"]] == [
        (3, 3, 1, "traced"),
        (5, 12, 2, "measured"),
        (42, 42, 1, "measured"),
    ]
    measured = pool["spans"][1]
    assert (measured["pool_bytes"], measured["least_largest_free_bytes"]) == (512 * MIB, 128 * MIB)
    # 199 MiB and the step's number are allocated at the end of a step.
    assert (measured["least_free_bytes"], measured["most_free_bytes"]) == (313 * MIB - 12, 313 * MIB - 5)
    assert measured["most_fragmentation"] == 1 - 128 * MIB / (313 * MIB - 12)
    assert len(pool["sentences"]) == 2


def test_a_step_selects_snapshots_and_the_layer_table_valid_then(run: Run) -> None:
    described = describe_run(run, Selection(step=3))
    assert [snapshot["step"] for snapshot in described["snapshots"]] == [3]
    assert [layer["trainable"] for layer in described["layers"]] == [False, True]
    assert described["steps"] == 60
    assert describe_run(run, Selection(step=4))["snapshots"] == []


def test_device_and_phase_select_too(run: Run) -> None:
    assert describe_run(run, Selection(device="GPU:0"))["snapshots"] == []
    assert describe_run(run, Selection(device="GPU:0"))["devices"] == {}
    assert describe_run(run, Selection(phase="validation"))["snapshots"] == []
    assert len(describe_run(run, Selection(phase="train", device=DEVICE))["snapshots"]) == 2


def sizes(value: object, name: str = "") -> list[object]:
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in sizes(inner, key)]
    if isinstance(value, list):
        return [found for inner in value for found in sizes(inner, name)]
    return [value] if name.rpartition("_")[2] in ("bytes", "step", "steps", "sessions", "parameters") else []


def test_the_object_is_json_with_whole_numbers(run: Run) -> None:
    described = describe_run(run)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    found = sizes(described)
    assert len(found) > 40 and all(type(size) is int or size is None for size in found)


def test_an_empty_run_is_described_too() -> None:
    described = describe_run(make_run(empty_samples(), sessions=(), workers=()))
    assert (described["steps"], described["first_step"], described["devices"], described["layers"]) == (0, None, {}, [])


def test_steps_are_those_of_training_if_there_was_any() -> None:
    joined, _ = join_samples([make_samples([5, 6, 6], [1] * 3), make_samples([9], [1], phase="validation")])
    assert step_range(make_run(joined)) == StepRange(2, 5, 6)
    assert step_range(make_run(empty_samples(), snapshots=(make_snapshot(7), make_snapshot(3)))) == StepRange(2, 3, 7)


def test_a_peak_is_the_first_highest_of_samples_snapshots_or_bytes_in_use() -> None:
    (facts,) = device_facts(make_run(empty_samples(), snapshots=(make_snapshot(7),)))
    assert facts == DeviceFacts(DEVICE, 2048 * MIB, make_snapshot(7).in_use_bytes, 7, snapshots=1)
    for samples, peak in (
        (make_samples([4, 5], [MISSING, MISSING], in_use=[7, 9]), (9, 5)),
        (make_samples([4], [MISSING], in_use=[MISSING]), (None, None)),
        (make_samples([4, 5, 6], [1, 9, 9]), (9, 5)),
    ):
        (facts,) = device_facts(make_run(samples))
        assert (facts.peak_bytes, facts.peak_step) == peak


def test_accelerators_come_first_and_phases_in_their_order() -> None:
    one, other = make_samples([0], [1], device="GPU:1"), make_samples([0], [1], phase="predict", device="GPU:0")
    run = make_run(join_samples([make_samples([0], [1]), one, other])[0])
    assert [facts.device for facts in device_facts(run)] == ["GPU:0", "GPU:1", "CPU:0"]
    assert phases(run) == ["train", "predict"]
