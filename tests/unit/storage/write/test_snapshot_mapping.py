"""Snapshots that users describe: what is accepted, and what is said of what is not."""

from typing import Any

import pytest

from tb_memplugin.errors import RecordingError
from tb_memplugin.storage.write.snapshot_mapping import is_statistics, snapshot_from_mapping, snapshot_from_statistics

LEAST: dict[str, Any] = {"device": "GPU:0", "in_use_bytes": 1000}


def test_device_and_bytes_in_use_are_enough_and_all_bytes_are_unattributed() -> None:
    made = snapshot_from_mapping(LEAST)
    assert (made.device, made.in_use_bytes, made.phase, made.mode) == ("GPU:0", 1000, "train", "graph")
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
                {"layer": "dense", "category": "weights", "trainable": 1, "bytes": 600, "rounding_bytes": 100},
                {"category": "workspace", "bytes": 400},
            ],
            "saved_for_backward": [{"layer": "dense", "bytes": 300}, {"bytes": 1}],
            "not_available": ["the map"],
        }
    )
    assert (made.phase, made.mode, made.batch_size, made.fragmentation) == ("validation", "xla", 16, 0.5)
    assert (made.pool_bytes, made.largest_free_bytes, made.capacity_bytes) == (4096, 2048, 8192)
    rows = {(row.layer, row.category): (row.bytes, row.trainable) for row in made.ledger}
    assert rows["dense", "weights"] == (500, True) and rows["dense", "rounding"][0] == 100
    assert rows[None, "workspace"] == (400, None) and (None, "unattributed") not in rows
    assert made.rounding_bytes == 100 and sum(row.bytes for row in made.ledger) == 1000
    assert [(row.layer, row.bytes) for row in made.saved_for_backward] == [("dense", 300), (None, 1)]
    assert made.not_available == ("the map",)
    assert snapshot_from_mapping({**LEAST, "not_available": "no map"}).not_available == ("no map",)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (None, "needs device and in_use_bytes"),
        ({"device": "GPU:0"}, "needs device and in_use_bytes"),
        ({"in_use_bytes": 1}, "needs device and in_use_bytes"),
        ({**LEAST, "used": 1}, "Received: used"),
        ({**LEAST, "step": 1}, "Received: step"),
        ({**LEAST, "not_available": ["a", 1]}, "not_available must be a sentence, or a list of sentences"),
        ({**LEAST, "not_available": None}, "not_available must be a sentence"),
        ({**LEAST, "in_use_bytes": -1}, "in_use_bytes must be an integer number of bytes from 0"),
        ({**LEAST, "in_use_bytes": True}, "in_use_bytes must be an integer"),
        ({**LEAST, "in_use_bytes": "1000"}, "in_use_bytes must be an integer"),
        ({**LEAST, "in_use_bytes": 1.5}, "in_use_bytes must be an integer"),
        ({**LEAST, "pool_bytes": -4}, "pool_bytes must be an integer"),
        ({**LEAST, "fragmentation": 1.01}, "fragmentation must be from 0 to 1"),
        ({**LEAST, "fragmentation": -0.01}, "fragmentation must be from 0 to 1"),
        ({**LEAST, "fragmentation": "half"}, "fragmentation must be from 0 to 1"),
        ({**LEAST, "phase": "warm-up"}, "phase must be one of train, validation, predict"),
        ({**LEAST, "mode": "jit"}, "mode must be one of graph, eager, xla"),
        ({**LEAST, "batch_size": 0}, "batch_size must be a number of examples from 1"),
        ({**LEAST, "batch_size": True}, "batch_size must be a number of examples from 1"),
        ({**LEAST, "batch_size": 2.5}, "batch_size must be a number of examples from 1"),
        ({**LEAST, "ledger": {"category": "weights"}}, "ledger must be a list of mappings"),
        ({**LEAST, "ledger": [1]}, "ledger must be a list of mappings"),
        ({**LEAST, "ledger": [{"category": "params", "bytes": 1}]}, "category of a ledger row must be one of"),
        ({**LEAST, "ledger": [{"category": "weights", "bytes": 1001}]}, "add up to 1001 bytes, more than in_use_b"),
        ({**LEAST, "ledger": [{"layer": "", "category": "weights", "bytes": 1}]}, "a layer path must be a string"),
        ({**LEAST, "saved_for_backward": [{"bytes": None}]}, "bytes of a saved_for_backward row must be an integer"),
    ],
)
def test_what_is_wrong_is_said(fields: Any, sentence: str) -> None:
    with pytest.raises(RecordingError, match=sentence):
        snapshot_from_mapping(fields)


def test_a_ledger_may_take_all_bytes_and_bounds_are_accepted() -> None:
    exact = snapshot_from_mapping({**LEAST, "ledger": [{"category": "weights", "bytes": 1000}], "batch_size": 1})
    assert [row.category for row in exact.ledger] == ["weights"] and exact.batch_size == 1
    for share in (0, 1, 0.0, 1.0):
        assert snapshot_from_mapping({**LEAST, "fragmentation": share}).fragmentation == share
    assert snapshot_from_mapping({"device": "CPU:0", "in_use_bytes": 0}).ledger == ()


def test_tensorflows_statistics_are_a_snapshot_at_the_peak() -> None:
    assert is_statistics({"current": 1, "peak": 2})
    assert not is_statistics({"current": 1}) and not is_statistics({"current": 1, "peak": 2, "limit": 3})
    assert not is_statistics([("current", 1), ("peak", 2)])
    made = snapshot_from_statistics({"current": 1, "peak": 2}, "GPU:1")
    assert (made.device, made.in_use_bytes) == ("GPU:1", 2)
    with pytest.raises(RecordingError, match="current must be an integer"):
        snapshot_from_statistics({"current": -1, "peak": 2}, "GPU:1")
