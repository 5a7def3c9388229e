"""Fits and verdicts on hand-made maps (`golden/fits.json` has more), and against a search through
all chunks."""

import dataclasses
import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from map_cases import memory_map
from reading_cases import MIB, make_map

from tb_memplugin.allocator import map_summary, verdict, would_fit
from tb_memplugin.schema import FREE, IN_USE, MISSING, UNKNOWN_STATE, MemoryMap

MAP = make_map(3, capacity=16 * MIB)
GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[2] / "golden" / "fits.json").read_text(encoding="utf-8")
)


def test_a_verdict_follows_from_free_bytes_and_from_what_the_limit_leaves_unless_refused() -> None:
    assert verdict(MAP, 8 * MIB)[0] == "fragmentation"
    assert verdict(MAP, 8 * MIB + 1)[0] == "capacity"
    grown = dataclasses.replace(MAP, capacity_bytes=20 * MIB)
    assert verdict(grown, 12 * MIB)[0] == "fragmentation"
    # The limit allows it but the device refused: the remainder of the limit is not free.
    refused, reason = verdict(dataclasses.replace(MAP, capacity_bytes=64 * MIB), 12 * MIB)
    assert refused == "capacity" and "less was free outside it" in reason
    assert verdict(dataclasses.replace(MAP, pool_bytes=None), MIB)[0] is None
    # 8 MiB are free in the pool of 16 MiB.
    left = dataclasses.replace(MAP, capacity_bytes=20 * MIB)
    cause, reason = verdict(left, 13 * MIB)
    assert cause == "capacity" and "4.0 MiB unreserved" in reason and "could not grow" not in reason
    assert verdict(left, 4 * MIB)[1].endswith("less was free outside it.")
    unknown, reason = verdict(dataclasses.replace(MAP, capacity_bytes=None), 9 * MIB)
    assert unknown == "capacity" and "unreserved" not in reason and "limit" not in reason


def test_a_summary_has_the_sums_of_its_chunks() -> None:
    told = map_summary(MAP)
    assert (told["free_bytes"], told["largest_free_bytes"]) == (8 * MIB, 6 * MIB)
    in_use = told["owned_bytes"] + told["owner_unknown_bytes"]
    assert in_use + told["free_bytes"] + told["unknown_bytes"] == 16 * MIB
    assert told["rounding_bytes"] == 100 + 412  # of the two chunks whose requests are known
    assert [tuple(entry.values()) for entry in told["bins"]] == [
        (2 * MIB, 1, 2 * MIB),
        (4 * MIB, 1, 6 * MIB),
    ]
    # AND single chunks between free ones are blocking
    assert told["blocking_chunks"] == [
        {"owner": 1, "chunks": 1, "bytes": 4 * MIB, "joined_bytes": 12 * MIB}
    ]


@given(
    st.lists(st.tuples(st.integers(1, 64), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 20_000),
)
def test_request_fits_if_a_search_through_all_chunks_finds_one(
    blocks: list[tuple[int, bool]], asked: int
) -> None:
    sizes = [256 * units for units, _ in blocks]
    places = itertools.accumulate(sizes, initial=0)
    rows = [
        (at, size, size if used else MISSING)
        for at, size, (_, used) in zip(places, sizes, blocks, strict=False)
    ]
    taken = dataclasses.replace(
        memory_map(rows, [(0, sum(sizes))], capacity=sum(sizes)), device="CPU:0"
    )
    assert would_fit(taken, asked) is any(
        256 * units >= asked for units, in_use in blocks if not in_use
    )


IDLE = dataclasses.replace(
    MAP, state=np.asarray([IN_USE, IN_USE, FREE, FREE, FREE]), in_use_bytes=4 * MIB
)
HUGE = dataclasses.replace(MAP, bytes=MAP.bytes * 64, region_bytes=MAP.region_bytes * 64)
MAPS = {
    "a pool at its limit": MAP,
    "a pool that can grow": dataclasses.replace(MAP, capacity_bytes=24 * MIB),
    "a limit between two steps of 256 bytes": dataclasses.replace(
        MAP, capacity_bytes=24 * MIB + 100
    ),
    "an unknown limit": dataclasses.replace(MAP, capacity_bytes=None),
    "an idle region of the CPU's": IDLE,
    "an idle region of a GPU's": dataclasses.replace(IDLE, device="GPU:0"),
    "an idle region of a worker's GPU": dataclasses.replace(IDLE, device="worker_1/GPU:0"),
    "chunks of unknown state": dataclasses.replace(MAP, complete=False, in_use_bytes=6 * MIB),
    "an unknown pool": dataclasses.replace(
        MAP, complete=False, pool_bytes=None, capacity_bytes=None
    ),
    "addresses of unknown state": dataclasses.replace(
        MAP, complete=False, state=np.asarray([IN_USE, UNKNOWN_STATE, FREE, IN_USE, UNKNOWN_STATE])
    ),
    "nothing free": dataclasses.replace(MAP, state=np.full(5, IN_USE), in_use_bytes=16 * MIB),
    "chunks of hundreds of MiB": dataclasses.replace(
        HUGE, pool_bytes=1024 * MIB, in_use_bytes=512 * MIB
    ),
}


def described(memory_map: MemoryMap) -> dict[str, Any]:
    chunks = zip(
        memory_map.bytes.tolist(),
        memory_map.state.tolist(),
        memory_map.region.tolist(),
        strict=True,
    )
    return {
        **{
            name: getattr(memory_map, name)
            for name in ("device", "pool_bytes", "in_use_bytes", "capacity_bytes")
        },
        "complete": memory_map.complete,
        "chunks": [list(chunk) for chunk in chunks],
        "region_bytes": memory_map.region_bytes.tolist(),
    }


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_requests_fit_as_the_page_says(case: dict[str, Any]) -> None:
    # GIVEN the answers that frontend/tests/model/memory-map.test.ts compares with the page's
    taken = MAPS[case["name"]]
    assert described(taken) == case["map"]
    for said in case["fits"]:
        assert would_fit(taken, said["requested_bytes"]) is said["fits"], said["reason"]
