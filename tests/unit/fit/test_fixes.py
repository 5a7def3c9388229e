"""Fixes of a failure, simulated from the steps that its session recorded before it."""

import dataclasses
import re
from collections.abc import Sequence

import pytest
import requests_cases
from reading_cases import DEVICE, MIB, make_oom
from requests_cases import CAPACITY, LAYERS, Program, make_table, make_traced, program_fits

import tb_memplugin
from tb_memplugin.fit import Conditions, Predictor, advice, recorded_program, with_advice
from tb_memplugin.fit.advice import simulated_fixes
from tb_memplugin.schema import FIX_KINDS, Fix, Oom, Run, format_bytes

BATCH = 48
OOM = dataclasses.replace(make_oom(18), capacity_bytes=100 * MIB, verdict="capacity", op=None, batch_size=BATCH)


def measured(run: Run, share: float, steps: slice = slice(1, None)) -> Run:
    """The run with other measured peaks; its first step, which made the optimizer's slots, keeps its own."""
    figures = run.samples.devices[DEVICE]
    peaks = figures.peak_bytes.copy()
    peaks[steps] = round(share * requests_cases.make_traced()[3].snapshot.in_use_bytes)
    devices = {DEVICE: dataclasses.replace(figures, peak_bytes=peaks)}
    return dataclasses.replace(run, samples=dataclasses.replace(run.samples, devices=devices))


def test_a_failure_has_the_fixes_that_pass(run: Run) -> None:
    found = advice(run, OOM)
    fixes = {fix.kind: fix for fix in found.fixes}
    assert {"batch", "accumulation", "limit"} <= set(fixes) and found.note is None
    # The training itself, of as many examples: see the tests of the simulation.
    batch = fixes["batch"].batch_size
    assert batch is not None and 4 < batch < BATCH
    program = requests_cases.Program(100 * MIB, batch)
    for step in range(12):
        program.step(step, first=not step)  # raises if a request fails
    told = with_advice(OOM, found)
    assert told.fixes == found.fixes and told.not_available == OOM.not_available


@pytest.mark.parametrize(("share", "word"), [(0.85, "above"), (1.18, "below")])
def test_a_simulation_that_misses_the_measured_peaks_gives_no_fix(run: Run, share: float, word: str) -> None:
    found = advice(measured(run, share), OOM)
    assert found.fixes == () and found.note is not None
    assert found.note.startswith("No fix could be simulated.")
    assert f"% {word} the median of the run's steps" in found.note
    assert with_advice(OOM, found).not_available == (*OOM.not_available, found.note)


def test_steps_after_the_failure_do_not_count(run: Run) -> None:
    assert advice(measured(run, 5.0, slice(18, None)), OOM) == advice(run, OOM)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"wall_time": OOM.wall_time - 100}, "no whole step was traced before."),
        ({"phase": None}, "no whole step was traced before."),
        ({"phase": "validation"}, "no whole step was traced before."),
        ({"batch_size": None}, "the batch size of the failed step is unknown."),
        ({"capacity_bytes": None}, "the allocator's capacity is unknown."),
    ],
)
def test_what_is_missing_is_named(run: Run, changes: dict[str, object], sentence: str) -> None:
    oom: Oom = dataclasses.replace(OOM, **changes)  # type: ignore[arg-type]
    assert advice(run, oom) == ((), f"No fix could be simulated: {sentence}")


def test_no_fix_contradicts_what_ran(run: Run) -> None:
    # GIVEN a failure at a capacity at which the recorded batch of 4 trained
    capacity = requests_cases.CAPACITY
    found = advice(run, dataclasses.replace(OOM, batch_size=1024, capacity_bytes=capacity))
    (batch,) = [fix for fix in found.fixes if fix.kind == "batch"]
    assert batch.batch_size is not None and batch.batch_size >= 4


def test_the_fix_passes_in_simulation_and_says_how_to_apply_it(refit: Run) -> None:
    (oom,) = refit.ooms
    (fix,) = (one for one in oom.fixes if one.kind == "recompute")
    assert oom.capacity_bytes is not None and fix.enough is True
    said = re.match(r"Recompute (\d+) segments? with \d+ layers .* Simulated peak: .* of 60.0 MiB", fix.sentence)
    assert said and fix.code is not None and fix.code.count('("') == int(said[1])
    # The training as it is fails; with the plan for the fix's budget it passes within the capacity.
    predictor = Predictor.of(refit, "CPU:0")
    assert oom.batch_size == 48 and not predictor.passes(48, oom.capacity_bytes)
    plan = tb_memplugin.plan(refit, budget=fix.budget_bytes)
    segments = tuple(tuple(f"{plan.model}/{name}" for name in segment) for segment in plan.segments)
    assert plan.fits and predictor.passes(48, oom.capacity_bytes, Conditions(recompute=segments))


STEPS = tuple(one.requests for one in make_traced().values())
TABLE = make_table()


def fixes(failed: Oom = OOM) -> dict[str, Fix]:
    predictor = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    found, reason = simulated_fixes(predictor, failed)
    assert reason is None and {fix.kind for fix in found} <= set(FIX_KINDS)
    return {fix.kind: fix for fix in found}


def test_the_failed_training_fails_and_every_simulated_fix_passes() -> None:
    assert not program_fits(OOM.batch_size, OOM.capacity_bytes)
    found = fixes()
    assert next(iter(found)) == "batch" and "one_piece" not in found
    batch, accumulated, limit = found["batch"], found["accumulation"], found["limit"]
    assert batch.enough and batch.batch_size is not None
    assert program_fits(batch.batch_size, OOM.capacity_bytes)
    assert not program_fits(round(1.12 * batch.batch_size), OOM.capacity_bytes)
    assert batch.change == f"Batch size {batch.batch_size}"
    assert batch.sentence.startswith(f"{batch.change} instead of 48. Simulated peak: ")
    for fix in (batch, accumulated, limit):
        assert fix.peak_bytes is not None and fix.peak_bytes <= (fix.capacity_bytes or OOM.capacity_bytes)
        assert f" peak: {format_bytes(fix.peak_bytes)} of " in fix.sentence
    assert accumulated.batch_size is not None and 48 % accumulated.batch_size == 0
    assert accumulated.batch_size <= batch.batch_size and accumulated.enough
    assert limit.capacity_bytes is not None and limit.capacity_bytes > OOM.capacity_bytes
    assert program_fits(48, limit.capacity_bytes) and not program_fits(48, round(0.8 * limit.capacity_bytes))
    assert program_fits(48, round(limit.capacity_bytes / 1.05))


def test_a_batch_of_one_example_has_no_smaller_one() -> None:
    found = fixes(dataclasses.replace(OOM, batch_size=1, capacity_bytes=6 * MIB))
    assert "batch" not in found and not any("1 instead of 1" in fix.sentence for fix in found.values())


def test_mixed_precision_is_an_estimate() -> None:
    precision = fixes(dataclasses.replace(OOM, batch_size=32))["precision"]
    assert precision.enough is None and "Estimate" in precision.sentence
    assert precision.change == "Mixed precision" and precision.peak_bytes is None


def test_accumulation_keeps_the_effective_batch() -> None:
    # 49 examples are 7 batches of 7, and nothing else
    accumulated = fixes(dataclasses.replace(OOM, batch_size=49))["accumulation"]
    assert accumulated.change == "Gradient accumulation over 7 batches of 7" and accumulated.batch_size == 7
    assert program_fits(7, OOM.capacity_bytes)
    of_a_prime = fixes(dataclasses.replace(OOM, batch_size=47))["accumulation"]
    assert of_a_prime.change == "Gradient accumulation over 47 batches of 1"


def test_after_fragmentation_the_same_memory_in_one_piece_is_tried() -> None:
    found = fixes(dataclasses.replace(OOM, verdict="fragmentation", device="GPU:0"))
    assert found["one_piece"].enough is False and "cuda_malloc_async" in found["one_piece"].sentence


def test_validation_has_fixes_without_training() -> None:
    steps = [dataclasses.replace(one, phase="validation") for one in STEPS]
    predictor = Predictor(recorded_program(steps, DEVICE, "validation"), TABLE.layers)
    found, _ = simulated_fixes(predictor, dataclasses.replace(OOM, phase="validation"))
    assert {fix.kind for fix in found} == {"batch", "limit"}


def test_where_even_one_example_is_too_much_that_is_said() -> None:
    weights = 4 * sum(parameters for _, _, parameters, _ in LAYERS)
    found = fixes(dataclasses.replace(OOM, capacity_bytes=2 * weights))
    assert found["batch"].enough is False and "even a batch size of 1" in found["batch"].sentence


@pytest.mark.parametrize(
    ("steps", "failed", "sentence"),
    [
        ((), OOM, "No fix could be simulated"),
        (
            STEPS,
            dataclasses.replace(OOM, capacity_bytes=CAPACITY, batch_size=4),
            "passes, so the simulation does not reproduce",
        ),
    ],
)
def test_without_a_simulation_that_fails_there_are_no_fixes(steps, failed, sentence) -> None:
    predictor = Predictor(recorded_program(steps, DEVICE), TABLE.layers)
    found, reason = simulated_fixes(predictor, failed)
    assert found == () and reason is not None and sentence in reason


LARGE = (*((f"net/dense{number}", True, 2_000_000, 400) for number in range(4)), ("net/head", True, 1_000, 400))
"""Layers whose weights and slots take most of the memory."""


def runs_with_frozen(count: int, capacity: int, layers: Sequence[tuple[str, bool, int, int]] = LARGE) -> bool:
    frozen = [(path, at >= count, weights, output) for at, (path, _, weights, output) in enumerate(layers)]
    try:
        program = Program(capacity, requests_cases.BATCH, layers=frozen)
        for step in range(6):
            program.step(step, first=not step)
    except AssertionError:
        return False
    return True


def freezing(capacity: int, layers: Sequence[tuple[str, bool, int, int]] = LARGE) -> Fix | None:
    assert not runs_with_frozen(0, capacity, layers)
    steps = tuple(one.requests for one in make_traced(layers=layers).values())
    table = make_table(layers)
    failed = dataclasses.replace(OOM, batch_size=requests_cases.BATCH, capacity_bytes=capacity)
    found, _ = simulated_fixes(Predictor(recorded_program(steps, DEVICE), table.layers), failed)
    return next((fix for fix in found if fix.kind == "freezing"), None)


@pytest.mark.parametrize("capacity_mib", [80, 96, 112])
def test_as_few_layers_as_needed_are_frozen(capacity_mib: int) -> None:
    fix = freezing(capacity_mib * MIB)
    several = re.match(r"Freeze the first (\d) trainable layers \(up to (.*)\)$", fix.change)
    count = int(several[1]) if several else 1
    assert fix.change.endswith(f"{LARGE[count - 1][0]})" if several else LARGE[0][0])
    # What is predicted is the most that a step may need: one layer more than the program needs may be frozen.
    assert runs_with_frozen(count, capacity_mib * MIB)
    assert not runs_with_frozen(max(0, count - 2), capacity_mib * MIB)


def test_where_freezing_all_but_the_last_layer_is_not_enough_it_is_no_fix() -> None:
    layers = (("net/dense", True, 500_000, 400), ("net/head", True, 6_000_000, 400))
    assert not runs_with_frozen(1, 60 * MIB, layers) and freezing(60 * MIB, layers) is None
    # AND the only trainable layer is never frozen
    assert freezing(60 * MIB, layers[1:]) is None
