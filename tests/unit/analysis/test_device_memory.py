"""The division of device memory sums to the total, whatever the driver reports."""

import dataclasses

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot

from tb_memplugin.analysis.pool import DeviceMemory, device_memory

SNAPSHOT = make_snapshot(3)


def bar(process: int, used: int, total: int, **changes: object) -> DeviceMemory:
    samples = make_samples([3], [200 * MIB])
    figures = dataclasses.replace(
        samples.devices[DEVICE],
        driver_process_bytes=np.asarray([process]),
        driver_used_bytes=np.asarray([used]),
        driver_total_bytes=np.asarray([total]),
    )
    snapshot = dataclasses.replace(SNAPSHOT, **changes)  # type: ignore[arg-type]
    run = make_run(dataclasses.replace(samples, devices={DEVICE: figures}), snapshots=(snapshot,))
    found = device_memory(run, DEVICE)
    return found


def sizes(found: DeviceMemory) -> dict[str, int]:
    sums: dict[str, int] = {}
    for segment in found.segments:
        sums[segment.part] = sums.get(segment.part, 0) + segment.bytes
    return sums


def test_the_parts_sum_to_the_device_memory() -> None:
    found = bar(600 * MIB, 1000 * MIB, 4096 * MIB)
    in_use = SNAPSHOT.in_use_bytes
    assert sizes(found) == {
        "in_use": in_use,
        "free_largest": 128 * MIB,
        "free_other": 512 * MIB - in_use - 128 * MIB,
        "process_other": 88 * MIB,
        "others": 400 * MIB,
        "device_free": 3096 * MIB,
    }
    assert sum(sizes(found).values()) == found.total_bytes == 4096 * MIB and found.notes == ()


@pytest.mark.parametrize("process", [-(2**63), 100 * MIB])
def test_a_driver_without_process_figures_is_noted(process: int) -> None:
    found = bar(process, 1000 * MIB, 4096 * MIB)
    assert sizes(found)["others"] == 488 * MIB and "process_other" not in sizes(found)
    assert sum(sizes(found).values()) == 4096 * MIB
    assert len(found.notes) == 1 and "unknown" in found.notes[0]


def test_without_a_driver_the_bar_is_the_allocators_limit() -> None:
    found = bar(-(2**63), -(2**63), -(2**63))
    assert sizes(found)["unreserved"] == (2048 - 512) * MIB
    assert sum(sizes(found).values()) == found.total_bytes == 2048 * MIB


def test_without_the_pools_size_its_free_part_is_unknown() -> None:
    found = bar(600 * MIB, 1000 * MIB, 4096 * MIB, pool_bytes=None, largest_free_bytes=None)
    assert not {"free_largest", "free_other", "pool_free"} & sizes(found).keys()
    assert any("free part of the pool" in note for note in found.notes)
    # AND without a driver the remaining capacity is not called unreserved: a part of it may be reserved
    found = bar(-(2**63), -(2**63), -(2**63), pool_bytes=None, largest_free_bytes=None)
    assert "unreserved" not in sizes(found) and sizes(found)["headroom"] == 2048 * MIB - found.snapshot.in_use_bytes


def test_contradictory_figures_give_no_bar() -> None:
    found = bar(600 * MIB, 700 * MIB, 100 * MIB)
    assert found.segments == () and any("do not fit" in note for note in found.notes)
