"""Peaks by day: each day's own, and none where nothing was recorded."""

import dataclasses
import pathlib

import numpy as np
import pytest
from reading_cases import MIB, make_samples, make_snapshot

from tb_memplugin.commands.loading import Runs
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.export.peaks import DAY_SECONDS, daily_peaks

NOON = 1_790_035_200.0 - 12 * 3600
"""2026-09-21, 12:00 UTC."""
DAY = NOON - 12 * 3600


def peaks_of(directory: pathlib.Path) -> list[dict[str, object]]:
    (run,) = Runs(directory, details=False).values()
    return daily_peaks(run)


def test_each_day_has_its_own_peak(tmp_path: pathlib.Path) -> None:
    # GIVEN steps of half a second on two days, with the highest peak on the first, and a validation on the second
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(4), [10, 40, 20, 30], start=NOON))
    writer.samples(make_samples(range(4, 8), [15, 16, 35, 14], start=NOON + DAY_SECONDS))
    writer.samples(make_samples([7], [25], phase="validation", start=NOON + DAY_SECONDS + 10))
    writer.close()
    rows = {(one["phase"], one["day"]): one for one in peaks_of(tmp_path)}
    assert {key: (one["peak_bytes"], one["step"], one["samples"], one["last_step"]) for key, one in rows.items()} == {
        ("train", DAY): (40, 1, 4, 3),
        ("train", DAY + DAY_SECONDS): (35, 6, 4, 7),
        ("validation", DAY + DAY_SECONDS): (25, 7, 1, 7),
    }
    first = rows["train", DAY]
    assert (first["wall_time"], first["last_time"]) == (NOON + 0.5, NOON + 1.5)
    assert first["capacity_bytes"] == 2048 * MIB and first["at_step_end"] is False


def test_midnight_in_utc_divides_the_days(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(4), [1, 2, 3, 4], start=DAY + DAY_SECONDS - 1))
    writer.close()
    assert [(one["day"], one["samples"], one["last_step"]) for one in peaks_of(tmp_path)] == [
        (DAY, 2, 1),
        (DAY + DAY_SECONDS, 2, 3),
    ]


def test_a_traced_step_above_the_samples_is_the_peak(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(4), [MIB] * 4))
    snapshot = make_snapshot(2)
    writer.snapshot(snapshot)
    # a device that only has a breakdown
    writer.snapshot(dataclasses.replace(make_snapshot(3), device="GPU:0"))
    writer.close()
    gpu, cpu = peaks_of(tmp_path)
    assert (cpu["device"], cpu["peak_bytes"], cpu["step"], cpu["snapshots"]) == ("CPU:0", snapshot.in_use_bytes, 2, 1)
    assert (gpu["device"], gpu["samples"], gpu["snapshots"], gpu["last_step"]) == ("GPU:0", 0, 1, 3)


def test_the_highest_at_step_end_stands_for_a_peak_that_the_allocator_does_not_keep(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    samples = make_samples(range(3), [0, 0, 0], in_use=[5, 9, 7])
    figures = dataclasses.replace(samples.devices["CPU:0"], peak_bytes=np.full(3, -(2**63)))
    writer.samples(dataclasses.replace(samples, devices={"CPU:0": figures}))
    writer.close()
    (row,) = peaks_of(tmp_path)
    assert (row["peak_bytes"], row["step"], row["at_step_end"]) == (9, 1, True)


def test_an_impossible_time_is_an_unknown_day(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(2), [3, 4], start=1e15))
    writer.close()
    (row,) = peaks_of(tmp_path)
    assert row["day"] == pytest.approx(float("nan"), nan_ok=True) and row["peak_bytes"] == 4
