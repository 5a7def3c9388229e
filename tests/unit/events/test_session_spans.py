"""The lowest memory of groups of steps."""

import numpy as np
import pytest

from tb_memplugin.events.session_spans import MAX_LEVELS, GrowthLevels
from tb_memplugin.model import MISSING
from tb_memplugin.model.rollup import LEVEL_BYTES


def recorded(steps: int) -> np.ndarray:
    """Bytes in use and peaks of two devices, shape [2, 2, steps]; the second device lacks every third peak."""
    values = np.random.default_rng(5).integers(0, 1000, (2, 2, steps)) * LEVEL_BYTES + 17
    values[1, 1, ::3] = MISSING
    return values


@pytest.mark.parametrize(
    ("steps", "at_once"), [(1, 1), (79, 1), (80, 7), (81, 1), (81, 4096), (1000, 1), (1000, 7), (12345, 4096)]
)
def test_each_level_is_the_lowest_value_of_its_steps(steps: int, at_once: int) -> None:
    # GIVEN steps that arrive in pieces
    values, levels = recorded(steps), GrowthLevels()
    for begin in range(0, steps, at_once):
        part = values[:, :, begin : begin + at_once]
        levels.add(np.arange(begin, begin + part.shape[2]), part)
    # THEN they are described by a bounded number of levels, each the lowest of the steps since the level before it
    found = levels.levels(2)
    assert len(found.step) <= MAX_LEVELS and (steps < MAX_LEVELS or len(found.step) >= MAX_LEVELS // 2)
    assert found.step[-1] == steps - 1
    begin = 0
    for at, last in enumerate(found.step.tolist()):
        for row, column in ((0, found.in_use_bytes), (1, found.peak_bytes)):
            for device in range(2):
                own = values[device, row, begin : last + 1]
                known = own[own != MISSING]
                expected = known.min() // LEVEL_BYTES * LEVEL_BYTES if len(known) else MISSING
                assert column[device, at] == expected
        begin = last + 1


def test_a_device_that_comes_later_lacks_the_levels_before() -> None:
    levels = GrowthLevels()
    levels.add(np.arange(2), np.full((1, 2, 2), 5 * LEVEL_BYTES))
    levels.add(np.arange(2, 4), np.full((2, 2, 2), 7 * LEVEL_BYTES))
    found = levels.levels(2)
    assert found.in_use_bytes.tolist() == [
        [5 * LEVEL_BYTES] * 2 + [7 * LEVEL_BYTES] * 2,
        [MISSING] * 2 + [7 * LEVEL_BYTES] * 2,
    ]
    levels.halve()
    assert levels.levels(2).step.tolist() == [1, 3]
    assert levels.levels(2).peak_bytes.tolist() == [[5 * LEVEL_BYTES, 7 * LEVEL_BYTES], [MISSING, 7 * LEVEL_BYTES]]


def test_two_groups_become_one_and_one_stays_alone() -> None:
    levels = GrowthLevels()
    for step in range(2):
        levels.add(np.asarray([step]), np.full((1, 2, 1), (7 + step) * LEVEL_BYTES))
    assert len(levels) == 2
    assert levels.halve() and len(levels) == 1
    (found,) = [levels.levels(1)]
    assert found.step.tolist() == [1] and found.in_use_bytes.tolist() == [[7 * LEVEL_BYTES]]
    assert not levels.halve() and len(levels) == 1
