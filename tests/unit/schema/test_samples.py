"""Rows of samples: one for each step, and those whose pool is known."""

import dataclasses

import numpy as np
import pytest
from reading_cases import DEVICE, make_samples

from tb_memplugin.schema import MISSING, DeviceSamples, measured_pools, one_row_a_step


def figures(peaks: list[int], **others: list[int]) -> DeviceSamples:
    made = make_samples(range(len(peaks)), peaks).devices[DEVICE]
    columns = {name: np.asarray(values, np.int64) for name, values in others.items()}
    return dataclasses.replace(made, peak_bytes=np.asarray(peaks, np.int64), **columns)


@pytest.mark.parametrize(
    ("steps", "peaks", "rows"),
    [
        ([0, 1, 2], [5, 6, 7], [0, 1, 2]),
        ([0, 1, 1], [5, 6, 7], [0, 2]),  # of a repeated step, that of the higher peak
        ([0, 1, 1], [5, 9, 7], [0, 1]),
        ([2, 0, 1], [5, 6, 7], [1, 2, 0]),
        ([4, 4, 4], [5, 9, 7], [1]),
    ],
)
def test_each_step_has_the_row_of_its_highest_peak(steps: list[int], peaks: list[int], rows: list[int]) -> None:
    chosen = one_row_a_step(np.asarray(steps), figures(peaks), np.ones(len(steps), np.bool_))
    assert chosen.tolist() == rows


def test_a_row_counts_if_any_figure_of_the_device_is_known_and_it_is_asked_for() -> None:
    unknown = [MISSING] * 4
    of = figures(
        [MISSING, 5, MISSING, MISSING],
        in_use_bytes=[MISSING, MISSING, 6, MISSING],
        driver_process_bytes=[7, MISSING, MISSING, MISSING],
    )
    assert one_row_a_step(np.arange(4), of, np.ones(4, np.bool_)).tolist() == [0, 1, 2]
    assert one_row_a_step(np.arange(4), of, np.asarray([False, True, True, True])).tolist() == [1, 2]
    nothing = figures(unknown, in_use_bytes=unknown, driver_process_bytes=unknown)
    assert one_row_a_step(np.arange(4), nothing, np.ones(4, np.bool_)).tolist() == []


def test_a_pool_is_measured_if_it_holds_what_is_said_of_it() -> None:
    of = figures(
        [9] * 6,
        in_use_bytes=[4, 4, 4, MISSING, 4, 4],
        largest_free_bytes=[6, 6, 6, 6, MISSING, 6],
        pool_bytes=[10, 11, 9, 10, 10, MISSING],
    )
    assert measured_pools(of).tolist() == [True, True, False, False, False, False]
