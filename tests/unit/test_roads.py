"""Over how many files a quantity is spread, from the recorder to the page."""

import functools
import pathlib

import pytest
import roads

MOST_FILES = 12
ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def files() -> dict[str, roads.File]:
    return roads.files_of(ROOT)


@pytest.mark.parametrize("quantity", roads.ROADS)
def test_a_quantity_is_spread_over_few_files(quantity: str) -> None:
    found = roads.road(*roads.ROADS[quantity], files())
    # Fewer than half of that would mean that the road was not found.
    assert MOST_FILES / 2 <= len(found) <= MOST_FILES, list(found)
