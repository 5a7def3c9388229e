"""Predictions against real trainings: the recorded steps of one batch size predict the measured
peaks of the others.

The runs are real ones (tests/fixtures/make_batch_sizes.py), with the Adam optimizer, on an NVIDIA
H200 and on the BFC allocator of a CPU. Their peaks are the allocator's own, at every step, not the
simulator's.
"""

import functools
import itertools
import pathlib

import numpy as np
import pytest

import tb_memplugin
from tb_memplugin.fit import RECORDED, Conditions, Predictor, batch_limit, recorded_program
from tb_memplugin.schema import Run

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "batch_sizes"
SETTLED = 2
"""Steps after which the pool has settled."""
SIZES = {"h200": (16, 32, 64, 128), "cpu": (4, 16)}
WORST = {"h200/Transformer": 0.01, "h200/U-Net": 0.08, "h200/VGG16": 0.125, "cpu/Transformer": 0.07}
"""Largest error as a share. cuDNN takes other algorithms for a convolution of VGG16 with 64 images
than with 32."""
MEDIAN = {
    "h200/Transformer": 0.002,
    "h200/U-Net": 0.05,
    "h200/VGG16": 0.01,
    "cpu/Transformer": 0.05,
}
ITSELF = {
    "h200/Transformer": 0.003,
    "h200/U-Net": 0.06,
    "h200/VGG16": 0.02,
    "cpu/Transformer": 0.07,
}
"""Largest deviation of the simulated training from the recorded one that it repeats."""
TRAININGS = [
    name if name.endswith("Transformer") else pytest.param(name, marks=pytest.mark.long)
    for name in WORST
]


@functools.cache
def recorded(training: str, size: int) -> tuple[Run, float, Predictor]:
    """A run, the median peak of its settled steps, and its predictor, which knows the recorded
    steps only."""
    (run,) = tb_memplugin.load(FIXTURES / training / str(size)).values()
    ((device, samples),) = run.samples.devices.items()
    peak = float(np.median(samples.peak_bytes[SETTLED:]))
    return (
        run,
        peak,
        Predictor(recorded_program(run.requests, device), run.layer_tables[-1].layers, round(peak)),
    )


@pytest.mark.parametrize("training", TRAININGS)
def test_other_batch_sizes_have_the_measured_peaks(training: str) -> None:
    errors = []
    for size, other in itertools.permutations(SIZES[training.partition("/")[0]], 2):
        prediction = recorded(training, size)[2].predict(Conditions(batch_size=other))
        real = recorded(training, other)[1]
        assert prediction.peak_bytes and prediction.low_bytes and prediction.high_bytes
        assert prediction.low_bytes <= real <= prediction.high_bytes, (size, other)
        errors.append(abs(prediction.peak_bytes / real - 1))
    assert max(errors) <= WORST[training]
    assert np.median(errors) <= MEDIAN[training]


@pytest.mark.parametrize("training", TRAININGS)
def test_a_simulated_training_has_the_peak_of_the_one_that_it_repeats(training: str) -> None:
    for size in SIZES[training.partition("/")[0]]:
        _, real, predictor = recorded(training, size)
        prediction = predictor.predict(RECORDED)
        assert (
            prediction.peak_bytes and abs(prediction.peak_bytes / real - 1) <= ITSELF[training]
        ), size


@pytest.mark.parametrize("training", TRAININGS)
def test_a_capacity_below_the_measured_peak_is_not_said_to_suffice(training: str) -> None:
    for size, other in itertools.permutations(SIZES[training.partition("/")[0]], 2):
        real = recorded(training, other)[1]
        capacity = round(0.7 * real)
        prediction = recorded(training, size)[2].predict(
            Conditions(batch_size=other, capacity_bytes=capacity)
        )
        assert prediction.fits is not True, (size, other)


@pytest.mark.parametrize(("size", "capacity"), [(4, 1 << 30), (16, 8 << 30)])
def test_a_capacity_has_the_batch_sizes_of_the_verdicts_at_it(size: int, capacity: int) -> None:
    predictor = recorded("cpu/Transformer", size)[2]
    limit = batch_limit(predictor, Conditions(capacity_bytes=capacity))
    largest, most = limit["largest_batch_size"], limit["may_fit_batch_size"]
    fits = [
        predictor.predict(Conditions(batch_size=one, capacity_bytes=capacity)).fits
        for one in (largest, largest + 1, most, most + 1)
    ]
    unknown = None if most > largest else False
    assert largest > size and fits == [True, unknown, True if unknown is False else None, False]
    assert limit["low_bytes"] < limit["peak_bytes"] < limit["high_bytes"] <= capacity
