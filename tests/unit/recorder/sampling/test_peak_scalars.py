"""From samples to scalar points: which peaks are due when."""

import pathlib

import numpy as np
from reading_cases import make_samples

import tb_memplugin
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import MISSING
from tb_memplugin.reader.decode.columns import join_samples
from tb_memplugin.recorder.sampling.peak_scalars import RUN_TAG, PeakScalars, ScalarPoint

TRAIN, VALIDATION = "memory/epoch_peak_bytes/train/CPU:0", "memory/epoch_peak_bytes/validation/CPU:0"


def test_an_epochs_peaks_are_due_when_the_next_epoch_begins() -> None:
    scalars = PeakScalars()
    first, _ = join_samples(
        [make_samples([0, 1], [100, 300], epoch=0), make_samples([1, 1], [50, 70], phase="validation", epoch=0)]
    )
    assert scalars.add(first) == [ScalarPoint(RUN_TAG, 1, 300)]
    # A second piece of the same epoch, then the next epoch, in one piece
    second, _ = join_samples([make_samples([2], [310], epoch=0), make_samples([3, 4], [200, 250], epoch=1)])
    assert scalars.add(second) == [
        ScalarPoint(RUN_TAG, 2, 310),
        ScalarPoint(TRAIN, 2, 310),
        ScalarPoint(VALIDATION, 2, 70),
        ScalarPoint(RUN_TAG, 2, 310),
    ]
    # The run's peak stays when an epoch's is lower
    assert scalars.end_epoch() == [ScalarPoint(TRAIN, 4, 250), ScalarPoint(RUN_TAG, 4, 310)]
    assert scalars.end_epoch() == []


def test_the_same_epoch_number_after_the_end_is_another_epoch() -> None:
    scalars = PeakScalars()
    scalars.add(make_samples([0], [300], epoch=0))
    scalars.end_epoch()
    scalars.add(make_samples([1], [100], epoch=0))
    assert scalars.end_epoch()[0] == ScalarPoint(TRAIN, 1, 100)


def test_without_epochs_only_the_runs_peak_is_written_when_it_rises() -> None:
    scalars = PeakScalars()
    assert scalars.add(make_samples([0, 1], [100, 90], epoch=MISSING)) == [ScalarPoint(RUN_TAG, 1, 100)]
    assert scalars.add(make_samples([2], [100], epoch=MISSING)) == []
    assert scalars.end_epoch() == []


def test_an_unknown_peak_is_no_point() -> None:
    scalars = PeakScalars()
    assert scalars.add(make_samples([0], [MISSING], in_use=[5], epoch=0)) == [] == scalars.end_epoch()


def test_readers_ignore_scalars(tmp_path: pathlib.Path) -> None:
    for name in ("with", "without"):
        writer = RunWriter(tmp_path / name)
        for first in (0, 10):
            writer.samples(make_samples(range(first, first + 10), [100] * 10))
            if name == "with":
                writer.scalar(RUN_TAG, first, 100)
                writer.scalar(RUN_TAG, 0, 12345678901)
        writer.close()
    runs = tb_memplugin.load(tmp_path)
    assert runs["with"].damage == runs["without"].damage == ()
    assert np.array_equal(runs["with"].samples.step, runs["without"].samples.step)
