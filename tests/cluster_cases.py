"""A synthetic cluster: uneven by pipeline stage and device, with noise and planted faults of stated
sizes."""

import dataclasses
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from reading_cases import MIB, START, make_oom, make_snapshot

from tb_memplugin.analysis import summarize_session
from tb_memplugin.schema import MISSING, DeviceSamples, Samples, Snapshot
from tb_memplugin.storage.files import FileSource, Listing, NewestFrames, TagContent
from tb_memplugin.storage.write import RunWriter

STAGE_MIB = (9000, 12000, 12000, 7000)
"""Peak of each pipeline stage. GPU:0 of a worker has 500 MiB more."""
NOISE_MIB = 20
"""Peaks of equal devices differ by at most this, in either direction."""
CAPACITY_MIB = 24 * 1024
EPOCHS = 10
STEP_SECONDS = 2.0
DELAY_SECONDS = 600.0
"""From the end of a killed session to the start of the next one."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something planted on one device of a worker, or on all if `device` is None.

    Attributes:
        mib: More activations, all the time.
        leak_mib: Growth from the first step to the last.
        is_fragmented: Most free memory of the pool, which cannot grow, lies outside its largest
            free chunk.
        oom: Step whose allocation fails, which ends the worker.
        stops: Steps after which the worker is killed.
        restarts: Steps after which the worker is killed, and goes on from half of them.
    """

    worker: int
    device: int | None = None
    mib: int = 0
    leak_mib: int = 0
    is_fragmented: bool = False
    oom: int | None = None
    stops: int | None = None
    restarts: int | None = None


def name_of(worker: int) -> str:
    """A worker's name: its stage, and its number there."""
    return f"stage_{worker % len(STAGE_MIB)}_worker_{worker // len(STAGE_MIB)}"


def planted_faults(workers: int, devices: int, steps: int, seed: int) -> list[Fault]:
    """Twelve faults on different workers: of each kind one or more."""
    random = np.random.default_rng(seed)
    at = iter(random.choice(workers, 12, replace=False).tolist())
    on = [int(device) for device in random.integers(0, devices, 12)]
    return [
        Fault(next(at), on[0], mib=900),
        Fault(next(at), on[1], mib=1500),
        Fault(next(at), on[2], mib=-700),
        Fault(next(at), mib=1100),
        Fault(next(at), on[4], leak_mib=500),
        Fault(next(at), leak_mib=800),
        Fault(next(at), on[6], is_fragmented=True),
        Fault(next(at), on[7], oom=steps * 3 // 4),
        Fault(next(at), stops=steps // 4),
        Fault(next(at), stops=steps // 2),
        Fault(next(at), stops=steps * 9 // 10),
        Fault(next(at), restarts=steps * 6 // 10),
    ]


def write_cluster(
    run: pathlib.Path,
    workers: int,
    devices: int,
    steps: int,
    faults: Sequence[Fault],
    flush_steps: int = 100,
) -> None:
    """Write the run of all workers; every one traces step 1. What is killed was rolled up two
    flushes before."""
    for worker in range(workers):
        own = [fault for fault in faults if fault.worker == worker]
        restarts = next((fault.restarts for fault in own if fault.restarts is not None), None)
        stops = next((fault.stops for fault in own if fault.stops is not None), None)
        oom = next((fault for fault in own if fault.oom is not None), None)
        last = next(step for step in (stops, oom and oom.oom, steps) if step is not None)
        if restarts is None:
            sessions = [(0, last, 0.0, stops is not None)]
        else:
            sessions = [
                (0, restarts, 0.0, True),
                (restarts // 2, steps, restarts * STEP_SECONDS + DELAY_SECONDS, False),
            ]
        for first, end, delay, is_killed in sessions:
            writer = RunWriter(run, worker=name_of(worker), summarize=summarize_session)
            for begin in range(first, end, flush_steps):
                rows = range(begin, min(begin + flush_steps, end))
                writer.samples(
                    _samples(
                        np.random.default_rng([worker, begin]),
                        worker,
                        devices,
                        rows,
                        steps,
                        own,
                        delay,
                    )
                )
                if begin == 0:
                    for snapshot in _snapshots(worker, devices, own):
                        writer.traced(snapshot)
                if is_killed and begin + 2 * flush_steps < end <= begin + 3 * flush_steps:
                    writer.roll_up()
            if oom is not None:
                writer.oom(dataclasses.replace(make_oom(end), device=f"GPU:{oom.device}"))
            if not is_killed:
                writer.end()
            writer.close()


def _samples(
    random: np.random.Generator,
    worker: int,
    devices: int,
    rows: range,
    steps: int,
    faults: Sequence[Fault],
    delay: float,
) -> Samples:
    step = np.arange(rows.start, rows.stop)
    noise = random.integers(-NOISE_MIB * MIB, NOISE_MIB * MIB, (devices, len(step))) // 256 * 256
    missing, figures = np.full(len(step), MISSING), {}
    measured = step % 50 == 0
    for device in range(devices):
        on_device = [fault for fault in faults if fault.device in (None, device)]
        base = _base_mib(worker, device) + sum(fault.mib for fault in on_device)
        leaked = sum(fault.leak_mib for fault in on_device) * MIB * step // steps
        in_use = np.full(len(step), base * 4 // 10 * MIB) + leaked
        free = 2000 * MIB
        if any(fault.is_fragmented for fault in on_device):
            free = (CAPACITY_MIB - 100) * MIB - int(in_use[0])
        largest = 500 * MIB if free > 2000 * MIB else free - 8 * MIB
        figures[f"GPU:{device}"] = DeviceSamples(
            in_use_bytes=in_use,
            peak_bytes=base * MIB + leaked + noise[device],
            capacity_bytes=np.full(len(step), CAPACITY_MIB * MIB),
            driver_process_bytes=missing,
            driver_used_bytes=missing,
            driver_total_bytes=missing,
            pool_bytes=np.where(measured, in_use + free, MISSING),
            largest_free_bytes=np.where(measured, largest, MISSING),
        )
    return Samples(
        step=step,
        phase=np.zeros(len(step), np.int64),
        epoch=step // max(1, steps // EPOCHS),
        wall_time=START + delay + step * STEP_SECONDS,
        host_resident_bytes=np.full(len(step), 300 * MIB),
        devices=figures,
    )


def _base_mib(worker: int, device: int) -> int:
    return STAGE_MIB[worker % len(STAGE_MIB)] + 500 * (device == 0)


def _snapshots(worker: int, devices: int, faults: Sequence[Fault]) -> Iterator[Snapshot]:
    for device in range(devices):
        mib = sum(fault.mib for fault in faults if fault.device in (None, device))
        snapshot = make_snapshot(
            1,
            device=f"GPU:{device}",
            activations=(1000 + mib) * MIB,
            frozen=(_base_mib(worker, device) - 1000) * MIB,
            trainable=MIB,
            unattributed=0,
        )
        # The pool is that of the samples.
        yield dataclasses.replace(
            snapshot, pool_bytes=None, largest_free_bytes=None, fragmentation=None
        )


def findings(faults: Sequence[Fault], steps: int) -> set[tuple[str, str]]:
    """What a comparison of devices must say of planted faults: worker and status or sentence."""
    found = set()
    for fault in faults:
        worker = name_of(fault.worker)
        if fault.leak_mib:
            found.add((worker, "growing"))
        if fault.is_fragmented:
            found.add((worker, "fragmented"))
        if fault.oom is not None:
            found.add((worker, "failed"))
        if fault.stops is not None:
            sentence = (
                f"{worker} recorded nothing after step {fault.stops - 1}; the others went on to "
                f"step {steps - 1}"
            )
            found.add((worker, sentence))
    return found


class NotingSource(FileSource):
    """Notes the workers and tags that are read, whose ends of files are, and how often all files
    are indexed."""

    def __init__(self, logdir: pathlib.Path) -> None:
        super().__init__(logdir)
        self.asked: set[str] = set()
        self.tags: list[str] = []
        self.ends: list[str] = []
        self.listed = 0

    def listing(self) -> Listing:
        self.listed += 1
        return super().listing()

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        self.asked.update(run.rpartition("/")[2] for run in wanted)
        self.tags += (tag for tags in wanted.values() for tag in tags)
        return super().read(wanted)

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        self.ends += event_runs
        return super().newest(event_runs, stream)
