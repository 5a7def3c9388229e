"""Devices apart from comparable ones: planted ones are found, and nothing else is."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tb_memplugin.analysis.devices.outliers import MIN_GROUP, ComparedDevice, outliers

MIB = 1 << 20


def cluster(
    stages: Sequence[int], workers: int, devices: int, planted: dict[tuple[int, int, int], int], noise: int = 20
) -> list[ComparedDevice]:
    """Devices of stages with these peaks in MiB, each of so many workers; `planted` maps stage, worker and device to
    more MiB in activations."""
    random = np.random.default_rng(0)
    found = []
    for stage, worker, device in itertools.product(range(len(stages)), range(workers), range(devices)):
        more = planted.get((stage, worker, device), 0) * MIB
        peak = stages[stage] * MIB + more + int(random.integers(-noise * MIB, noise * MIB + 1))
        parts = {("weights", True): 100 * MIB, ("activations", None): peak - 100 * MIB}
        name = f"stage_{stage}_worker_{worker}"
        found.append(ComparedDevice(f"{name}/GPU:{device}", name, peak, parts))  # type: ignore[arg-type]
    return found


def test_planted_devices_are_found_within_their_stage_and_nothing_else() -> None:
    # GIVEN stages that differ by far more than the planted faults
    planted = {(0, 3, 2): 700, (1, 0, 0): -900, (3, 5, 7): 500, (2, 7, 1): 4000}
    found = outliers(cluster([9000, 12000, 12000, 7000], 8, 8, planted))
    assert [one.name for one in found] == [
        "stage_2_worker_7/GPU:1",
        "stage_1_worker_0/GPU:0",
        "stage_0_worker_3/GPU:2",
        "stage_3_worker_5/GPU:7",
    ]
    assert found[2].group == "stage_0_worker_*/GPU:*" and found[2].devices == 64
    assert found[0].bytes == pytest.approx(4000 * MIB, abs=45 * MIB)
    assert [group for group, _ in found[0].parts] == [("activations", None)]
    assert found[1].bytes < 0 and found[1].parts[0][1] == pytest.approx(-900 * MIB, abs=45 * MIB)
    assert "less than the median of 64 devices (stage_1_worker_*/GPU:*)" in found[1].sentence


def test_a_stage_of_few_devices_is_no_fault() -> None:
    found = outliers(cluster([9000] * 7 + [13000], 4, 4, {(7, 2, 2): -600}))
    assert [one.name for one in found] == ["stage_7_worker_2/GPU:2"]


def test_a_whole_worker_is_no_group_of_its_own() -> None:
    planted = {(0, 5, device): 800 for device in range(8)}
    found = outliers(cluster([9000], 16, 8, planted))
    assert {one.name for one in found} == {f"stage_0_worker_5/GPU:{device}" for device in range(8)}
    assert found[0].group == "stage_0_worker_*/GPU:*"


def test_a_device_that_differs_on_every_worker_is_its_own_group() -> None:
    devices = [
        dataclasses.replace(one, peak_bytes=one.peak_bytes + 2000 * MIB * one.name.endswith("GPU:0"))
        for one in cluster([9000], 16, 4, {(0, 5, 0): 600})
    ]
    found = outliers(devices)
    assert [(one.name, one.group) for one in found] == [("stage_0_worker_5/GPU:0", "stage_0_worker_*/GPU:0")]


def test_even_devices_have_no_outliers() -> None:
    assert outliers(cluster([9000, 12000], 16, 8, {})) == []
    assert outliers(cluster([9000], 16, 8, {}, noise=0)) == []
    # a difference below 2 % of the median is nothing to act on, though all others are equal
    assert outliers(cluster([10_000], 16, 8, {(0, 1, 1): 199}, noise=0)) == []
    assert len(outliers(cluster([10_000], 16, 8, {(0, 1, 1): 201}, noise=0))) == 1


def test_few_devices_have_no_median_to_compare_with() -> None:
    few = cluster([9000], MIN_GROUP - 1, 1, {(0, 0, 0): 5000})
    assert outliers(few) == []
    assert len(outliers(cluster([9000], MIN_GROUP, 1, {(0, 0, 0): 5000}))) == 1


def test_without_breakdowns_the_difference_has_no_parts() -> None:
    devices = [dataclasses.replace(one, parts=None) for one in cluster([9000], 8, 8, {(0, 3, 3): 3000})]
    (found,) = outliers(devices)
    assert found.parts == () and found.name == "stage_0_worker_3/GPU:3"
