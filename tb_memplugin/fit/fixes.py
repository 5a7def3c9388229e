"""Possible fixes of a failed allocation, simulated through whole steps from those that the run recorded before.

A fix counts only if the simulation of the failed training fails as well, and if every step of the changed training
passes in the simulation. Pure.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tb_memplugin.fit.conditions import Conditions, globs_of
from tb_memplugin.fit.evidence import NOTHING, Evidence, bisected
from tb_memplugin.fit.plan import inside, recompute_sentence
from tb_memplugin.fit.plan_answer import format_time, remat_line
from tb_memplugin.fit.prediction import Prediction
from tb_memplugin.fit.predictor import SPARE, Predictor
from tb_memplugin.fit.segment_search import SegmentSearch, Units, units_of
from tb_memplugin.fit.what_if import layer_table_of
from tb_memplugin.fit.what_if_evidence import measured_peak, recorded_evidence, recorded_program
from tb_memplugin.schema import Fix, FixKind, Layer, Oom, Run, Verdict, format_bytes, is_gpu, recorded_precision

MAX_FIXED = 8
"""Failures of a run, the last ones, whose fixes are simulated where nobody asks for one of them."""
MOST_ACCUMULATED = 1024
"""Most batches that gradients are accumulated over."""


class Advice(NamedTuple):
    """The fixes, and a sentence on why there are none, or on what their simulation shows differently; None without."""

    fixes: tuple[Fix, ...]
    note: str | None


@dataclasses.dataclass(frozen=True)
class FailedTraining:
    """What failed: `is_training` unless the failed step validated or predicted; `op` made the failed request."""

    batch_size: int
    capacity_bytes: int
    verdict: Verdict | None
    is_gpu: bool
    is_training: bool = True
    op: str | None = None


def advice(session: Run, oom: Oom) -> Advice:
    """The fixes of a failure of a session, whose requests include steps that a later session repeats; on a device as
    the session names it. Takes up to some seconds.
    """
    before = [one for one in session.requests if one.wall_time <= oom.wall_time]
    steps = () if oom.phase is None else recorded_program(before, oom.device, oom.phase)
    if not any(not one.first for one in steps):
        return Advice((), "No fix could be simulated: no whole step was traced before.")
    if not oom.batch_size:
        return Advice((), "No fix could be simulated: the batch size of the failed step is unknown.")
    if oom.capacity_bytes is None:
        return Advice((), "No fix could be simulated: the allocator's capacity is unknown.")
    table = layer_table_of(session, steps)
    layers = () if table is None else table.layers
    training = oom.phase == "train"
    failed = FailedTraining(oom.batch_size, oom.capacity_bytes, oom.verdict, is_gpu(oom.device), training, oom.op)
    evidence = recorded_evidence(session, oom.device, steps, oom.wall_time) if training else NOTHING
    if evidence.growth is not None:
        return Advice((), f"No fix could be simulated. {evidence.growth}")
    predictor = Predictor(steps, layers, measured_peak(session, oom.device, steps, until=oom.wall_time))
    return simulated_fixes(predictor, layers, failed, evidence, lambda: units_of(session, steps[-1], layers))


def with_advice(oom: Oom, found: Advice) -> Oom:
    notes = oom.not_available if found.note is None else (*oom.not_available, found.note)
    return dataclasses.replace(oom, fixes=found.fixes, not_available=notes)


def simulated_fixes(
    predictor: Predictor,
    layers: Sequence[Layer],
    failed: FailedTraining,
    evidence: Evidence = NOTHING,
    units: Callable[[], Units] = Units,
) -> Advice:
    """The fixes of a failed training.

    The predictor predicts from steps alone, as the failure itself is no evidence; no fix contradicts the `evidence`.
    The first layer is the model itself; `units` finds those that can be recomputed.
    """
    here = predictor.predict(Conditions(batch_size=failed.batch_size, capacity_bytes=failed.capacity_bytes))
    if here.method == "unknown":
        return Advice((), "No fix could be simulated. " + " ".join(here.assumptions))
    if here.fits is not False:
        return Advice(
            (),
            "No fix could be simulated: in the simulation, the failed step "
            f"{'passes' if here.fits else 'may pass'}, so the simulation does not reproduce the failure.",
        )
    finder = _Finder(predictor.bounded_by(evidence), layers, failed, units)
    return Advice(tuple(finder.fixes()), _other_request(here, failed))


def _other_request(here: Prediction, failed: FailedTraining) -> str | None:
    """A sentence if the simulation fails at another request than the step did."""
    simulated = here.fails_at
    if simulated is None or simulated.op is None or failed.op is None or simulated.op.endswith(failed.op):
        return None
    size = format_bytes(simulated.requested_bytes)
    return (
        f"In the simulation, the failed step runs out of memory at a different request: {size} by {simulated.op}. "
        "Parallel operations request memory in a different order each time."
    )


class _Finder:
    def __init__(
        self, predictor: Predictor, layers: Sequence[Layer], failed: FailedTraining, units: Callable[[], Units]
    ) -> None:
        self._predictor, self._layers, self._failed, self._units = predictor, layers, failed, units
        self._trained = [layer.path for layer in layers if layer.trainable_weight_bytes]

    def fixes(self) -> list[Fix]:
        failed = self._failed
        largest = self._predictor.largest_batch_size(failed.capacity_bytes, below=failed.batch_size)
        # A batch of one example has no smaller one.
        fixes: list[Fix | None] = [None if largest is None or failed.batch_size == 1 else self._batch(largest)]
        if failed.is_training:
            fixes.append(recomputing_fix(self._predictor, self._units(), self._layers, failed))
            fixes += [self._accumulation(largest) if largest else None, self._freezing()]
        if failed.verdict == "fragmentation":
            fixes.append(self._one_piece())
        fixes += [self._capacity(), self._precision() if failed.is_training else None]
        return [fix for fix in fixes if fix is not None]

    def _passes(self, conditions: Conditions, quick: bool = False) -> bool:
        batch = conditions.batch_size or self._failed.batch_size
        return self._predictor.passes(batch, self._failed.capacity_bytes, conditions, quick)

    def _fix(self, kind: FixKind, change: str, conditions: Conditions, detail: str = "", **advice: Any) -> Fix:
        """A fix that is enough, with its peak: simulated over whole steps, or that of such steps in the run."""
        capacity = conditions.capacity_bytes or self._failed.capacity_bytes
        batch = conditions.batch_size or self._failed.batch_size
        prediction = self._predictor.predict(dataclasses.replace(conditions, batch_size=batch, capacity_bytes=capacity))
        how = "Recorded" if prediction.method == "recorded" else "Simulated"
        peak = prediction.peak_bytes
        sentence = f"{change}{detail}. {how} peak: {format_bytes(peak)} of {format_bytes(capacity)}."
        return Fix(kind, change, sentence, enough=True, peak_bytes=peak, **advice)

    def _batch(self, largest: int) -> Fix:
        before = self._failed.batch_size
        if not largest:
            sentence = f"Simulated: even a batch size of 1 instead of {before} fails."
            return Fix("batch", "Batch size 1", sentence, enough=False)
        conditions, detail = Conditions(batch_size=largest), f" instead of {before}"
        return self._fix("batch", f"Batch size {largest}", conditions, detail, batch_size=largest)

    def _accumulation(self, largest: int) -> Fix | None:
        """The same effective batch in fewest parts; the sums of the gradients take as much as the weights."""
        before = self._failed.batch_size
        for parts in range(2, min(before, MOST_ACCUMULATED) + 1):
            size = before // parts
            conditions = Conditions(batch_size=size, accumulate=True)
            if before % parts == 0 and size <= largest and self._passes(conditions):
                change = f"Gradient accumulation over {parts} batches of {size}"
                detail = f" (gradient_accumulation_steps={parts})"
                return self._fix("accumulation", change, conditions, detail, batch_size=size)
        return None

    def _freezing(self) -> Fix | None:
        """Freezing as few layers as needed, from the model's first on; the last one stays trainable."""
        most = len(self._trained) - 1
        if most < 1 or not self._passes(self._frozen(most)):
            return None
        passing = bisected(most, 0, lambda count: self._passes(self._frozen(count), quick=True))
        while passing < most and not self._passes(self._frozen(passing)):
            passing += 1
        paths = self._trained[:passing]
        which = f"the first {passing} trainable layers (up to {paths[-1]})" if passing > 1 else paths[0]
        return self._fix("freezing", f"Freeze {which}", self._frozen(passing), freeze=globs_of(paths))

    def _frozen(self, count: int) -> Conditions:
        return Conditions(frozen=tuple(self._trained[:count]))

    def _capacity(self) -> Fix:
        batch, capacity = self._failed.batch_size, self._failed.capacity_bytes
        found = self._predictor.enough_capacity(batch, capacity)
        if found is None:
            tried = format_bytes(self._predictor.most_capacity(batch, capacity))
            return Fix("limit", f"Capacity {tried}", f"Simulated: a capacity of {tried} is not enough.", enough=False)
        conditions, detail = Conditions(capacity_bytes=found.bytes), f" instead of {format_bytes(capacity)}"
        return self._fix(
            "limit", f"Capacity {format_bytes(found.bytes)}", conditions, detail, capacity_bytes=found.bytes
        )

    def _one_piece(self) -> Fix:
        """The same training in a pool whose free memory is always in one piece."""
        needed = self._predictor.peak_in_one_piece(self._failed.batch_size)
        capacity = self._failed.capacity_bytes
        enough = needed * (1 + SPARE) <= capacity
        how = "TF_GPU_ALLOCATOR=cuda_malloc_async joins free pieces. " if self._failed.is_gpu else ""
        change = "Free memory in one piece"
        sentence = (
            f"{change}. {how}Simulated without fragmentation: peak {format_bytes(needed)} of "
            f"{format_bytes(capacity)}, which is {'enough' if enough else 'not enough'}."
        )
        return Fix("one_piece", change, sentence, enough=enough, peak_bytes=needed)

    def _precision(self) -> Fix | None:
        failed = self._failed
        if recorded_precision(self._layers) not in (None, "float32"):
            return None  # it computes in half precision already
        conditions = Conditions(failed.batch_size, failed.capacity_bytes, precision="mixed_float16")
        prediction = self._predictor.predict(conditions)
        if prediction.low_bytes is None or prediction.low_bytes > failed.capacity_bytes:
            return None
        change = "Mixed precision"
        sentence = (
            f"{change} (mixed_float16, on a device that supports it). Estimated peak: "
            f"{format_bytes(prediction.low_bytes)} to {format_bytes(prediction.high_bytes)} of "
            f"{format_bytes(failed.capacity_bytes)}."
        )
        return Fix("precision", change, sentence)


def recomputing_fix(predictor: Predictor, units: Units, layers: Sequence[Layer], failed: FailedTraining) -> Fix | None:
    """The segments with which the failed training passes at the least time; None if none are enough."""
    capacity = failed.capacity_bytes
    if not len(units):
        return None
    search = SegmentSearch(predictor, units, Conditions(failed.batch_size, capacity))
    found = search.cheapest(capacity)
    if found is None or not search.fits(found, capacity):
        return None
    segments = inside(f"{layers[0].path}/", found.segments)
    what = recompute_sentence(segments)
    change, (_, peak, high) = f"{what[0].upper()}{what[1:]}", found.peaks.span
    sentence = (
        f"{change} in the backward pass. Simulated peak: "
        f"{format_bytes(peak)} of {format_bytes(capacity)}, about {format_time(found.extra_time)} time."
    )
    line = remat_line(segments)
    return Fix("recompute", change, sentence, enough=True, budget_bytes=high, peak_bytes=peak, code=line)
