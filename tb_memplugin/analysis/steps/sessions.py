"""The sessions of a run that was restarted: each is a process of its own, whose memory starts anew. Pure."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Floats, Run, take_samples

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


def runs_of_sessions(run: Run, devices: Iterable[str]) -> Iterator[Run]:
    """The samples of some devices, and the snapshots, of each session alone, as `session_spans`."""
    recorded = run.samples.devices
    samples = dataclasses.replace(run.samples, devices={name: recorded[name] for name in devices if name in recorded})
    for at, span in enumerate(session_spans(run)):
        yield dataclasses.replace(
            run,
            samples=take_samples(samples, span.rows(samples.wall_time)),
            snapshots=tuple(one for one in run.snapshots if span.begin <= one.wall_time < span.end),
            # Those of the last session count.
            counters=() if at else run.counters,
            session_starts=(span.begin,),
        )
