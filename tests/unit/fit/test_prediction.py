"""The range of simulated peaks."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from reading_cases import DEVICE, MIB
from requests_cases import BATCH, LAYERS, HandMade, hand_made_requests, make_table, make_traced

from tb_memplugin.fit.changes import Change, change_of
from tb_memplugin.fit.conditions import Conditions
from tb_memplugin.fit.evidence import Peaks
from tb_memplugin.fit.history import Outcome, StepPeak
from tb_memplugin.fit.prediction import Limits, arrays_in_place, peak_ledger, recorded_parts, recorded_peak
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.sized_steps import as_recorded
from tb_memplugin.fit.what_if_evidence import recorded_program
from tb_memplugin.schema import Category, ChunkOwner, Layer, LedgerRow, StepRequests

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
    step = dataclasses.replace(with_data_set(STEPS[-1], category, power, size), device=device)
    assert arrays_in_place(step) == expected


def test_the_range_begins_lower_by_such_an_array() -> None:
    def lowest(category: Category) -> tuple[int, int]:
        steps = [dataclasses.replace(with_data_set(one, category), device="CPU:0") for one in STEPS]
        prediction = Predictor(recorded_program(steps, "CPU:0"), make_table().layers).predict(
            Conditions(batch_size=2 * BATCH)
        )
        return prediction.low_bytes, prediction.peak_bytes

    size = arrays_in_place(with_data_set(dataclasses.replace(STEPS[-1], device="CPU:0"), "inputs"))
    others, array = lowest("held_tensors"), lowest("inputs")
    assert size > 0 and array == (others[0] - size, others[1])


def outcome(*peaks: int) -> Outcome:
    return Outcome(tuple(StepPeak(size, index=0, event=at) for at, size in enumerate((99, 99, *peaks))), 100, None)


@pytest.mark.parametrize(
    ("steps_of_update", "expected"),
    [
        (1, 3),  # the median of 1, 2, 3, 5, 6 and 9 is the lower one of 3 and 5
        (2, 6),  # of 9, 9, 3, 5, 6
        (6, 9),
        (16, 9),  # more than were simulated
    ],
)
def test_with_accumulated_gradients_the_highest_peak_of_an_update_counts(steps_of_update: int, expected: int) -> None:
    simulated = [outcome(1, 9, 2, 3, 5, 6)]
    limits = Limits(simulated, simulated, steps_of_update=steps_of_update)
    (typical,) = limits.typical
    assert limits.peak == typical.bytes == expected
    # AND the breakdown is that of this step
    assert typical.event == 2 + (1, 9, 2, 3, 5, 6).index(expected)


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
    conditions = Conditions(accumulate=True)
    # Two variables of one size when the step began; one of them is replaced in it.
    assert change_of(conditions, [layer], requests).extra == ((of_layer, MIB), (of_layer, MIB), (zeros, MIB))
    # XLA fuses the zeros; without a step the layers' bytes are taken.
    compiled = dataclasses.replace(requests, mode="xla")
    assert change_of(conditions, [layer], compiled).extra == ((of_layer, MIB), (of_layer, MIB))
    assert change_of(conditions, [layer]).extra == ((of_layer, 2 * MIB),)
    frozen = Conditions(accumulate=True, frozen=("net/a",))
    assert change_of(frozen, [layer], requests).extra == ()


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
    step = as_recorded(requests)
    for event in range(-1, requests.events):
        live = int(((requests.birth <= event) & (requests.death > event)).sum())
        ledger = peak_ledger([(step, StepPeak(live * MIB, 0, event))], Change())
        found = sums(ledger)
        assert found["weights", True] == 2 * MIB, event
        assert found["weights", True] + found["workspace", True] == live * MIB


def test_statistics_of_an_unfrozen_batch_normalization_are_never_trained() -> None:
    # GIVEN a frozen batch normalization of 64 channels: scale, offset, mean and variance
    layer = Layer("net/bn", "BatchNormalization", False, 256, 1024, 0, 0, (-1, 8, 8, 64), "float32", None)
    change = change_of(Conditions(unfreeze="*", optimizer="adam"), [layer])
    assert [size for _, size in change.extra] == [512, 512]
    frozen = ChunkOwner("net/bn", "weights", False)
    assert change.owners(frozen, 1024) == [(dataclasses.replace(frozen, trainable=True), 512), (frozen, 512)]
    without = dataclasses.replace(layer, parameters=128, weight_bytes=512)  # neither scale nor offset
    assert change_of(Conditions(unfreeze="*", optimizer="adam"), [without]).extra == ()


STEP = next(iter(make_traced().values())).requests


def scaled(factor: int) -> StepRequests:
    return dataclasses.replace(STEP, allocated=STEP.allocated * factor, requested=STEP.requested * factor)


def test_the_breakdown_is_that_of_the_step_whose_peak_is_closest_to_the_median() -> None:
    assert STEP.batch_size is not None
    low, typical, high = (scaled(factor) for factor in (1, 2, 5))
    peaks = Peaks(recorded_peak(low).bytes, recorded_peak(typical).bytes, recorded_peak(high).bytes)

    def ledger_of(*steps: StepRequests) -> object:
        return recorded_parts(steps, STEP.batch_size or 0, peaks).ledger

    alone = ledger_of(typical)
    assert alone and alone != ledger_of(low) and alone != ledger_of(high)
    assert ledger_of(low, typical, high) == ledger_of(high, typical, low) == alone
