"""The order of a step's events, whole and without allocations that the next event frees."""

import dataclasses

import numpy as np
import pytest
from requests_cases import hand_made_requests

from tb_memplugin.prediction.sized_steps import event_order, lasting_order

CHUNKS = (
    ("net", "workspace", "a", 1024, 0, 1),
    ("net", "workspace", "b", 512, 2, 3),
    ("net", "activations", "c", 4096, 4, 7),
    ("net", "workspace", "d", 256, 5, 6),
)
"""Rows 0, 1 and 3 are freed by the event after their allocation; row 2 is the peak together with row 3."""


def test_events_are_in_the_order_of_births_and_deaths() -> None:
    assert event_order(hand_made_requests(CHUNKS)) == [0, -1, 1, -2, 2, 3, -4, -3]


def test_what_the_next_event_frees_is_left_out_but_for_the_peak() -> None:
    assert lasting_order(hand_made_requests(CHUNKS)) == [2, 3, -4, -3]


@pytest.mark.parametrize("row", [0, 1])
def test_the_first_allocation_in_an_added_region_stays(row: int) -> None:
    requests = hand_made_requests(CHUNKS)
    begin = requests.address[row : row + 1]
    grown = dataclasses.replace(requests, added_address=begin, added_bytes=np.array([256]))
    assert lasting_order(grown) == [row, -1 - row, 2, 3, -4, -3]
