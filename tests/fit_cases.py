"""Writes ``golden/fits.json``: maps and what `would_fit` says of requests, for the page that answers the same.

usage: python tests/fit_cases.py
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
from reading_cases import MIB, make_map

from tb_memplugin.allocator import would_fit
from tb_memplugin.schema import FREE, IN_USE, UNKNOWN_STATE, MemoryMap

FILE = pathlib.Path(__file__).parent / "golden" / "fits.json"
LIMITED = make_map(3, capacity=16 * MIB)
IDLE = dataclasses.replace(LIMITED, state=np.asarray([IN_USE, IN_USE, FREE, FREE, FREE]), in_use_bytes=4 * MIB)
HUGE = dataclasses.replace(LIMITED, bytes=LIMITED.bytes * 64, region_bytes=LIMITED.region_bytes * 64)
MAPS = {
    "a pool at its limit": LIMITED,
    "a pool that can grow": dataclasses.replace(LIMITED, capacity_bytes=24 * MIB),
    "a limit between two steps of 256 bytes": dataclasses.replace(LIMITED, capacity_bytes=24 * MIB + 100),
    "an unknown limit": dataclasses.replace(LIMITED, capacity_bytes=None),
    "an idle region of the CPU's": IDLE,
    "an idle region of a GPU's": dataclasses.replace(IDLE, device="GPU:0"),
    "an idle region of a worker's GPU": dataclasses.replace(IDLE, device="worker_1/GPU:0"),
    "chunks of unknown state": dataclasses.replace(LIMITED, complete=False, in_use_bytes=6 * MIB),
    "an unknown pool": dataclasses.replace(LIMITED, complete=False, pool_bytes=None, capacity_bytes=None),
    "addresses of unknown state": dataclasses.replace(
        LIMITED, complete=False, state=np.asarray([IN_USE, UNKNOWN_STATE, FREE, IN_USE, UNKNOWN_STATE])
    ),
    "nothing free": dataclasses.replace(LIMITED, state=np.full(5, IN_USE), in_use_bytes=16 * MIB),
    "chunks of hundreds of MiB": dataclasses.replace(HUGE, pool_bytes=1024 * MIB, in_use_bytes=512 * MIB),
}
REQUESTS = (1, 256, 257, 1_000_000, MIB, 2 * MIB, 2 * MIB + 1, 4 * MIB, 6 * MIB, 6 * MIB + 1, 8 * MIB, 8 * MIB + 1)
LARGE = (9 * MIB, 12 * MIB, 12 * MIB + 1, 200 * MIB, 257 * MIB, 400 * MIB, 3 << 40)


def golden() -> dict[str, Any]:
    """What the file holds."""
    return {
        "states": ["free", "in_use", "unknown"],
        "cases": [
            {
                "name": name,
                "map": _described(taken),
                "fits": [dataclasses.asdict(would_fit(taken, asked)) for asked in REQUESTS + LARGE],
            }
            for name, taken in MAPS.items()
        ],
    }


def _described(memory_map: MemoryMap) -> dict[str, Any]:
    chunks = zip(memory_map.bytes.tolist(), memory_map.state.tolist(), memory_map.region.tolist(), strict=True)
    return {
        **{name: getattr(memory_map, name) for name in ("device", "pool_bytes", "in_use_bytes", "capacity_bytes")},
        "complete": memory_map.complete,
        "chunks": [list(chunk) for chunk in chunks],
        "region_bytes": memory_map.region_bytes.tolist(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
