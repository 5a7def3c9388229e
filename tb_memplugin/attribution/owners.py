"""Gives each chunk of a window its layer and category, by its maker, its use and its lifetime.

A chunk that a compiled module allocates has the owners of the buffers in it. Its size is measured,
its contents are the compiler's buffer assignment."""

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

from tb_memplugin.attribution.batch_sizes import shown_batch
from tb_memplugin.attribution.chunks import peak_event
from tb_memplugin.attribution.execution import EagerExecution, GraphExecution
from tb_memplugin.attribution.modules import Plan, plans_by_size
from tb_memplugin.attribution.names import UNKNOWN_OP
from tb_memplugin.attribution.older_chunks import OlderChunks, VariableChunks, variable_owner
from tb_memplugin.attribution.window import Window, layerless
from tb_memplugin.schema import (
    DTYPE_BYTES,
    GRADIENTS,
    AllocationTrace,
    Category,
    ChunkOwner,
    Mode,
    OpFact,
    TraceFacts,
    VariableFact,
)

Parts: TypeAlias = list[tuple[ChunkOwner, int, int]]
"""(owner, allocated, requested) of the parts of a chunk."""
Spans: TypeAlias = list[tuple[int, int, Parts]]
"""(event that begins it, event that ends it, the parts between them) over a chunk's life."""


def _layers_by_size(weights: Iterable[VariableFact]) -> dict[int, str | None]:
    """The layer of the trained weights of a size, if it is the only one: a sum of gradients over
    replicas is as large as its weight."""
    layers = defaultdict[int, set[str | None]](set)
    for weight in weights:
        if weight.trainable:
            layers[weight.requested_bytes].add(weight.layer)
    return {size: one for size, (one, *others) in layers.items() if not others}


def _owner_at(
    event: int, owned: Iterable[tuple[VariableFact, int, int]], other: ChunkOwner
) -> ChunkOwner:
    for one, begin, end in owned:  # no generator: this runs for every new chunk of a variable
        if begin <= event < end:
            return variable_owner(one)
    return other


class Classifier:
    """Owners of the chunks of one trace: of new ones, of `older` ones and constants, and of
    compiled ones (`plans`, by chunk)."""

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self.window = window = Window(trace, facts)
        self.chunks = window.chunks
        self.execution = EagerExecution(window) if len(trace.layers) else GraphExecution(window)
        window.facts = dataclasses.replace(window.facts, batch=shown_batch(window, self.execution))
        self._variables = VariableChunks(window, self.execution)
        self.older = OlderChunks(window, self._variables)
        weights = [variable for variable in facts.variables if variable.role == "weights"]
        weights.sort(key=lambda weight: weight.requested_bytes)
        largest = {weight.layer: weight.requested_bytes for weight in weights}
        self._summed = _layers_by_size(weights)
        self._planned = plans_by_size(trace.modules, window.names, largest)
        self.plans = dict(self._find_plans())
        self._calling_threads = set(trace.calls.thread.tolist())
        self._spans: dict[int, Spans] = {}

    def owners(self, chunk: int, instant: int) -> Parts:
        """The owners of a chunk at an instant of its life (number of an event): several for a
        compiled module's chunk."""
        spans = self.spans(chunk)
        for begin, _, parts in reversed(spans):
            if begin <= instant:
                return parts
        return spans[0][2]

    def spans(self, chunk: int) -> Spans:
        """A variable's new chunk has several spans, as the variable owns it once the old chunk is
        freed."""
        if chunk not in self._spans:
            self._spans[chunk] = self._find_spans(chunk)
        return self._spans[chunk]

    def _find_spans(self, chunk: int) -> Spans:
        window, plan = self.window, self.plans.get(chunk)
        birth, death = window.birth[chunk], window.death[chunk]
        size = window.allocated[chunk], window.requested[chunk]
        if plan is not None:
            spans = [(birth, death, self._inside(chunk, plan))]
        elif birth < 0:
            spans = [(birth, death, [(self.older.owner(chunk), *size)])]
        else:
            owner, owned = self._new_owner(chunk), self._variables.owned(chunk)
            if owned and owner.category == "other_state":  # computed outside an optimizer
                owner = window.layer_owner(owned[0][0].layer, "workspace")
            spans = [(birth, death, [(owner, *size)])]
            if owned:
                turns = {min(max(birth, turn), death) for _, *ends in owned for turn in ends}
                pairs = itertools.pairwise(sorted({birth, death, *turns}))
                spans = [(*pair, [(_owner_at(pair[0], owned, owner), *size)]) for pair in pairs]
        if not (window.facts.before_backward and window.outlives(chunk)):
            return spans
        return [(begin, end, self._without_gradients(parts)) for begin, end, parts in spans]

    def _without_gradients(self, parts: Parts) -> Parts:
        """What the unfinished forward pass holds is no gradient."""
        workspace = [self.window.layer_owner(owner.layer, "workspace") for owner, _, _ in parts]
        return [
            (other if owner.category in GRADIENTS else owner, allocated, requested)
            for other, (owner, allocated, requested) in zip(workspace, parts, strict=True)
        ]

    def line(self, chunk: int) -> str | None:
        """The Python line that made a chunk; of a compiled module's chunk, that of the buffer that
        it ends with."""
        plan = self.plans.get(chunk)
        if plan is not None:
            buffers = plan.allocation.buffers
            last = max(buffers, key=lambda buffer: (buffer.end, buffer.bytes), default=None)
            return None if last is None else plan.module.line(last)
        return self.execution.maker(chunk).line

    @cached_property
    def mode(self) -> tuple[Mode, int]:
        """How the step ran, and the bytes of compiled modules' chunks at its peak. Most of the
        bytes there decide, but for modules inside ops of a step that runs ops of layers itself."""
        window, mode = self.window, self.window.facts.mode
        live = self.chunks.live(peak_event(window.trace))
        sizes = {one: window.allocated[one] for one in live if window.birth[one] >= 0}
        is_graph = any(window.names.fact(name).layer for name in window.names.executed.values())
        modules = {one: self.plans[one].module for one in sizes.keys() & self.plans.keys()}
        compiled = sum(sizes[one] for one in modules)
        inside = [one for one in modules if is_graph and modules[one].schedule.inside_op]
        if 2 * (compiled - sum(sizes[one] for one in inside)) > sum(sizes.values()):
            return "xla", compiled
        return mode if mode != "eager" or len(window.trace.layers) else "graph", compiled

    # --- chunks allocated in the window, except those of variables and of compiled modules ---

    def _new_owner(self, chunk: int) -> ChunkOwner:
        window = self.window
        if window.is_input[window.birth[chunk]]:
            return layerless("inputs")
        fact, tensor = self._maker(chunk), window.tensor_at_end(chunk)
        is_saved = fact.pass_name == "forward" and self._is_saved(fact, chunk)
        is_gradient = fact.is_gradient and not fact.relayout and not is_saved
        # a loop may still refer to its last gradients
        if tensor is not None and not is_saved and not is_gradient:
            return layerless(tensor.category)
        constant = self.older.constant_owner(chunk)
        if constant is not None:
            return constant
        if fact is UNKNOWN_OP:
            return layerless(self._category_without_op(chunk))
        if fact.communicates and not is_saved:
            return layerless("communication")
        if not is_saved and (
            window.is_temporary(chunk) or not self.execution.requested_by_op(chunk)
        ):
            return window.layer_owner(fact.layer, "workspace")
        if is_gradient:
            layer = fact.gradient_of or self._summed.get(window.requested[chunk])
            return window.layer_owner(layer, "weight_gradients")
        return window.layer_owner(fact.layer, self._category(fact, chunk, is_saved))

    def _maker(self, chunk: int) -> OpFact:
        """Facts of the op that made a chunk; of a compiled op inside a layer those of the op in its
        function that makes a weight's gradient, if the chunk has the gradient's size."""
        fact, window = self.execution.maker(chunk), self.window
        op = window.launched.get(window.birth[chunk])
        for inner in () if op is None else window.names.called(op):
            outputs = zip(inner.output_shapes, inner.output_dtypes, strict=False)
            sizes = [math.prod(shape or ()) * DTYPE_BYTES.get(dtype, 0) for shape, dtype in outputs]
            if inner.is_gradient and window.requested[chunk] in sizes:
                return inner
        return fact

    def _is_saved(self, fact: OpFact, chunk: int) -> bool:
        """Whether a chunk of a forward op is saved for the backward pass: it is still there when
        that has begun, as a backward op reads it or TensorFlow frees it late. What outlives the
        window counts if a backward op reads it."""
        execution, outlives = self.execution, self.window.outlives(chunk)
        if execution.waits_for_backward(chunk):
            return not execution.is_result(chunk) or self._is_read_by_backward(fact, chunk)
        if self.window.is_temporary(chunk):
            return False
        if fact.read_late is not None:
            return True  # its last reader may be an op of the forward pass
        return outlives and (
            execution.kept_by_tape(chunk) or self._is_read_by_backward(fact, chunk)
        )

    def _is_read_by_backward(self, fact: OpFact, chunk: int) -> bool:
        """Whether a backward op reads an op's result, or that of an op that reuses its buffer."""
        names, allocating = self.window.names, self.window.allocating
        name = self.window.op_name(chunk)
        seen, waiting = {name}, [(name, fact)]
        while waiting:
            name, fact = waiting.pop()
            if fact.saved_for_backward:
                return True
            for following in () if name is None else names.following(name):
                if following not in seen and following not in allocating:
                    seen.add(following)
                    waiting.append((following, names.fact(following)))
        return False

    def _category(self, fact: OpFact, chunk: int, is_saved: bool) -> Category:
        waits = self.execution.waits_for_backward(chunk)
        if fact.relayout:
            if waits:
                return "activations"
            of_gradient = fact.pass_name == "backward" and not fact.saved_for_backward
            return "activation_gradients" if of_gradient else "workspace"
        if fact.pass_name == "forward":
            return "activations" if is_saved else "workspace"
        # it ran in the forward pass if its result waits for the backward pass
        if fact.gradient_free:
            return "activations" if waits else "workspace"
        if fact.pass_name == "backward":
            return "activations" if fact.saved_for_backward else "activation_gradients"
        is_state = fact.pass_name == "other" and self.window.outlives(chunk)
        return "other_state" if is_state else "workspace"

    def _category_without_op(self, chunk: int) -> Category:
        window, trace = self.window, self.window.trace
        birth, death, outlives = window.birth[chunk], window.death[chunk], window.outlives(chunk)
        unnamed, running = window.op[birth] < 0, window.reader[birth]
        thread = int(trace.thread[birth])
        if outlives:
            if self.older.is_batch(window.requested[chunk]):
                return "inputs"
            return "unattributed" if window.facts.interrupted else "other_state"
        # Freed on its thread before another op began there: e.g. of a compiled module that is
        # missing in the profile.
        same = running == window.reader[death] and thread == int(trace.thread[death])
        if same and unnamed and running >= 0:
            return "workspace"
        # Made between two ops of a thread from which Python calls functions and eager ops: Python
        # converted an array, such as a batch that a step is given.
        idle = running < 0 or bool(trace.ops.end_ps[running] < trace.time_ps[birth])
        is_input = unnamed and idle and thread in self._calling_threads
        return "inputs" if is_input else "unattributed"

    # --- compiled modules ---

    def nearest_plan(self, requested: int, uncertain: int) -> Plan | None:
        """The plan of the only size within the uncertainty of a request that is not exact."""
        sizes = [size for size in self._planned if abs(size - requested) <= uncertain]
        return self._planned[sizes[0]][0] if len(sizes) == 1 else None

    def _find_plans(self) -> Iterator[tuple[int, Plan]]:
        """(chunk, its plan). A profile also has modules that ran earlier in the process, some of
        which request the same sizes: the function counts, if the event names it. Of a module's
        allocations of one size, each is in a chunk of its own."""
        window, until = self.window, dict[int, int]()  # when each allocation's last chunk is freed
        for chunk, birth in enumerate(window.birth if self._planned else ()):
            if birth < 0 or window.is_input[birth] or window.requester(chunk) is not UNKNOWN_OP:
                continue
            name = window.op_name(chunk)
            plans = self._planned.get(window.requested[chunk], [])
            for plan in sorted(plans, key=lambda one: until.get(id(one.allocation), -1) > birth):
                if name is None or plan.module.module.function in name:
                    # a variable's new value is no result of the module any more
                    if not plan.allocation.output or not self._variables.stored_in(chunk):
                        until[id(plan.allocation)] = window.death[chunk]
                        yield chunk, plan
                    break

    def _inside(self, chunk: int, plan: Plan) -> Parts:
        window, allocation = self.window, plan.allocation
        parts = []
        for layer, category, buffer in plan.tensors():
            if allocation.output and category == "unattributed":
                owner = layerless(self._result_category(chunk))
            else:
                owner = window.layer_owner(layer, category)
            parts.append((owner, buffer.bytes, buffer.bytes))
        unused = allocation.bytes - sum(size for _, size, _ in parts)
        rounding = window.allocated[chunk] - window.requested[chunk]
        parts.append((layerless("workspace"), unused, unused))
        parts.append((layerless("workspace"), rounding, 0))
        return [part for part in parts if part[1]]

    def _result_category(self, chunk: int) -> Category:
        """Category of a module's result without a known layer, e.g. a grouped convolution's on the
        CPU, by its last reader."""
        reader = self.window.last_reader_pass(chunk)
        if reader == "backward":
            waits = self.execution.waits_for_backward(chunk)
            return "activations" if waits else "activation_gradients"
        if reader == "update":
            return "weight_gradients"
        return "workspace" if reader == "forward" else "unattributed"
