"""Writes a run of many workers with several devices each, with the package's own writer; every
figure follows from a formula, so that tests can state the peaks without reading the run."""

import os
import pathlib

import numpy as np

from tb_memplugin.schema import MISSING, DeviceSamples, Samples
from tb_memplugin.storage.write import RunWriter

MIB = 1 << 20
FLUSH_STEPS = 100
"""Samples in a frame: five seconds of steps of 50 ms."""
CAPACITY = 16 << 30


def top_step(worker: int, device: int, steps: int) -> int:
    """The step at which a device has its highest peak."""
    return (37 * worker + 11 * device + steps // 3) % steps


def top_bytes(worker: int, device: int) -> int:
    """The highest peak of a device, different for each; above every other peak of the run."""
    return 8 * 1024 * MIB + 256 * (1000 * worker + 10 * device)


def write_workers(
    directory: str | os.PathLike[str], workers: int, devices: int, steps: int
) -> None:
    """Write the run; the workers are ``worker_0``, ``worker_1``, …, each with a directory of its
    own."""
    for worker in range(workers):
        random = np.random.default_rng(worker)
        writer = RunWriter(pathlib.Path(directory), worker=f"worker_{worker}")
        for first in range(0, steps, FLUSH_STEPS):
            step = np.arange(first, min(first + FLUSH_STEPS, steps))
            writer.samples(_samples(random, worker, devices, step, steps))
        writer.close()


def _samples(
    random: np.random.Generator, worker: int, devices: int, step: np.ndarray, steps: int
) -> Samples:
    figures = {}
    for device in range(devices):
        in_use = 2048 * MIB + random.integers(0, 20 * MIB, len(step)) // 256 * 256
        peak = in_use + 4096 * MIB
        peak[step == top_step(worker, device, steps)] = top_bytes(worker, device)
        pool = np.where(step % 10 == 0, 12 * 1024 * MIB, MISSING)
        largest = np.where(step % 10 == 0, 9 * 1024 * MIB, MISSING)
        total = np.full(len(step), 80 << 30)
        figures[f"GPU:{device}"] = DeviceSamples(
            in_use,
            peak,
            np.full(len(step), CAPACITY),
            in_use + 300 * MIB,
            in_use + 400 * MIB,
            total,
            pool,
            largest,
        )
    host = 3 * 1024 * MIB + 4096 * step
    return Samples(step, np.zeros_like(step), step // 1000, 1.79e9 + 0.05 * step, host, figures)
