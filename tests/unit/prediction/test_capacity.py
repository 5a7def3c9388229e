"""A capacity that is enough, tried in the program itself."""

from reading_cases import DEVICE, MIB
from requests_cases import make_table, make_traced, program_fits

from tb_memplugin.analysis.fit.what_if_evidence import recorded_program
from tb_memplugin.prediction.capacity import RESERVE, CapacitySearch
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.predictor import Predictor

PREDICTOR = Predictor(
    recorded_program(tuple(one.requests for one in make_traced().values()), DEVICE), make_table().layers
)
BATCH, CAPACITY = 48, 100 * MIB


def test_the_program_runs_within_it_and_not_far_below() -> None:
    enough = CapacitySearch(PREDICTOR, BATCH, CAPACITY).find()
    assert enough is not None
    found = enough.bytes
    assert found > CAPACITY and found % MIB == 0
    # AND the part of it that is no reserve passes as well
    assert program_fits(BATCH, enough.without_reserve_bytes)
    assert enough.without_reserve_bytes * (1 + RESERVE) < found
    assert program_fits(BATCH, found) and program_fits(BATCH, round(found / (1 + RESERVE)))
    assert not program_fits(BATCH, CAPACITY) and not program_fits(BATCH, round(0.8 * found))
    predicted = PREDICTOR.predict(Conditions(batch_size=BATCH, capacity_bytes=found))
    assert predicted.fits is True


def test_other_conditions_count() -> None:
    plain = CapacitySearch(PREDICTOR, BATCH, CAPACITY).find()
    frozen = CapacitySearch(PREDICTOR, BATCH, CAPACITY, Conditions(freeze="*")).find()
    assert plain is not None and frozen is not None and frozen.bytes < plain.bytes


def test_a_tiny_capacity_is_no_limit_of_the_search() -> None:
    found = CapacitySearch(PREDICTOR, BATCH, 1).find()
    assert found is not None and program_fits(BATCH, found.bytes)


def test_the_failed_request_says_what_was_free() -> None:
    failed = PREDICTOR.predict(Conditions(batch_size=BATCH, capacity_bytes=CAPACITY)).fails_at
    assert failed is not None and 0 <= failed.largest_free_bytes <= failed.free_bytes < CAPACITY
    # The allocator fails only if no free chunk is large enough.
    assert failed.largest_free_bytes < failed.requested_bytes
    assert PREDICTOR.predict(Conditions(batch_size=4, capacity_bytes=CAPACITY)).fails_at is None
