"""`RecentSteps`: the chunks of the last traced steps, from which the owners at a failure follow."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from tb_memplugin.attribution import (
    ModuleChunk,
    ModuleContents,
    OomEvent,
    OwnerMatching,
    StepChunks,
    largest_tensors,
    observed_batch,
    post_mortem,
    running_module,
    tensors_of_map,
    unmoved,
    with_module,
    without_gradients,
)
from tb_memplugin.fit import SizedStep, peak_in_one_piece, sizes_for
from tb_memplugin.importers import Request
from tb_memplugin.schema import (
    GraphFacts,
    Layer,
    MemoryMap,
    Oom,
    OpFact,
    Phase,
    StepRequests,
    TensorGroup,
    TraceFacts,
)

NO_MODULE = ModuleContents()
RECENT_STEPS = 3  # traced steps that are kept per device and phase


class RecentSteps:
    """The chunks of the last traced steps."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, Phase], list[StepChunks]] = {}
        self._facts: dict[str, TraceFacts] = {}
        self._requests: dict[tuple[str, Phase], StepRequests] = {}
        self._modules: dict[tuple[str, Phase], ModuleChunk] = {}

    def add(
        self, device: str, chunks: StepChunks, facts: TraceFacts, module: ModuleChunk | None = None
    ) -> None:
        """Add a step; `module` is the largest chunk of a compiled module."""
        if module is not None:
            self._modules[device, chunks.phase] = module
        steps = self._steps.get((device, chunks.phase), [])
        self._steps[device, chunks.phase] = [chunks, *steps[: RECENT_STEPS - 1]]
        self._facts[device] = facts

    def keep_requests(self, requests: StepRequests) -> None:
        if not requests.first:
            self._requests[requests.device, requests.phase] = requests

    def has_requests(self, device: str, phase: Phase) -> bool:
        return (device, phase) in self._requests

    def needed_bytes(self, event: OomEvent, batch_size: int | None) -> int | None:
        """What a failed step needs at least at once, even if free memory is in one piece; None if
        unknown."""
        requests = None if event.phase is None else self._requests.get((event.device, event.phase))
        if requests is None or not batch_size:
            return None
        return peak_in_one_piece(SizedStep(requests, sizes_for(requests, batch_size).low))

    def last_facts(self, device: str) -> TraceFacts:
        """The facts about the last traced step of a device."""
        return self._facts.get(device, TraceFacts())

    def exact_bytes(self, request: Request, device: str) -> tuple[int | None, int]:
        """(requested bytes, uncertainty in bytes). XLA's message rounds the size; it is exact if
        traced chunks have only one size within the uncertainty."""
        about, uncertain = request.requested_bytes, request.uncertain_bytes
        if about is None or not uncertain:
            return about, 0
        sizes = {
            int(size)
            for (step_device, _), steps in self._steps.items()
            for step in steps
            if step_device == device
            for size in step.requested[
                (step.birth >= 0) & (abs(step.requested - about) <= uncertain)
            ]
        }
        return (sizes.pop(), 0) if len(sizes) == 1 else (about, uncertain)

    def post_mortem(
        self,
        event: OomEvent,
        memory_map: MemoryMap | None,
        facts: TraceFacts | None,
        layers: Sequence[Layer],
        traced_batch: int | None,
        given_batch: int | None = None,
    ) -> Oom:
        """The post-mortem of an untraced step: owners by comparison with the recent steps. `facts`
        are of now, None for those of the last traced step; the batches are sizes, of the traced and
        of the failed step."""
        if facts is None:
            facts = self.last_facts(event.device)
            facts = facts if memory_map is None else unmoved(facts, memory_map)
        steps = self._comparable(event, facts)
        layer = next((one for one in layers if one.path == event.layer), None)
        batch = given_batch or observed_batch(steps, event, layer, traced_batch)
        module = self._modules.get((event.device, event.phase or "train"))
        if event.compiled and event.phase is not None:
            event = with_module(event, module, batch)
        if memory_map is None:
            return post_mortem(event, None, batch)
        matching = OwnerMatching(memory_map, steps, event)
        matching.variables(facts.variables)
        # In graph mode, Python holds no results of the step's ops: a tensor that it holds has no
        # other owner.
        if facts.mode == "eager":
            matching.same_place()
        matching.tensors(facts.tensors)
        matching.same_place()
        scale = batch / traced_batch if batch and traced_batch else 1.0
        matching.same_size(scale)
        matching.results(layers, batch)
        owned = matching.result()
        tensors = largest_tensors(tensors_of_map(owned, [step.shapes for step in steps], scale))
        event = dataclasses.replace(event, largest_tensors=tensors)
        running = None if module is None else running_module(owned, module, batch)
        return post_mortem(event, owned, batch, self.needed_bytes(event, batch), running)

    def _comparable(self, event: OomEvent, facts: TraceFacts) -> list[StepChunks]:
        """Recent steps of the device, those of the event's phase first; without gradients for a
        forward op."""
        keys = sorted(
            (key for key in self._steps if key[0] == event.device),
            key=lambda key: key[1] != event.phase,
        )
        steps = [step for key in keys for step in self._steps[key]]
        if event.during in ("building", "between_steps") or is_forward(event.op, facts.graphs):
            return [without_gradients(step) for step in steps]
        return steps


class OwnedMap(NamedTuple):
    """A memory map with owners from the trace of its own step, that step's batch size, what a
    compiled module's request holds, the largest tensors in the map, the step's requests, as in
    `Oom`, and what a compiled module's chunk in the map holds."""

    map: MemoryMap
    batch_size: int | None
    inside: ModuleContents = NO_MODULE
    largest_tensors: tuple[TensorGroup, ...] = ()
    requests: StepRequests | None = None
    running: ModuleContents = NO_MODULE


def fact_of(op: str | None, graphs: Sequence[GraphFacts]) -> OpFact | None:
    """The fact about an op that a layer made, from the newest graph that has it."""
    names = () if op is None else (op, op.partition("/")[2])
    facts = (graph.ops.get(name) for graph in reversed(graphs) for name in names)
    return next((fact for fact in facts if fact is not None and fact.layer is not None), None)


def is_forward(op: str | None, graphs: Sequence[GraphFacts]) -> bool:
    """Whether an op is known to be one of a layer's forward pass."""
    fact = fact_of(op, graphs)
    return fact is not None and fact.pass_name == "forward"
