"""The choice of segments against all choices, one after the other, with few units."""

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.fit.segments import UnitCosts

Spans = tuple[tuple[int, int], ...]


@st.composite
def unit_costs(draw: st.DrawFn) -> UnitCosts:
    count = draw(st.integers(1, 5))
    column = st.lists(st.integers(0, 40), min_size=count, max_size=count)
    held = np.asarray(draw(column)) + 1
    start = int(held.sum()) + np.asarray(draw(column))
    # Whole parts of the time that the choice tells apart: their sum is rounded to nothing.
    seconds = np.asarray(draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=count, max_size=count)), np.float64)
    seconds[-1] += 64 - seconds.sum()
    return UnitCosts(
        backward=start + np.asarray(draw(column)),
        start=start,
        held=held,
        kept=np.minimum(held, np.asarray(draw(column))),
        working=held + np.asarray(draw(column)),
        seconds=seconds,
        joins=np.asarray([False, *draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))]),
        after=int(start.max()) + draw(st.integers(0, 40)),
    )


def every_choice(costs: UnitCosts) -> Iterator[Spans]:
    count = len(costs)
    spans = [
        (first, end)
        for first in range(count)
        for end in range(first + 1, count + 1)
        if costs.joins[first + 1 : end].all()
    ]
    for number in range(count + 1):
        for chosen in itertools.combinations(spans, number):
            if all(left[1] <= right[0] for left, right in itertools.pairwise(chosen)):
                yield chosen


def needed(costs: UnitCosts, spans: Spans) -> int:
    """Most bytes in use with these segments, from one backward pass to the next."""
    ends = dict(spans)
    saved = first = most = 0
    while first < len(costs):
        end = ends.get(first, first + 1)
        units = range(first, end)
        most = max(most, max(int(costs.backward[unit]) for unit in units) - saved)
        if first in ends:
            again = max(int(costs.held[first:unit].sum() + costs.working[unit]) for unit in units)
            held = int(costs.held[first:end].sum())
            most = max(most, int(costs.start[end - 1]) - held + again - saved)
            saved += held - int(costs.kept[end - 1])
        first = end
    return max(most, costs.after - saved)


def seconds(costs: UnitCosts, spans: Spans) -> float:
    return float(sum(costs.seconds[first:end].sum() for first, end in spans))


@given(unit_costs(), st.integers(-60, 60))
def test_the_choice_needs_the_least_time_of_all_that_stay_within_the_limit(costs: UnitCosts, more: int) -> None:
    limit = needed(costs, ()) + more
    within = [spans for spans in every_choice(costs) if needed(costs, spans) <= limit]
    choice = costs.choose(limit)
    if not within:
        assert choice is None
    else:
        assert choice is not None and needed(costs, choice) <= limit
        assert seconds(costs, choice) == min(seconds(costs, spans) for spans in within)


@given(unit_costs())
def test_the_smallest_limit_is_that_of_the_best_choice(costs: UnitCosts) -> None:
    assert costs.smallest() == min(needed(costs, spans) for spans in every_choice(costs))
