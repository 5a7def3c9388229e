"""The steps that a prediction simulates: which recorded ones, and how much more or less than they say."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from requests_cases import THREE_LAYERS, hand_made_requests

from tb_memplugin.fit import Conditions, recorded_program, sizes_for
from tb_memplugin.fit.cases import Case, make_case
from tb_memplugin.fit.changes import FEWER_RESULTS, OVERLAPPING_RESULTS, OVERLAPPING_RESULTS_ON_A_GPU
from tb_memplugin.schema import SCRATCH_POWER, SQUARE_POWER, UNKNOWN_POWER, ChunkOwner, StepRequests


def asked(
    steps: Sequence[StepRequests], batch: int | None = 4, first: Sequence[StepRequests] = (), **conditions: Any
) -> Case:
    return make_case(first, steps, Conditions(batch, **conditions), ())


def step(**changes: object) -> StepRequests:
    return dataclasses.replace(hand_made_requests(THREE_LAYERS), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "fewer", "more"),
    [("CPU:0", FEWER_RESULTS, OVERLAPPING_RESULTS), ("GPU:0", 0, OVERLAPPING_RESULTS_ON_A_GPU)],
)
def test_recomputed_results_may_overlap_most_on_a_cpu(device: str, fewer: int, more: int) -> None:
    segments = (("net/a", "net/b"),)
    least, typical, most = asked([step(device=device)], recompute=segments).changed.transient
    plain = asked([step(device=device)]).changed.transient
    # The largest recomputed result has 2,048 B.
    assert (plain[0] - least, typical - plain[1], most - plain[2]) == (fewer * 2048, 0, more * 2048)


def test_nothing_changed_is_replayed_and_may_neither_grow_nor_shrink() -> None:
    case = asked([step()], first=[step(first=True)])
    assert (case.changed.transient, case.saved_bytes, case.method, case.sentences) == ((0, 0, 0), 0, "replay", ())
    assert [one.requests.first for one in case.changed.high] == [True, False] and case.changed.typical is None


def test_only_steps_of_known_sizes_are_said_to_be_replayed() -> None:
    recorded = step()
    powers = np.zeros_like(recorded.batch_power)
    whole = [step(first=True)]
    assert asked([dataclasses.replace(recorded, batch_power=powers)], 8, whole).method == "replay"
    # One small size that may grow is an estimate, though not worth a sentence.
    powers[int(np.argmin(recorded.requested))] = UNKNOWN_POWER
    assert asked([dataclasses.replace(recorded, batch_power=powers)], 8, whole).method == "estimate"


def test_the_steps_of_the_closest_batch_size_are_simulated() -> None:
    # 4 is twice as far from 8 as 16 is by ratio: both are a factor of two, and 3 is further away
    recorded = [step(batch_size=3), step(batch_size=16), step(batch_size=None), step(batch_size=6)]
    chosen = [[one.requests.batch_size for one in asked(recorded, size).changed.high] for size in (8, None)]
    assert chosen == [[6], [3, 16, None, 6]]
    assert len(asked([step(batch_size=None)], 8).changed.high) == 1


WEIGHTS = ChunkOwner("dense", "weights", True)
WORKSPACE = ChunkOwner(None, "workspace", None)
Row = tuple[str | None, int, int]
"""Op, size and power of a chunk; power None for a weight, which is older than the step."""


def compiled(
    rows: Sequence[Row], batch: int, *, first: bool = False, weight: int = 400, mode: str = "xla"
) -> StepRequests:
    """A step with a weight and these new chunks in order, each freed at once."""
    chunks = [(None, "workspace", op or "", size, 2 * at, 2 * at + 1) for at, (op, size, _) in enumerate(rows)]
    made = hand_made_requests((("dense", "weights", "", weight, -1, 2 * len(rows)), *chunks))
    powers = np.asarray([0, *(power for _, _, power in rows)])
    unnamed = np.asarray([True, *(op is None for op, _, _ in rows)])
    return dataclasses.replace(
        made,
        device="CPU:0",
        mode=mode,
        first=first,
        batch_size=batch,
        events=2 * len(rows),
        batch_power=powers,
        owner=np.minimum(made.owner, 1),
        owners=(WEIGHTS, WORKSPACE),
        op=np.where(unnamed, -1, made.op),
    )


U = UNKNOWN_POWER


def test_the_chunk_of_a_compiled_module_pairs_wherever_its_inputs_come() -> None:
    # GIVEN unnamed inputs before the module in one step and after it in the other
    small = compiled([(None, 64, 1), (None, 424, U), (None, 10_000, U)], 4)
    large = compiled([(None, 424, U), (None, 18_000, U), (None, 128, 1)], 8)
    # THEN the module grows by 2,000 bytes per example, and its constants do not grow
    sizes = sizes_for(small, 16, [small, large])
    assert sizes.low.tolist() == sizes.high.tolist() == [400, 256, 424, 34_000]
    assert sizes.measured and sizes.uncertain_bytes == 0


def test_scratch_space_is_typically_in_proportion_to_the_batch_within_a_range() -> None:
    small = compiled([("conv", 10_000, SCRATCH_POWER), ("other", 600, U)], 4)
    sizes = sizes_for(small, 16, [small])
    assert (sizes.low[1], sizes.typical[1], sizes.high[1]) == (20_000, 40_000, 60_000)
    assert (sizes.low[2], sizes.typical[2], sizes.high[2]) == (600, 1_500, 2_400)
    assert (sizes.scratch_bytes, sizes.uncertain_bytes, sizes.between_bytes) == (10_000, 600, 1_800)
    # A slope between two sizes would be that of two algorithms.
    two = sizes_for(small, 16, [compiled([("conv", 10_000, SCRATCH_POWER)], 8)])
    assert two.typical[1] == 40_000 and not two.measured


def test_unnamed_chunks_of_another_number_do_not_pair() -> None:
    small = compiled([(None, 10_000, U)], 4)
    large = compiled([(None, 500, U), (None, 18_000, U)], 8)
    sizes = sizes_for(small, 16, [large])
    assert (sizes.low[1], sizes.high[1]) == (10_000, 40_000)
    assert not sizes.measured and sizes.uncertain_bytes == 10_000


@pytest.mark.parametrize(
    ("of_small", "of_large"),
    [
        ("cluster_1_1/xla_run", "cluster_7_2/xla_run"),
        ("while/body/_12/__inference_one_step_on_data_812", "while/body/_12/__inference_one_step_on_data_2044"),
    ],
)
def test_names_of_compilations_pair_without_their_numbers(of_small: str, of_large: str) -> None:
    sizes = sizes_for(compiled([(of_small, 10_000, U)], 4), 16, [compiled([(of_large, 18_000, U)], 8)])
    assert sizes.low[1] == sizes.high[1] == 34_000


def test_named_ops_pair_by_their_own_number() -> None:
    # GIVEN two convolutions whose names differ in a number only, in another order
    small = compiled([("conv_1/Conv2D", 1_000, U), ("conv_2/Conv2D", 2_000, U)], 4, mode="graph")
    large = compiled([("conv_2/Conv2D", 4_000, U), ("conv_1/Conv2D", 1_400, U)], 8, mode="graph")
    assert sizes_for(small, 12, [large]).high.tolist() == [400, 1_800, 6_000]


def test_the_recorded_batch_size_closest_to_the_wanted_one_tells() -> None:
    # GIVEN three batch sizes that do not lie on a line
    recorded = [compiled([(None, size, U)], batch) for batch, size in ((4, 10_000), (8, 20_000), (16, 36_000))]
    # THEN the two larger ones tell the larger batch, and the two smaller ones the smaller
    assert sizes_for(recorded[2], 32, recorded).high[1] == 68_000
    assert sizes_for(recorded[0], 2, recorded).high[1] == 5_000


def test_a_step_that_pairs_with_nothing_leaves_it_to_the_next() -> None:
    compiling = compiled([(None, 99, U), (None, 77_000, U)], 8)
    later = compiled([(None, 18_000, U)], 8)
    for others in ([compiling, later], [later, compiling]):
        assert sizes_for(compiled([(None, 10_000, U)], 4), 16, others).high[1] == 34_000


def test_a_first_step_has_the_module_of_the_later_ones() -> None:
    # GIVEN a first step with chunks that no other step has, and the same module
    first = compiled([(None, 512, U), ("init", 4_000, 0), (None, 10_000, U), (None, 600, U)], 4, first=True)
    others = [compiled([(None, 10_000, U)], 4), compiled([(None, 18_000, U)], 8)]
    sizes = sizes_for(first, 16, others)
    assert sizes.low.tolist() == [400, 512, 4_000, 34_000, 600]
    assert sizes.high.tolist() == [400, 2_048, 4_000, 34_000, 2_400]


def program(rows: Sequence[StepRequests]) -> list[tuple[int | None, bool]]:
    return [(one.batch_size, one.first) for one in recorded_program(rows, "CPU:0")]


def test_steps_before_a_new_first_one_count_if_they_have_the_same_weights_and_another_batch() -> None:
    module = [(None, 10_000, U)]
    four = [compiled(module, 4, first=True), compiled(module, 4), compiled(module, 4)]
    eight = [compiled(module, 8, first=True), compiled(module, 8), compiled(module, 8)]
    assert program([*four, *eight]) == [(8, True), (4, False), (4, False), (8, False), (8, False)]
    assert program([*eight, *four, *eight])[0] == (8, True)
    assert program([*eight, *four, *eight]) == [(8, True), (4, False), (4, False), (8, False), (8, False)]


def test_steps_of_another_program_do_not_count() -> None:
    module = [(None, 10_000, U)]
    latest = [compiled(module, 8, first=True), compiled(module, 8)]
    for other in (compiled(module, 4, weight=800), compiled(module, 4, mode="graph")):
        before = [dataclasses.replace(other, first=True), other]
        assert program([*before, *latest]) == [(8, True), (8, False)]
        # not even if the same program was recorded before it
        assert program([*[compiled(module, 2, first=True), compiled(module, 2)], *before, *latest]) == [
            (8, True),
            (8, False),
        ]


def test_compiled_steps_on_a_gpu_have_a_range_around_what_two_batch_sizes_tell() -> None:
    small = compiled([(None, 10_000, U), (None, 64, 1)], 4)
    large = compiled([(None, 18_000, U), (None, 128, 1)], 8)
    on_gpu = [dataclasses.replace(one, device="GPU:0") for one in (small, large)]
    assert asked([small, large], 16).changed.transient == asked(on_gpu, 8).changed.transient == (0, 0, 0)
    case = asked(on_gpu, 16)
    # THEN the range is 8 % of the larger peak wide on both sides: 34,048 bytes and the weight's 512
    assert case.method == "estimate" and case.changed.transient == (-2765, 0, 2765)
    assert asked(on_gpu, 2).changed.transient == (-860, 0, 860)  # of the recorded 10,240 bytes and the weight's 512


@pytest.mark.parametrize("of_unknown", [100, 10_000])
def test_only_sizes_that_the_batch_leaves_open_are_called_unknown(of_unknown: int) -> None:
    # GIVEN a step of 40,000 bytes that are proportional to the batch, and a few or many of which that is unknown
    recorded = compiled([("conv/Conv2D", 40_000, 1), ("conv/Scratch", of_unknown, U)], 4, mode="graph")
    recorded = dataclasses.replace(recorded, owners=(WEIGHTS, ChunkOwner("dense", "activations", True)))
    sentences = {}
    for precision in (None, "mixed_float16"):
        # WHEN another batch size is asked for, alone and with half of the bytes of all activations
        found = asked([recorded], 8, precision=precision).sentences
        sentences[precision] = [one for one in found if one.startswith("Unknown for")]
    alone, with_precision = sentences.values()
    assert alone == with_precision and len(alone) == (of_unknown == 10_000)


def test_a_size_that_may_grow_with_the_square_has_a_range() -> None:
    found = sizes_for(compiled([("logits", 4096, SQUARE_POWER)], 4), 16)
    assert (int(found.low[-1]), int(found.high[-1])) == (4 * 4096, 16 * 4096)
    assert found.uncertain_bytes == 4096 and found.between_bytes == 12 * 4096
    less = sizes_for(compiled([("logits", 4096, SQUARE_POWER)], 4), 2)
    assert (int(less.low[-1]), int(less.high[-1])) == (1024, 2048)
