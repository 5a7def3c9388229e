"""The steps that a prediction simulates: which recorded ones, and how much more or less than they say."""

import dataclasses

import numpy as np
import pytest
from requests_cases import THREE_LAYERS, hand_made_requests

from tb_memplugin.model import StepRequests
from tb_memplugin.model.requests import UNKNOWN_POWER
from tb_memplugin.prediction.cases import (
    COMPILED_MARGIN,
    FEWER_RESULTS,
    OVERLAPPING_RESULTS,
    OVERLAPPING_RESULTS_ON_A_GPU,
    make_case,
)
from tb_memplugin.prediction.changes import Change


def step(**changes: object) -> StepRequests:
    return dataclasses.replace(hand_made_requests(THREE_LAYERS), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "fewer", "more"),
    [("CPU:0", FEWER_RESULTS, OVERLAPPING_RESULTS), ("GPU:0", 0, OVERLAPPING_RESULTS_ON_A_GPU)],
)
def test_recomputed_results_may_overlap_most_on_a_cpu(device: str, fewer: int, more: int) -> None:
    change = Change(recompute=(("net/a", "net/b"),))
    least, typical, most = make_case([], [step(device=device)], 4, change).transient_bytes
    plain = make_case([], [step(device=device)], 4, Change()).transient_bytes
    # The largest recomputed result has 2,048 B.
    assert (plain[0] - least, typical - plain[1], most - plain[2]) == (fewer * 2048, 0, more * 2048)


def test_nothing_changed_is_replayed_and_may_neither_grow_nor_shrink() -> None:
    case = make_case([], [step()], 4, Change())
    assert (case.transient_bytes, case.saved_bytes, case.method, case.sentences) == ((0, 0, 0), 0, "replay", ())
    assert case.total_bytes == sum(chunk[3] for chunk in THREE_LAYERS) and case.uncertain_bytes == 0
    assert case.same_order and case.typical is None


def test_only_steps_of_known_sizes_are_said_to_be_replayed() -> None:
    recorded = step()
    powers = np.zeros_like(recorded.batch_power)
    assert make_case([], [dataclasses.replace(recorded, batch_power=powers)], 8, Change()).method == "replay"
    # One small size that may grow is an estimate, though not worth a sentence.
    powers[int(np.argmin(recorded.requested))] = UNKNOWN_POWER
    case = make_case([], [dataclasses.replace(recorded, batch_power=powers)], 8, Change())
    assert case.method == "estimate"


def test_the_steps_of_the_closest_batch_size_are_simulated() -> None:
    # 4 is twice as far from 8 as 16 is by ratio: both are a factor of two, and 3 is further away
    recorded = [step(batch_size=3), step(batch_size=16), step(batch_size=None), step(batch_size=6)]
    case = make_case([], recorded, 8, Change())
    assert [one.requests.batch_size for one in case.most] == [6]
    assert [one.requests.batch_size for one in make_case([], recorded, None, Change()).most] == [3, 16, None, 6]
    unknown = [step(batch_size=None)]
    assert len(make_case([], unknown, 8, Change()).most) == 1


def test_a_first_step_is_simulated_too_and_counts_for_no_uncertainty() -> None:
    case = make_case([step(first=True)], [step()], 4, Change())
    assert [one.requests.first for one in case.most] == [True, False]


@pytest.mark.parametrize(("device", "mode"), [("GPU:0", "xla"), ("CPU:0", "xla"), ("GPU:0", "graph")])
def test_compiled_steps_of_another_batch_size_on_a_gpu_have_a_wider_range(device: str, mode: str) -> None:
    # GIVEN two recorded batch sizes, the second with requests of twice the size
    unknown = np.full(len(THREE_LAYERS), UNKNOWN_POWER)
    small = step(mode=mode, device=device, batch_power=unknown)
    large = dataclasses.replace(small, batch_size=8, allocated=2 * small.allocated, requested=2 * small.requested)
    recorded = make_case([], [small, large], 4, Change())
    assert (recorded.transient_bytes, recorded.method) == ((0, 0, 0), "replay")
    # WHEN another one is predicted: its chunks have three times the size, 11,520 B at most at a time
    other = make_case([], [small, large], 12, Change())
    assert [one.sizes.tolist() for one in other.most] == [(3 * small.requested).tolist()]
    wider = round(COMPILED_MARGIN * 3 * 11_520) if (device, mode) == ("GPU:0", "xla") else 0
    assert other.transient_bytes == (-wider, 0, wider)
    assert other.method == ("estimate" if wider else "two_sizes") and len(other.sentences) == bool(wider)
