"""Fixes for a training that ran out of memory, each simulated through whole steps. Pure.

A fix counts only if the simulation of the failed training fails as well, and if every step of the changed training
passes in the simulation.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tb_memplugin.model import Fix, FixKind, Layer, Verdict
from tb_memplugin.model.layers import recorded_precision
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.capacity import CapacitySearch
from tb_memplugin.prediction.conditions import Conditions, globs_of
from tb_memplugin.prediction.evidence import NOTHING, Evidence
from tb_memplugin.prediction.prediction import Prediction
from tb_memplugin.prediction.predictor import SPARE, Predictor

MOST_ACCUMULATED = 1024
"""Most batches that gradients are accumulated over."""


@dataclasses.dataclass(frozen=True)
class FailedTraining:
    """The training to fix.

    Attributes:
        batch_size: Examples in the batch of the failed step.
        capacity_bytes: The allocator's limit.
        verdict: Verdict on the failure.
        is_gpu: Whether the device is a GPU.
        is_training: Whether the failed step trained, rather than validated or predicted.
        op: The op that made the failed request, None if unknown.
    """

    batch_size: int
    capacity_bytes: int
    verdict: Verdict | None
    is_gpu: bool
    is_training: bool = True
    op: str | None = None


Recomputation: TypeAlias = Callable[[Predictor], Fix | None]
"""Finds the segments to recompute with a predictor."""


def simulated_fixes(
    predictor: Predictor,
    layers: Sequence[Layer],
    failed: FailedTraining,
    evidence: Evidence = NOTHING,
    recomputation: Recomputation = lambda predictor: None,
) -> tuple[tuple[Fix, ...], str | None]:
    """The fixes, and a sentence if none can be simulated, or if the simulation fails at another request.

    Args:
        predictor: Predicts for the program that failed, from its steps alone: the failure itself is no evidence.
        layers: The model's layers, in order.
        failed: The training that failed.
        evidence: What the run showed of batch sizes, which no fix contradicts.
        recomputation: Finds segments to recompute with which the failed training passes.
    """
    here = predictor.predict(Conditions(batch_size=failed.batch_size, capacity_bytes=failed.capacity_bytes))
    if here.method == "unknown":
        return (), "No fix could be simulated. " + " ".join(here.assumptions)
    if here.fits is not False:
        return (), (
            "No fix could be simulated: in the simulation, the failed step "
            f"{'passes' if here.fits else 'may pass'}, so the simulation does not reproduce the failure."
        )
    finder = _Finder(predictor.bounded_by(evidence), layers, failed, recomputation)
    return tuple(finder.fixes()), _other_request(here, failed)


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
    """Finds the fixes of one failure."""

    def __init__(
        self, predictor: Predictor, layers: Sequence[Layer], failed: FailedTraining, recomputation: Recomputation
    ) -> None:
        self._predictor, self._layers, self._failed = predictor, layers, failed
        self._recomputation = recomputation

    def fixes(self) -> list[Fix]:
        """The fixes, those that cost least first."""
        failed = self._failed
        largest = self._predictor.largest_batch_size(failed.capacity_bytes, below=failed.batch_size)
        # A batch of one example has no smaller one.
        fixes: list[Fix | None] = [None if largest is None or failed.batch_size == 1 else self._batch(largest)]
        if failed.is_training:
            fixes.append(self._recomputation(self._predictor))
            fixes += [self._accumulation(largest) if largest else None, self._freezing()]
        if failed.verdict == "fragmentation":
            fixes.append(self._one_piece())
        fixes += [self._capacity(), self._precision() if failed.is_training else None]
        return [fix for fix in fixes if fix is not None]

    def _passes(self, conditions: Conditions, quick: bool = False) -> bool:
        batch = conditions.batch_size or self._failed.batch_size
        capacity = conditions.capacity_bytes or self._failed.capacity_bytes
        return self._predictor.passes(batch, capacity, conditions, quick)

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
            if before % parts or size > largest:
                continue
            conditions = Conditions(batch_size=size, accumulate=True)
            if self._passes(conditions):
                change = f"Gradient accumulation over {parts} batches of {size}"
                detail = f" (gradient_accumulation_steps={parts})"
                return self._fix("accumulation", change, conditions, detail, batch_size=size)
        return None

    def _freezing(self) -> Fix | None:
        """Freezing as few layers as needed, from the model's first on."""
        trained = [layer.path for layer in self._layers if layer.trainable_weight_bytes]
        failing, passing = 0, len(trained)
        if passing < 2 or not self._passes(self._frozen(trained[: passing - 1])):
            return None
        passing -= 1  # the last layer stays trainable
        while passing - failing > 1:
            middle = (failing + passing) // 2
            if self._passes(self._frozen(trained[:middle]), quick=True):
                passing = middle
            else:
                failing = middle
        while passing < len(trained) - 1 and not self._passes(self._frozen(trained[:passing])):
            passing += 1
        which = f"the first {passing} trainable layers (up to {trained[passing - 1]})" if passing > 1 else trained[0]
        paths = trained[:passing]
        return self._fix("freezing", f"Freeze {which}", self._frozen(paths), freeze=globs_of(paths))

    @staticmethod
    def _frozen(paths: Sequence[str]) -> Conditions:
        return Conditions(frozen=tuple(paths))

    def _capacity(self) -> Fix:
        """A capacity at which the failed batch passes."""
        failed = self._failed
        search = CapacitySearch(self._predictor, failed.batch_size, failed.capacity_bytes)
        found = search.find()
        if found is None:
            tried = format_bytes(search.most_bytes)
            return Fix("limit", f"Capacity {tried}", f"Simulated: a capacity of {tried} is not enough.", enough=False)
        advised = found.bytes
        conditions, detail = Conditions(capacity_bytes=advised), f" instead of {format_bytes(failed.capacity_bytes)}"
        return self._fix("limit", f"Capacity {format_bytes(advised)}", conditions, detail, capacity_bytes=advised)

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
        """Mixed precision, as an estimate."""
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
