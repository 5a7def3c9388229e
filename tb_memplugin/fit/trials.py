"""Whether simulated trainings pass within a capacity. Pure."""

import itertools
from collections.abc import Sequence

from tb_memplugin.allocator import PoolRules
from tb_memplugin.fit.changes import Changed
from tb_memplugin.fit.simulation import (
    VARIANTS,
    FailedRequest,
    highest_peak,
    peak_in_one_piece,
    trainings,
)
from tb_memplugin.fit.steps import LEFT_OUT, SizedStep

LASTING_STEPS = 24
"""Simulated steps after the first one that must all pass: pieces that earlier steps leave can make
one fail."""
LASTING_VARIANTS = 12
"""Simulations of `LASTING_STEPS` that must all pass for a training to pass. Few leave out orders in
which much overlaps. With 3, four recordings of the failing demo advise batch sizes of 42 to 47 and
a fifth one 49, with which 3 of 31 real trainings of eight steps failed. With 12, the four advise 42
to 46; with 47, 10 of 10 real trainings passed. No quick test depends on its value."""
SPARE = 0.02
"""Share of the capacity that must be left at the simulated peak of a training that passes, for the
same reason. At 0, `test_a_training_that_fits_leaves_two_percent_of_the_capacity` fails."""


def first_failing(
    changed: Changed,
    rules: PoolRules,
    may_fail: frozenset[int],
    capacity: int,
    orders: Sequence[int],
    count: int,
) -> int | None:
    """The first of some orders in which one of `count` steps fails with the most bytes of sizes
    that are not exact, or leaves too little of the capacity; None if all pass."""
    left = capacity - changed.transient.high_bytes
    outcomes = trainings(changed.high, rules, changed.extra, may_fail, left, orders, count)
    for order, one in zip(orders, outcomes, strict=True):
        if one.failed is not None or highest_peak(one) * (1 + SPARE) > left:
            return order
    return None


def certain_failure(
    changed: Changed, rules: PoolRules, may_fail: frozenset[int], capacity: int
) -> FailedRequest | None:
    """The request at which every simulation fails first, even with the least bytes; None if one
    passes."""
    left = capacity - changed.transient.low_bytes
    outcomes = trainings(changed.low, rules, changed.extra, may_fail, left, count=LASTING_STEPS)
    failed = (one.failed for one in outcomes)
    failures = list(itertools.takewhile(lambda request: request is not None, failed))
    return failures[0] if len(failures) == VARIANTS else None


def first_step_bytes(changed: Changed, rules: PoolRules, may_fail: frozenset[int]) -> int:
    """Peak of the first step, which makes the optimizer's slots, without requests that may fail; 0
    if it was not recorded."""
    first = SizedStep(changed.high[0].requests, changed.high[0].sizes.copy())
    first.sizes[list(may_fail)] = LEFT_OUT
    (found,) = trainings([first], rules, changed.extra, frozenset(), orders=[0], count=0)
    return found.peaks[0].bytes + changed.transient.high_bytes if found.peaks else 0


def least_bytes(changed: Changed, may_fail: frozenset[int]) -> int:
    """Peak with the most bytes of sizes that are not exact, as if free memory were always in one
    piece: less than any real allocator needs for them."""
    pieces = [
        peak_in_one_piece(step, may_fail if step.requests.first else frozenset())
        for step in changed.high
    ]
    return max(pieces) + sum(changed.extra) + changed.transient.high_bytes
