"""The breakdown of a predicted peak: it sums to the peak, and weights are those of the model."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, START
from requests_cases import LAYERS, make_table, make_traced

from tb_memplugin.analysis.fit.what_if_evidence import recorded_program
from tb_memplugin.model import ChunkOwner, Layer, LedgerRow, StepRequests
from tb_memplugin.prediction.changes import Change, change_of
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.evidence import Peaks
from tb_memplugin.prediction.history import StepPeak
from tb_memplugin.prediction.peak_ledger import peak_ledger, recorded_parts, recorded_peak
from tb_memplugin.prediction.predictor import Predictor
from tb_memplugin.prediction.sized_steps import as_recorded

STEPS = tuple(one.requests for one in make_traced().values())
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
    chunks = [  # owner, birth, death
        (WEIGHTS, -1, 3),
        (WEIGHTS, -1, events),
        (WORKSPACE, 0, 4),
        (WEIGHTS, 1, events),
        (WORKSPACE, 2, 6),
        (WORKSPACE, 5, events),
    ]
    owners = (WEIGHTS, WORKSPACE)
    count, nothing = len(chunks), np.empty(0, np.int64)
    return StepRequests(
        step=1,
        phase="train",
        device=DEVICE,
        wall_time=START,
        mode="graph",
        first=False,
        batch_size=4,
        capacity_bytes=64 * MIB,
        events=events,
        address=np.arange(count) * MIB,
        allocated=np.full(count, MIB),
        requested=np.full(count, MIB),
        birth=np.asarray([birth for _, birth, _ in chunks]),
        death=np.asarray([death for _, _, death in chunks]),
        batch_power=np.zeros(count, np.int64),
        owner=np.asarray([owners.index(owner) for owner, _, _ in chunks]),
        op=np.full(count, -1),
        owners=owners,
        ops=(),
        region_address=np.asarray([0]),
        region_bytes=np.asarray([64 * MIB]),
        added_address=nothing,
        added_bytes=nothing,
    )


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
    # THEN two of the four have slots and become trainable
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
