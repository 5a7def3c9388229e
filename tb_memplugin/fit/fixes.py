"""Finds changes that fix a failed allocation. Pure.

A fix counts only if the simulation of the failed training fails as well, and if every step of the
changed training passes in the simulation."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.allocator import unreserved_bytes
from tb_memplugin.fit.changes import rows_of
from tb_memplugin.fit.conditions import PEAK, Conditions, Interval, globs_of
from tb_memplugin.fit.evidence import (
    NOTHING,
    SMALLER,
    Evidence,
    layer_table_of,
    measured_peak,
    recorded_evidence,
    recorded_program,
    smaller_batch,
)
from tb_memplugin.fit.plans import Applied, code_of, compiled_with, format_time
from tb_memplugin.fit.predictor import Predictor
from tb_memplugin.fit.questions import enough_capacity, most_capacity
from tb_memplugin.fit.search import bisected
from tb_memplugin.fit.segments import SegmentSearch, Units, inside, recompute_sentence, units_of
from tb_memplugin.fit.simulation import FailedRequest, peak_in_one_piece
from tb_memplugin.fit.steps import SizedStep, sizes_for
from tb_memplugin.fit.trials import SPARE
from tb_memplugin.schema import (
    IN_USE,
    Fix,
    FixKind,
    Layer,
    Oom,
    Run,
    StepRequests,
    dimensions,
    format_bytes,
    is_gpu,
    recorded_precision,
    values_of,
)

MAX_FIXED = 8
"""Failures of a run, the last ones, whose fixes are simulated where nobody asks for one of them."""
MOST_ACCUMULATED = 1024
"""Most batches that gradients are accumulated over."""
_LASTING = ("weights", "optimizer_state", "weight_gradients", "other_state")
"""Categories of chunks whose sizes do not depend on the batch."""
_NONE = "No fix could be simulated"
_UNKNOWN_REST = f"{_NONE}: the first step ran out of memory, so the rest of it is unknown."
MEASURE = "To measure what fits: print(tb_memplugin.largest_batch_size(model, data))"


class Advice(NamedTuple):
    """The fixes, and a sentence on why there are none, or on what their simulation shows
    differently; None without. The peak of the training as it failed, in a simulation without a
    limit, if there are fixes."""

    fixes: tuple[Fix, ...]
    note: str | None
    unchanged: Interval | None = None


def advice(session: Run, oom: Oom) -> Advice:
    """The fixes of a session's failure; its requests include steps that a later session repeats.
    Takes some seconds."""
    if oom.phase is None:
        return Advice(
            (), f"{_NONE}: memory ran out outside of steps, and only steps are simulated."
        )
    before = [one for one in session.requests if one.wall_time <= oom.wall_time]
    steps = recorded_program(before, oom.device, oom.phase)
    helps = MEASURE if oom.phase == "train" else smaller_batch(oom)
    if all(one.first for one in steps):
        helps = beyond_batch(session, oom) or helps
        if oom.requests is None:
            return Advice((), f"{_NONE}: no whole step was traced before. {helps}")
        steps = (oom.requests,)
    if not oom.batch_size:
        return Advice((), f"{_NONE}: the batch size of the failed step is unknown.")
    if oom.capacity_bytes is None:
        return Advice((), f"{_NONE}: the allocator's capacity is unknown.")
    table = layer_table_of(session, steps)
    layers = () if table is None else table.layers
    if steps[-1] is oom.requests and not oom.requests.planned:
        bound = _bound(oom.requests, layers, oom.batch_size, oom.capacity_bytes)
        return Advice((), " ".join([_UNKNOWN_REST, *bound, helps]))
    evidence = NOTHING
    if oom.phase == "train":
        evidence = recorded_evidence(session, oom.device, steps, oom.wall_time)
    if evidence.refused is not None:
        return Advice((), f"{_NONE}. {evidence.refused}")
    measured = measured_peak(session, oom.device, steps, oom.wall_time)
    predictor = Predictor(steps, layers, measured)

    def units() -> Units:
        is_keras_2 = compiled_with(session) == "tf_keras"
        return Units() if is_keras_2 else units_of(session, steps[-1], layers)

    return simulated_fixes(predictor, oom, evidence, units)


def beyond_batch(run: Run, oom: Oom) -> str | None:
    """If no smaller batch makes room for a request of the update, or of a weight's gradient: why,
    and what does, in sentences.

    It has the size of a weight in memory, and all chunks whose sizes may depend on the batch have
    less than what is missing."""
    shape, chunks, size = dimensions(oom.shape), oom.map, oom.requested_bytes
    if chunks is None or not size or not oom.layer or not shape or shape[0] == oom.batch_size:
        return None
    lasting = np.asarray([one.category in _LASTING for one in chunks.owners], bool)
    of_layer = np.asarray([one.layer == oom.layer for one in chunks.owners], bool)
    used = chunks.state == IN_USE
    owned = used & (chunks.owner >= 0)
    is_lasting, is_layers = (
        owned & np.append(one, False)[chunks.owner] for one in (lasting, of_layer)
    )
    as_large = used & (chunks.requested_bytes == size)
    missing = size - int(chunks.bytes[~used].sum()) - (unreserved_bytes(chunks) or 0)
    freed = int(chunks.bytes[used & ~is_lasting & ~as_large].sum())
    if not (as_large & is_lasting & is_layers).any() or freed >= missing:
        return None
    table = run.layer_tables[-1] if run.layer_tables else None
    kinds = {} if table is None else {layer.path: layer.type for layer in table.layers}
    optimizer = (table and table.optimizer) or "The optimizer"
    sgd = "SGD without momentum, which has no slots"
    if kinds.get(oom.layer) == "Embedding":
        sgd += f" ({optimizer} makes slots, gradients and temporaries of all rows)"
    return (
        f"The request has the size of a weight of layer {oom.layer}, whatever the batch size: a "
        f"smaller batch frees at most {format_bytes(freed)} of the {format_bytes(missing)} that "
        f"are missing. What helps: {sgd}; weights in bfloat16; a smaller layer."
    )


def _bound(
    until: StepRequests, layers: Sequence[Layer], failed: int, capacity: int
) -> Iterator[str]:
    """Which batch sizes cannot fit, by a step's requests up to the one that failed and the slots
    that it would make; nothing if these exclude less than half of the failed batch size."""
    weights = sum(layer.weight_bytes for layer in layers)
    lasting = weights + sum(layer.optimizer_bytes for layer in layers)
    here = int(until.requested[rows_of(until, "weights")].sum())
    # else some are on other devices
    if lasting > capacity and weights <= here:
        size = f"{format_bytes(lasting)} of {format_bytes(capacity)}"
        yield f"Weights and optimizer state alone need {size}, so no batch size fits."
        return

    def least(batch: int) -> int:
        return peak_in_one_piece(SizedStep(until, sizes_for(until, batch).low))

    most = bisected(0, failed, lambda batch: least(batch) <= capacity)
    size = f"{format_bytes(least(failed))} of {format_bytes(capacity)}"
    alone = f"Its requests until the failure alone need {size}"
    if not most:
        yield f"{alone}, and even with a batch size of 1 more than that."
    elif most <= failed // 2:
        yield f"{alone}, so only batch sizes up to {most} may fit."


def with_advice(oom: Oom, found: Advice) -> Oom:
    notes = oom.not_available if found.note is None else (*oom.not_available, found.note)
    return dataclasses.replace(oom, fixes=found.fixes, not_available=notes)


def simulated_fixes(
    predictor: Predictor, oom: Oom, evidence: Evidence = NOTHING, units: Callable[[], Units] = Units
) -> Advice:
    """The fixes of a failure of known batch size and capacity.

    The predictor predicts from steps alone, as the failure itself is no evidence; no fix
    contradicts the `evidence`. The predictor's first layer is the model itself; `units` finds those
    that can be recomputed."""
    here = predictor.predict(Conditions(oom.batch_size, oom.capacity_bytes))
    if here.method == "unknown":
        return Advice((), f"{_NONE}. {' '.join(here.assumptions)}")
    if here.fits is not False:
        passes = "passes" if here.fits else "may pass"
        return Advice(
            (),
            f"{_NONE}: in the simulation, the failed step {passes}, so the simulation does not "
            "reproduce the failure.",
        )
    fixes = _Finder(predictor.bounded_by(evidence), oom, units).fixes()
    return Advice(tuple(fixes), _other_request(here.fails_at, oom.op), Interval.of(here))


def _other_request(simulated: FailedRequest | None, failed_op: str | None) -> str | None:
    """A sentence if the simulation fails at another request than the step did."""
    op = None if simulated is None else simulated.op
    if simulated is None or op is None or failed_op is None or op.endswith(failed_op):
        return None
    return (
        "In the simulation, the failed step runs out of memory at a different request: "
        f"{format_bytes(simulated.requested_bytes)} by {op}. Parallel operations request memory in "
        "a different order each time."
    )


class _Finder:
    """Tries changes of a failed training; all conditions begin with those of the failure."""

    def __init__(self, predictor: Predictor, oom: Oom, units: Callable[[], Units]) -> None:
        self._predictor, self._oom, self._units = predictor, oom, units
        self._batch, self._capacity = oom.batch_size or 0, oom.capacity_bytes or 0
        self._failed = Conditions(self._batch, self._capacity)

    def fixes(self) -> list[Fix]:
        is_training = self._oom.phase == "train"
        largest = self._predictor.largest_batch_size(self._failed, below=self._batch)
        fixes: list[Fix | None] = []
        if largest is not None and self._batch > 1:
            fixes.append(self._smaller_batch(largest))
        if is_training:
            fixes.append(recomputing_fix(self._predictor, self._units(), self._failed))
            fixes += [self._accumulation(largest) if largest else None, self._freezing()]
        if self._oom.verdict == "fragmentation":
            fixes.append(self._one_piece())
        fixes += [self._larger_capacity(), self._precision() if is_training else None]
        return [fix for fix in fixes if fix is not None]

    def _holds(self, changed: Conditions, quick: bool = False) -> bool:
        return self._predictor.fits(changed, alone=True, quick=quick)

    def _fix(
        self, kind: FixKind, change: str, detail: str, changed: Conditions, **advice: Any
    ) -> Fix:
        """A fix that is enough, with its peak: simulated over whole steps, or that of such steps in
        the run."""
        prediction = self._predictor.predict(changed)
        how = "Recorded" if prediction.method == "recorded" else "Simulated"
        size = f"{format_bytes(prediction.peak_bytes)} of {format_bytes(changed.capacity_bytes)}"
        peak = values_of(prediction, *PEAK)
        sentence = f"{change}{detail}. {how} peak: {size}."
        return Fix(kind, change, sentence, enough=True, **peak, **advice)

    def _smaller_batch(self, largest: int) -> Fix:
        before = f" instead of {self._batch}"
        if self._oom.phase != "train":
            before = f"{before} ({SMALLER[self._oom.phase]})"
        if not largest:
            sentence = f"Simulated: even a batch size of 1{before} fails."
            return Fix("batch", "Batch size 1", sentence, enough=False)
        changed = dataclasses.replace(self._failed, batch_size=largest)
        return self._fix("batch", f"Batch size {largest}", before, changed, batch_size=largest)

    def _accumulation(self, largest: int) -> Fix | None:
        """The same effective batch in fewest parts; the sums of the gradients take as much as the
        weights."""
        for parts in range(2, min(self._batch, MOST_ACCUMULATED) + 1):
            size, rest = divmod(self._batch, parts)
            changed = dataclasses.replace(self._failed, batch_size=size, accumulate=True)
            if not rest and size <= largest and self._holds(changed):
                change = f"Gradient accumulation over {parts} batches of {size}"
                detail = f" (gradient_accumulation_steps={parts})"
                return self._fix("accumulation", change, detail, changed, batch_size=size)
        return None

    def _freezing(self) -> Fix | None:
        """Freezing as few layers as needed, from the model's first on; the last one stays
        trainable."""
        layers = self._predictor.layers
        trained = tuple(layer.path for layer in layers if layer.trainable_weight_bytes)

        def frozen(count: int) -> Conditions:
            return dataclasses.replace(self._failed, frozen=trained[:count])

        most = len(trained) - 1
        if most < 1 or not self._holds(frozen(most)):
            return None
        count = bisected(most, 0, lambda count: self._holds(frozen(count), quick=True))
        while count < most and not self._holds(frozen(count)):
            count += 1
        paths = trained[:count]
        which = paths[-1]
        if count > 1:
            which = f"the first {count} trainable layers (up to {which})"
        return self._fix("freezing", f"Freeze {which}", "", frozen(count), freeze=globs_of(paths))

    def _larger_capacity(self) -> Fix:
        found = enough_capacity(self._predictor, self._failed)
        if found is None:
            tried = format_bytes(most_capacity(self._predictor, self._failed))
            sentence = f"Simulated: a capacity of {tried} is not enough."
            return Fix("limit", f"Capacity {tried}", sentence, enough=False)
        changed = dataclasses.replace(self._failed, capacity_bytes=found.bytes)
        before = f" instead of {format_bytes(self._capacity)}"
        change = f"Capacity {format_bytes(found.bytes)}"
        return self._fix("limit", change, before, changed, capacity_bytes=found.bytes)

    def _one_piece(self) -> Fix:
        """The same training in a pool whose free memory is always in one piece."""
        needed = self._predictor.peak_in_one_piece(self._failed)
        enough = needed * (1 + SPARE) <= self._capacity
        how = ""
        if is_gpu(self._oom.device):
            how = "TF_GPU_ALLOCATOR=cuda_malloc_async joins free pieces. "
        change = "Free memory in one piece"
        sentence = (
            f"{change}. {how}Simulated without fragmentation: peak {format_bytes(needed)} of "
            f"{format_bytes(self._capacity)}, which is {'enough' if enough else 'not enough'}."
        )
        peak = Interval(needed, needed, needed).as_peak()
        return Fix("unfragmented", change, sentence, enough=enough, **peak)

    def _precision(self) -> Fix | None:
        if recorded_precision(self._predictor.layers) not in (None, "float32"):
            return None  # it computes in half precision already
        changed = dataclasses.replace(self._failed, precision="mixed_float16")
        prediction = self._predictor.predict(changed)
        if prediction.low_bytes is None or prediction.low_bytes > self._capacity:
            return None
        change = "Mixed precision"
        span = f"{Interval.of(prediction).span} of {format_bytes(self._capacity)}"
        sentence = (
            f"{change} (mixed_float16, on a device that supports it). Estimated peak: {span}."
        )
        span_bytes = values_of(prediction, "low_bytes", "high_bytes")
        return Fix("precision", change, sentence, **span_bytes)


def recomputing_fix(predictor: Predictor, units: Units, failed: Conditions) -> Fix | None:
    """The segments with which the failed training passes at the least time; None if none are
    enough."""
    capacity = failed.capacity_bytes or 0
    found = SegmentSearch(predictor, units, failed).cheapest(capacity) if len(units) else None
    if found is None or not predictor.is_within(capacity, found.conditions):
        return None
    segments = inside(f"{predictor.layers[0].path}/", found.segments)
    change, peak = recompute_sentence(segments).capitalize(), found.parts.peak
    size = f"{format_bytes(peak.typical_bytes)} of {format_bytes(capacity)}"
    return Fix(
        "recompute",
        change,
        f"{change} in the backward pass. Simulated peak: {size}, about "
        f"{format_time(found.extra_time)} time.",
        enough=True,
        budget_bytes=peak.high_bytes,
        **peak.as_peak(),
        code=code_of(Applied("recompute", segments), "", predictor.layers),
    )
