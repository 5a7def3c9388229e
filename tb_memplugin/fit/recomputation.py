"""A recorded step in which segments of layers are recomputed in the backward pass. Pure.

A recomputed segment frees what it saves for the backward pass as soon as its forward pass no longer
needs it, except its output, which the following layers need. What its first pass reads of the batch
stays until the second. Its forward allocations are requested again before its backward pass begins.
Ops of its backward pass that need results of the forward pass only, such as parts of GELU's
derivative, run as soon as these exist: in the recorded step during the forward pass, after a
recomputation then."""

import dataclasses
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.fit.changes import LATER_RESULTS, Segments, own_rows, rearranged, rows_of
from tb_memplugin.fit.steps import SizedStep
from tb_memplugin.schema import GRADIENT_OPS, GRADIENTS, RESULTS, Integers, StepRequests

SMALL_SHARE = 0.01
"""Share of layers' bytes below which their first requests do not say when they begin. Not fitted:
seeds have few bytes. At 0, `test_a_seed_that_was_there_early_does_not_bring_earlier_results_along`
fails."""


@dataclasses.dataclass(frozen=True)
class Part:
    """What consecutive layers request in a step."""

    # rows of the forward pass in order of birth: results and temporaries; none outlives the step
    forward: Integers
    begin: int  # begin, end: events of the first and the last of these births
    end: int
    back: int  # first event of their backward pass
    # those of the rows that are alive at the end of the forward pass and when the backward pass
    # begins
    held: Integers
    # the row of their output, which the following layers read; None if it has no chunk of its own
    output: int | None
    ahead: Integers  # rows of ops of their backward pass that ran during the forward pass
    # rows of the batch that nothing reads after them, if they are the model's first layers
    inputs: Integers

    @property
    def saved(self) -> Integers:
        return np.concatenate([self.held, self.ahead])


_NO_ROWS = np.zeros(0, np.int64)
NO_PART = Part(_NO_ROWS, 0, 0, 0, _NO_ROWS, None, _NO_ROWS, _NO_ROWS)
"""Of layers in a compiled step, whose chunks hold those of all layers together."""


class Parts:
    def __init__(self, requests: StepRequests) -> None:
        self.requests = requests
        own = own_rows(requests)
        backward_op = np.asarray([GRADIENT_OPS in op for op in (*requests.ops, "")], bool)[
            requests.op
        ]
        self.activations = own & rows_of(requests, "activations") & ~backward_op
        self.forward_end = int(requests.birth[self.activations].max(initial=-1))
        is_forward = requests.birth <= self.forward_end
        results = own & rows_of(requests, *RESULTS) & is_forward
        backward = (backward_op | rows_of(requests, *GRADIENTS)) & ~is_forward
        batch = rows_of(requests, "inputs") & (requests.batch_power == 1)
        self._freed_inputs = np.flatnonzero(batch & (requests.death <= self.forward_end))
        self._forward = self._by_layer(np.flatnonzero(results & ~backward_op))
        self._ahead = self._by_layer(
            np.flatnonzero(results & backward_op & (requests.death > self.forward_end))
        )
        self._backward = self._by_layer(np.flatnonzero(backward))
        # model to the births of the forward pass that are not its own, sorted
        self._others: dict[str, Integers] = {}
        # path to the sorted paths of it and of what is inside it
        self._inside: dict[str, list[str]] = {}
        for path in sorted({owner.layer for owner in requests.owners if owner.layer is not None}):
            parts = path.split("/")
            for depth in range(len(parts)):
                self._inside.setdefault("/".join(parts[: depth + 1]), []).append(path)

    def _by_layer(self, rows: Integers) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in rows.tolist():
            layer = self.requests.owners[int(self.requests.owner[row])].layer
            if layer is not None:
                found.setdefault(layer, []).append(row)
        return found

    def of(self, layers: Sequence[str], output_bytes: int | None) -> Part | None:
        """What layers, with those inside them, request; None if they save nothing. The last has
        `output_bytes`."""
        birth, death, requested = self.requests.birth, self.requests.death, self.requests.requested
        known = sorted({path for layer in layers for path in self._inside.get(layer, ())})
        forward, backward, ahead = (
            np.asarray([row for path in known for row in rows.get(path, ())], np.int64)
            for rows in (self._forward, self._backward, self._ahead)
        )
        if not len(forward) or not len(backward):
            return None
        operations = self._operations(
            layers[0].rpartition("/")[0], self._beginning(forward), int(birth[forward].max())
        )
        rows = np.concatenate([forward, operations])
        rows = rows[np.argsort(birth[rows], kind="stable")]
        begin, end = int(birth[rows[0]]), int(birth[rows[-1]])
        back = int(birth[backward].min())
        held = rows[death[rows] > self.forward_end]
        lasting = rows[death[rows] > end]
        sized = (
            lasting[requested[lasting] == output_bytes]
            if output_bytes is not None
            else lasting[-1:]
        )
        ahead = ahead[death[ahead] > back]
        inputs = self._inputs(int(birth[np.concatenate([rows, ahead])].min()), begin, end)
        return Part(rows, begin, end, back, held, self._output(sized), ahead, inputs)

    def _inputs(self, first: int, begin: int, end: int) -> Integers:
        """Rows of the batch that are freed between the first request of layers and the last one of
        their forward pass, such as the layout in which a GPU's batch was fed; none if other layers
        come before."""
        if (self.requests.birth[self.activations] < begin).any():
            return self._freed_inputs[:0]
        freed = self.requests.death[self._freed_inputs]
        return self._freed_inputs[(freed > first) & (freed <= end)]

    def _output(self, rows: Integers) -> int | None:
        """The row of an output, of those of its size that outlive its layers' last request; None
        without one. It may have the chunk of an earlier result; a dropout's random numbers may be
        such a row, too, but are freed soon."""
        death = self.requests.death[rows]
        held = rows[death > self.forward_end]
        if len(held):
            return int(held[-1])
        return int(rows[np.argmax(death)]) if len(rows) else None

    def _beginning(self, rows: Integers) -> int:
        """The first birth of rows, without those that have no inputs, such as seeds, and may be
        born at any time: together less than `SMALL_SHARE` of the rows' bytes."""
        birth, requested = self.requests.birth[rows], self.requests.requested[rows]
        order = np.argsort(birth, kind="stable")
        until = np.cumsum(requested[order])
        return int(birth[order][np.searchsorted(until, SMALL_SHARE * until[-1])])

    def _operations(self, model: str, begin: int, end: int) -> Integers:
        """Rows of a model's operations that are no layers, such as `x + y`, among and right behind
        some layers."""
        if model not in self._others:
            rows_of_others = [
                row for path, rows in self._forward.items() if path != model for row in rows
            ]
            self._others[model] = np.sort(self.requests.birth[np.asarray(rows_of_others, np.int64)])
        others = self._others[model]
        place = int(np.searchsorted(others, end, "right"))
        following = others[place] if place < len(others) else self.forward_end + 1
        rows = np.asarray(self._forward.get(model, ()), np.int64)
        births = self.requests.birth[rows]
        return rows[(births > begin) & (births < following)]


_Repeated: TypeAlias = tuple[StepRequests, Integers]
_Key: TypeAlias = tuple[Segments, tuple[int | None, ...]]
_parts: "weakref.WeakKeyDictionary[StepRequests, Parts]" = weakref.WeakKeyDictionary()
_latest: "weakref.WeakKeyDictionary[StepRequests, tuple[_Key, _Repeated | None]]" = (
    weakref.WeakKeyDictionary()
)


def recomputed(step: SizedStep, segments: Segments, outputs: Mapping[str, int]) -> SizedStep:
    """The step with segments recomputed; `outputs`: layer path to its output's bytes for one
    example, where known."""
    batch = step.requests.examples or 0
    key = (
        segments,
        tuple(
            outputs[path] * batch if batch and path in outputs else None for *_, path in segments
        ),
    )
    # The least and the most sizes of a step are simulated with the same segments.
    known = _latest.get(step.requests)
    if known is None or known[0] != key:
        known = _latest[step.requests] = key, _repeated(step.requests, *key)
    if known[1] is None:
        return step
    requests, rows = known[1]
    return SizedStep(requests, step.sizes[rows])


def _repeated(
    requests: StepRequests, segments: Segments, output_bytes: Sequence[int | None]
) -> _Repeated | None:
    """The requests with segments recomputed, and the recorded row of each of them; None if they
    save nothing."""
    parts = _parts.get(requests)
    if parts is None:
        parts = _parts[requests] = Parts(requests)
    every = [parts.of(layers, size) for layers, size in zip(segments, output_bytes, strict=True)]
    found = [part for part in every if part is not None and len(part.saved)]
    if not found:
        return None
    birth, death = requests.birth.astype(np.float64), requests.death.astype(np.float64)
    copies: list[int] = []  # rows that are requested again
    born: list[float] = []
    freed: list[float] = []
    for part, following in itertools.zip_longest(found, found[1:]):
        output = -1 if part.output is None else part.output
        rows = part.forward
        # If no op of the backward pass reads the output, it is not computed again.
        rows = rows[(rows != output) | (requests.death[rows] > part.back)]
        # Between the event before the first backward event and that one, in the order of the
        # forward pass.
        first, done, span = part.back - 0.9, part.back - 0.1, part.end - part.begin + 1
        place = first + (done - first) * (requests.birth[rows] - part.begin) / span
        again = np.minimum(
            first + (done - first) * (requests.death[rows] - part.begin) / span, done
        )
        ends = np.where(requests.death[rows] > part.back, requests.death[rows], again)
        copies += [*rows.tolist(), *part.ahead.tolist()]
        born += [*place.tolist(), *[done] * len(part.ahead)]
        freed += [*ends.tolist(), *requests.death[part.ahead].tolist()]
        death[part.ahead] = birth[part.ahead] + 0.01  # not requested before the recomputation
        death[part.inputs] = done + 0.01  # which reads them
        early = part.held[part.held != output]
        last = len(early) - 1
        if last >= 0:
            consumer = requests.birth[early[np.minimum(np.arange(last + 1) + LATER_RESULTS, last)]]
            consumed = (
                np.where(np.arange(last + 1) + LATER_RESULTS <= last, consumer, part.end) + 0.5
            )
            death[early] = np.minimum(death[early], consumed)
        if part.output is not None:
            # Its copy takes over, or the following segment is computed again from it.
            until = part.back - 0.05 if requests.death[output] > part.back else death[output]
            death[output] = until if following is None else max(until, following.back)
    return rearranged(requests, birth, death, copies, born, freed)
