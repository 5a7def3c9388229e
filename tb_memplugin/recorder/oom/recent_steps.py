"""`RecentSteps`: finds the owners of chunks at a failed allocation from the last traced steps."""

from collections.abc import Sequence

from tb_memplugin.attribution.oom.owner_matching import OwnerMatching
from tb_memplugin.attribution.oom.post_mortem import OomEvent, post_mortem
from tb_memplugin.attribution.owners.step_chunks import StepChunks, without_gradients
from tb_memplugin.attribution.results.batch import observed_batch
from tb_memplugin.importers.allocator.oom_log import Request
from tb_memplugin.model import Layer, MemoryMap, Oom, Phase, StepRequests
from tb_memplugin.model.trace import TraceFacts
from tb_memplugin.prediction.batch_sizes import sizes_for
from tb_memplugin.prediction.sized_steps import SizedStep, peak_in_one_piece
from tb_memplugin.recorder.oom.failures import pass_of

RECENT_STEPS = 3
"""Traced steps that are kept per device and phase."""


class RecentSteps:
    """The chunks of the last traced steps. The background thread adds steps; any thread may read."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, Phase], list[StepChunks]] = {}
        self._facts: dict[str, TraceFacts] = {}
        self._requests: dict[tuple[str, Phase], StepRequests] = {}

    def add(self, device: str, chunks: StepChunks, facts: TraceFacts) -> None:
        steps = self._steps.get((device, chunks.phase), [])
        self._steps[device, chunks.phase] = [chunks, *steps[: RECENT_STEPS - 1]]
        self._facts[device] = facts

    def keep_requests(self, requests: StepRequests) -> None:
        if not requests.first:
            self._requests[requests.device, requests.phase] = requests

    def needed_bytes(self, event: OomEvent, batch_size: int | None) -> int | None:
        """What a failed step needs at least at once, even if free memory is in one piece; None if unknown."""
        requests = None if event.phase is None else self._requests.get((event.device, event.phase))
        if requests is None or not batch_size:
            return None
        return peak_in_one_piece(SizedStep(requests, sizes_for(requests, batch_size).lower))

    def facts(self, device: str) -> TraceFacts:
        return self._facts.get(device, TraceFacts())

    def exact_bytes(self, request: Request, device: str) -> tuple[int | None, int]:
        """(requested bytes, uncertainty in bytes).

        XLA's message rounds the size; it is exact if traced chunks have only one size within the uncertainty.
        """
        about, uncertain = request.requested_bytes, request.uncertain_bytes
        if about is None or not uncertain:
            return about, 0
        sizes = {
            int(size)
            for (step_device, _), steps in self._steps.items()
            for step in steps
            if step_device == device
            for size in step.requested[(step.birth >= 0) & (abs(step.requested - about) <= uncertain)]
        }
        return (sizes.pop(), 0) if len(sizes) == 1 else (about, uncertain)

    def post_mortem(
        self,
        event: OomEvent,
        memory_map: MemoryMap | None,
        facts: TraceFacts,
        layers: Sequence[Layer],
        traced_batch: int | None,
        given_batch: int | None = None,
    ) -> Oom:
        """The post-mortem of an untraced step: owners by comparison with the recent steps.

        `facts` are those of now; `traced_batch` and `given_batch` are the batch sizes of the traced and of the failed step.
        """
        steps = self._comparable(event, facts)
        layer = next((layer for layer in layers if layer.path == event.layer), None)
        request = (event.phase, event.op, event.requested_bytes)
        batch = given_batch or observed_batch(steps, *request, event.shape, layer, traced_batch)
        if memory_map is None:
            return post_mortem(event, None, batch)
        matching = OwnerMatching(memory_map)
        matching.variables(facts.variables)
        # In graph mode, Python holds no results of the step's ops: a tensor that it holds has no other owner.
        if facts.mode == "eager":
            matching.same_place(steps, *request)
        matching.tensors(facts.tensors)
        matching.same_place(steps, *request)
        matching.same_size(steps, *request, batch / traced_batch if batch and traced_batch else 1.0)
        matching.results(layers, batch, event.phase)
        return post_mortem(event, matching.result(), batch, self.needed_bytes(event, batch))

    def _comparable(self, event: OomEvent, facts: TraceFacts) -> list[StepChunks]:
        """Recent steps of the device, those of the event's phase first; without gradients for a forward op."""
        phases: list[Phase] = sorted(
            {phase for device, phase in self._steps if device == event.device}, key=lambda phase: phase != event.phase
        )
        steps = [step for phase in phases for step in self._steps[event.device, phase]]
        if event.during in ("building", "between_steps") or pass_of(event.op, facts.graphs) == "forward":
            return [without_gradients(step) for step in steps]
        return steps
