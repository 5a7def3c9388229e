"""The sessions of a run that was restarted: each is a process of its own, whose memory starts anew. Pure."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import HOST_COLUMNS, DeviceSamples, Floats, HostMemory, HostSamples, Run, is_cpu, take_samples

MAX_SESSIONS = 20
"""Most sessions that are told apart, the latest ones: each takes a look at all samples."""


class SessionSteps(NamedTuple):
    """Wall times of a session in seconds since the epoch: from `begin` on, and before `end`."""

    begin: float
    end: float

    def rows(self, wall_time: Floats) -> npt.NDArray[np.intp]:
        """The rows of the session."""
        return np.flatnonzero((wall_time >= self.begin) & (wall_time < self.end))


def session_spans(run: Run) -> list[SessionSteps]:
    """The sessions of a restarted run, the latest first, at most `MAX_SESSIONS`.

    None for a run of one session, and for one of several workers, whose sessions overlap: ask for each worker's run.
    """
    if len(run.workers) != 1 or len(run.session_starts) < 2:
        return []
    starts = sorted(run.session_starts)
    return [SessionSteps(*span) for span in zip(starts, [*starts[1:], np.inf], strict=True)][: -MAX_SESSIONS - 1 : -1]


def runs_of_sessions(run: Run, device: str) -> Iterator[Run]:
    """The samples of a device, and the snapshots, of each session alone, as `session_spans`."""
    figures = run.samples.devices.get(device)
    devices: Mapping[str, DeviceSamples] = {} if figures is None else {device: figures}
    samples = dataclasses.replace(run.samples, devices=devices)
    for at, span in enumerate(session_spans(run)):
        yield dataclasses.replace(
            run,
            samples=take_samples(samples, span.rows(samples.wall_time)),
            snapshots=tuple(one for one in run.snapshots if span.begin <= one.wall_time < span.end),
            # Those of the last session count.
            counters=() if at else run.counters,
            session_starts=(span.begin,),
        )


def host_of_sessions(run: Run, memory: HostMemory) -> Iterator[tuple[Run, HostMemory]]:
    """The host memory of each session alone, and the run with its counters and the CPU alone, as `session_spans`."""
    # The columns of many other devices would take long to copy.
    cpus = {name: memory.samples.devices[name] for name in memory.samples.devices if is_cpu(name)}
    every = dataclasses.replace(memory.samples, devices=cpus)
    for at, span in enumerate(session_spans(run)):
        samples = take_samples(every, span.rows(every.wall_time))
        rows = span.rows(memory.parts.wall_time)
        parts = HostSamples.of({name: getattr(memory.parts, name)[rows] for name in HOST_COLUMNS})
        of_session = dataclasses.replace(run, counters=() if at else run.counters, session_starts=(span.begin,))
        yield dataclasses.replace(of_session, samples=samples), HostMemory(samples, parts)
