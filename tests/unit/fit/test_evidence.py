"""A prediction never contradicts what was recorded."""

import dataclasses

import pytest
from reading_cases import DEVICE, MIB, make_oom
from requests_cases import BATCH, CAPACITY, make_table, make_traced

from tb_memplugin.fit import Conditions, Evidence, Predictor, recorded_program
from tb_memplugin.fit.advice import simulated_fixes
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.fit.evidence import Failure, Ran
from tb_memplugin.fit.predictor import largest
from tb_memplugin.schema import Layer, recorded_precision

STEPS = tuple(one.requests for one in make_traced().values())
LAYERS = make_table().layers
PEAK = Interval(20 * MIB, 22 * MIB, 23 * MIB)


def ran(capacity: int | None) -> Ran:
    return Ran(PEAK, capacity)


def predictor(evidence: Evidence = Evidence(), layers: tuple[Layer, ...] = LAYERS) -> Predictor:  # noqa: B008
    return Predictor(recorded_program(STEPS, DEVICE), layers, evidence=evidence)


@pytest.mark.parametrize(
    ("batch", "capacity", "fits"),
    [
        (16, 100, True),
        (8, 100, True),
        (16, 101, True),
        (16, 99, None),
        (17, 100, None),
        (24, 100, False),
        (48, 100, False),
        (24, 90, False),
        (24, 101, None),
        (None, 100, None),
        (16, None, None),
    ],
)
def test_smaller_batches_fit_and_larger_ones_fail(batch: int | None, capacity: int | None, fits: bool | None) -> None:
    failures = (Failure(24, 100, 7), Failure(32, 100, 9))
    assert Evidence({16: ran(100), 4: ran(100)}, failures).fits(batch, capacity) is fits


def test_steps_before_a_failure_prove_nothing_for_a_leak() -> None:
    leaking = Evidence({16: ran(100), 4: ran(100)}, (Failure(16, 100, 402),))
    assert leaking.fits(16, 100) is False and leaking.largest(100) == 0
    assert leaking.about(16, 100)[1] == ["Recorded: batch size 16 ran out of memory in step 402, with 100 B."]
    assert leaking.fits(32, 100) is False
    # THEN neither a smaller batch nor a larger capacity is proven: both last longer, and no more is known
    assert leaking.fits(8, 100) is None and leaking.fits(4, 100) is None and leaking.fits(16, 200) is None
    # AND of a run that only grows so far nothing is
    assert Evidence({16: ran(100)}, growth="Unknown: memory grows.").fits(16, 100) is None


def test_a_failure_and_a_success_count_under_their_own_capacity() -> None:
    # GIVEN a batch of 32 that failed on a card with 16 bytes, and ran with 40
    moved = Evidence({8: ran(16), 32: ran(40)}, (Failure(32, 16, 5),))
    assert [moved.fits(32, capacity) for capacity in (16, 17, 39, 40)] == [False, None, None, True]
    assert [moved.fits(8, capacity) for capacity in (15, 16, 40)] == [None, True, True]
    assert moved.fits(64, 40) is None and moved.fits(64, 16) is False
    assert moved.about(32, 16)[1] == ["Recorded: batch size 32 ran out of memory in step 5, with 16 B."]
    assert moved.about(16, 40)[1] == ["Recorded: batch size 32 ran within 40 B."]
    assert moved.largest(16) == 8 and moved.smallest_failed(16) == 32 and moved.smallest_failed(40) is None
    # A capacity that was not recorded proves nothing.
    assert Evidence({8: ran(None)}, (Failure(32, None, 5),)).fits(8, 40) is None
    assert Evidence({8: ran(None)}, (Failure(32, None, 5),)).fits(32, 16) is None


def test_a_growing_run_is_told_to_fix_the_leak_first() -> None:
    growth = "Unknown: memory grows by 2.0 MiB in each step. Fix the leak first."
    of = predictor(Evidence({BATCH: ran(CAPACITY)}, growth=growth))
    for conditions in (Conditions(), Conditions(batch_size=2 * BATCH), Conditions(capacity_bytes=2 * CAPACITY)):
        answer = of.predict(conditions)
        assert (answer.fits, answer.peak_bytes, answer.method) == (None, None, "unknown")
        assert answer.assumptions == (growth,)
    assert of.largest_batch_size(Conditions()) is None


def test_recorded_conditions_are_answered_as_recorded() -> None:
    answer = predictor(Evidence({BATCH: ran(CAPACITY)})).predict(Conditions())
    assert (answer.low_bytes, answer.peak_bytes, answer.high_bytes) == (20 * MIB, 22 * MIB, 23 * MIB)
    assert answer.fits is True and answer.method == "recorded" and not answer.assumptions
    # AND a median of steps that need less than the traced one is no peak below what is live in that
    less = predictor(Evidence({BATCH: Ran(Interval(MIB, 2 * MIB, 23 * MIB), CAPACITY)})).predict(Conditions())
    assert less.peak_bytes == less.demand_bytes == sum(row.bytes for row in less.ledger)
    assert not any(row.bytes < 0 for row in less.ledger)
    assert sum(row.bytes for row in answer.ledger) == answer.peak_bytes
    # AND the simulation is asked about everything else
    for other in (Conditions(batch_size=2 * BATCH), Conditions(capacity_bytes=CAPACITY // 2), Conditions(freeze="c")):
        assert predictor(Evidence({BATCH: ran(CAPACITY)})).predict(other).method != "recorded"


def test_a_batch_size_that_ran_fits_whatever_the_simulation_says() -> None:
    tight = 24 * MIB
    simulated = predictor().predict(Conditions(batch_size=BATCH, capacity_bytes=tight))
    known = predictor(Evidence({BATCH: ran(tight), 2 * BATCH: ran(tight)}))
    assert simulated.fits is not True and known.predict(Conditions(capacity_bytes=tight)).fits is True
    smaller = known.predict(Conditions(batch_size=BATCH + 1, capacity_bytes=tight))
    assert smaller.fits is True and smaller.assumptions[0] == "Recorded: batch size 8 ran within 24.0 MiB."
    low = Interval(19 * MIB, 20 * MIB, 21 * MIB)
    # AND its range may reach beyond the peaks of the larger one, which few steps show, but not beyond the capacity
    highs = []
    for size in (CAPACITY, 22 * MIB):
        asked = Conditions(batch_size=BATCH, capacity_bytes=size)
        highs.append(predictor(Evidence({2 * BATCH: Ran(low, size)})).predict(asked).high_bytes)
    assert low.high_bytes < 22 * MIB == highs[1] < (highs[0] or 0)
    assert known.passes(2 * BATCH, tight) and known.largest_batch_size(Conditions(capacity_bytes=tight)) == 2 * BATCH
    # AND its peaks and their breakdown are the recorded ones, whatever the capacity
    peaks = known.peaks(Conditions(batch_size=BATCH))
    assert peaks.peak == PEAK and peaks.ledger == known.predict(Conditions()).ledger
    assert sum(row.bytes for row in peaks.ledger) == 22 * MIB
    assert known.predict(Conditions(capacity_bytes=tight - 1)).peak_bytes == 22 * MIB


def test_a_batch_size_that_failed_does_not_fit_whatever_the_simulation_says() -> None:
    known = predictor(Evidence({BATCH: ran(CAPACITY)}, (Failure(12, CAPACITY, 5),)))
    free = predictor().largest_batch_size(Conditions())
    assert free is not None and free > 12 and predictor().predict(Conditions(batch_size=12)).fits is True
    answer = known.predict(Conditions(batch_size=12))
    assert answer.fits is False
    assert answer.assumptions[0] == "Recorded: batch size 12 ran out of memory in step 5, with 256 MiB."
    larger = Conditions(capacity_bytes=2 * CAPACITY)
    assert known.largest_batch_size(Conditions()) == 11
    assert known.largest_batch_size(larger) == predictor().largest_batch_size(larger)


def half(dtype: str = "float16") -> tuple[Layer, ...]:
    return (*(dataclasses.replace(layer, output_dtype=dtype) for layer in LAYERS[:-1]), LAYERS[-1])


def test_the_layers_show_the_recorded_precision() -> None:
    assert recorded_precision(LAYERS) == "float32"
    assert recorded_precision(half()) == "mixed_float16" and recorded_precision(half("bfloat16")) == "mixed_bfloat16"
    weights = [dataclasses.replace(layer, weight_bytes=2 * layer.parameters) for layer in half()]
    assert recorded_precision(weights[:-1]) == "float16" and recorded_precision(()) is None


def test_the_recorded_precision_changes_nothing() -> None:
    plain = predictor(layers=half()).predict(Conditions(batch_size=8))
    asked = predictor(layers=half()).predict(Conditions(batch_size=8, precision="mixed_float16"))
    assert asked == plain and asked.method == "replay"
    recorded = predictor(Evidence({BATCH: ran(CAPACITY)}), half()).predict(Conditions(precision="mixed_float16"))
    assert recorded.method == "recorded"


def test_mixed_precision_does_not_follow_from_weights_in_half_precision() -> None:
    pure = tuple(dataclasses.replace(layer, weight_bytes=2 * layer.parameters) for layer in half()[:-1])
    answer = predictor(layers=pure).predict(Conditions(precision="float32"))
    assert answer.method == "unknown" and answer.peak_bytes is None and answer.fits is None
    assert answer.assumptions[0].startswith("Unknown: the run was recorded in float16.")
    assert predictor().predict(Conditions(precision="float32")).method == "replay"


def test_recurrent_layers_have_no_prediction_in_another_precision() -> None:
    # Two LSTM layers over 32 time steps peak at 98 MiB in float32 and at 325 MiB in either mixed precision.
    layers = (*LAYERS[:-1], dataclasses.replace(LAYERS[-1], type="LSTM"))
    answer = predictor(layers=layers).predict(Conditions(precision="mixed_float16"))
    assert answer.method == "unknown" and "every time step" in answer.assumptions[0]
    assert predictor(layers=layers).predict(Conditions(precision="float32")).method == "replay"
    assert predictor(layers=layers).predict(Conditions(batch_size=8)).method == "replay"


def test_mixed_precision_is_not_advised_to_a_mixed_run() -> None:
    failed = dataclasses.replace(make_oom(18), batch_size=32, capacity_bytes=100 * MIB, op=None)
    kinds = [{fix.kind for fix in simulated_fixes(predictor(layers=one), failed)[0]} for one in (LAYERS, half())]
    assert "precision" in kinds[0] and kinds[1] == kinds[0] - {"precision"}


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
