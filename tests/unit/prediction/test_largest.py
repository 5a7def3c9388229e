"""The search for the largest batch size that passes."""

import pytest

from tb_memplugin.prediction.largest import largest


def searched(passing: set[int] | range, possible: int, ran: int = 0, below: int = 1 << 24) -> tuple[int, list[int]]:
    """The result of a search and the sizes that it simulated, where no allocator serves more than `possible`."""
    tried: list[int] = []

    def passes(size: int) -> bool:
        tried.append(size)
        return size in passing

    return largest(ran, below, lambda size: size <= possible, passes), tried


@pytest.mark.parametrize("real", [1, 2, 50, 193, 196, 197, 198, 199, 200, 5000])
def test_it_is_the_largest_of_sizes_that_follow_each_other(real: int) -> None:
    found, tried = searched(range(1, real + 1), possible=max(200, real + real // 20))
    assert found == real
    assert len(tried) <= 10 or real < 150  # it goes down from the first possible size


def test_where_none_passes_it_is_what_ran() -> None:
    assert searched(range(0), possible=200)[0] == 0
    assert searched(range(0), possible=200, ran=7)[0] == 7
    assert searched(range(0), possible=3, ran=7) == (7, [])


def test_only_smaller_ones_than_one_that_failed_are_tried() -> None:
    found, tried = searched(range(1, 200), possible=1000, below=100)
    assert (found, max(tried)) == (99, 99)


def test_a_larger_size_may_pass_where_a_smaller_one_does_not() -> None:
    passing = {*range(1, 150), 200}
    assert searched(passing, possible=200)[0] == 200
