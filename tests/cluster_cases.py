"""A synthetic cluster: uneven by pipeline stage and device, with noise and planted faults of stated sizes."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
from reading_cases import MIB, make_samples, make_snapshot

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import Samples, Snapshot

STAGE_MIB = (9000, 12000, 12000, 7000)
"""Peak of each pipeline stage. GPU:0 of a worker has 500 MiB more."""
NOISE_MIB = 20
"""Peaks of equal devices differ by at most this, in either direction."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something planted: `mib` more on one device of a worker, or on all if `device` is None, in activations; or a
    worker that stops after `stops` steps."""

    worker: int
    device: int | None = None
    mib: int = 0
    stops: int | None = None


def name_of(worker: int) -> str:
    """A worker's name: its stage, and its number there."""
    return f"stage_{worker % len(STAGE_MIB)}_worker_{worker // len(STAGE_MIB)}"


def write_cluster(
    run: pathlib.Path, workers: int, devices: int, steps: int, faults: Sequence[Fault], flush_steps: int = 100
) -> None:
    """Write the run of all workers; every one traces step 1."""
    for worker in range(workers):
        own = [fault for fault in faults if fault.worker == worker]
        stops = next((fault.stops for fault in own if fault.stops is not None), None)
        writer = RunWriter(run, worker=name_of(worker))
        extra = [sum(fault.mib for fault in own if fault.device in (None, device)) for device in range(devices)]
        for first in range(0, stops or steps, flush_steps):
            rows = range(first, min(first + flush_steps, stops or steps))
            writer.samples(_samples(np.random.default_rng([worker, first]), worker, rows, extra))
        for snapshot in _snapshots(worker, extra):
            writer.snapshot(snapshot)
        if stops is None:
            writer.end()
        writer.close()


def _samples(random: np.random.Generator, worker: int, steps: range, extra: Sequence[int]) -> Samples:
    parts = []
    for device, mib in enumerate(extra):
        base = STAGE_MIB[worker % len(STAGE_MIB)] + 500 * (device == 0) + mib
        peaks = (base * MIB + random.integers(-NOISE_MIB * MIB, NOISE_MIB * MIB, len(steps))).tolist()
        parts.append(make_samples(steps, peaks, device=f"GPU:{device}"))
    figures = {name: of for part in parts for name, of in part.devices.items()}
    return dataclasses.replace(parts[0], devices=figures)


def _snapshots(worker: int, extra: Sequence[int]) -> Iterator[Snapshot]:
    for device, mib in enumerate(extra):
        rest = STAGE_MIB[worker % len(STAGE_MIB)] + 500 * (device == 0) - 1000
        yield make_snapshot(
            1, device=f"GPU:{device}", activations=(1000 + mib) * MIB, frozen=rest * MIB, trainable=MIB, unattributed=0
        )
