"""Verdict and ledger of failures made by hand."""

import dataclasses

import numpy as np
from reading_cases import DEVICE, MIB, START, make_map

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.schema import IN_USE, ChunkOwner

DEATH = OomEvent("1", "failed", DEVICE, START, 5, "train", 9 * MIB, shape="[16,32] float")
MAP = make_map(5, capacity=16 * MIB)


def test_memory_at_failure_sums_to_the_bytes_in_use() -> None:
    oom = post_mortem(DEATH, MAP)
    assert [(row.layer, row.category, row.bytes) for row in oom.ledger] == [
        ("model/head", "activations", 4 * MIB - 412),
        ("model/backbone", "weights", 3 * MIB - 100),
        (None, "unattributed", MIB),
        ("model/head", "rounding", 412),
        ("model/backbone", "rounding", 100),
    ]
    assert oom.verdict == "capacity" and (oom.free_bytes, oom.largest_free_bytes) == (8 * MIB, 6 * MIB)


def test_unknown_request_has_a_verdict_only_if_every_request_has_the_same() -> None:
    unknown = dataclasses.replace(DEATH, requested_bytes=None)
    assert post_mortem(unknown, MAP).verdict is None
    one_block = dataclasses.replace(MAP, state=np.asarray([IN_USE, IN_USE, IN_USE, IN_USE, 0]), in_use_bytes=10 * MIB)
    oom = post_mortem(unknown, one_block)
    assert oom.verdict == "capacity" and "a single chunk" in oom.reason
    assert any("size of the request" in text for text in oom.not_available)


def test_bytes_that_no_chunk_explains_are_unattributed() -> None:
    partial = dataclasses.replace(
        MAP, in_use_bytes=10 * MIB, complete=False, owners=(ChunkOwner("a", "weights", True),) * 2
    )
    oom = post_mortem(DEATH, partial)
    assert sum(row.bytes for row in oom.ledger) == 10 * MIB
    assert oom.largest_free_bytes is None and oom.free_bytes == 6 * MIB


def test_failure_without_chunks_keeps_its_notes() -> None:
    oom = post_mortem(dataclasses.replace(DEATH, notes=("The chunks are unknown: …",)), None)
    assert (oom.requested_bytes, oom.verdict, oom.ledger, oom.map) == (9 * MIB, None, (), None)
    assert oom.not_available == ("The chunks are unknown: …",)


def test_compiled_modules_request_has_a_note() -> None:
    oom = post_mortem(dataclasses.replace(DEATH, compiled=True), MAP, batch_size=16)
    assert oom.verdict == "capacity" and oom.batch_size == 16
    assert any("all its layers in one piece" in sentence for sentence in oom.not_available)


def test_rounded_request_has_a_verdict_only_if_its_whole_range_has_the_same() -> None:
    # GIVEN 8 MiB free in total
    rough = dataclasses.replace(DEATH, requested_bytes=9 * MIB, uncertain_bytes=MIB // 2)
    oom = post_mortem(rough, MAP)
    assert oom.verdict == "capacity" and any("by at most 512 KiB" in sentence for sentence in oom.not_available)
    close = post_mortem(dataclasses.replace(rough, requested_bytes=8 * MIB), MAP)
    assert close.verdict is None and close.reason.startswith("The verdict is unknown")
