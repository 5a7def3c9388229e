"""The range of simulated peaks."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB
from requests_cases import BATCH, make_table, make_traced

from tb_memplugin.analysis.fit.what_if_evidence import recorded_program
from tb_memplugin.model import Category, ChunkOwner, StepRequests
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.history import Outcome, StepPeak
from tb_memplugin.prediction.prediction import Limits, arrays_in_place
from tb_memplugin.prediction.predictor import Predictor

STEPS = tuple(one.requests for one in make_traced().values())


def with_data_set(step: StepRequests, category: Category, power: int = 0, size: int | None = None) -> StepRequests:
    """The step with another owner, power and, if given, size of the largest chunk that stays."""
    (stays,) = np.nonzero((step.birth < 0) & (step.death >= step.events))
    row = stays[np.argmax(step.requested[stays])]
    owner, powers, requested = step.owner.copy(), step.batch_power.copy(), step.requested.copy()
    owner[row], powers[row], requested[row] = len(step.owners), power, size or requested[row]
    owners = (*step.owners, ChunkOwner(None, category, None))
    return dataclasses.replace(step, owner=owner, batch_power=powers, requested=requested, owners=owners)


@pytest.mark.parametrize(
    ("category", "power", "size", "device", "expected"),
    [
        ("inputs", 0, 4 * MIB, "CPU:0", 4 * MIB),
        ("inputs", 0, 4 * MIB, "GPU:0", 0),  # every array is copied to a GPU
        ("inputs", 0, 33 * MIB, "CPU:0", 0),  # none as large is aligned
        ("inputs", 1, 4 * MIB, "CPU:0", 0),  # a batch
        ("held_tensors", 0, 4 * MIB, "CPU:0", 0),
    ],
)
def test_another_process_may_use_an_array_in_place(
    category: Category, power: int, size: int, device: str, expected: int
) -> None:
    step = dataclasses.replace(with_data_set(STEPS[-1], category, power, size), device=device)
    assert arrays_in_place(step) == expected


def test_the_range_begins_lower_by_such_an_array() -> None:
    def lowest(category: Category) -> tuple[int, int]:
        steps = [dataclasses.replace(with_data_set(one, category), device="CPU:0") for one in STEPS]
        prediction = Predictor(recorded_program(steps, "CPU:0"), make_table().layers).predict(
            Conditions(batch_size=2 * BATCH)
        )
        assert prediction.low_bytes is not None and prediction.peak_bytes is not None
        return prediction.low_bytes, prediction.peak_bytes

    size = arrays_in_place(with_data_set(dataclasses.replace(STEPS[-1], device="CPU:0"), "inputs"))
    others, array = lowest("held_tensors"), lowest("inputs")
    assert size > 0 and array == (others[0] - size, others[1])


def outcome(*peaks: int) -> Outcome:
    """A simulation whose first two steps do not count."""
    return Outcome(tuple(StepPeak(size, index=0, event=at) for at, size in enumerate((99, 99, *peaks))), 100, None)


@pytest.mark.parametrize(
    ("steps_of_update", "expected"),
    [
        (1, 3),  # the median of 1, 2, 3, 5, 6 and 9 is the lower one of 3 and 5
        (2, 6),  # of 9, 9, 3, 5, 6
        (6, 9),
        (16, 9),  # more than were simulated
    ],
)
def test_with_accumulated_gradients_the_highest_peak_of_an_update_counts(steps_of_update: int, expected: int) -> None:
    simulated = [outcome(1, 9, 2, 3, 5, 6)]
    limits = Limits(simulated, simulated, steps_of_update=steps_of_update)
    (typical,) = limits.typical
    assert limits.peak == typical.bytes == expected
    # AND the breakdown is that of this step
    assert typical.event == 2 + (1, 9, 2, 3, 5, 6).index(expected)
