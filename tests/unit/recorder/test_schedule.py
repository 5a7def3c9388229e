"""The selection of steps to trace."""

import itertools

import pytest

from tb_memplugin.model import PHASES
from tb_memplugin.recorder.tracing.schedule import TraceSchedule

STEP_SECONDS = 0.1
TRACE_SECONDS = 0.02


def simulate(
    schedule: TraceSchedule, steps: int, peak: object = lambda step: 100, change_at: int | None = None
) -> list[int]:
    """Steps that were traced in a training of `steps` steps, the first of which compiles."""
    traced, elapsed = [], 0.0
    for step in range(steps):
        if step == change_at:
            schedule.changed()
        wanted = schedule.wants("train", step, elapsed)
        elapsed += STEP_SECONDS + (TRACE_SECONDS if wanted else 0)
        if wanted == "learn":
            schedule.record_cost("train", TRACE_SECONDS)
        elif wanted == "trace":
            traced.append(step)
            schedule.traced("train", peak(step), TRACE_SECONDS)
        elif step in (0, change_at):
            schedule.compiled("train")
        else:
            schedule.step_done("train", peak(step))
    return traced


def test_the_step_after_the_compiling_one_is_traced() -> None:
    assert simulate(TraceSchedule(0.005), 20)[0] == 1


def test_beside_other_workers_exactly_the_requested_steps_are_traced() -> None:
    schedule = TraceSchedule(0.005, [3, 7], learns=False)
    assert [(step, wish) for step in range(10) if (wish := schedule.wants("train", step, 1.0))] == [
        (3, "trace"),
        (7, "trace"),
    ]


def test_the_compiling_step_of_training_is_traced_to_learn() -> None:
    schedule = TraceSchedule(0.005)
    assert schedule.wants("train", 0, 0.0) == "learn"
    schedule.record_cost("train", TRACE_SECONDS)
    assert schedule.wants("train", 1, 0.1) == "trace"
    assert TraceSchedule(0.0).wants("train", 0, 0.0) is None


@pytest.mark.parametrize("phase", PHASES)
def test_the_first_step_of_every_phase_is_traced_to_learn(phase: str) -> None:
    schedule = TraceSchedule(0.005)
    schedule.traced("train" if phase != "train" else "predict", 100, TRACE_SECONDS)
    assert schedule.wants(phase, 0, 0.1) == "learn"
    schedule.record_cost(phase, TRACE_SECONDS)
    assert schedule.wants(phase, 1, 0.2) == "trace"


def test_with_named_steps_the_first_training_step_is_traced_to_learn() -> None:
    schedule = TraceSchedule(0.0, [3])
    assert schedule.wants("validation", 0, 0.0) is None
    assert schedule.wants("train", 0, 0.0) == "learn"
    schedule.record_cost("train", TRACE_SECONDS)
    assert [schedule.wants("train", step, 0.1 * step) for step in (1, 2, 3)] == [None, None, "trace"]


def test_a_named_first_step_is_traced_for_its_ledger_and_no_named_steps_trace_nothing() -> None:
    assert TraceSchedule(0.0, [0]).wants("train", 0, 0.0) == "trace"
    assert TraceSchedule(0.005, []).wants("train", 0, 0.0) is None


def test_overhead_stays_within_budget_over_a_long_run() -> None:
    # GIVEN a budget of half a percent WHEN 20,000 steps run
    traced = simulate(TraceSchedule(0.005), 20_000)
    # THEN traces use at least half of the budget and no more than all of it
    spent = len(traced) * TRACE_SECONDS
    share = spent / (20_000 * STEP_SECONDS + spent)
    assert 0.0025 < share <= 0.005
    # AND they are spread over the run, not spent at its beginning
    gaps = [later - earlier for earlier, later in itertools.pairwise(traced)]
    assert max(gaps[1:]) <= 3 * min(gaps[1:])


def test_a_change_of_the_layer_table_is_traced_again() -> None:
    traced = simulate(TraceSchedule(0.005), 30, change_at=20)
    assert traced == [1, 21]


def test_a_new_highest_peak_is_traced_before_the_next_regular_trace() -> None:
    # GIVEN a budget that allows one more trace at about step 120 and a regular one at step 160
    plain = simulate(TraceSchedule(0.005), 200)
    grown = simulate(TraceSchedule(0.005), 200, peak=lambda step: 200 if step >= 130 else 100)
    # THEN the run whose peak grew is traced earlier
    assert plain[0] == 1 and plain[1] > 150
    assert grown[:2] == [1, 131]


def test_no_overhead_traces_nothing() -> None:
    assert simulate(TraceSchedule(0.0), 1000) == []


def test_named_steps_are_traced_and_no_others() -> None:
    assert simulate(TraceSchedule(0.005, [3, 500]), 1000) == [3, 500]
    assert simulate(TraceSchedule(0.0, [0]), 10) == [0]


def test_phases_have_their_own_first_trace() -> None:
    schedule = TraceSchedule(0.005)
    schedule.compiled("train")
    schedule.traced("train", 100, TRACE_SECONDS)
    schedule.compiled("validation")
    assert schedule.wants("validation", 5, 0.5)
