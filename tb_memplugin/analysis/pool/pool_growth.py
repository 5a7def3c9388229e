"""Growth of the pool between steps at which it is known, and its reason. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, PHASES, Floats, Integers, Run
from tb_memplugin.model.samples import measured_pools
from tb_memplugin.model.units import format_bytes

MAX_SENTENCES = 30
MAX_GROWTHS = 1000
"""Changes of the pool that are kept: the last ones."""


@dataclasses.dataclass(frozen=True)
class PoolGrowth:
    """A change of the pool between two steps at which it is known.

    Attributes:
        after_step: The earlier step, None for the first one of a session.
        by_step: The later step.
        bytes: The difference; for the first step of a session, the whole pool.
        pool_bytes: The pool at the later step.
        peak_rise_bytes: Rise of the session's highest peak between the steps; None if no peak is known.
    """

    after_step: int | None
    by_step: int
    bytes: int
    pool_bytes: int
    peak_rise_bytes: int | None

    def sentence(self) -> str:
        """The change as text."""
        if self.after_step is None:
            return f"The pool was {format_bytes(self.pool_bytes)} at step {self.by_step}."
        when = f"Between step {self.after_step} and step {self.by_step}"
        if self.after_step == self.by_step:
            when = f"At step {self.by_step}"
        if self.bytes < 0:
            return (
                f"{when} the pool shrank by {format_bytes(-self.bytes)} to {format_bytes(self.pool_bytes)}: the "
                "allocator returned free regions to the device."
            )
        grew = f"{when} the pool grew by {format_bytes(self.bytes)} to {format_bytes(self.pool_bytes)}"
        if self.peak_rise_bytes is None:
            return f"{grew}."
        if self.peak_rise_bytes > 0:
            return f"{grew}: the highest peak rose by {format_bytes(self.peak_rise_bytes)}."
        return f"{grew}: no free chunk was large enough for a request, although the highest peak did not rise."


class PoolPoints(NamedTuple):
    """The moments of one session at which the pool is known, in order of time; arrays of equal length."""

    step: Integers
    pool_bytes: Integers
    highest_bytes: Integers
    """The highest peak of the session so far."""


def pool_points(run: Run, device: str) -> list[PoolPoints]:
    """The known sizes of a device's pool by session, in all phases: measured, or else from traced steps."""
    moments = _moments(run, device)
    moments = moments.take(np.argsort(moments.wall_time, kind="stable"))
    session = sessions_of(run, moments.wall_time)
    points = []
    for index in np.unique(session[moments.pool_bytes != MISSING]).tolist():
        rows = moments.take(np.flatnonzero(session == index))
        known = rows.pool_bytes != MISSING
        highest = np.maximum.accumulate(np.maximum(rows.peak_bytes, 0))
        points.append(PoolPoints(rows.step[known], rows.pool_bytes[known], highest[known]))
    return points


def sessions_of(run: Run, wall_time: Floats) -> Integers:
    """Index of the session of each moment."""
    starts = np.sort(np.asarray(run.session_starts, np.float64))
    return np.searchsorted(starts, wall_time, side="right").astype(np.int64)


def pool_growths(points: PoolPoints) -> list[PoolGrowth]:
    """Every change of the pool within a session, in order of time."""
    changes = np.flatnonzero(np.diff(points.pool_bytes, prepend=0))
    highest = points.highest_bytes
    return [
        PoolGrowth(
            after_step=int(points.step[at - 1]) if at else None,
            by_step=int(points.step[at]),
            bytes=int(points.pool_bytes[at] - (points.pool_bytes[at - 1] if at else 0)),
            pool_bytes=int(points.pool_bytes[at]),
            peak_rise_bytes=int(highest[at] - (highest[at - 1] if at else 0)) if highest[at] else None,
        )
        for at in changes[-MAX_GROWTHS:].tolist()
    ]


def pool_sentences(points: PoolPoints, growths: Sequence[PoolGrowth]) -> list[str]:
    """Sentences on the growth of one session's pool."""
    sentences = [growth.sentence() for growth in growths]
    last = int(points.step[-1])
    if growths and growths[-1].by_step < last:
        sentences.append(f"From step {growths[-1].by_step} to step {last} the known pool sizes are the same.")
    return sentences


def shortened(sentences: Sequence[str]) -> list[str]:
    """The last `MAX_SENTENCES` sentences, after one that counts the others."""
    left_out = len(sentences) - MAX_SENTENCES
    if left_out <= 0:
        return list(sentences)
    return [f"{left_out} earlier changes are not shown.", *sentences[left_out:]]


class _Moments(NamedTuple):
    step: Integers
    wall_time: Floats
    peak_bytes: Integers
    pool_bytes: Integers

    def take(self, rows: npt.NDArray[np.intp]) -> "_Moments":
        return _Moments(self.step[rows], self.wall_time[rows], self.peak_bytes[rows], self.pool_bytes[rows])


def _moments(run: Run, device: str) -> _Moments:
    """Traced steps, then samples: at equal times the peak precedes the step's end."""
    samples, figures = run.samples, run.samples.devices.get(device)
    measured_steps: set[tuple[int, int]] = set()
    rows = np.empty(0, np.intp)
    pool = np.empty(0, np.int64)
    if figures is not None:
        measured = measured_pools(figures)
        measured_steps.update(zip(samples.step[measured].tolist(), samples.phase[measured].tolist(), strict=True))
        rows = np.flatnonzero(~np.isnan(samples.wall_time) & ((figures.peak_bytes != MISSING) | measured))
        pool = np.where(measured, figures.pool_bytes, MISSING)[rows]
    traced = [
        snapshot
        for snapshot in run.snapshots
        if snapshot.device == device
        and snapshot.pool is not None
        and (snapshot.step, PHASES.index(snapshot.phase)) not in measured_steps
    ]
    peaks = figures.peak_bytes[rows] if figures is not None else pool
    return _Moments(
        step=np.append(np.asarray([snapshot.step for snapshot in traced], np.int64), samples.step[rows]),
        wall_time=np.append(
            np.asarray([snapshot.wall_time for snapshot in traced], np.float64), samples.wall_time[rows]
        ),
        peak_bytes=np.append(np.asarray([snapshot.in_use_bytes for snapshot in traced], np.int64), peaks),
        pool_bytes=np.append(np.asarray([snapshot.pool_bytes for snapshot in traced], np.int64), pool),
    )
