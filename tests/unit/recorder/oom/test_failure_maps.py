"""The memory map at a failed allocation is the one that explains the failure best."""

from typing import cast

import pytest
from map_cases import memory_map

from tb_memplugin.model import MISSING
from tb_memplugin.recorder.oom import failure_maps
from tb_memplugin.recorder.oom.dump_files import DumpFile
from tb_memplugin.recorder.oom.failure_maps import FailureMaps, StalledMaps

POOL_BYTES = 1 << 14
POOL = [(0, POOL_BYTES)]
FULL = memory_map([(0, POOL_BYTES, POOL_BYTES)], POOL, POOL_BYTES)
HALF = memory_map([(0, 1 << 13, 1 << 13), (1 << 13, 1 << 13, MISSING)], POOL, POOL_BYTES)
FREED = memory_map([(0, POOL_BYTES, MISSING)], POOL, POOL_BYTES)


@pytest.mark.parametrize(
    ("written", "stalled", "requested", "expected"),
    [
        # TensorFlow's own dump, of the moment when it gave up, comes first ...
        (HALF, [FULL], 10_000, HALF),
        (HALF, [FULL], None, HALF),
        # ... unless the request fits in it: the dump is of a later moment then.
        (FREED, [FREED, HALF, FULL], 10_000, HALF),
        (FREED, [FREED], 10_000, FREED),
        # Without a dump: the newest map in which the request does not fit, or the fullest for an unknown size.
        (None, [FREED, HALF, FULL], 10_000, HALF),
        (None, [FREED, HALF, FULL], None, FULL),
        (None, [FREED], 10_000, None),
    ],
)
def test_the_map_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, written: object, stalled: list[object], requested: int | None, expected: object
) -> None:
    class Stalled:
        def newest_first(self, device: str) -> list[tuple[float, object]]:
            return [(0.0, one) for one in stalled]

    monkeypatch.setattr(failure_maps, "read_dump", lambda data, wall_time, capacity: data)
    monkeypatch.setattr(failure_maps, "final_dump", lambda dumps: dumps[-1])
    maps = FailureMaps([], cast(StalledMaps, Stalled()))
    monkeypatch.setattr(maps, "read", lambda dump, device: written)
    dumps = [] if written is None else [cast(DumpFile, None)]
    assert maps.at_failure("GPU:0", requested, dumps) is expected
