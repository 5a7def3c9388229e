"""One traced step: the owner of each byte at its peak (the ledger), and its other results."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from tb_memplugin.allocator import TraceReplay, pool_at
from tb_memplugin.attribution.chunks import PLANNED, peak_event
from tb_memplugin.attribution.held import tensor_groups
from tb_memplugin.attribution.ledger import ledger_at, saved_rows
from tb_memplugin.attribution.maps import Ages, StepChunks, owned_at, owned_map, step_chunks
from tb_memplugin.attribution.module_sizes import ModuleChunk, ModuleContents, contents_of
from tb_memplugin.attribution.modules import Plan
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.requests import planned_requests, step_requests, until_failure
from tb_memplugin.attribution.saved import SavedChunks
from tb_memplugin.attribution.tensors import Shapes, largest_tensors, tensors_at, tensors_inside
from tb_memplugin.attribution.timelines import timeline
from tb_memplugin.schema import (
    AllocationTrace,
    LedgerRow,
    MemoryMap,
    Phase,
    Replay,
    Snapshot,
    StepRequests,
    TensorGroup,
    Timeline,
    TraceFacts,
    rounding_total,
)


class AttributedStep:
    """A traced step and what is known of it; results are computed when they are asked for. If the
    trace contradicts itself, only the bytes in use and the owners of older chunks are known.

    Args:
        trace: One device's events, of a whole step; with the maps around it, the pool is known as
            well.
        facts: What the recorder knows of the program.
        capacity_bytes: The allocator's limit; None to take it from the events."""

    def __init__(
        self,
        trace: AllocationTrace,
        facts: TraceFacts,
        *,
        step: int,
        phase: Phase,
        wall_time: float,
        capacity_bytes: int | None = None,
    ) -> None:
        self.trace = trace
        self._step, self._phase = step, phase
        self._wall_time, self._capacity = wall_time, capacity_bytes
        self._classifier = Classifier(trace, facts)
        self.facts = self._classifier.window.facts
        self._shapes = Shapes(self._classifier.window)
        self._peak = peak_event(trace)

    @property
    def input_sizes(self) -> set[int]:
        """Requested bytes of what the input pipeline allocated, and of batches that the step was
        given."""
        return self._classifier.older.input_sizes

    @cached_property
    def _saved(self) -> SavedChunks:
        return SavedChunks(self._classifier)

    @cached_property
    def chunks(self) -> StepChunks | None:
        """The chunks with their owners; None if the trace misses events."""
        if self.trace.missed:
            return None
        return step_chunks(self._classifier, self._shapes, self._step, self._phase)

    def largest_tensors(self, event: int) -> tuple[TensorGroup, ...]:
        """The largest tensors just after an event (-1: when the step began)."""
        return largest_tensors(tensors_at(self._classifier, self._shapes, event))

    @cached_property
    def _replay(self) -> TraceReplay | None:
        return None if self.trace.start_map is None else TraceReplay(self.trace, self._peak)

    def map(self, ages: Ages, event: int | None = None) -> MemoryMap | None:
        """The memory map just after an event, by default the peak, with owners; None without maps
        around the step. `ages` are those of the chunks from before the step."""
        event = self._peak if event is None else event
        replay = self._replay if event == self._peak else TraceReplay(self.trace, event)
        if replay is None or self.chunks is None:
            return None
        return owned_map(replay.map, owned_at(self.chunks, self._classifier, event), event, ages)

    def requests(self, *, first: bool, batch_size: int | None) -> StepRequests | None:
        """See `StepRequests`; None if the trace misses events, has no maps around it, or is too
        long."""
        if self.chunks is None:
            return None
        about = (self._wall_time, first, batch_size, self._capacity)
        return step_requests(self._classifier, self.chunks, *about)

    def failed_requests(
        self, batch_size: int | None, requested: int, uncertain: int, compiled: bool
    ) -> StepRequests | None:
        """As `requests`, of a step that ends as a request of about so many bytes fails: `planned`
        if a compiled module made it, else up to that one; None if they are unknown."""
        until = self.requests(first=False, batch_size=batch_size)
        if until is None or not compiled:
            return None if until is None else until_failure(until, requested)
        plan = self._classifier.nearest_plan(requested, uncertain)
        if plan is None or not batch_size:
            return None
        return planned_requests(self._classifier, until, plan.module, batch_size)

    def module_contents(self, requested: int | None = None, uncertain: int = 0) -> ModuleContents:
        """What is in the chunk that a compiled module requests, at the moment with most bytes in
        it: of a request of about so many bytes, by default of the largest that the step allocated.
        Empty if no module makes it."""
        plan = self._largest_plan
        if requested is not None:
            plan = self._classifier.nearest_plan(requested, uncertain)
        if plan is None:
            return ModuleContents()
        tensors = tensors_inside(self._classifier.window, plan)
        return contents_of(tensors, plan.allocation.bytes)

    @property
    def _largest_plan(self) -> Plan | None:
        plans = self._classifier.plans.values()
        return max(plans, key=lambda plan: plan.allocation.bytes, default=None)

    def module_chunk(self, batch_size: int | None) -> ModuleChunk | None:
        """The largest chunk that a compiled module allocated; None without one, or if the batch is
        unknown."""
        plan = self._largest_plan
        if plan is None or not batch_size:
            return None
        return ModuleChunk(self._classifier.window, plan, self.module_contents(), batch_size)

    def timeline(self) -> Timeline | None:
        """The timeline; None if the trace contradicts itself or is too long."""
        marks = self._classifier.execution.marks(self._saved.bytes_at)
        return timeline(self._classifier, self._shapes, marks, self.snapshot)

    @cached_property
    def snapshot(self) -> Snapshot:
        classifier, trace, peak, replay = self._classifier, self.trace, self._peak, self._replay
        in_use = trace.start_in_use if peak < 0 else int(trace.in_use[peak])
        faults = trace.missed + classifier.chunks.unmatched_frees
        ledger, excess = ledger_at(classifier, peak, in_use, only_old=faults > 0)
        mode, compiled = classifier.mode
        is_measured = len(trace) and trace.allocator != PLANNED
        limit = int(trace.in_use[0] + trace.available[0]) if is_measured else None
        check = None if replay is None else replay.check
        pool = None if replay is None else pool_at(replay.map)
        fragmentation = None if pool is None else pool.fragmentation
        if fragmentation is None and peak >= 0 and not math.isnan(trace.fragmentation[peak]):
            fragmentation = min(1.0, max(0.0, float(trace.fragmentation[peak])))
        return Snapshot(
            step=self._step,
            phase=self._phase,
            device=trace.device,
            wall_time=self._wall_time,
            mode=mode,
            in_use_bytes=in_use,
            pool_bytes=None if pool is None else pool.pool_bytes,
            largest_free_bytes=None if pool is None else pool.largest_free_bytes,
            capacity_bytes=limit if self._capacity is None else self._capacity,
            fragmentation=fragmentation,
            rounding_bytes=rounding_total(ledger),
            ledger=ledger,
            saved_for_backward=() if faults else saved_rows(classifier, self._saved),
            not_available=(
                *self.facts.notes,
                *_notes(faults, excess, compiled, check),
                *self._note_on_scopes(ledger, in_use),
            ),
            replay=check,
            held_tensors=() if faults else tensor_groups(classifier, peak),
            largest_tensors=() if faults else self.largest_tensors(peak),
        )

    def _note_on_scopes(self, ledger: Sequence[LedgerRow], in_use: int) -> Iterator[str]:
        if any(graph.by_scope for graph in self.facts.graphs) and in_use:
            without = sum(row.bytes for row in ledger if row.layer is None)
            yield (
                "Layers are unknown: the program calls none of Keras's. TensorFlow's name scopes "
                f"are shown instead; {without / in_use:.1%} of the bytes in use belong to none."
            )


def _notes(faults: int, excess: int, compiled: int, check: Replay | None) -> Iterator[str]:
    if faults:
        yield (
            "The layers of what the step allocated are unknown: the trace misses events and "
            f"contradicts itself in {faults} places."
        )
    if excess:
        yield (
            "The owners are unknown: variables and tensors known to Python have "
            f"{excess} bytes more than are in use."
        )
    if compiled:
        yield (
            f"Sizes inside compiled modules are not measured: XLA allocates their {compiled} bytes "
            "at once, and the breakdown of these is the compiler's plan at its own peak."
        )
    if check is not None and check.chunks < check.of_chunks:
        yield (
            f"The replay reproduces {check.chunks} of {check.of_chunks} chunks at the step's end: "
            "the trace misses events."
        )
    if check is not None and check.addresses < check.of_addresses:
        yield (
            f"The replay reproduces {check.addresses} of {check.of_addresses} addresses: this "
            "TensorFlow's allocator may follow other rules."
        )
