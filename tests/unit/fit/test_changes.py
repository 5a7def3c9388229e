"""What conditions change in a recorded step, and the range and the breakdown of the peak that
follows."""

import dataclasses
import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import requests_cases
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import DEVICE, MIB
from requests_cases import (
    LARGE,
    LAYERS,
    THREE_LAYERS,
    HandMade,
    hand_made_requests,
    make_table,
    make_traced,
)

import tb_memplugin
from tb_memplugin.allocator import PoolRules
from tb_memplugin.cli import main
from tb_memplugin.fit import (
    Conditions,
    Prediction,
    Predictor,
    SizedStep,
    demand_of,
    demand_sentences,
    peak_demand,
    peak_in_one_piece,
    recorded_program,
    sizes_for,
)
from tb_memplugin.fit.cases import Case, make_case, owners_after, recorded_parts, simulated_parts
from tb_memplugin.fit.changes import (
    FEWER_RESULTS,
    OVERLAPPING_RESULTS,
    OVERLAPPING_RESULTS_ON_A_GPU,
)
from tb_memplugin.fit.conditions import PRECISIONS, Interval
from tb_memplugin.fit.demand import growing_bytes, one_region_bytes
from tb_memplugin.fit.recomputation import Parts, recomputed
from tb_memplugin.fit.segments import UnitCosts
from tb_memplugin.fit.simulation import (
    History,
    Outcome,
    Simulated,
    StepPeak,
    at_peaks,
    event_order,
    in_use,
    lasting_order,
    older_rows,
    recorded_peak,
    typical_peak,
)
from tb_memplugin.fit.steps import LEFT_OUT
from tb_memplugin.schema import (
    ANY_POWER,
    SCRATCH_POWER,
    SQUARE_POWER,
    UNKNOWN_POWER,
    Category,
    ChunkOwner,
    Integers,
    Layer,
    ModuleMoment,
    Run,
    StepRequests,
    format_bytes,
)


def asked(
    steps: Sequence[StepRequests],
    batch: int | None = 4,
    first: Sequence[StepRequests] = (),
    **conditions: Any,
) -> Case:
    return make_case(first, steps, Conditions(batch, **conditions), ())


def three(**changes: object) -> StepRequests:
    return dataclasses.replace(hand_made_requests(THREE_LAYERS), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "fewer", "more"),
    [("CPU:0", FEWER_RESULTS, OVERLAPPING_RESULTS), ("GPU:0", 0, OVERLAPPING_RESULTS_ON_A_GPU)],
)
def test_recomputed_results_may_overlap_most_on_a_cpu(device: str, fewer: int, more: int) -> None:
    segments = (("net/a", "net/b"),)
    least, typical, most = asked([three(device=device)], recompute=segments).changed.transient
    plain = asked([three(device=device)]).changed.transient
    # The largest recomputed result has 2,048 B.
    assert (plain[0] - least, typical - plain[1], most - plain[2]) == (fewer * 2048, 0, more * 2048)


def test_nothing_changed_is_replayed_and_may_neither_grow_nor_shrink() -> None:
    case = asked([three()], first=[three(first=True)])
    assert (case.changed.transient, case.saved_bytes, case.method, case.sentences) == (
        (0, 0, 0),
        0,
        "replay",
        (),
    )
    assert [one.requests.first for one in case.changed.high] == [
        True,
        False,
    ] and case.changed.typical is None


def test_only_steps_of_known_sizes_are_said_to_be_replayed() -> None:
    recorded = three()
    powers = np.zeros_like(recorded.batch_power)
    whole = [three(first=True)]
    assert asked([dataclasses.replace(recorded, batch_power=powers)], 8, whole).method == "replay"
    # One small size that may grow is an estimate, though not worth a sentence.
    powers[int(np.argmin(recorded.requested))] = UNKNOWN_POWER
    assert asked([dataclasses.replace(recorded, batch_power=powers)], 8, whole).method == "estimate"


def test_the_steps_of_the_closest_batch_size_are_simulated() -> None:
    # 4 is twice as far from 8 as 16 is by ratio: both are a factor of two, and 3 is further away
    recorded = [
        three(batch_size=3),
        three(batch_size=16),
        three(batch_size=None),
        three(batch_size=6),
    ]
    chosen = [
        [one.requests.batch_size for one in asked(recorded, size).changed.high]
        for size in (8, None)
    ]
    assert chosen == [[6], [3, 16, None, 6]]
    assert len(asked([three(batch_size=None)], 8).changed.high) == 1


OF_DENSE = ChunkOwner("dense", "weights", True)
TEMPORARY = ChunkOwner(None, "workspace", None)
Row = tuple[str | None, int, int]
"""Op, size and power of a chunk; power None for a weight, which is older than the step."""


def compiled(
    rows: Sequence[Row], batch: int, *, first: bool = False, weight: int = 400, mode: str = "xla"
) -> StepRequests:
    """A step with a weight and these new chunks in order, each freed at once."""
    chunks = [
        (None, "workspace", op or "", size, 2 * at, 2 * at + 1)
        for at, (op, size, _) in enumerate(rows)
    ]
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
        owners=(OF_DENSE, TEMPORARY),
        op=np.where(unnamed, -1, made.op),
    )


U = UNKNOWN_POWER


def module(size: int, batch: int, op: str | None = None) -> StepRequests:
    return compiled([(op, size, U)], batch)


LINE = [module(size, batch) for batch, size in ((4, 10_000), (8, 20_000), (16, 36_000))]
"""Three batch sizes that do not lie on a line."""
TEN, EIGHTEEN = module(10_000, 4), module(18_000, 8)
UNPAIRED = compiled([(None, 99, U), (None, 77_000, U)], 8)
BEFORE = compiled([(None, 64, 1), (None, 424, U), (None, 10_000, U)], 4)
AFTER = compiled([(None, 424, U), (None, 18_000, U), (None, 128, 1)], 8)
NAMED = compiled([("conv_1/Conv2D", 1_000, U), ("conv_2/Conv2D", 2_000, U)], 4, mode="graph")
SWAPPED = compiled([("conv_2/Conv2D", 4_000, U), ("conv_1/Conv2D", 1_400, U)], 8, mode="graph")
FIRST = compiled(
    [(None, 512, U), ("init", 4_000, 0), (None, 10_000, U), (None, 600, U)], 4, first=True
)
SQUARE = compiled([("logits", 4096, SQUARE_POWER)], 4)
ANY = compiled([("eye", 4096, ANY_POWER)], 4)
OF_FUNCTION = "while/body/_12/__inference_one_step_on_data_"


@pytest.mark.parametrize(
    ("recorded", "batch", "others", "low", "high"),
    [
        # Unnamed inputs come before the module in one step and after it in the other: it grows by
        # 2,000 B per example.
        (BEFORE, 16, [AFTER], [256, 424, 34_000], None),
        # another number of chunks
        (TEN, 16, [compiled([(None, 500, U), (None, 18_000, U)], 8)], [10_000], [40_000]),
        # Names of compilations pair without their numbers, and named ops by their own, in any
        # order.
        (
            module(10_000, 4, "cluster_1_1/xla_run"),
            16,
            [module(18_000, 8, "cluster_7_2/xla_run")],
            [34_000],
            None,
        ),
        (
            module(10_000, 4, f"{OF_FUNCTION}812"),
            16,
            [module(18_000, 8, f"{OF_FUNCTION}2044")],
            [34_000],
            None,
        ),
        (NAMED, 12, [SWAPPED], [1_800, 6_000], None),
        # The closest batch sizes tell: the two larger ones a larger batch, the two smaller ones a
        # smaller.
        (LINE[2], 32, LINE, [68_000], None),
        (LINE[0], 2, LINE, [5_000], None),
        # A step that pairs with nothing leaves it to the next.
        (TEN, 16, [UNPAIRED, EIGHTEEN], [34_000], None),
        (TEN, 16, [EIGHTEEN, UNPAIRED], [34_000], None),
        # A first step has chunks that no other step has, and the module of the later ones.
        (FIRST, 16, [TEN, EIGHTEEN], [512, 4_000, 34_000, 600], [2_048, 4_000, 34_000, 2_400]),
        # A size that may grow with the square has a range.
        (SQUARE, 16, [], [4 * 4096], [16 * 4096]),
        (SQUARE, 2, [], [1024], [2048]),
        (ANY, 16, [], [4096], [16 * 4096]),
        (ANY, 2, [], [1024], [4096]),
    ],
)
def test_sizes_follow_from_another_batch_size_or_have_a_range(
    recorded, batch, others, low, high
) -> None:
    sizes = sizes_for(recorded, batch, others)
    assert (sizes.low[1:].tolist(), sizes.high[1:].tolist()) == (low, high or low)
    assert sizes.low[0] == 400  # a weight
    assert high is not None or (sizes.measured and sizes.uncertain_bytes == 0)


def test_scratch_space_is_typically_in_proportion_to_the_batch_within_a_range() -> None:
    small = compiled([("conv", 10_000, SCRATCH_POWER), ("other", 600, U)], 4)
    sizes = sizes_for(small, 16, [small])
    assert (sizes.low[1], sizes.typical[1], sizes.high[1]) == (20_000, 40_000, 60_000)
    assert (sizes.low[2], sizes.typical[2], sizes.high[2]) == (600, 1_500, 2_400)
    assert (sizes.scratch_bytes, sizes.uncertain_bytes, sizes.between_bytes) == (10_000, 600, 1_800)
    # A slope between two sizes would be that of two algorithms.
    two = sizes_for(small, 16, [compiled([("conv", 10_000, SCRATCH_POWER)], 8)])
    assert two.typical[1] == 40_000 and not two.measured


def test_a_compiled_chunk_follows_the_moment_at_which_most_of_its_buffers_live() -> None:
    # GIVEN a module with 6,000 B that the batch fills and 2,000 others, and later 7,000 B of
    # gradients
    moments = (ModuleMoment(1, 2_000, 6_000), ModuleMoment(1, 7_000, 0))
    step = dataclasses.replace(
        compiled([(None, 10_000, U), (None, 64, 1)], 4), module_moments=moments
    )
    # THEN its chunk, which has a quarter more than these, keeps that
    sizes = {batch: sizes_for(step, batch) for batch in (2, 8)}
    assert [int(sizes[batch].low[1]) for batch in (2, 8)] == [8_750, 17_500]
    assert [sizes[batch].module_bytes for batch in (2, 8)] == [8_750, 17_500] and not sizes[
        8
    ].uncertain_bytes
    # AND two recorded batch sizes tell more
    assert sizes_for(step, 16, [compiled([(None, 18_000, U), (None, 128, 1)], 8)]).low[1] == 34_000
    # AND the range has a margin, for other kernels that XLA may choose
    case = asked([step], 8)
    assert (
        case.method == "estimate"
        and case.changed.transient.low_bytes < 0 < case.changed.transient.high_bytes
    )


def of_program(rows: Sequence[StepRequests]) -> list[tuple[int | None, bool]]:
    return [(one.batch_size, one.first) for one in recorded_program(rows, "CPU:0")]


def test_steps_before_a_new_first_one_count_if_of_another_batch_and_the_same_program() -> None:
    two, four, eight = (
        [compiled([(None, 10_000, U)], size, first=at == 0) for at in range(3)]
        for size in (2, 4, 8)
    )
    both = [(8, True), (4, False), (4, False), (8, False), (8, False)]
    assert of_program([*four, *eight]) == of_program([*eight, *four, *eight]) == both
    for other in (
        compiled([(None, 10_000, U)], 4, weight=800),
        compiled([(None, 10_000, U)], 4, mode="graph"),
    ):
        before = [dataclasses.replace(other, first=True), other]
        # not even if the same program was recorded before it
        assert (
            of_program([*before, *eight])
            == of_program([*two, *before, *eight])
            == of_program(eight)
        )


def test_compiled_steps_on_a_gpu_have_a_range_around_what_two_batch_sizes_tell() -> None:
    small = compiled([(None, 10_000, U), (None, 64, 1)], 4)
    large = compiled([(None, 18_000, U), (None, 128, 1)], 8)
    on_gpu = [dataclasses.replace(one, device="GPU:0") for one in (small, large)]
    assert (
        asked([small, large], 16).changed.transient
        == asked(on_gpu, 8).changed.transient
        == (0, 0, 0)
    )
    case = asked(on_gpu, 16)
    # THEN the range is 8 % of the larger peak wide on both sides: 34,048 bytes and the weight's 512
    assert case.method == "estimate" and case.changed.transient == (-2765, 0, 2765)
    # of the recorded 10,240 bytes and the weight's 512
    assert asked(on_gpu, 2).changed.transient == (-860, 0, 860)


def test_what_the_compiler_plans_is_exact_at_its_batch_size_and_near_it_almost() -> None:
    # GIVEN a compiled step of which two batch sizes were recorded, and what its compiler plans for
    # a third one
    steps = [
        compiled([(None, 10_000, U), (None, 64, 1)], 4),
        compiled([(None, 18_000, U), (None, 128, 1)], 8),
    ]
    case = make_case((), steps, Conditions(64), (), {64: 90_000})
    # THEN the module's chunk is exact there, the batch follows it, and the range has no margin
    assert (
        case.method == "compiled"
        and case.changed.transient == (0, 0, 0)
        and case.sentences[:-1] == ()
    )
    for sized in (case.changed.low, case.changed.high):
        assert [step.sizes.tolist() for step in sized] == [[400, 90_000, 1_024]]
    # AND near it the size is on the line to the nearest recorded one, within a narrower range than
    # without
    near, far = (make_case((), steps, Conditions(size), (), {64: 90_000}) for size in (60, 32))
    slope = (90_000 - 18_000) / (64 - 8)
    assert [one.changed.high[0].sizes[1] for one in (near, far)] == [
        round(90_000 - slope * less) for less in (4, 32)
    ]
    assert near.method == far.method == "estimate"
    assert 0 < near.changed.transient.high_bytes < far.changed.transient.high_bytes / 5
    # AND another optimizer is still an estimate
    assert (
        make_case((), steps, Conditions(64, optimizer="sgd"), (), {64: 90_000}).method == "estimate"
    )


@pytest.mark.parametrize("of_unknown", [100, 10_000])
def test_only_sizes_that_the_batch_leaves_open_are_called_unknown(of_unknown: int) -> None:
    # GIVEN a step of 40,000 bytes that are proportional to the batch, and a few or many of which
    # that is unknown
    recorded = compiled(
        [("conv/Conv2D", 40_000, 1), ("conv/Scratch", of_unknown, U)], 4, mode="graph"
    )
    recorded = dataclasses.replace(
        recorded, owners=(OF_DENSE, ChunkOwner("dense", "activations", True))
    )
    sentences = {}
    for precision in (None, "mixed_float16"):
        # WHEN another batch size is asked for, alone and with half of the bytes of all activations
        found = asked([recorded], 8, precision=precision).sentences
        sentences[precision] = [one for one in found if one.startswith("Unknown for")]
    alone, with_precision = sentences.values()
    assert alone == with_precision and len(alone) == (of_unknown == 10_000)


DEPTH = 10
SIZE = 4 * MIB


def chain(saves: int) -> StepRequests:
    """A step of `DEPTH` layers, of which the last `saves` save their results; the others free them
    as they go.

    Each layer requests one result in the forward pass. In the backward pass, each layer that saves
    requests the gradient of its result and then frees both the result and the gradient of the next
    layer.
    """
    events: list[tuple[str, int]] = []
    for layer in range(DEPTH):
        events.append(("result", layer))
        if 0 < layer <= DEPTH - saves:
            events.append(("free result", layer - 1))
    for layer in range(DEPTH - 1, DEPTH - saves - 1, -1):
        events += [("gradient", layer), ("free result", layer)]
        if layer < DEPTH - 1:
            events.append(("free gradient", layer + 1))
    events.append(("free gradient", DEPTH - saves))
    rows, trained, place, taken = [], [], [], {}
    for born, (kind, layer) in enumerate(events):
        if kind.startswith("free "):
            del taken[kind.removeprefix("free "), layer]
            continue
        trained.append(layer >= DEPTH - saves)
        kept = "activation_gradients" if kind == "gradient" else "activations"
        freed = events.index((f"free {kind}", layer))
        rows.append((f"net/l{layer}", kept if trained[-1] else "workspace", "", SIZE, born, freed))
        # The lowest free places, of equal size, are the best fit among free chunks only if the
        # largest comes last.
        taken[kind, layer] = min(set(range(2 * DEPTH + 1)) - set(taken.values()))
        place.append(SIZE * taken[kind, layer])
    made = hand_made_requests(tuple(rows))
    owners = tuple(
        dataclasses.replace(one, trainable=flag)
        for one, flag in zip(made.owners, trained, strict=True)
    )
    whole = {"region_address": np.asarray([0]), "region_bytes": np.asarray([64 * SIZE])}
    address, op = np.asarray(place), np.full(len(rows), -1)
    return dataclasses.replace(
        made, capacity_bytes=64 * SIZE, address=address, owners=owners, op=op, ops=(), **whole
    )


def layers(trained: int) -> list[Layer]:
    """The layers of `chain`, of which the last are trained. Their weights take no memory worth
    mentioning."""
    weights = [4 * (number >= DEPTH - trained) for number in range(DEPTH)]
    return [
        Layer(
            f"net/l{number}", "Dense", bool(size), 1, 4, size, 0, (-1, SIZE // 16), "float32", None
        )
        for number, size in enumerate(weights)
    ]


def changed(
    conditions: Conditions, layers: Sequence[Layer], step: StepRequests | None = None
) -> Case:
    return make_case([], [chain(DEPTH) if step is None else step], conditions, layers)


def peak(saves: int) -> int:
    step = chain(saves)
    live = [((step.birth <= event) & (step.death > event)).sum() for event in range(step.events)]
    return int(max(live)) * SIZE


def test_a_frozen_half_saves_nothing_and_an_unfrozen_one_everything() -> None:
    assert (peak(DEPTH), peak(DEPTH // 2)) == (11 * SIZE, 6 * SIZE)
    # WHEN the first half of a chain of trained layers is frozen, and that of a half frozen one is
    # trained
    frozen = Predictor([chain(DEPTH)], layers(DEPTH)).predict(Conditions(freeze="*l[0-4]"))
    thawed = Predictor([chain(DEPTH // 2)], layers(DEPTH // 2)).predict(Conditions(unfreeze="*"))
    for prediction, real in ((frozen, peak(DEPTH // 2)), (thawed, peak(DEPTH))):
        # THEN the peak is that of a chain that is so from the start, to a result
        assert prediction.reproduced.whole and prediction.method == "estimate"
        assert abs(prediction.peak_bytes - real) <= SIZE + 1024
        assert prediction.low_bytes <= real <= prediction.high_bytes
        assert sum(row.bytes for row in prediction.ledger) <= prediction.peak_bytes + SIZE


def test_a_layer_unfrozen_before_a_frozen_one_makes_it_save() -> None:
    # GIVEN a chain whose first half is frozen; its first layer is trained instead of the sixth and
    # the seventh
    asked = Conditions(unfreeze="*l0", freeze="*l[5-6]")
    prediction = Predictor([chain(DEPTH // 2)], layers(DEPTH // 2)).predict(asked)
    # THEN all results are saved for the backward pass of the first layer, as in a chain that is
    # trained from the start
    assert abs(prediction.peak_bytes - peak(DEPTH)) <= SIZE + 1024
    change = changed(
        Conditions(unfreeze="*l7", freeze="*l[5-6]"), [*layers(DEPTH // 2)[:7], *layers(0)[7:]]
    ).change
    assert change.unsaved == {f"net/l{number}" for number in range(7)}


def test_a_layer_that_contains_a_trained_one_still_saves() -> None:
    half = layers(DEPTH)
    container = dataclasses.replace(
        half[0], path="net", parameters=0, weight_bytes=0, trainable_weight_bytes=0
    )
    change = changed(Conditions(freeze="*l[0-4]"), [container, *half]).change
    assert change.unsaved == {f"net/l{number}" for number in range(5)}
    block = dataclasses.replace(container, path="net/l9")
    inside = dataclasses.replace(half[9], path="net/l9/dense")
    change = changed(
        Conditions(frozen=tuple(one.path for one in half[:9])), [*half[:9], block, inside]
    ).change
    assert change.unsaved == {one.path for one in half[:9]}


def test_an_unfrozen_batch_normalization_saves_the_result_before_it() -> None:
    some = layers(5)
    some[2] = dataclasses.replace(some[2], type="BatchNormalization")
    change = changed(Conditions(unfreeze="*"), some).change
    assert change.example_bytes == SIZE // 4 and change.saved == {
        f"net/l{number}" for number in range(5)
    }
    # A result whose size is unknown adds nothing.
    for unknown in (
        {"output_dtype": "string"},
        {"output_shape": None},
        {"output_shape": (-1, -1, 8)},
    ):
        without = [*some[:2], dataclasses.replace(some[2], **unknown), *some[3:]]
        assert changed(Conditions(unfreeze="*"), without).change.example_bytes == 0
    doubled = [*some[:2], dataclasses.replace(some[2], output_dtype="complex64"), *some[3:]]
    assert changed(Conditions(unfreeze="*"), doubled).change.example_bytes == SIZE // 2


def sizes_of(
    conditions: Conditions, layers: Sequence[Layer], step: StepRequests
) -> list[list[Integers]]:
    """The least and the most sizes of the step."""
    found = changed(conditions, layers, step).changed
    return [[one.sizes for one in steps] for steps in (found.low, found.high)]


@pytest.mark.parametrize("optimizer", ["SGD", "RMSprop", "Adam", "AdamW", "Lion", "Adadelta"])
def test_the_updates_of_keras_optimizers_are_known_by_name(optimizer: str) -> None:
    keras = pytest.importorskip("keras")
    step = chain(DEPTH)
    owners = tuple(dataclasses.replace(owner, category="workspace") for owner in step.owners)
    scope = getattr(keras.optimizers, optimizer)().name
    recorded = dataclasses.replace(
        step,
        owners=owners,
        ops=(f"{scope}_1/Mul_3", f"net/{scope}s/MatMul"),
        op=np.arange(len(step)) % 2,
    )
    (least,) = changed(Conditions(accumulate=True), layers(DEPTH), recorded).changed.low
    assert (least.sizes[recorded.op == 0] == LEFT_OUT).all() and (
        least.sizes[recorded.op == 1] == SIZE
    ).all()


def test_another_optimizer_may_need_none_of_the_recorded_update() -> None:
    # GIVEN a step whose gradients are temporaries of Adam's update
    step = chain(DEPTH)
    owners = tuple(
        dataclasses.replace(owner, category="workspace")
        if owner.category == "activation_gradients"
        else owner
        for owner in step.owners
    )
    update = np.asarray([owner.category == "workspace" for owner in owners])
    ops = ("call/adam/Sqrt_1", "net/adamant/MatMul")
    recorded = dataclasses.replace(step, owners=owners, ops=ops, op=np.where(update, 0, 1))
    (least,), (most,) = sizes = sizes_of(Conditions(optimizer="sgd"), layers(DEPTH), recorded)
    assert (
        (least[update] == LEFT_OUT).all()
        and (most == SIZE).all()
        and (least[~update] == SIZE).all()
    )
    prediction = Predictor([recorded], layers(DEPTH)).predict(Conditions(optimizer="sgd"))
    assert np.array_equal(sizes, sizes_of(Conditions(accumulate=True), layers(DEPTH), recorded))
    # THEN the range goes from the peak without the update to that with it
    assert prediction.method == "estimate"
    assert (
        prediction.low_bytes
        <= DEPTH * SIZE
        <= prediction.peak_bytes
        <= peak(DEPTH)
        <= prediction.high_bytes
    )


def in_precision(recorded: str, asked: str) -> Prediction:
    steps = tuple(one.requests for one in make_traced(layers=LARGE).values())
    half = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16", "float32": "float32"}[
        recorded
    ]
    layers = tuple(
        dataclasses.replace(layer, output_dtype=half) for layer in make_table(LARGE).layers
    )
    return Predictor(recorded_program(steps, DEVICE), layers).predict(Conditions(precision=asked))


def test_loss_scaling_keeps_all_gradients_until_the_update() -> None:
    # GIVEN a step that applies each of three gradients before it computes the next one
    chunks = []
    for at in range(3):
        layer, born = f"net/dense{at}", 4 * at
        chunks.append(
            (layer, "weight_gradients", f"gradient_tape/MatMul_{at}", 1024, born, born + 3)
        )
        chunks.append((layer, "workspace", f"adam/mul_{at}", 1024, born + 1, born + 2))
    step = hand_made_requests(tuple(chunks))
    sizes = step.requested
    assert in_use(step, sizes).max() == 2 * 1024
    layers = make_table(LARGE).layers
    scaled, plain = (changed(Conditions(precision=one), layers, step) for one in PRECISIONS[1:])
    # WHEN it is scaled THEN all gradients and the temporaries of one update are there at once
    (most,) = scaled.changed.high
    for sized in (most, *scaled.changed.low):
        assert in_use(sized.requests, sized.sizes).max() >= 3 * 1024 + 512
    assert in_use(most.requests, most.sizes).max() == 4 * 1024
    assert sorted(event_order(most.requests)) == sorted(event_order(step))
    assert plain.changed.high[0].requests is step
    assert (
        "all of them are in memory at once" in scaled.sentences[0]
        and "Loss scaling" not in plain.sentences[0]
    )


@pytest.mark.parametrize("asked", ["float32", "mixed_bfloat16"])
def test_without_loss_scaling_gradients_may_be_applied_one_by_one(asked: str) -> None:
    same, changed = (
        in_precision("mixed_float16", "mixed_float16"),
        in_precision("mixed_float16", asked),
    )
    assert same.method == "replay" and changed.method == "estimate"
    assert changed.low_bytes and changed.peak_bytes and changed.high_bytes and same.peak_bytes
    assert changed.low_bytes < changed.peak_bytes < changed.high_bytes
    # THEN the range begins with the largest gradient alone
    assert changed.low_bytes < same.peak_bytes and changed.ledger
    assert sum(row.bytes for row in changed.ledger) == changed.peak_bytes


def test_full_precision_has_no_copies_of_weights() -> None:
    table, steps = make_table(LARGE), make_traced(layers=LARGE)
    (step, *_) = [one.requests for one in steps.values() if not one.requests.first]
    # GIVEN a temporary of a layer with half the bytes of its weights
    kinds = [ChunkOwner("net/dense1", kind, True) for kind in ("activations", "workspace")]
    row = next(
        row for row in np.flatnonzero(step.birth >= 0) if step.owners[step.owner[row]] in kinds
    )
    requested = step.requested.copy()
    requested[row] = 4_000_000
    cast = dataclasses.replace(step, requested=requested)
    half = tuple(dataclasses.replace(layer, output_dtype="bfloat16") for layer in table.layers)
    # THEN full precision does not need it, and the other results of layers have up to twice their
    # bytes
    (least,), (most,) = sizes_of(Conditions(precision="float32"), half, cast)
    assert least[row] == most[row] == LEFT_OUT
    assert (most >= least).all() and set((most[most > 0] / requested[most > 0]).tolist()) == {
        1.0,
        2.0,
    }


STEPS = tuple(one.requests for one in make_traced().values())


def with_data_set(
    step: StepRequests, category: Category, power: int = 0, size: int | None = None
) -> StepRequests:
    """The step with another owner, power and, if given, size of the largest chunk that stays."""
    (stays,) = np.nonzero((step.birth < 0) & (step.death >= step.events))
    row = stays[np.argmax(step.requested[stays])]
    owner, powers, requested = step.owner.copy(), step.batch_power.copy(), step.requested.copy()
    owner[row], powers[row], requested[row] = len(step.owners), power, size or requested[row]
    owners = (*step.owners, ChunkOwner(None, category, None))
    return dataclasses.replace(
        step, owner=owner, batch_power=powers, requested=requested, owners=owners
    )


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
def test_another_process_may_use_an_array_in_place(category, power, size, device, expected) -> None:
    # GIVEN an array that stays, the same of another category, and what is simulated for them
    found = Simulated(Interval(90 * MIB, 100 * MIB, 110 * MIB), Counter(), 0)

    def range_of(kind: Category) -> Interval:
        step = dataclasses.replace(with_data_set(STEPS[-1], kind, power, size), device=device)
        return simulated_parts(
            make_case([step], [step], Conditions(), ()), found, 0.0, None, step
        ).peak

    # THEN the range begins lower by its bytes
    others, array = range_of("held_tensors"), range_of(category)
    assert array == others._replace(low_bytes=others.low_bytes - expected)


@pytest.mark.parametrize("batch_size", [None, 16])
def test_another_batch_size_is_said_to_have_the_same_data_set(batch_size: int | None) -> None:
    found = Simulated(Interval(90 * MIB, 100 * MIB, 110 * MIB), Counter(), 0)
    step = with_data_set(STEPS[-1], "inputs", 0, 40 * MIB)
    case = make_case([step], [step], Conditions(batch_size=batch_size), ())
    said = " ".join(simulated_parts(case, found, 0.0, None, step).sentences)
    assert ("The data set on the device (40.0 MiB) is assumed" in said) == (batch_size == 16)


TABLE = make_table()
WEIGHTS = ChunkOwner("net/a", "weights", True)
WORKSPACE = ChunkOwner("net/a", "workspace", True)
CONDITIONS = [
    Conditions(),
    Conditions(batch_size=16),
    Conditions(freeze="*conv2"),
    Conditions(unfreeze="*conv1"),
    Conditions(optimizer="momentum", batch_size=7),
    Conditions(precision="mixed_float16"),
    Conditions(precision="mixed_bfloat16", freeze="*conv2", batch_size=3),
    Conditions(accumulate=True),
]


@pytest.mark.parametrize("conditions", CONDITIONS, ids=str)
def test_the_breakdown_sums_to_the_predicted_peak(conditions: Conditions) -> None:
    prediction = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers).predict(conditions)
    assert sum(row.bytes for row in prediction.ledger) == prediction.peak_bytes
    assert all(row.bytes > 0 for row in prediction.ledger)


def test_the_breakdown_of_half_precision_is_between_half_and_all_of_the_activations() -> None:
    of = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    full, half = Counter(), Counter()
    for found, precision in ((full, None), (half, "mixed_float16")):
        for row in of.predict(Conditions(precision=precision)).ledger:
            found[row.category, row.trainable] += row.bytes
    for group in (("activations", True), ("activation_gradients", True)):
        assert half[group] == pytest.approx(0.75 * full[group], rel=0.01)
    assert half["weights", True] == full["weights", True]


def test_accumulated_gradients_take_the_bytes_of_the_trained_variables_and_zeros_of_each_size() -> (
    None
):
    requests = update()
    layer = Layer("net/a", "Dense", True, MIB // 2, 2 * MIB, 2 * MIB, 0, (-1, 4), "float32", None)
    of_layer, zeros = (
        ChunkOwner("net/a", "optimizer_state", True),
        ChunkOwner(None, "other_state", None),
    )
    for conditions, step, extra in (
        # Two variables of one size when the step began; one of them is replaced in it.
        (Conditions(accumulate=True), requests, ((of_layer, MIB), (of_layer, MIB), (zeros, MIB))),
        # XLA fuses the zeros; without variables in the step the layers' bytes are taken.
        (
            Conditions(accumulate=True),
            dataclasses.replace(requests, mode="xla"),
            ((of_layer, MIB), (of_layer, MIB)),
        ),
        (Conditions(accumulate=True), chain(DEPTH), ((of_layer, 2 * MIB), (zeros, 2 * MIB))),
        (Conditions(accumulate=True, frozen=("net/a",)), requests, ()),
    ):
        assert changed(conditions, [layer], step).change.extra == extra


def test_a_compiled_update_may_copy_its_arguments_unless_the_compiler_was_asked() -> None:
    # GIVEN a compiled step with 1,000 bytes of trained weights and two slots for them
    step = compiled([(None, 10_000, U), (None, 64, 1)], 4)
    layer = Layer("net/a", "Dense", True, 250, 1_000, 1_000, 2_000, (-1, 4), "float32", None)
    wanted = Conditions(4, accumulate=True)
    # WHEN gradients are accumulated THEN the module has up to two slots, an accumulator and a
    # gradient more
    case = make_case((), [step], wanted, [layer])
    (low,), (high,) = case.changed.low, case.changed.high
    assert (high.sizes - low.sizes).tolist() == [0, 4_000, 0] and low.sizes.tolist() == [
        400,
        10_000,
        64,
    ]
    assert case.method == "estimate" and "XLA may copy up to 3.9 KiB" in case.sentences[1]
    # AND as many as the compiler says where it was asked; other steps copy none
    for answer, mode, size in (({4: 11_000}, "xla", 11_000), ({}, "graph", 10_000)):
        exact = make_case((), [dataclasses.replace(step, mode=mode)], wanted, [layer], answer)
        (low,), (high,) = exact.changed.low, exact.changed.high
        assert low.sizes.tolist() == high.sizes.tolist() == [
            400,
            size,
            64,
        ] and "copy" not in " ".join(exact.sentences)


def test_results_that_an_unfreezing_saves_are_activations() -> None:
    of = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    frozen, trained = (
        of.predict(one).ledger for one in (Conditions(), Conditions(unfreeze="*conv1"))
    )
    output = LAYERS[0][3] * 4  # for a batch of 4
    assert ("workspace", output) in [
        (row.category, row.bytes) for row in frozen if row.layer == "net/conv1"
    ]
    assert ("activations", output) in [
        (row.category, row.bytes) for row in trained if row.layer == "net/conv1"
    ]


def update(events: int = 7) -> StepRequests:
    """A step that replaces one of a layer's two weights of 1 MiB, and frees the old value two
    events later."""
    chunks: HandMade = (  # layer, category, op, bytes, birth, death
        ("net/a", "weights", "", MIB, -1, 3),
        ("net/a", "weights", "", MIB, -1, events),
        ("net/a", "workspace", "", MIB, 0, 4),
        ("net/a", "weights", "", MIB, 1, events),
        ("net/a", "workspace", "", MIB, 2, 6),
        ("net/a", "workspace", "", MIB, 5, events),
    )
    made = hand_made_requests(chunks)
    nothing, owners = np.zeros(len(chunks), np.int64), (WEIGHTS, WORKSPACE)
    owner = np.asarray([0, 0, 1, 0, 1, 1])
    return dataclasses.replace(
        made, events=events, batch_power=nothing, owner=owner, owners=owners, op=nothing - 1
    )


def test_a_variable_counts_once_while_its_value_is_replaced() -> None:
    requests = update()
    step = SizedStep(requests, requests.requested)
    for event in range(-1, requests.events):
        live = int(((requests.birth <= event) & (requests.death > event)).sum())
        found, _ = at_peaks([(step, StepPeak(live * MIB, 0, event))])
        assert found == {WEIGHTS: 2 * MIB, **({WORKSPACE: (live - 2) * MIB} if live > 2 else {})}, (
            event
        )


STEP = next(iter(make_traced().values())).requests


def scaled(factor: int) -> StepRequests:
    return dataclasses.replace(
        STEP, allocated=STEP.allocated * factor, requested=STEP.requested * factor
    )


def test_the_breakdown_is_that_of_the_step_whose_peak_is_closest_to_the_median() -> None:
    assert STEP.batch_size is not None
    low, typical, high = (scaled(factor) for factor in (1, 2, 5))
    peaks = Interval(*(recorded_peak(one).bytes for one in (low, typical, high)))

    def ledger_of(*steps: StepRequests) -> object:
        return recorded_parts(steps, STEP.batch_size or 0, peaks).ledger

    alone = ledger_of(typical)
    assert alone and alone != ledger_of(low) and alone != ledger_of(high)
    assert ledger_of(low, typical, high) == ledger_of(high, typical, low) == alone


def test_statistics_of_an_unfrozen_batch_normalization_are_never_trained() -> None:
    # GIVEN a frozen batch normalization of 64 channels: scale, offset, mean and variance
    layer = Layer(
        "net/bn", "BatchNormalization", False, 256, 1024, 0, 0, (-1, 8, 8, 64), "float32", None
    )
    conditions = Conditions(unfreeze="*", optimizer="adam")
    change = changed(conditions, [layer]).change
    assert [size for _, size in change.extra] == [512, 512]
    frozen = ChunkOwner("net/bn", "weights", False)
    assert owners_after(change, frozen, 1024) == [
        (dataclasses.replace(frozen, trainable=True), 512),
        (frozen, 512),
    ]
    # neither scale nor offset
    without = dataclasses.replace(layer, parameters=128, weight_bytes=512)
    assert changed(conditions, [without]).change.extra == ()


AT_MOST = 1024 + 2048 + 8192 + 256  # in the backward pass of the head


def hand_made(chunks: HandMade = THREE_LAYERS) -> SizedStep:
    requests = hand_made_requests(chunks)
    return SizedStep(requests, requests.requested)


def test_a_recomputed_segment_keeps_its_output_alone_until_its_backward_pass() -> None:
    step = hand_made()
    assert peak_in_one_piece(step) == AT_MOST
    again = recomputed(step, (("net/a", "net/b"),), {"net/b": 512})
    assert peak_in_one_piece(again) == AT_MOST - 1024
    # Both results are requested again, in their order, after the head's backward pass and before
    # the segment's.
    birth, death = again.requests.birth, again.requests.death
    assert again.sizes.tolist() == [*step.sizes, 1024, 2048]
    assert birth[3] < birth[6] < birth[7] < birth[4]
    # The first result is freed before the head's is there; the output stays until its copy is
    # there.
    assert death[0] < birth[2] and birth[7] < death[1] < birth[4]
    # The copies live as long as the recorded chunks did: the output less long than the first
    # result.
    assert birth[4] < death[7] < death[6] < death[5]
    # Without segments that save something the step is as recorded.
    assert recomputed(step, (), {}) is recomputed(step, (("net/other",),), {}) is step


def test_what_the_backward_pass_computes_ahead_is_not_there_before_the_recomputation() -> None:
    # GIVEN a part of GELU's derivative, which ran as soon as the layer's result was there
    chunks: HandMade = (
        ("net/a", "activations", "net/a/Conv2D", 1024, 0, 11),
        ("net/b", "activations", "net/b/Gelu/mul", 2048, 1, 9),
        ("net/b", "activations", "gradient_tape/net/b/Gelu/Square", 4096, 2, 8),
        ("net/head", "activations", "net/head/MatMul", 8192, 3, 5),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 4, 7),
        ("net/b", "activation_gradients", "gradient_tape/net/b/Mul", 2048, 6, 12),
        ("net/a", "activation_gradients", "gradient_tape/net/a/Conv2D", 1024, 10, 13),
    )
    step = hand_made(chunks)
    part = Parts(step.requests).of(["net/a", "net/b"], 2048)
    assert part is not None and part.ahead.tolist() == [2] and part.saved.tolist() == [0, 1, 2]
    assert peak_in_one_piece(step) == AT_MOST + 4096
    # WHEN both layers are recomputed THEN it waits for that, and nothing but the output is there at
    # the head's gradient
    assert (
        peak_in_one_piece(recomputed(step, (("net/a", "net/b"),), {"net/b": 512})) == AT_MOST - 1024
    )


@pytest.mark.parametrize(("layers", "kept"), [(("net/a", "net/b"), True), (("net/b",), False)])
def test_the_batch_stays_until_the_first_layers_are_recomputed_from_it(
    layers: tuple[str, ...], kept: bool
) -> None:
    # GIVEN a batch that is freed once a convolution has it in another layout, as on a GPU
    chunks: HandMade = (
        (None, "inputs", "SameWorkerRecvDone", 512, 0, 2),
        ("net/a", "activations", "gradient_tape/net/a/Conv2DBackpropFilter-0-T", 512, 1, 13),
        ("net/a", "activations", "net/a/Conv2D", 1024, 3, 12),
        ("net/b", "activations", "net/b/Relu", 2048, 4, 10),
        ("net/head", "activations", "net/head/MatMul", 8192, 5, 7),
        ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 6, 9),
        ("net/b", "activation_gradients", "gradient_tape/net/b/Mul", 2048, 8, 14),
        ("net/a", "activation_gradients", "gradient_tape/net/a/Conv2D", 1024, 11, 15),
    )
    again = recomputed(hand_made(chunks), (layers,), {layers[-1]: 512}).requests
    back, batch = again.birth[6], again.death[0]
    # THEN it is freed before the backward pass of the segment that reads it, or as early as
    # recorded
    assert again.birth[5] < batch < back if kept else batch == 2
    assert not kept or again.birth[8 + 2] < batch


def test_results_of_layers_inside_a_recomputed_one_are_repeated_too() -> None:
    chunks: HandMade = (
        ("net/block/dense", "activations", "net/block/dense/MatMul", 1024, 0, 5),
        ("net/blocks", "activations", "net/blocks/MatMul", 2048, 1, 4),
        (
            "net/block/dense",
            "activation_gradients",
            "gradient_tape/net/block/dense/MatMul",
            1024,
            2,
            3,
        ),
    )
    case = make_case([], [hand_made_requests(chunks)], Conditions(recompute=(("net/block",),)), ())
    assert case.changed.transient == (-FEWER_RESULTS * 1024, 0, OVERLAPPING_RESULTS * 1024)


PLANS = pathlib.Path(__file__).parents[2] / "fixtures" / "plans"
CHUNKS = (
    ("net", "workspace", "a", 1024, 0, 1),
    ("net", "workspace", "b", 512, 2, 3),
    ("net", "activations", "c", 4096, 4, 7),
    ("net", "workspace", "d", 256, 5, 6),
)
"""Rows 0, 1 and 3 are freed by the event after their allocation; row 2 is the peak together with
row 3."""


def test_what_the_next_event_frees_is_left_out_but_for_the_peak_and_an_added_regions_first() -> (
    None
):
    requests = hand_made_requests(CHUNKS)
    assert lasting_order(requests) == [2, 3, -4, -3]
    for row in (0, 1):
        begin = requests.address[row : row + 1]
        grown = dataclasses.replace(requests, added_address=begin, added_bytes=np.array([256]))
        assert lasting_order(grown) == [row, -1 - row, 2, 3, -4, -3]


@pytest.mark.parametrize(
    ("steps_of_update", "expected"),
    # The median of 1, 2, 3, 5, 6 and 9 is the lower one of 3 and 5; that of 9, 9, 3, 5, 6; more
    # than were simulated.
    [(1, 3), (2, 6), (6, 9), (16, 9)],
)
def test_with_accumulated_gradients_the_highest_peak_of_an_update_counts(
    steps_of_update: int, expected: int
) -> None:
    peaks = (1, 9, 2, 3, 5, 6)
    outcome = Outcome(
        tuple(StepPeak(size, 0, at) for at, size in enumerate((99, 99, *peaks))), None
    )
    typical = typical_peak([outcome], steps_of_update)
    # The breakdown is that of this step.
    assert (typical.bytes, typical.event) == (expected, 2 + peaks.index(expected))


@pytest.fixture(scope="module")
def wide() -> Run:
    return tb_memplugin.load(PLANS)["wide"]


def test_the_highest_peak_that_its_replay_reproduces_is_divided(wide: Run) -> None:
    demand = peak_demand(wide, "CPU:0")
    figures = wide.samples.devices["CPU:0"]
    measured = dict(zip(wide.samples.step.tolist(), figures.peak_bytes.tolist(), strict=True))
    assert (
        demand.peak_bytes
        == measured[demand.step]
        == max(measured[one.step] for one in wide.requests)
    )
    assert demand.demand_bytes + demand.rounding_bytes + demand.unsplit_bytes == demand.peak_bytes
    # A step whose addresses do not follow from the rules says nothing of the allocator.
    (highest,) = (one for one in wide.requests if one.step == demand.step)
    moved = dataclasses.replace(highest, address=highest.address[::-1].copy())
    others = tuple(moved if one is highest else one for one in wide.requests)
    other = peak_demand(dataclasses.replace(wide, requests=others), "CPU:0")
    assert other is not None and other.step != demand.step
    assert peak_demand(dataclasses.replace(wide, requests=()), "CPU:0") is None


def test_inspect_says_the_same_as_json_and_as_text(
    wide: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    demand = peak_demand(wide, "CPU:0")
    assert main(["inspect", str(PLANS), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"]["wide"]["demand"] == {
        "CPU:0": json.loads(json.dumps(dataclasses.asdict(demand)))
    }
    assert main(["inspect", str(PLANS), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "CPU:0, demand of the peak:" in printed
    for sentence in demand_sentences(demand):
        assert sentence in printed


def test_the_sentences_have_the_figures(tmp_path: pathlib.Path) -> None:
    requests_cases.write_run(tmp_path / "traced")
    demand = peak_demand(tb_memplugin.load(tmp_path)["traced"], DEVICE)
    parts, pool = demand_sentences(demand)
    for size in (
        demand.peak_bytes,
        demand.demand_bytes,
        demand.rounding_bytes,
        demand.unsplit_bytes,
    ):
        assert format_bytes(size) in parts
    whole, growing = format_bytes(demand.one_region_bytes), format_bytes(demand.growing_bytes)
    assert pool == (
        f"The pool has {format_bytes(demand.pool_bytes)}; for this step {whole} would do if "
        f"reserved as one region, {growing} if it grows."
    )
    assert demand_sentences(dataclasses.replace(demand, one_region_bytes=None))[1] == (
        f"The pool has {format_bytes(demand.pool_bytes)}."
    )


def recorded() -> list[StepRequests]:
    (run,) = tb_memplugin.load(PLANS).values()
    return [*run.requests, *(one.requests for one in requests_cases.make_traced().values())]


@pytest.mark.parametrize(
    "requests", recorded(), ids=lambda one: f"{len(one)}-chunks-step-{one.step}"
)
def test_the_parts_are_those_of_the_live_chunks_at_each_moment(requests: StepRequests) -> None:
    demand = demand_of(requests)
    most = dict.fromkeys(("requested", "allocated"), 0)
    for name in most:
        sizes = getattr(requests, name).tolist()
        live = sum(sizes[row] for row in older_rows(requests))
        most[name] = live
        for entry in event_order(requests):
            live += -sizes[-1 - entry] if entry < 0 else sizes[entry]
            most[name] = max(most[name], live)
    assert (demand.demand_bytes, demand.peak_bytes) == (most["requested"], most["allocated"])
    parts = (demand.demand_bytes, demand.rounding_bytes, demand.unsplit_bytes)
    assert min(parts) >= 0 and sum(parts) == demand.peak_bytes
    assert demand.rounding_bytes <= 256 * len(requests)


@pytest.mark.parametrize("requests", recorded()[-2:], ids=["step-1", "step-3"])
def test_the_step_passes_in_one_region_of_that_size_and_not_in_its_demand(
    requests: StepRequests,
) -> None:
    demand, size = demand_of(requests), one_region_bytes(requests)
    assert demand.demand_bytes <= size <= 1.3 * demand.peak_bytes
    emptied = SizedStep(
        dataclasses.replace(requests, region_bytes=requests.region_bytes * 0), requests.requested
    )
    for capacity, passes in ((size, True), (demand.demand_bytes - 4096, False)):
        outcome = History([emptied], PoolRules(capacity, grows=False)).run([0])
        assert (outcome.failed is None) is passes
    # AND a growing pool has the regions of the training, whose pool grew
    assert sorted(requests.region_bytes.tolist()) == [2 << 20, 4 << 20, 8 << 20, 16 << 20]
    assert growing_bytes(requests) == 30 << 20


def test_requests_of_multiples_of_256_have_no_rounding() -> None:
    requests = requests_cases.make_traced()[3].requests
    whole = -(-requests.requested // 256) * 256
    even = demand_of(dataclasses.replace(requests, requested=whole, allocated=whole))
    assert (even.rounding_bytes, even.unsplit_bytes) == (0, 0)
    assert even.demand_bytes == even.peak_bytes
    allocated = whole + np.where(whole > 1 << 20, 512, 0)
    wider = demand_of(dataclasses.replace(requests, requested=whole, allocated=allocated))
    assert wider.rounding_bytes == 0 and wider.unsplit_bytes > 0


Spans = tuple[tuple[int, int], ...]


@st.composite
def unit_costs(draw: st.DrawFn) -> UnitCosts:
    count = draw(st.integers(1, 5))
    column = st.lists(st.integers(0, 40), min_size=count, max_size=count)
    held = np.asarray(draw(column)) + 1
    start = int(held.sum()) + np.asarray(draw(column))
    # Whole parts of the time that the choice tells apart: their sum is rounded to nothing.
    seconds = np.asarray(
        draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=count, max_size=count)), np.float64
    )
    seconds[-1] += 64 - seconds.sum()
    return UnitCosts(
        backward=start + np.asarray(draw(column)),
        start=start,
        held=held,
        kept=np.minimum(held, np.asarray(draw(column))),
        working=held + np.asarray(draw(column)),
        seconds=seconds,
        joins=np.asarray(
            [False, *draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))]
        ),
        after=int(start.max()) + draw(st.integers(0, 40)),
    )


def every_choice(costs: UnitCosts) -> Iterator[Spans]:
    count = len(costs)
    ends = itertools.combinations(range(count + 1), 2)
    spans = [(first, end) for first, end in ends if costs.joins[first + 1 : end].all()]
    for number in range(count + 1):
        for chosen in itertools.combinations(spans, number):
            if all(left[1] <= right[0] for left, right in itertools.pairwise(chosen)):
                yield chosen


def needed(costs: UnitCosts, spans: Spans) -> int:
    """Most bytes in use with these segments, from one backward pass to the next."""
    ends = dict(spans)
    saved = first = most = 0
    while first < len(costs):
        end = ends.get(first, first + 1)
        units = range(first, end)
        most = max(most, max(int(costs.backward[unit]) for unit in units) - saved)
        if first in ends:
            again = max(int(costs.held[first:unit].sum() + costs.working[unit]) for unit in units)
            held = int(costs.held[first:end].sum())
            most = max(most, int(costs.start[end - 1]) - held + again - saved)
            saved += held - int(costs.kept[end - 1])
        first = end
    return max(most, costs.after - saved)


def seconds(costs: UnitCosts, spans: Spans) -> float:
    return float(sum(costs.seconds[first:end].sum() for first, end in spans))


@given(unit_costs(), st.integers(-60, 60))
def test_the_choice_needs_the_least_time_of_all_that_stay_within_the_limit(
    costs: UnitCosts, more: int
) -> None:
    limit = needed(costs, ()) + more
    within = [spans for spans in every_choice(costs) if needed(costs, spans) <= limit]
    choice = costs.choose(limit)
    if not within:
        assert choice is None
    else:
        assert choice is not None and needed(costs, choice) <= limit
        assert seconds(costs, choice) == min(seconds(costs, spans) for spans in within)


@given(unit_costs())
def test_the_smallest_limit_is_that_of_the_best_choice(costs: UnitCosts) -> None:
    assert costs.smallest() == min(needed(costs, spans) for spans in every_choice(costs))
