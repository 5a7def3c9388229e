"""Steps that a later session of the same process repeats."""

import bisect
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    MISSING,
    PHASES,
    LayerActivations,
    Samples,
    Session,
    Snapshot,
    StepRequests,
    Timeline,
    take_rows,
)
from tb_memplugin.storage.read.activation_rows import (
    ActivationPart,
    ActivationRows,
    activation_rows_of,
    part_of,
    table_of,
)
from tb_memplugin.storage.read.columns import take_activations

_TRAIN = PHASES.index("train")


class LaterSessions:
    """Steps, snapshots and activations of the sessions after one, which replace its own. Lost steps were repeated, too.

    Attributes:
        activations: Activations of each session, and the ranges of steps that it trained.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._snapshots: set[tuple[int, str, str]] = set()
        self.activations: list[tuple[LayerActivations, list[tuple[int, int]]]] = []

    def add(self, session: Session) -> None:
        repeated = list(session.lost_steps)
        trained = session.samples.step[session.samples.phase == _TRAIN]
        if len(trained):
            repeated.append((int(trained.min()), int(trained.max())))
        for first, last in repeated:
            self._add_steps(first, last)
        self._snapshots.update((snapshot.step, snapshot.phase, snapshot.device) for snapshot in session.snapshots)
        if len(session.activations):
            self.activations.append((session.activations, [*repeated, *session.lost_activation_steps]))

    def replacing(self, session: Session) -> "LaterSessions":
        """What replaces records of a session: one that trained no step was no attempt that a later one repeats.

        Its traced steps are replaced by those of the same phase only.
        """
        if (session.samples.phase == _TRAIN).any() or not len(session.samples):
            return self
        others = LaterSessions()
        others._snapshots = self._snapshots
        return others

    def repeats(self, step: int) -> bool:
        at = bisect.bisect_right(self._firsts, step) - 1
        return at >= 0 and step <= self._lasts[at]

    def replaces(self, record: Snapshot | Timeline | StepRequests) -> bool:
        """Whether a later session trained or traced the record's step again."""
        return self.repeats(record.step) or (record.step, record.phase, record.device) in self._snapshots

    def without_repeated_samples(self, samples: Samples) -> Samples:
        if not self._firsts or not len(samples):
            return samples
        at = np.searchsorted(self._firsts, samples.step, side="right") - 1
        keep = (at < 0) | (samples.step > np.asarray(self._lasts)[at])
        return samples if keep.all() else take_rows(samples, keep)

    def without_repeated_activations(self, activations: LayerActivations) -> LayerActivations:
        for later, trained in self.activations:
            activations = without_repeated_cells(activations, later, trained)
        return activations

    def _add_steps(self, first: int, last: int) -> None:
        # The ranges stay disjoint and sorted: those that overlap the new one are merged with it.
        begin = bisect.bisect_left(self._lasts, first)
        end = bisect.bisect_right(self._firsts, last)
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]


def without_repeated_cells(
    earlier: LayerActivations, later: LayerActivations, trained: Sequence[tuple[int, int]] = ()
) -> LayerActivations:
    """`earlier` without the bytes of the layers of `later` for its steps and those of the ranges `trained`.

    The session of `later` trained these, so that it has their bytes or lost them.
    """
    if not len(earlier) or not len(later):
        return earlier
    repeated = (earlier.step >= later.step.min()) & (earlier.step <= later.step.max())
    for first, last in trained:
        repeated |= (earlier.step >= first) & (earlier.step <= last)
    common = set(later.layers)
    columns = [at for at, path in enumerate(earlier.layers) if path in common]
    if not repeated.any() or not columns:
        return earlier
    if len(columns) == len(earlier.layers):
        return take_activations(earlier, ~repeated)
    parts, at = [], 0
    for part in activation_rows_of(earlier).parts:
        cleared = _cleared(part, repeated[at : at + len(part)], common)
        at += len(part)
        if cleared is not None:
            parts.append(cleared)
    return table_of(ActivationRows(parts))


def _cleared(part: ActivationPart, repeated: npt.NDArray[np.bool_], layers: Collection[str]) -> ActivationPart | None:
    columns = [at for at, path in enumerate(part.layers) if path in layers]
    if not columns or not repeated.any():
        return part
    values = part.take(slice(None)).copy()
    values[np.ix_(np.flatnonzero(repeated), np.asarray(columns))] = MISSING
    keep = ~(repeated & (values == MISSING).all(axis=1))
    if not keep.any():
        return None
    return part_of(LayerActivations(part.step[keep], part.wall_time[keep], part.layers, values[keep]), part.layers)


def hidden_by_losses(session: Session, earlier: Sequence[Session]) -> list[str]:
    """Sentences on steps that `session` repeated and lost, so that neither its nor an earlier session's are shown."""
    sentences = []
    for first, last in session.lost_steps:
        hidden = [
            one.info.session
            for one in earlier
            if ((one.samples.phase == _TRAIN) & (one.samples.step >= first) & (one.samples.step <= last)).any()
        ]
        if hidden:
            steps = f"steps {first} to {last}" if first < last else f"step {first}"
            sentences.append(
                f"session {session.info.session}: nothing is shown for {steps}, which it repeated and whose samples "
                f"are lost; session {hidden[-1]} recorded them before"
            )
    return sentences
