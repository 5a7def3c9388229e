"""The order of a step's events, whole and without allocations that the next event frees."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB
from requests_cases import hand_made_requests

from tb_memplugin.fit.changes import Change, change_of
from tb_memplugin.fit.conditions import Conditions
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.sized_steps import (
    LATER_RESULTS,
    LEFT_OUT,
    event_order,
    in_place,
    lasting_order,
    with_lifetimes,
)
from tb_memplugin.schema import Category, ChunkOwner, Layer, StepRequests

CHUNKS = (
    ("net", "workspace", "a", 1024, 0, 1),
    ("net", "workspace", "b", 512, 2, 3),
    ("net", "activations", "c", 4096, 4, 7),
    ("net", "workspace", "d", 256, 5, 6),
)
"""Rows 0, 1 and 3 are freed by the event after their allocation; row 2 is the peak together with row 3."""


def test_events_are_in_the_order_of_births_and_deaths() -> None:
    assert event_order(hand_made_requests(CHUNKS)) == [0, -1, 1, -2, 2, 3, -4, -3]


def test_what_the_next_event_frees_is_left_out_but_for_the_peak() -> None:
    assert lasting_order(hand_made_requests(CHUNKS)) == [2, 3, -4, -3]


@pytest.mark.parametrize("row", [0, 1])
def test_the_first_allocation_in_an_added_region_stays(row: int) -> None:
    requests = hand_made_requests(CHUNKS)
    begin = requests.address[row : row + 1]
    grown = dataclasses.replace(requests, added_address=begin, added_bytes=np.array([256]))
    assert lasting_order(grown) == [row, -1 - row, 2, 3, -4, -3]


LAYERS = 10
SIZE = 4 * MIB


def chain(saves: int) -> StepRequests:
    """A step of `LAYERS` layers, of which the last `saves` save their results; the others free them as they go.

    Each layer requests one result in the forward pass. In the backward pass, each layer that saves requests the
    gradient of its result and then frees both the result and the gradient of the next layer.
    """
    events: list[tuple[str, int]] = []
    for layer in range(LAYERS):
        events.append(("result", layer))
        if 0 < layer <= LAYERS - saves:
            events.append(("free result", layer - 1))
    for layer in range(LAYERS - 1, LAYERS - saves - 1, -1):
        events += [("gradient", layer), ("free result", layer)]
        if layer < LAYERS - 1:
            events.append(("free gradient", layer + 1))
    events.append(("free gradient", LAYERS - saves))
    chunks = [event for event in events if not event[0].startswith("free")]
    trained = [layer >= LAYERS - saves for layer in range(LAYERS)]
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
            found[kind, layer] = taken[kind, layer] = min(set(range(2 * LAYERS + 1)) - set(taken.values()))
    return np.asarray([SIZE * found[chunk] for chunk in chunks], np.int64)


def layers(trained: int) -> list[Layer]:
    """The layers of `chain`, of which the last are trained. Their weights take no memory worth mentioning."""
    found = []
    for number in range(LAYERS):
        weights = 4 if number >= LAYERS - trained else 0
        found.append(
            Layer(f"net/l{number}", "Dense", bool(weights), 1, 4, weights, 0, (-1, SIZE // 16), "float32", None)
        )
    return found


def test_chunks_are_freed_earlier_or_later_and_all_else_keeps_its_order() -> None:
    step = chain(LAYERS)
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
    assert sorted(late.death[rows].tolist()) == list(range(step.events - LAYERS, step.events))


def peak(saves: int) -> int:
    step = chain(saves)
    live = [((step.birth <= event) & (step.death > event)).sum() for event in range(step.events)]
    return int(max(live)) * SIZE


def test_a_frozen_half_saves_nothing_and_an_unfrozen_one_everything() -> None:
    assert (peak(LAYERS), peak(LAYERS // 2)) == (11 * SIZE, 6 * SIZE)
    # WHEN the first half of a chain of trained layers is frozen, and that of a half frozen one is trained
    frozen = Predictor([chain(LAYERS)], layers(LAYERS)).predict(Conditions(freeze="*l[0-4]"))
    thawed = Predictor([chain(LAYERS // 2)], layers(LAYERS // 2)).predict(Conditions(unfreeze="*"))
    for prediction, real in ((frozen, peak(LAYERS // 2)), (thawed, peak(LAYERS))):
        # THEN the peak is that of a chain that is so from the start, to a result
        assert prediction.reproduced.whole and prediction.method == "estimate"
        assert abs(prediction.peak_bytes - real) <= SIZE + 1024
        assert prediction.low_bytes <= real <= prediction.high_bytes
        assert sum(row.bytes for row in prediction.ledger) <= prediction.peak_bytes + SIZE


def test_a_layer_unfrozen_before_a_frozen_one_makes_it_save() -> None:
    # GIVEN a chain whose first half is frozen; its first layer is trained instead of the sixth and the seventh
    prediction = Predictor([chain(LAYERS // 2)], layers(LAYERS // 2)).predict(
        Conditions(unfreeze="*l0", freeze="*l[5-6]")
    )
    # THEN all results are saved for the backward pass of the first layer, as in a chain that is trained from the start
    assert abs(prediction.peak_bytes - peak(LAYERS)) <= SIZE + 1024
    change = change_of(Conditions(unfreeze="*l7", freeze="*l[5-6]"), [*layers(LAYERS // 2)[:7], *layers(0)[7:]])
    assert change.unsaved == {f"net/l{number}" for number in range(7)}


def test_a_layer_that_contains_a_trained_one_still_saves() -> None:
    half = layers(LAYERS)
    container = dataclasses.replace(half[0], path="net", parameters=0, weight_bytes=0, trainable_weight_bytes=0)
    change = change_of(Conditions(freeze="*l[0-4]"), [container, *half])
    assert change.unsaved == {f"net/l{number}" for number in range(5)}
    block = dataclasses.replace(container, path="net/l9")
    inside = dataclasses.replace(half[9], path="net/l9/dense")
    change = change_of(Conditions(frozen=tuple(one.path for one in half[:9])), [*half[:9], block, inside])
    assert change.unsaved == {one.path for one in half[:9]}


def test_statistics_of_a_trained_batch_normalization_stay_frozen() -> None:
    normalization = dataclasses.replace(
        layers(1)[9], type="BatchNormalization", weight_bytes=16, trainable_weight_bytes=8
    )
    change = change_of(Conditions(unfreeze="*"), [normalization])
    assert (change.extra, change.saved, change.is_estimate) == ((), frozenset(), False)


def test_an_unfrozen_batch_normalization_saves_the_result_before_it() -> None:
    some = layers(5)
    some[2] = dataclasses.replace(some[2], type="BatchNormalization")
    change = change_of(Conditions(unfreeze="*"), some)
    assert change.example_bytes == SIZE // 4 and change.saved == {f"net/l{number}" for number in range(5)}
    assert Change().example_bytes == 0
    # A result whose size is unknown adds nothing.
    for unknown in ({"output_dtype": "string"}, {"output_shape": None}, {"output_shape": (-1, -1, 8)}):
        without = [*some[:2], dataclasses.replace(some[2], **unknown), *some[3:]]
        assert change_of(Conditions(unfreeze="*"), without).example_bytes == 0
    doubled = [*some[:2], dataclasses.replace(some[2], output_dtype="complex64"), *some[3:]]
    assert change_of(Conditions(unfreeze="*"), doubled).example_bytes == SIZE // 2


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
    step = chain(LAYERS)
    owners = tuple(dataclasses.replace(owner, category="workspace") for owner in step.owners)
    scope = getattr(keras.optimizers, optimizer)().name
    recorded = dataclasses.replace(
        step, owners=owners, ops=(f"{scope}_1/Mul_3", f"net/{scope}s/MatMul"), op=np.arange(len(step)) % 2
    )
    least = change_of(Conditions(accumulate=True), layers(LAYERS)).least(recorded, recorded.requested)
    assert (least.sizes[recorded.op == 0] == LEFT_OUT).all() and (least.sizes[recorded.op == 1] == SIZE).all()


def test_another_optimizer_may_need_none_of_the_recorded_update() -> None:
    # GIVEN a step whose gradients are temporaries of Adam's update
    step = chain(LAYERS)
    owners = tuple(
        dataclasses.replace(owner, category="workspace") if owner.category == "activation_gradients" else owner
        for owner in step.owners
    )
    update = np.asarray([owner.category == "workspace" for owner in owners])
    ops = ("call/adam/Sqrt_1", "net/adamant/MatMul")
    recorded = dataclasses.replace(step, owners=owners, ops=ops, op=np.where(update, 0, 1))
    change = change_of(Conditions(optimizer="sgd"), layers(LAYERS))
    least, most = (one(recorded, recorded.requested).sizes for one in (change.least, change.most))
    assert (least[update] == LEFT_OUT).all() and (most == SIZE).all() and (least[~update] == SIZE).all()
    prediction = Predictor([recorded], layers(LAYERS)).predict(Conditions(optimizer="sgd"))
    accumulating = change_of(Conditions(accumulate=True), layers(LAYERS))
    assert (accumulating.least(recorded, recorded.requested).sizes == least).all()
    assert (accumulating.most(recorded, recorded.requested).sizes == most).all()
    # THEN the range goes from the peak without the update to that with it
    assert prediction.method == "estimate"
    assert prediction.low_bytes <= LAYERS * SIZE <= prediction.peak_bytes <= peak(LAYERS) <= prediction.high_bytes
