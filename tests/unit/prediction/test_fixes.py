"""Simulated fixes of a failed training, each tried in the program itself."""

import dataclasses
import re
from collections.abc import Sequence

import pytest
from reading_cases import DEVICE, MIB
from requests_cases import BATCH, CAPACITY, LAYERS, Program, make_table, make_traced, program_fits

from tb_memplugin.analysis.fit.what_if_evidence import recorded_program
from tb_memplugin.model import FIX_KINDS, Fix
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.fixes import FailedTraining, simulated_fixes
from tb_memplugin.prediction.predictor import Predictor

STEPS = tuple(one.requests for one in make_traced().values())
TABLE = make_table()
FAILED = FailedTraining(batch_size=48, capacity_bytes=100 * MIB, verdict="capacity", is_gpu=False)


def fixes(failed: FailedTraining = FAILED) -> dict[str, Fix]:
    predictor = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    found, reason = simulated_fixes(predictor, TABLE.layers, failed)
    assert reason is None and {fix.kind for fix in found} <= set(FIX_KINDS)
    return {fix.kind: fix for fix in found}


def test_the_failed_training_fails_and_every_simulated_fix_passes() -> None:
    assert not program_fits(FAILED.batch_size, FAILED.capacity_bytes)
    found = fixes()
    assert next(iter(found)) == "batch" and "one_piece" not in found
    batch, accumulated, limit = found["batch"], found["accumulation"], found["limit"]
    assert batch.enough and batch.batch_size is not None
    assert program_fits(batch.batch_size, FAILED.capacity_bytes)
    assert not program_fits(round(1.12 * batch.batch_size), FAILED.capacity_bytes)
    assert batch.change == f"Batch size {batch.batch_size}"
    assert batch.sentence.startswith(f"{batch.change} instead of 48. Simulated peak: ")
    for fix in (batch, accumulated, limit):
        assert fix.peak_bytes is not None and fix.peak_bytes <= (fix.capacity_bytes or FAILED.capacity_bytes)
        assert f" peak: {format_bytes(fix.peak_bytes)} of " in fix.sentence
    assert accumulated.batch_size is not None and 48 % accumulated.batch_size == 0
    assert accumulated.batch_size <= batch.batch_size and accumulated.enough
    assert limit.capacity_bytes is not None and limit.capacity_bytes > FAILED.capacity_bytes
    assert program_fits(48, limit.capacity_bytes) and not program_fits(48, round(0.8 * limit.capacity_bytes))
    # AND it has a reserve of 5 %
    assert program_fits(48, round(limit.capacity_bytes / 1.05))


def test_a_batch_of_one_example_has_no_smaller_one() -> None:
    found = fixes(dataclasses.replace(FAILED, batch_size=1, capacity_bytes=6 * MIB))
    assert "batch" not in found and not any("1 instead of 1" in fix.sentence for fix in found.values())


def test_mixed_precision_is_an_estimate() -> None:
    precision = fixes(dataclasses.replace(FAILED, batch_size=32))["precision"]
    assert precision.enough is None and "Estimate" in precision.sentence
    assert precision.change == "Mixed precision" and precision.peak_bytes is None


def test_accumulation_keeps_the_effective_batch() -> None:
    # 49 examples are 7 batches of 7, and nothing else
    accumulated = fixes(dataclasses.replace(FAILED, batch_size=49))["accumulation"]
    assert accumulated.change == "Gradient accumulation over 7 batches of 7" and accumulated.batch_size == 7
    assert program_fits(7, FAILED.capacity_bytes)
    of_a_prime = fixes(dataclasses.replace(FAILED, batch_size=47))["accumulation"]
    assert of_a_prime.change == "Gradient accumulation over 47 batches of 1"


def test_a_training_in_half_precision_is_not_advised_it() -> None:
    layers = [dataclasses.replace(layer, output_dtype="float16") for layer in TABLE.layers]
    found, _ = simulated_fixes(Predictor(recorded_program(STEPS, DEVICE), layers), layers, FAILED)
    assert found and "precision" not in {fix.kind for fix in found}


def test_after_fragmentation_the_same_memory_in_one_piece_is_tried() -> None:
    found = fixes(dataclasses.replace(FAILED, verdict="fragmentation", is_gpu=True))
    assert found["one_piece"].enough is False and "cuda_malloc_async" in found["one_piece"].sentence


def test_validation_has_fixes_without_training() -> None:
    steps = [dataclasses.replace(one, phase="validation") for one in STEPS]
    predictor = Predictor(recorded_program(steps, DEVICE, "validation"), TABLE.layers)
    found, _ = simulated_fixes(predictor, TABLE.layers, dataclasses.replace(FAILED, is_training=False))
    assert {fix.kind for fix in found} == {"batch", "limit"}


def test_where_even_one_example_is_too_much_that_is_said() -> None:
    weights = 4 * sum(parameters for _, _, parameters, _ in LAYERS)
    found = fixes(dataclasses.replace(FAILED, capacity_bytes=2 * weights))
    assert found["batch"].enough is False and "even a batch size of 1" in found["batch"].sentence


@pytest.mark.parametrize(
    ("steps", "failed", "sentence"),
    [
        ((), FAILED, "No fix could be simulated"),
        (
            STEPS,
            dataclasses.replace(FAILED, capacity_bytes=CAPACITY, batch_size=4),
            "passes, so the simulation does not reproduce",
        ),
    ],
)
def test_without_a_simulation_that_fails_there_are_no_fixes(
    steps: tuple, failed: FailedTraining, sentence: str
) -> None:
    predictor = Predictor(recorded_program(steps, DEVICE), TABLE.layers)
    found, reason = simulated_fixes(predictor, TABLE.layers, failed)
    assert found == () and reason is not None and sentence in reason


LARGE = (*((f"net/dense{number}", True, 2_000_000, 400) for number in range(4)), ("net/head", True, 1_000, 400))
"""Layers whose weights and slots take most of the memory."""


def runs_with_frozen(count: int, capacity: int, layers: Sequence[tuple[str, bool, int, int]] = LARGE) -> bool:
    """Whether the program itself runs with its first layers frozen."""
    frozen = [(path, at >= count, weights, output) for at, (path, _, weights, output) in enumerate(layers)]
    try:
        program = Program(capacity, BATCH, layers=frozen)
        for step in range(6):
            program.step(step, first=not step)
    except AssertionError:
        return False
    return True


def freezing(capacity: int, layers: Sequence[tuple[str, bool, int, int]] = LARGE) -> Fix | None:
    """The fix by freezing, of a training whose weights and slots do not fit."""
    assert not runs_with_frozen(0, capacity, layers)
    steps = tuple(one.requests for one in make_traced(layers=layers).values())
    table = make_table(layers)
    failed = FailedTraining(batch_size=BATCH, capacity_bytes=capacity, verdict="capacity", is_gpu=False)
    found, _ = simulated_fixes(Predictor(recorded_program(steps, DEVICE), table.layers), table.layers, failed)
    return next((fix for fix in found if fix.kind == "freezing"), None)


@pytest.mark.parametrize("capacity_mib", [80, 96, 112])
def test_as_few_layers_as_needed_are_frozen(capacity_mib: int) -> None:
    fix = freezing(capacity_mib * MIB)
    assert fix is not None
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
