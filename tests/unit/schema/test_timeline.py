"""Times and sums of a timeline."""

import dataclasses

import numpy as np
import pytest
from reading_cases import make_timeline

from tb_memplugin.schema import live_sums


def test_the_time_of_an_event_is_between_those_of_the_moments_around_it() -> None:
    # Moments after 0, 2, 5 events at 0, 1 and 4 ms; all 9 events take 6 ms
    line = dataclasses.replace(
        make_timeline(3),
        event=np.asarray([0, 2, 5]),
        time_ns=np.asarray([0, 1_000_000, 4_000_000]),
        events=9,
        duration_ns=6_000_000,
    )
    seconds = line.seconds_at(np.asarray([0, 1, 2, 3, 5, 7, 9, 20]))
    assert seconds * 1000 == pytest.approx([0, 0.5, 1, 2, 4, 5, 6, 6])


def test_live_sums_are_those_counted_moment_by_moment() -> None:
    random = np.random.default_rng(3)
    start = random.integers(0, 20, 50)
    end = np.minimum(start + random.integers(1, 10, 50), 20)
    amount = random.integers(0, 1000, 50)
    expected = [int(amount[(start <= moment) & (moment < end)].sum()) for moment in range(20)]
    assert live_sums(start, end, amount, 20).tolist() == expected
