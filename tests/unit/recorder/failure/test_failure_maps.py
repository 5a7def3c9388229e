"""The memory map at a failed allocation is the one that explains the failure best."""

import collections
import os
import pathlib
import tempfile
import time
from typing import Any, cast

import pytest
from map_cases import memory_map

from tb_memplugin.recorder.failure import FailureMaps
from tb_memplugin.recorder.failure import failed_allocations as failure_maps
from tb_memplugin.recorder.failure.failed_allocations import VARIABLE, DumpFile, DumpFiles
from tb_memplugin.schema import MISSING

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
def test_the_map_of_a_failure(monkeypatch, written, stalled, requested, expected) -> None:
    monkeypatch.setattr(failure_maps, "read_dump", lambda data, wall_time, capacity: data)
    monkeypatch.setattr(failure_maps, "final_dump", lambda dumps: dumps[-1])
    maps = FailureMaps([], cast(Any, None))
    maps._kept = {"GPU:0": collections.deque((0.0, one) for one in reversed(stalled))}  # type: ignore[misc]
    monkeypatch.setattr(maps, "read", lambda dump, device: written)
    dumps = [] if written is None else [cast(DumpFile, None)]
    assert maps.at_failure("GPU:0", requested, dumps) is expected


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_users_own_prefix_is_used_and_kept(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(place / "mine"))
    files = DumpFiles()
    files.acquire()
    now = int(time.time() * 1e6)
    (place / f"mine_GPU_0_bfc.{now}").touch()
    (dump,) = files.since(0.0)
    assert dump.allocator == "GPU_0_bfc" and dump.wall_time == pytest.approx(now / 1e6)
    files.remove_before(time.time() + 1)
    files.release()
    assert list(place.iterdir()) == [pathlib.Path(dump.path)] and os.environ[VARIABLE] == str(place / "mine")
