"""Predictions from a small recorded training, whose other sizes are made by the same program."""

import dataclasses
import sys
from types import FrameType

import numpy as np
import pytest
from reading_cases import DEVICE, MIB
from requests_cases import BATCH, CAPACITY, LAYERS, Program, make_table, make_traced, program_fits

from tb_memplugin.fit import (
    Conditions,
    Evidence,
    Predictor,
    Reproduced,
    SizedStep,
    peak_in_one_piece,
    recorded_program,
    reproduce,
)
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.fit.evidence import Ran
from tb_memplugin.fit.predictor import RESERVE
from tb_memplugin.fit.simulation import History, exploratory_rows, start_map
from tb_memplugin.schema import UNKNOWN_POWER, StepRequests

TRACED = make_traced()
STEPS = tuple(one.requests for one in TRACED.values())
TABLE = make_table()
LAST = STEPS[-1]


def predictor(steps: tuple[StepRequests, ...] = STEPS, measured: int | None = None) -> Predictor:
    return Predictor(recorded_program(steps, DEVICE), TABLE.layers, measured)


def real_peak(batch: int, capacity: int = 64 * CAPACITY) -> int:
    program = Program(capacity, batch)
    return [program.step(step, first=not step).snapshot.in_use_bytes for step in range(4)][-1]


def moved(requests: StepRequests) -> StepRequests:
    """The step with its last allocation at an address that the rules would not choose."""
    row = int(np.argmax(requests.birth))
    address = requests.address.copy()
    address[row] += 256
    return dataclasses.replace(requests, address=address)


def test_the_replay_of_a_recorded_step_reproduces_every_address() -> None:
    for requests in STEPS:
        replay = reproduce(requests)
        assert replay.whole and replay.of == int((requests.birth >= 0).sum()) > 5
    assert reproduce(moved(LAST)) == Reproduced(reproduce(LAST).of - 1, reproduce(LAST).of)


def test_the_start_map_is_that_of_the_allocator() -> None:
    taken = start_map(LAST)
    assert taken.in_use_bytes == int(LAST.allocated[LAST.birth < 0].sum())
    assert taken.pool_bytes == int(taken.bytes.sum()) == int(LAST.region_bytes.sum())
    ends = taken.address + taken.bytes
    inside = taken.region[1:] == taken.region[:-1]
    assert (ends[:-1][inside] == taken.address[1:][inside]).all()


def test_a_history_of_the_recorded_steps_has_their_peaks() -> None:
    from tb_memplugin.allocator import PoolRules

    outcome = History([SizedStep(one, one.requested) for one in STEPS], PoolRules(CAPACITY)).run([0, 1, 2])
    assert outcome.failed is None
    assert [peak.bytes for peak in outcome.peaks] == [one.snapshot.in_use_bytes for one in TRACED.values()]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 16, 32])
def test_another_batch_size_has_the_peak_of_a_training_with_it(batch: int) -> None:
    prediction = predictor().predict(Conditions(batch_size=batch))
    assert prediction.method == "replay" and prediction.reproduced.whole
    assert prediction.peak_bytes == pytest.approx(real_peak(batch), rel=0.02)
    assert prediction.low_bytes <= real_peak(batch) <= prediction.high_bytes
    assert sum(row.bytes for row in prediction.ledger) <= prediction.high_bytes
    held = {(row.layer, row.category): row.bytes for row in prediction.ledger}
    for path, trainable, parameters, _ in LAYERS:
        assert held[path, "weights"] == 4 * parameters
        assert held.get((path, "optimizer_state"), 0) == (8 * parameters if trainable else 0)
    assert held[None, "inputs"] == 12_288 * batch


def test_the_recorded_conditions_are_predicted_as_they_were() -> None:
    prediction = predictor().predict(Conditions())
    assert (prediction.batch_size, prediction.capacity_bytes, prediction.fits) == (BATCH, CAPACITY, True)
    assert prediction.peak_bytes == pytest.approx(TRACED[3].snapshot.in_use_bytes, rel=0.01)


def test_the_range_is_at_least_as_wide_as_the_recorded_steps_differ() -> None:
    # GIVEN steps whose convolutions overlap now and then
    peak = real_peak(BATCH)
    evidence = Evidence({BATCH: Ran(Interval(round(0.8 * peak), peak, round(1.4 * peak)), CAPACITY)})
    before, after = (of.predict(Conditions(batch_size=32)) for of in (predictor(), predictor().bounded_by(evidence)))
    assert after.peak_bytes == before.peak_bytes
    assert before.high_bytes < 1.39 * real_peak(32) <= after.high_bytes
    assert before.low_bytes > 0.81 * real_peak(32) >= after.low_bytes


@pytest.mark.parametrize("share", [0.92, 1.08])
def test_the_range_reaches_as_far_as_the_simulation_of_the_recorded_training_misses_its_peak(share: float) -> None:
    exact, missed = (predictor(measured=measured) for measured in (None, round(real_peak(BATCH) * share)))
    for batch in (BATCH, 4 * BATCH):
        before, after = (of.predict(Conditions(batch_size=batch)) for of in (exact, missed))
        measured = round(real_peak(batch) * share)
        assert not before.low_bytes <= measured <= before.high_bytes
        assert after.low_bytes <= measured <= after.high_bytes
        assert (after.peak_bytes, share < 1) == (before.peak_bytes, after.high_bytes == before.high_bytes)
        assert (after.low_bytes == before.low_bytes) == (share > 1)


@pytest.mark.parametrize("mib", [24, 32, 48, 64, 96, 160])
def test_a_training_fits_or_fails_as_it_really_does(mib: int) -> None:
    for batch in (2, 4, 8, 16, 24, 40):
        prediction = predictor().predict(Conditions(batch_size=batch, capacity_bytes=mib * MIB))
        if prediction.fits is not None:
            assert prediction.fits == program_fits(batch, mib * MIB, 6), (batch, prediction)
        assert (prediction.fails_at is not None) == (prediction.fits is False)


@pytest.mark.parametrize("mib", [40, 64, 100, 200])
def test_the_largest_batch_size_passes_and_is_close_to_the_real_one(mib: int) -> None:
    advised = predictor().largest_batch_size(Conditions(capacity_bytes=mib * MIB))
    assert advised is not None and program_fits(advised, mib * MIB, 6)
    largest = max(size for size in range(1, 400) if program_fits(size, mib * MIB, 6))
    assert advised >= 0.93 * largest - 1


def test_freezing_and_optimizers_change_what_follows_from_weights_exactly() -> None:
    def state(conditions: Conditions) -> int:
        return sum(row.bytes for row in predictor().predict(conditions).ledger if row.category == "optimizer_state")

    trained = {path: parameters for path, trainable, parameters, _ in LAYERS if trainable}
    assert state(Conditions()) == 8 * sum(trained.values())
    assert state(Conditions(freeze="*conv2")) == 8 * trained["net/head"]
    assert state(Conditions(optimizer="sgd")) == 0
    before, after = (predictor().predict(one) for one in (Conditions(), Conditions(freeze="*conv2")))
    assert after.method == "estimate"
    assert after.assumptions == (
        "Optimizer state and weight gradients of 1 layer are removed. Layers before the first trained one may save no "
        "activations; the range covers both.",
    )
    assert before.peak_bytes - after.peak_bytes >= 8 * trained["net/conv2"]
    assert state(Conditions(optimizer="momentum")) == 4 * sum(trained.values())
    assert state(Conditions(unfreeze="*conv1")) == 8 * (sum(trained.values()) + LAYERS[0][2])
    thawed = predictor().predict(Conditions(unfreeze="*conv1"))
    assert thawed.low_bytes < before.peak_bytes + 3 * 4 * LAYERS[0][2] <= thawed.high_bytes
    assert "Weights of 1 layer become trainable, with 2 slots for each." in thawed.assumptions[0]
    momentum = predictor().predict(Conditions(optimizer="momentum", freeze="*"))
    assert momentum.assumptions[0].startswith("Optimizer state and weight gradients of 2 layers are removed.")
    assert momentum.assumptions[1].startswith("momentum keeps 1 slot for each trainable weight.")
    nothing = predictor().predict(Conditions(freeze="nothing like it"))
    assert any("nothing is frozen" in one for one in nothing.assumptions)


def test_sizes_that_do_not_follow_from_the_batch_have_a_range_or_come_from_a_second_size() -> None:
    def blurred(requests: StepRequests) -> StepRequests:
        scratch = np.asarray([bool(op.endswith("forward")) for op in (*requests.ops, "")])[requests.op]
        return dataclasses.replace(requests, batch_power=np.where(scratch, UNKNOWN_POWER, requests.batch_power))

    one_size = tuple(map(blurred, STEPS))
    estimate = predictor(one_size).predict(Conditions(batch_size=16))
    assert estimate.method == "estimate" and estimate.low_bytes < 0.8 * real_peak(16)
    assert estimate.low_bytes <= real_peak(16) <= estimate.high_bytes
    assert any("A second recorded batch size" in one for one in estimate.assumptions)
    program = Program(CAPACITY, 8)
    program.step(0, first=True)
    second = blurred(dataclasses.replace(program.step(1).requests, step=9))
    known = predictor((*one_size, second)).predict(Conditions(batch_size=16))
    assert known.method == "two_sizes" and known.peak_bytes == pytest.approx(real_peak(16), rel=0.03)


@pytest.mark.parametrize(
    ("steps", "conditions", "sentence"),
    [
        ((), Conditions(), "no traced training step"),
        ((*STEPS[:-1], moved(LAST)), Conditions(), "addresses"),
        (
            tuple(dataclasses.replace(one, batch_size=None) for one in STEPS),
            Conditions(batch_size=8),
            "their batch size",
        ),
        (tuple(dataclasses.replace(one, mode="xla") for one in STEPS), Conditions(batch_size=8), "compiled"),
        (tuple(dataclasses.replace(one, capacity_bytes=None) for one in STEPS), Conditions(), "capacity is unknown"),
        (STEPS, Conditions(batch_size=0), "a batch size is"),
        (STEPS, Conditions(batch_size=-3), "a batch size is"),
        (STEPS, Conditions(batch_size=1 << 40), "a batch size is"),
    ],
)
def test_without_what_a_prediction_needs_there_is_a_sentence(steps, conditions, sentence) -> None:
    prediction = predictor(steps).predict(conditions)
    assert (prediction.method, prediction.peak_bytes, prediction.fits, prediction.ledger) == ("unknown", None, None, ())
    assert sentence in prediction.assumptions[0]


def test_a_simulation_that_misses_the_measured_peak_predicts_nothing() -> None:
    peak = TRACED[3].snapshot.in_use_bytes
    assert predictor(measured=peak).predict(Conditions(batch_size=8)).method == "replay"
    prediction = predictor(measured=round(0.8 * peak)).predict(Conditions(batch_size=8))
    assert prediction.method == "unknown" and "25 % above" in prediction.assumptions[0]


def test_only_steps_since_the_last_change_count_and_only_of_the_device_and_phase() -> None:
    later = tuple(dataclasses.replace(one, step=one.step + 10) for one in STEPS)
    validation = dataclasses.replace(LAST, phase="validation", step=4)
    other = dataclasses.replace(LAST, device="GPU:7", step=5)
    assert recorded_program((*STEPS, validation, other, *later), DEVICE) == later
    assert recorded_program((*STEPS, later[0]), DEVICE) == STEPS  # no whole step is known since the change
    assert recorded_program((), DEVICE) == ()
    assert recorded_program((validation,), DEVICE, "validation") == (validation,)


def test_requests_in_one_piece_need_no_more_than_the_allocator() -> None:
    for one in TRACED.values():
        assert peak_in_one_piece(SizedStep(one.requests, one.requests.requested)) <= one.snapshot.in_use_bytes


def test_algorithms_that_a_gpu_only_tries_out_in_the_first_step_may_lack_memory() -> None:
    # GIVEN a training whose first step tries algorithms with 100 MiB of scratch space
    program = Program(CAPACITY)
    steps = [program.step(step, first=not step, explored=0 if step else 100 * MIB).requests for step in range(3)]
    on_gpu = tuple(dataclasses.replace(one, device="GPU:0") for one in steps)
    tried = exploratory_rows(on_gpu[0], on_gpu[1:])
    assert sorted(on_gpu[0].requested[list(tried)].tolist()) == [1000] * 3 + [100 * MIB] * 3
    capacity = 64 * MIB
    assert Predictor(recorded_program(on_gpu, "GPU:0"), TABLE.layers).passes(BATCH, capacity)
    within = Conditions(capacity_bytes=capacity)
    largest = Predictor(recorded_program(on_gpu, "GPU:0"), TABLE.layers).largest_batch_size(within)
    assert largest and predictor().largest_batch_size(within) == pytest.approx(largest, rel=0.05)
    assert not predictor(tuple(steps)).passes(BATCH, capacity)
    assert exploratory_rows(steps[0], steps[1:]) == frozenset() == exploratory_rows(on_gpu[1], on_gpu[2:])
    # whatever the worker is called
    of_workers = {name: dataclasses.replace(steps[0], device=name) for name in ("a/GPU:0", "GPU-1/CPU:0")}
    assert exploratory_rows(of_workers["a/GPU:0"], steps[1:]) == tried
    assert exploratory_rows(of_workers["GPU-1/CPU:0"], steps[1:]) == frozenset()


def test_which_requests_may_fail_does_not_depend_on_the_batch_size_that_is_asked_for_first() -> None:
    # GIVEN a first step that tries algorithms with 100 MiB, which a later step of another batch size really uses
    program, larger = Program(CAPACITY), Program(2 * CAPACITY, 2 * BATCH)
    steps = [program.step(step, first=not step, explored=0 if step else 100 * MIB).requests for step in range(3)]
    larger.step(0, first=True)
    steps.insert(1, larger.step(1, explored=100 * MIB).requests)
    on_gpu = recorded_program((dataclasses.replace(one, device="GPU:0") for one in steps), "GPU:0")
    asked = [(BATCH, 64 * MIB), (2 * BATCH, 2 * CAPACITY)]
    answers = []
    for order in (asked, asked[::-1]):
        # WHEN the batch sizes are asked for in one order and in the other, of runs that were just loaded
        of = Predictor([dataclasses.replace(one) for one in on_gpu], TABLE.layers)
        answers.append({question: of.passes(*question) for question in order})
    assert answers[0] == answers[1] == {asked[0]: False, asked[1]: True}


FAILING, TOO_LITTLE = 48, 100 * MIB
"""A batch size, and a capacity that is not enough for it."""


def test_a_capacity_is_enough_and_not_far_above_the_least() -> None:
    of = predictor()
    enough = of.enough_capacity(FAILING, TOO_LITTLE)
    assert enough is not None and enough.bytes > TOO_LITTLE and enough.bytes % MIB == 0
    # THEN the program runs within it, and in the part of it that is no reserve
    assert enough.without_reserve_bytes * (1 + RESERVE) < enough.bytes
    for capacity, runs in (
        (enough.bytes, True),
        (round(enough.bytes / (1 + RESERVE)), True),
        (enough.without_reserve_bytes, True),
        (TOO_LITTLE, False),
        (round(0.8 * enough.bytes), False),
    ):
        assert program_fits(FAILING, capacity) is runs
    assert of.predict(Conditions(batch_size=FAILING, capacity_bytes=enough.bytes)).fits is True
    # AND other conditions count, and a tiny capacity is no limit of the search
    frozen = of.enough_capacity(FAILING, TOO_LITTLE, Conditions(freeze="*"))
    assert frozen is not None and frozen.bytes < enough.bytes
    from_one = of.enough_capacity(FAILING, 1)
    assert from_one is not None and program_fits(FAILING, from_one.bytes)


def test_the_failed_request_says_what_was_free() -> None:
    failed = predictor().predict(Conditions(batch_size=FAILING, capacity_bytes=TOO_LITTLE)).fails_at
    assert failed is not None and 0 <= failed.largest_free_bytes <= failed.free_bytes < TOO_LITTLE
    # The allocator fails only if no free chunk is large enough.
    assert failed.largest_free_bytes < failed.requested_bytes
    assert predictor().predict(Conditions(batch_size=4, capacity_bytes=TOO_LITTLE)).fails_at is None


ASKED = (
    Conditions(batch_size=16),
    Conditions(batch_size=16, freeze="*conv2"),
    Conditions(batch_size=16, unfreeze="*conv1", optimizer="sgd"),
    Conditions(batch_size=16, precision="mixed_float16", capacity_bytes=1 << 30),
)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_prediction_passes_each_module_about_once(asked: Conditions) -> None:
    """A visit is a run of consecutive calls inside one module of the room; a step back is one to a module left before.

    The calls of the allocator and of the schema, which thousands of requests make, are left out, and so are what a
    predictor finds once, whether the recording can be simulated and the largest batch size, and the request that fails.
    """
    of = predictor()
    of.predict(dataclasses.replace(asked, batch_size=8))
    visits: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        folder, _, module = frame.f_code.co_filename.rpartition("/")
        if event == "call" and folder.endswith("tb_memplugin/fit") and visits[-1:] != [module]:
            visits.append(module)

    sys.setprofile(profile)
    try:
        of.predict(asked)
    finally:
        sys.setprofile(None)
    assert len(set(visits)) == 7 and len(visits) <= 10 and len(visits) - len(set(visits)) <= 3, visits
