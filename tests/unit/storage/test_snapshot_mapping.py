"""Snapshots that users describe as mappings."""

from typing import Any

import pytest

from tb_memplugin.errors import RecordingError
from tb_memplugin.storage.write import (
    is_statistics,
    snapshot_from_mapping,
    snapshot_from_statistics,
)

LEAST: dict[str, Any] = {"device": "GPU:0", "in_use_bytes": 1000}


def test_device_and_bytes_in_use_are_enough_and_all_bytes_are_unattributed() -> None:
    made = snapshot_from_mapping(LEAST)
    assert (made.device, made.in_use_bytes, made.phase, made.mode) == (
        "GPU:0",
        1000,
        "train",
        "graph",
    )
    assert [(row.category, row.bytes) for row in made.ledger] == [("unattributed", 1000)]
    assert made.pool_bytes is None and made.fragmentation is None and made.batch_size is None


def test_all_fields_arrive_and_rounding_is_told_apart() -> None:
    made = snapshot_from_mapping(
        {
            **LEAST,
            "phase": "validation",
            "mode": "xla",
            "pool_bytes": 4096,
            "largest_free_bytes": 2048,
            "capacity_bytes": 8192,
            "fragmentation": 0.5,
            "batch_size": 16,
            "ledger": [
                {
                    "layer": "dense",
                    "category": "weights",
                    "trainable": 1,
                    "bytes": 600,
                    "rounding_bytes": 100,
                },
                {"category": "workspace", "bytes": 400},
            ],
            "saved_for_backward": [{"layer": "dense", "bytes": 300}, {"bytes": 1}],
            "not_available": ["the map"],
        }
    )
    assert (made.phase, made.mode, made.batch_size, made.fragmentation) == (
        "validation",
        "xla",
        16,
        0.5,
    )
    assert (made.pool_bytes, made.largest_free_bytes, made.capacity_bytes) == (4096, 2048, 8192)
    rows = {(row.layer, row.category): (row.bytes, row.trainable) for row in made.ledger}
    assert rows["dense", "weights"] == (500, True) and rows["dense", "rounding"][0] == 100
    assert rows[None, "workspace"] == (400, None) and (None, "unattributed") not in rows
    assert made.rounding_bytes == 100 and sum(row.bytes for row in made.ledger) == 1000
    assert [(row.layer, row.bytes) for row in made.saved_for_backward] == [
        ("dense", 300),
        (None, 1),
    ]
    assert made.not_available == ("the map",)
    assert snapshot_from_mapping({**LEAST, "not_available": "no map"}).not_available == ("no map",)


def fields(field: str, sentence: str, *values: Any) -> list[tuple[Any, str]]:
    """The least description with wrong values of one field, and what is said of each."""
    return [({**LEAST, field: value}, sentence) for value in values]


BYTES = "must be an integer"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *(
            (given, "needs device and in_use_bytes")
            for given in (None, {"device": "GPU:0"}, {"in_use_bytes": 1})
        ),
        *(*fields("used", "Received: used", 1), *fields("step", "Received: step", 1)),
        *fields(
            "not_available",
            "not_available must be a sentence, or a list of sentences",
            ["a", 1],
            None,
        ),
        *fields(
            "in_use_bytes",
            "in_use_bytes must be an integer number of bytes from 0",
            -1,
            True,
            "1000",
            1.5,
        ),
        *fields("pool_bytes", "pool_bytes must be an integer", -4),
        *fields("fragmentation", "fragmentation must be from 0 to 1", 1.01, -0.01, "half"),
        *fields("phase", "phase must be one of train, validation, predict", "warm-up"),
        *fields("mode", "mode must be one of graph, eager, xla", "jit"),
        *fields("batch_size", "batch_size must be a number of examples from 1", 0, True, 2.5),
        *fields("ledger", "ledger must be a list of mappings", {"category": "weights"}, [1]),
        *fields(
            "ledger",
            "category of a ledger row must be one of",
            [{"category": "params", "bytes": 1}],
        ),
        *fields(
            "ledger",
            "add up to 1001 bytes, more than in_use_b",
            [{"category": "weights", "bytes": 1001}],
        ),
        *fields(
            "ledger",
            "a layer path must be a string",
            [{"layer": "", "category": "weights", "bytes": 1}],
        ),
        *fields(
            "saved_for_backward",
            "bytes of a saved_for_backward row must be an integer",
            [{"bytes": None}],
        ),
    ],
)
def test_what_is_wrong_is_said(given: Any, sentence: str) -> None:
    with pytest.raises(RecordingError, match=sentence):
        snapshot_from_mapping(given)


def test_a_ledger_may_take_all_bytes_and_bounds_are_accepted() -> None:
    exact = snapshot_from_mapping(
        {**LEAST, "ledger": [{"category": "weights", "bytes": 1000}], "batch_size": 1}
    )
    assert [row.category for row in exact.ledger] == ["weights"] and exact.batch_size == 1
    for share in (0, 1, 0.0, 1.0):
        assert snapshot_from_mapping({**LEAST, "fragmentation": share}).fragmentation == share
    assert snapshot_from_mapping({"device": "CPU:0", "in_use_bytes": 0}).ledger == ()


def test_tensorflows_statistics_are_a_snapshot_at_the_peak() -> None:
    assert is_statistics({"current": 1, "peak": 2})
    assert not is_statistics({"current": 1}) and not is_statistics(
        {"current": 1, "peak": 2, "limit": 3}
    )
    assert not is_statistics([("current", 1), ("peak", 2)])
    made = snapshot_from_statistics({"current": 1, "peak": 2}, "GPU:1")
    assert (made.device, made.in_use_bytes) == ("GPU:1", 2)
    with pytest.raises(RecordingError, match="current must be an integer"):
        snapshot_from_statistics({"current": -1, "peak": 2}, "GPU:1")
