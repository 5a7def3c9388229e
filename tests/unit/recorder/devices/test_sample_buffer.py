"""Rows from one thread become columns on another; some figures are added later."""

import threading

import pytest

from tb_memplugin.recorder.devices import samples as sample_buffer
from tb_memplugin.recorder.devices.samples import DROPPED, SampleBuffer
from tb_memplugin.schema import MISSING

COMMON = (0, MISSING, 300, 40, 50)


def row(step: int, *devices: tuple[int, ...]) -> tuple[int, ...]:
    figures = [(*device, 1 << 30, MISSING, MISSING, MISSING, MISSING, MISSING) for device in devices]
    return (step, *COMMON, *(size for device in figures for size in device))


def test_rows_become_columns_by_device() -> None:
    buffer = SampleBuffer(["GPU:0", "GPU:1"])
    assert [buffer.append(1.5 * step, row(step, (10 + step, 20), (30, 40))) for step in range(3)] == [0, 1, 2]
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0, 1, 2] and taken.wall_time.tolist() == [0, 1.5, 3]
    assert taken.devices["GPU:0"].in_use_bytes.tolist() == [10, 11, 12]
    assert taken.devices["GPU:1"].peak_bytes.tolist() == [40] * 3
    assert taken.devices["GPU:1"].pool_bytes.tolist() == [MISSING] * 3
    assert buffer.take() is None


def test_short_rows_are_like_the_row_that_they_follow() -> None:
    buffer = SampleBuffer(["GPU:0", "GPU:1"])
    buffer.append(1.0, row(0, (10, 20), (30, 40)))
    keep = buffer.like(
        (1, 2, 8, 300, 40, 50, 0, 0, 1 << 30, 5, 6, 7, MISSING, MISSING, 0, 0, 1 << 31, 3, 4, 5, MISSING, MISSING)
    )
    keep((2.0, 1, 400, 11, 21, 31, 41))
    keep((3.0, 2, 500, 12, 22, 32, 42))
    # The numbers of rows go on, and the order stays.
    assert buffer.append(4.0, row(3, (13, 23), (33, 43))) == 3
    keep = buffer.like(row(4, (0, 0), (0, 0)))
    keep((5.0, 4, 600, 14, 24, 34, 44))
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0, 1, 2, 3, 4] and taken.wall_time.tolist() == [1, 2, 3, 4, 5]
    assert taken.phase.tolist() == [0, 2, 2, 0, 0] and taken.epoch.tolist() == [MISSING, 8, 8, MISSING, MISSING]
    assert taken.host_resident_bytes.tolist() == [300, 400, 500, 300, 600]
    # Buffers in host memory are not read after ordinary steps.
    assert taken.tf_data_bytes.tolist() == [40, MISSING, MISSING, 40, MISSING]
    assert taken.pinned_pool_bytes.tolist() == [50, MISSING, MISSING, 50, MISSING]
    first, second = taken.devices.values()
    assert first.in_use_bytes.tolist() == [10, 11, 12, 13, 14] and second.peak_bytes.tolist() == [40, 41, 42, 43, 44]
    assert first.driver_process_bytes.tolist() == [MISSING, 5, 5, MISSING, MISSING]
    assert second.capacity_bytes.tolist() == [1 << 30, 1 << 31, 1 << 31, 1 << 30, 1 << 30]
    assert second.driver_total_bytes.tolist() == [MISSING, 5, 5, MISSING, MISSING]


def test_a_measurement_reaches_its_row_and_device() -> None:
    buffer = SampleBuffer(["GPU:0", "GPU:1"])
    numbers = [buffer.append(0.0, row(step, (1, 2), (3, 4))) for step in range(3)]
    assert buffer.measure(numbers[1], "GPU:1", 77, 66)
    taken = buffer.take()
    assert taken is not None
    assert taken.devices["GPU:1"].pool_bytes.tolist() == [MISSING, 77, MISSING]
    assert taken.devices["GPU:1"].largest_free_bytes.tolist() == [MISSING, 66, MISSING]
    assert taken.devices["GPU:1"].driver_total_bytes.tolist() == [MISSING] * 3
    assert taken.devices["GPU:0"].pool_bytes.tolist() == [MISSING] * 3
    # AND none reaches a row that was taken or is not there yet
    assert buffer.append(0.0, row(3, (1, 2), (3, 4))) == 3
    assert not buffer.measure(numbers[2], "GPU:0", 7, 6) and not buffer.measure(4, "GPU:0", 7, 6)
    taken = buffer.take()
    assert taken is not None and taken.devices["GPU:0"].pool_bytes.tolist() == [MISSING]


def test_concurrent_appends_measurements_and_takes_mix_nothing_up() -> None:
    # GIVEN a thread that appends, and one that measures every row with figures made from its step
    buffer = SampleBuffer(["GPU:0"])
    rows = 4000
    numbers: list[int] = []

    def train() -> None:
        for step in range(rows):
            numbers.append(buffer.append(float(step), row(step, (1, 2))))

    kept = 0

    def measure() -> None:
        nonlocal kept
        at = 0
        while at < rows:
            if at < len(numbers):
                kept += buffer.measure(numbers[at], "GPU:0", 10 * at, at)
                at += 1

    threads = [threading.Thread(target=work) for work in (train, measure)]
    for thread in threads:
        thread.start()
    # WHEN rows are taken meanwhile
    parts = []
    while any(thread.is_alive() for thread in threads):
        parts.append(buffer.take())
    parts.append(buffer.take())
    # THEN every row is there once, with its own figures or none
    steps = [step for part in parts if part for step in part.step.tolist()]
    pools = [size for part in parts if part for size in part.devices["GPU:0"].pool_bytes.tolist()]
    assert steps == list(range(rows)) and numbers == steps
    assert all(pool in (MISSING, 10 * step) for step, pool in zip(steps, pools, strict=True))
    assert sum(pool != MISSING for pool in pools) == kept


def test_rows_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_buffer, "MAX_ROWS", 3)
    buffer = SampleBuffer(["GPU:0"])
    assert [buffer.append(0.0, row(step, (1, 2))) for step in range(5)] == [0, 1, 2, DROPPED, DROPPED]
    assert not buffer.measure(DROPPED, "GPU:0", 7, 6)
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0, 1, 2]
    assert (buffer.take_dropped(), buffer.take_dropped()) == (2, 0)
    # The numbers of later rows go on.
    assert buffer.append(0.0, row(5, (1, 2))) == 3 and buffer.measure(3, "GPU:0", 7, 6)
    # AND so are short ones
    keep = buffer.like(row(6, (1, 2)))
    for step in range(4):
        keep((0.0, step, 1, 2, 3))
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [5, 0, 1] and buffer.take_dropped() == 2


def test_a_row_with_an_impossible_figure_leaves_the_others_whole() -> None:
    buffer = SampleBuffer(["GPU:0"])
    buffer.append(0.0, row(0, (1, 2)))
    with pytest.raises(OverflowError):
        buffer.append(0.5, row(1, (1, 1 << 70)))
    buffer.append(1.0, row(2, (3, 4)))
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0, 2] and taken.devices["GPU:0"].peak_bytes.tolist() == [2, 4]
