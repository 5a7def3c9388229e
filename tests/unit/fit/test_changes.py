"""What conditions change in a recorded step, and the range and the breakdown of the peak that follows."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from reading_cases import DEVICE, MIB
from requests_cases import LAYERS, HandMade, hand_made_requests, make_table, make_traced

from tb_memplugin.fit import Conditions, Prediction, Predictor, SizedStep, recorded_program
from tb_memplugin.fit.cases import Case, make_case, owners_after, recorded_parts, simulated_parts
from tb_memplugin.fit.changes import LATER_RESULTS, in_place, with_lifetimes
from tb_memplugin.fit.conditions import PRECISIONS, Interval
from tb_memplugin.fit.simulation import Simulated, StepPeak, at_peaks, event_order, in_use, recorded_peak
from tb_memplugin.fit.steps import LEFT_OUT
from tb_memplugin.schema import Category, ChunkOwner, Integers, Layer, LedgerRow, StepRequests

DEPTH = 10
SIZE = 4 * MIB


def chain(saves: int) -> StepRequests:
    """A step of `DEPTH` layers, of which the last `saves` save their results; the others free them as they go.

    Each layer requests one result in the forward pass. In the backward pass, each layer that saves requests the
    gradient of its result and then frees both the result and the gradient of the next layer.
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
    chunks = [event for event in events if not event[0].startswith("free")]
    trained = [layer >= DEPTH - saves for layer in range(DEPTH)]
    rows: list[tuple[str, Category, str, int, int, int]] = []
    for kind, layer in chunks:
        category: Category = "workspace"
        if trained[layer]:
            category = "activation_gradients" if kind == "gradient" else "activations"
        born, freed = events.index((kind, layer)), events.index((f"free {kind}", layer))
        rows.append((f"net/l{layer}", category, "", SIZE, born, freed))
    made = hand_made_requests(tuple(rows))
    flags = [trained[layer] for _, layer in chunks]
    owners = tuple(dataclasses.replace(one, trainable=flag) for one, flag in zip(made.owners, flags, strict=True))
    whole = {"region_address": np.asarray([0]), "region_bytes": np.asarray([64 * SIZE])}
    address, op = _addresses(events, chunks), np.full(len(chunks), -1)
    return dataclasses.replace(made, capacity_bytes=64 * SIZE, address=address, owners=owners, op=op, ops=(), **whole)


def _addresses(
    events: list[tuple[str, int]], chunks: list[tuple[str, int]]
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The lowest free places, of equal size, are the best fit among free chunks only if the largest comes last."""
    taken: dict[tuple[str, int], int] = {}
    found = {}
    for kind, layer in events:
        if kind.startswith("free"):
            del taken[kind.removeprefix("free "), layer]
        else:
            found[kind, layer] = taken[kind, layer] = min(set(range(2 * DEPTH + 1)) - set(taken.values()))
    return np.asarray([SIZE * found[chunk] for chunk in chunks], np.int64)


def layers(trained: int) -> list[Layer]:
    """The layers of `chain`, of which the last are trained. Their weights take no memory worth mentioning."""
    found = []
    for number in range(DEPTH):
        weights = 4 if number >= DEPTH - trained else 0
        found.append(
            Layer(f"net/l{number}", "Dense", bool(weights), 1, 4, weights, 0, (-1, SIZE // 16), "float32", None)
        )
    return found


def test_chunks_are_freed_earlier_or_later_and_all_else_keeps_its_order() -> None:
    step = chain(DEPTH)
    results = np.asarray([owner.category == "activations" for owner in step.owners])
    nothing = np.zeros(len(step), bool)
    assert with_lifetimes(step, nothing, nothing) is step
    early = with_lifetimes(step, results, nothing)
    late = with_lifetimes(step, nothing, results)
    for changed in (early, late):
        numbers = np.concatenate([changed.birth, changed.death])
        assert sorted(numbers.tolist()) == list(range(step.events)) and (changed.birth < changed.death).all()
        kept = [[e for e in event_order(one) if e >= 0 or not results[-1 - e]] for one in (step, changed)]
        assert kept[0] == kept[1]
    # Results are freed right after the one that is so many later, or after the last one, which is freed when it was.
    rows = np.flatnonzero(results)
    assert (early.death[rows[: -LATER_RESULTS - 1]] == early.birth[rows[LATER_RESULTS:-1]] + 1).all()
    last = early.birth[rows[-1]]
    assert (np.sort(early.death[rows[-LATER_RESULTS - 1 : -1]]) == last + 1 + np.arange(LATER_RESULTS)).all()
    assert early.death[rows[-1]] > last + LATER_RESULTS + 1
    assert sorted(late.death[rows].tolist()) == list(range(step.events - DEPTH, step.events))


def changed(conditions: Conditions, layers: Sequence[Layer], step: StepRequests | None = None) -> Case:
    return make_case([], [chain(DEPTH) if step is None else step], conditions, layers)


def peak(saves: int) -> int:
    step = chain(saves)
    live = [((step.birth <= event) & (step.death > event)).sum() for event in range(step.events)]
    return int(max(live)) * SIZE


def test_a_frozen_half_saves_nothing_and_an_unfrozen_one_everything() -> None:
    assert (peak(DEPTH), peak(DEPTH // 2)) == (11 * SIZE, 6 * SIZE)
    # WHEN the first half of a chain of trained layers is frozen, and that of a half frozen one is trained
    frozen = Predictor([chain(DEPTH)], layers(DEPTH)).predict(Conditions(freeze="*l[0-4]"))
    thawed = Predictor([chain(DEPTH // 2)], layers(DEPTH // 2)).predict(Conditions(unfreeze="*"))
    for prediction, real in ((frozen, peak(DEPTH // 2)), (thawed, peak(DEPTH))):
        # THEN the peak is that of a chain that is so from the start, to a result
        assert prediction.reproduced.whole and prediction.method == "estimate"
        assert abs(prediction.peak_bytes - real) <= SIZE + 1024
        assert prediction.low_bytes <= real <= prediction.high_bytes
        assert sum(row.bytes for row in prediction.ledger) <= prediction.peak_bytes + SIZE


def test_a_layer_unfrozen_before_a_frozen_one_makes_it_save() -> None:
    # GIVEN a chain whose first half is frozen; its first layer is trained instead of the sixth and the seventh
    prediction = Predictor([chain(DEPTH // 2)], layers(DEPTH // 2)).predict(
        Conditions(unfreeze="*l0", freeze="*l[5-6]")
    )
    # THEN all results are saved for the backward pass of the first layer, as in a chain that is trained from the start
    assert abs(prediction.peak_bytes - peak(DEPTH)) <= SIZE + 1024
    change = changed(Conditions(unfreeze="*l7", freeze="*l[5-6]"), [*layers(DEPTH // 2)[:7], *layers(0)[7:]]).change
    assert change.unsaved == {f"net/l{number}" for number in range(7)}


def test_a_layer_that_contains_a_trained_one_still_saves() -> None:
    half = layers(DEPTH)
    container = dataclasses.replace(half[0], path="net", parameters=0, weight_bytes=0, trainable_weight_bytes=0)
    change = changed(Conditions(freeze="*l[0-4]"), [container, *half]).change
    assert change.unsaved == {f"net/l{number}" for number in range(5)}
    block = dataclasses.replace(container, path="net/l9")
    inside = dataclasses.replace(half[9], path="net/l9/dense")
    change = changed(Conditions(frozen=tuple(one.path for one in half[:9])), [*half[:9], block, inside]).change
    assert change.unsaved == {one.path for one in half[:9]}


def test_statistics_of_a_trained_batch_normalization_stay_frozen() -> None:
    normalization = dataclasses.replace(
        layers(1)[9], type="BatchNormalization", weight_bytes=16, trainable_weight_bytes=8
    )
    change = changed(Conditions(unfreeze="*"), [normalization]).change
    assert (change.extra, change.saved, change.is_estimate) == ((), frozenset(), False)


def test_an_unfrozen_batch_normalization_saves_the_result_before_it() -> None:
    some = layers(5)
    some[2] = dataclasses.replace(some[2], type="BatchNormalization")
    change = changed(Conditions(unfreeze="*"), some).change
    assert change.example_bytes == SIZE // 4 and change.saved == {f"net/l{number}" for number in range(5)}
    # A result whose size is unknown adds nothing.
    for unknown in ({"output_dtype": "string"}, {"output_shape": None}, {"output_shape": (-1, -1, 8)}):
        without = [*some[:2], dataclasses.replace(some[2], **unknown), *some[3:]]
        assert changed(Conditions(unfreeze="*"), without).change.example_bytes == 0
    doubled = [*some[:2], dataclasses.replace(some[2], output_dtype="complex64"), *some[3:]]
    assert changed(Conditions(unfreeze="*"), doubled).change.example_bytes == SIZE // 2


def sizes_of(conditions: Conditions, layers: Sequence[Layer], step: StepRequests) -> list[list[Integers]]:
    """The least and the most sizes of the step."""
    found = changed(conditions, layers, step).changed
    return [[one.sizes for one in steps] for steps in (found.low, found.high)]


def test_new_contents_of_a_variable_are_written_into_its_chunk() -> None:
    # GIVEN the new contents of two variables (rows 2 and 3), requested before the old ones (0 and 1) are freed
    kinds = [ChunkOwner("net/l0", "weights", True), ChunkOwner("net/l0", "weight_gradients", True)]
    columns = {
        "birth": [-1, -1, 0, 2, 1],
        "death": [3, 5, 6, 6, 4],
        "owner": [0, 0, 0, 0, 1],
        "op": [-1] * 5,
        "requested": [SIZE] * 5,
        "allocated": [SIZE] * 5,
        "address": [SIZE * row for row in range(5)],
        "batch_power": [0] * 5,
    }
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    recorded = dataclasses.replace(chain(2), events=6, owners=tuple(kinds), **arrays)
    assert event_order(recorded) == [2, 4, 3, -1, -5, -2]
    # WHEN they are written in place THEN each waits until one of the old ones is freed
    changed = in_place(recorded, np.asarray([False, False, True, True, False]))
    assert event_order(changed) == [4, -1, 2, -5, -2, 3]
    assert in_place(recorded, np.zeros(5, bool)) is recorded
    # and without old ones of that owner and size nothing waits
    other = dataclasses.replace(recorded, requested=np.asarray([1, 1, SIZE, SIZE, SIZE]))
    assert in_place(other, np.asarray([False, False, True, True, False])) is other


@pytest.mark.parametrize("optimizer", ["SGD", "RMSprop", "Adam", "AdamW", "Lion", "Adadelta"])
def test_the_updates_of_keras_optimizers_are_known_by_name(optimizer: str) -> None:
    keras = pytest.importorskip("keras")
    step = chain(DEPTH)
    owners = tuple(dataclasses.replace(owner, category="workspace") for owner in step.owners)
    scope = getattr(keras.optimizers, optimizer)().name
    recorded = dataclasses.replace(
        step, owners=owners, ops=(f"{scope}_1/Mul_3", f"net/{scope}s/MatMul"), op=np.arange(len(step)) % 2
    )
    (least,) = changed(Conditions(accumulate=True), layers(DEPTH), recorded).changed.low
    assert (least.sizes[recorded.op == 0] == LEFT_OUT).all() and (least.sizes[recorded.op == 1] == SIZE).all()


def test_another_optimizer_may_need_none_of_the_recorded_update() -> None:
    # GIVEN a step whose gradients are temporaries of Adam's update
    step = chain(DEPTH)
    owners = tuple(
        dataclasses.replace(owner, category="workspace") if owner.category == "activation_gradients" else owner
        for owner in step.owners
    )
    update = np.asarray([owner.category == "workspace" for owner in owners])
    ops = ("call/adam/Sqrt_1", "net/adamant/MatMul")
    recorded = dataclasses.replace(step, owners=owners, ops=ops, op=np.where(update, 0, 1))
    (least,), (most,) = sizes = sizes_of(Conditions(optimizer="sgd"), layers(DEPTH), recorded)
    assert (least[update] == LEFT_OUT).all() and (most == SIZE).all() and (least[~update] == SIZE).all()
    prediction = Predictor([recorded], layers(DEPTH)).predict(Conditions(optimizer="sgd"))
    assert np.array_equal(sizes, sizes_of(Conditions(accumulate=True), layers(DEPTH), recorded))
    # THEN the range goes from the peak without the update to that with it
    assert prediction.method == "estimate"
    assert prediction.low_bytes <= DEPTH * SIZE <= prediction.peak_bytes <= peak(DEPTH) <= prediction.high_bytes


def test_zeros_of_each_shape_are_kept_and_shapes_of_one_size_are_told_apart_by_their_last_dimension() -> None:
    # GIVEN kernels of 12 × 48, 48 × 12 and again 12 × 48, and their biases
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((12,)), *[keras.layers.Dense(width) for width in (48, 12, 48)]])
    weights = [(f"net/{layer.name}", 4 * one.numpy().size) for layer in model.layers for one in layer.weights]
    layers = [
        Layer(f"net/{one.name}", "Dense", True, 0, 0, 4 * one.count_params(), 0, one.output.shape, "float32", None)
        for one in model.layers
    ]
    kind: Category = "weights"
    chunks = tuple((path, kind, "", size, at, at + len(weights)) for at, (path, size) in enumerate(weights))
    written = hand_made_requests(chunks)
    owners = tuple(dataclasses.replace(owner, trainable=True) for owner in written.owners)
    recorded = dataclasses.replace(written, birth=np.full(len(written), -1), owners=owners)
    # WHEN gradients are accumulated THEN each variable has a sum, and each of the four shapes zeros of its own
    extra = changed(Conditions(accumulate=True), layers, recorded).change.extra
    sums = [(owner.layer, size) for owner, size in extra if owner.category == "optimizer_state"]
    zeros = [size for owner, size in extra if owner.category == "other_state"]
    assert sums == weights
    assert sorted(zeros) == sorted(4 * size for size in {one.shape: one.numpy().size for one in model.weights}.values())


WIDE = (*((f"net/dense{number}", True, 2_000_000, 400) for number in range(4)), ("net/head", True, 1_000, 400))
"""Layers whose weights and slots take most of the memory, so that gradients tell."""


def in_precision(recorded: str, asked: str) -> Prediction:
    steps = tuple(one.requests for one in make_traced(layers=WIDE).values())
    half = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16", "float32": "float32"}[recorded]
    layers = tuple(dataclasses.replace(layer, output_dtype=half) for layer in make_table(WIDE).layers)
    return Predictor(recorded_program(steps, DEVICE), layers).predict(Conditions(precision=asked))


def test_loss_scaling_keeps_all_gradients_until_the_update() -> None:
    # GIVEN a step that applies each of three gradients before it computes the next one
    chunks = []
    for at in range(3):
        kinds: tuple[tuple[Category, str], ...] = (
            ("weight_gradients", "gradient_tape/MatMul"),
            ("workspace", "adam/mul"),
        )
        for order, (kind, op) in enumerate(kinds):
            chunks.append((f"net/dense{at}", kind, f"{op}_{at}", 1024, 4 * at + order, 4 * at + 3 - order))
    step = hand_made_requests(tuple(chunks))
    sizes = step.requested
    assert in_use(step, sizes).max() == 2 * 1024
    layers = make_table(WIDE).layers
    scaled, plain = (changed(Conditions(precision=one), layers, step) for one in PRECISIONS[1:])
    # WHEN it is scaled THEN all gradients and the temporaries of one update are there at once
    (most,) = scaled.changed.high
    for sized in (most, *scaled.changed.low):
        assert in_use(sized.requests, sized.sizes).max() >= 3 * 1024 + 512
    assert in_use(most.requests, most.sizes).max() == 4 * 1024
    assert sorted(event_order(most.requests)) == sorted(event_order(step))
    assert plain.changed.high[0].requests is step
    assert "all of them are in memory at once" in scaled.sentences[0] and "Loss scaling" not in plain.sentences[0]


@pytest.mark.parametrize("asked", ["float32", "mixed_bfloat16"])
def test_without_loss_scaling_gradients_may_be_applied_one_by_one(asked: str) -> None:
    same, changed = in_precision("mixed_float16", "mixed_float16"), in_precision("mixed_float16", asked)
    assert same.method == "replay" and changed.method == "estimate"
    assert changed.low_bytes and changed.peak_bytes and changed.high_bytes and same.peak_bytes
    assert changed.low_bytes < changed.peak_bytes < changed.high_bytes
    # THEN the range begins with the largest gradient alone
    assert changed.low_bytes < same.peak_bytes and changed.ledger
    assert sum(row.bytes for row in changed.ledger) == changed.peak_bytes


def test_full_precision_has_no_copies_of_weights() -> None:
    table, steps = make_table(WIDE), make_traced(layers=WIDE)
    (step, *_) = [one.requests for one in steps.values() if not one.requests.first]
    # GIVEN a temporary of a layer with half the bytes of its weights
    row = next(
        row
        for row in np.flatnonzero(step.birth >= 0).tolist()
        if step.owners[int(step.owner[row])].layer == "net/dense1"
        and step.owners[int(step.owner[row])].category in ("activations", "workspace")
    )
    requested = step.requested.copy()
    requested[row] = 4_000_000
    cast = dataclasses.replace(step, requested=requested)
    half = tuple(dataclasses.replace(layer, output_dtype="bfloat16") for layer in table.layers)
    # THEN full precision does not need it, and the other results of layers have up to twice their bytes
    (least,), (most,) = sizes_of(Conditions(precision="float32"), half, cast)
    assert least[row] == most[row] == LEFT_OUT
    assert (most >= least).all() and set((most[most > 0] / requested[most > 0]).tolist()) == {1.0, 2.0}


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
def test_another_process_may_use_an_array_in_place(category, power, size, device, expected) -> None:
    # GIVEN an array that stays, the same of another category, and what is simulated for them
    found = Simulated(Interval(90 * MIB, 100 * MIB, 110 * MIB), Counter(), 0)

    def range_of(kind: Category) -> Interval:
        step = dataclasses.replace(with_data_set(STEPS[-1], kind, power, size), device=device)
        return simulated_parts(make_case([step], [step], Conditions(), ()), found, 0.0, None, step).peak

    # THEN the range begins lower by its bytes
    others, array = range_of("held_tensors"), range_of(category)
    assert array == others._replace(low_bytes=others.low_bytes - expected)


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


def sums(ledger: tuple[LedgerRow, ...]) -> Counter[tuple[str, bool | None]]:
    found: Counter[tuple[str, bool | None]] = Counter()
    for row in ledger:
        found[row.category, row.trainable] += row.bytes
    return found


@pytest.mark.parametrize("conditions", CONDITIONS, ids=str)
def test_the_breakdown_sums_to_the_predicted_peak(conditions: Conditions) -> None:
    prediction = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers).predict(conditions)
    assert sum(row.bytes for row in prediction.ledger) == prediction.peak_bytes
    assert all(row.bytes > 0 for row in prediction.ledger)


def test_the_breakdown_of_half_precision_is_between_half_and_all_of_the_activations() -> None:
    of = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    full, half = (sums(of.predict(Conditions(precision=one)).ledger) for one in (None, "mixed_float16"))
    for group in (("activations", True), ("activation_gradients", True)):
        assert half[group] == pytest.approx(0.75 * full[group], rel=0.01)
    assert half["weights", True] == full["weights", True]


def test_weights_are_trainable_or_frozen_as_they_would_be() -> None:
    of, bytes_of = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers), {one[0]: 4 * one[2] for one in LAYERS}
    total, trained = sum(bytes_of.values()), bytes_of["net/conv2"] + bytes_of["net/head"]
    for conditions, expected in [
        (Conditions(), trained),
        (Conditions(freeze="*conv2"), bytes_of["net/head"]),
        (Conditions(unfreeze="*conv1"), total),
        (Conditions(unfreeze="*conv1", freeze="*head"), total - bytes_of["net/head"]),
    ]:
        found = sums(of.predict(conditions).ledger)
        assert (found["weights", True], found["weights", False]) == (expected, total - expected)
        assert found["optimizer_state", True] == 2 * expected


def test_accumulated_gradients_take_the_bytes_of_the_trained_variables_and_zeros_of_each_size() -> None:
    requests = update()
    layer = Layer("net/a", "Dense", True, MIB // 2, 2 * MIB, 2 * MIB, 0, (-1, 4), "float32", None)
    of_layer, zeros = ChunkOwner("net/a", "optimizer_state", True), ChunkOwner(None, "other_state", None)
    for conditions, step, extra in (
        # Two variables of one size when the step began; one of them is replaced in it.
        (Conditions(accumulate=True), requests, ((of_layer, MIB), (of_layer, MIB), (zeros, MIB))),
        # XLA fuses the zeros; without variables in the step the layers' bytes are taken.
        (Conditions(accumulate=True), dataclasses.replace(requests, mode="xla"), ((of_layer, MIB), (of_layer, MIB))),
        (Conditions(accumulate=True), chain(DEPTH), ((of_layer, 2 * MIB), (zeros, 2 * MIB))),
        (Conditions(accumulate=True, frozen=("net/a",)), requests, ()),
    ):
        assert changed(conditions, [layer], step).change.extra == extra


def test_results_that_an_unfreezing_saves_are_activations() -> None:
    of = Predictor(recorded_program(STEPS, DEVICE), TABLE.layers)
    frozen, trained = (of.predict(one).ledger for one in (Conditions(), Conditions(unfreeze="*conv1")))
    output = LAYERS[0][3] * 4  # for a batch of 4
    assert ("workspace", output) in [(row.category, row.bytes) for row in frozen if row.layer == "net/conv1"]
    assert ("activations", output) in [(row.category, row.bytes) for row in trained if row.layer == "net/conv1"]


def update(events: int = 7) -> StepRequests:
    """A step that replaces one of a layer's two weights of 1 MiB, and frees the old value two events later."""
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
    return dataclasses.replace(made, events=events, batch_power=nothing, owner=owner, owners=owners, op=nothing - 1)


def test_a_variable_counts_once_while_its_value_is_replaced() -> None:
    requests = update()
    step = SizedStep(requests, requests.requested)
    for event in range(-1, requests.events):
        live = int(((requests.birth <= event) & (requests.death > event)).sum())
        found, _ = at_peaks([(step, StepPeak(live * MIB, 0, event))])
        assert found == {WEIGHTS: 2 * MIB, **({WORKSPACE: (live - 2) * MIB} if live > 2 else {})}, event


STEP = next(iter(make_traced().values())).requests


def scaled(factor: int) -> StepRequests:
    return dataclasses.replace(STEP, allocated=STEP.allocated * factor, requested=STEP.requested * factor)


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
    layer = Layer("net/bn", "BatchNormalization", False, 256, 1024, 0, 0, (-1, 8, 8, 64), "float32", None)
    conditions = Conditions(unfreeze="*", optimizer="adam")
    change = changed(conditions, [layer]).change
    assert [size for _, size in change.extra] == [512, 512]
    frozen = ChunkOwner("net/bn", "weights", False)
    assert owners_after(change, frozen, 1024) == [(dataclasses.replace(frozen, trainable=True), 512), (frozen, 512)]
    without = dataclasses.replace(layer, parameters=128, weight_bytes=512)  # neither scale nor offset
    assert changed(conditions, [without]).change.extra == ()
