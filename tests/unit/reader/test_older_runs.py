"""Runs of earlier versions in ``tests/fixtures/runs`` are read completely."""

import dataclasses
import pathlib

import numpy as np
from reading_cases import DEVICE, equal, write_small_run

from tb_memplugin import load
from tb_memplugin.model import MISSING, Run, Timeline
from tb_memplugin.model.rounding import split_rounding

RUNS = pathlib.Path(__file__).parents[2] / "fixtures" / "runs"


def as_format_1(run: Run) -> Run:
    """The run without what format 1 does not have: measured pools, replays, held tensors, rows of no bytes, and the
    addresses, shapes and lines of a timeline's allocations."""
    unknown = np.full(len(run.samples), MISSING)
    devices = {
        name: dataclasses.replace(figures, pool_bytes=unknown, largest_free_bytes=unknown)
        for name, figures in run.samples.devices.items()
    }
    snapshots = [
        dataclasses.replace(snapshot, ledger=split_rounding(snapshot.ledger), replay=None, held_tensors=())
        for snapshot in run.snapshots
    ]
    timelines = tuple(without_tensors(timeline) for timeline in run.timelines)
    samples = dataclasses.replace(run.samples, devices=devices)
    host = {worker: dataclasses.replace(memory, samples=samples) for worker, memory in run.host.items()}
    return dataclasses.replace(run, samples=samples, host=host, snapshots=tuple(snapshots), timelines=timelines)


def without_tensors(timeline: Timeline) -> Timeline:
    """The timeline as it is read from a run whose allocations have no address, shape and line."""
    unknown = np.full(len(timeline), -1, np.int64)
    return dataclasses.replace(timeline, address=unknown, shape=unknown, line=unknown, shapes=(), lines=())


def without_sentences(run: Run) -> Run:
    """The run without the sentences of its failures, whose wording changes."""
    ooms = [
        dataclasses.replace(
            oom, reason="", not_available=(), fixes=tuple(dataclasses.replace(fix, sentence="") for fix in oom.fixes)
        )
        for oom in run.ooms
    ]
    return dataclasses.replace(run, ooms=tuple(ooms))


def test_format_1_is_read_without_measured_pools(tmp_path: pathlib.Path) -> None:
    # GIVEN the run as version 0.1.0 wrote it, and the same as it is written now
    old = without_sentences(load(RUNS)["format_1"])
    write_small_run(tmp_path / "format_1", allocator=True)
    now = without_sentences(load(tmp_path)["format_1"])
    # THEN they differ in nothing but what only the new one has
    assert (now.samples.devices[DEVICE].pool_bytes != MISSING).sum() == 3
    assert (old.samples.devices[DEVICE].pool_bytes == MISSING).all() and old.damage == ()
    for field in dataclasses.fields(Run):
        if field.name not in ("sessions", "session_starts"):
            assert equal(getattr(old, field.name), getattr(as_format_1(now), field.name)), field.name


def test_timelines_of_format_2_without_addresses_shapes_and_lines_are_read(tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose timelines were stored before allocations had addresses, shapes and lines
    old = load(RUNS)["format_2"]
    write_small_run(tmp_path / "format_2", allocator=True)
    now = load(tmp_path)["format_2"]
    # THEN they are unknown, and everything else is read
    assert old.damage == () and len(old.timelines) == len(now.timelines) > 0
    assert (now.timelines[0].address >= 0).any() and now.timelines[0].shapes and now.timelines[0].lines
    assert equal(old.timelines, tuple(without_tensors(timeline) for timeline in now.timelines))
