"""One traced window: the allocator's events, and the recorder's facts about the program that made
them.

`importers.profile` and `recorder.observe` make this plain, immutable data; `attribution` reads it.
Columns have equal length and strings are interned; -1 means "none" in columns of string indices and
"unknown" in columns of sizes."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from tb_memplugin.schema.chunks import MemoryMap
from tb_memplugin.schema.fields import Floats, Integers, Mode
from tb_memplugin.schema.layers import DTYPE_BYTES, TensorShape

Pass: TypeAlias = Literal["forward", "backward", "update", "other"]
"""Part of a training step: layers and loss; gradients; optimizer; metrics, input and everything
else."""

LAYER_PREFIX = "tb_memplugin/layer:"
"""Prefix of the layer path in the names of spans that the recorder puts around eager layer
calls."""

LINE_MARK = "\x1f"
"""Stands between the name of such a span and the user's line that made the call, if that is
recorded."""

VariableRole: TypeAlias = Literal["weights", "optimizer_state", "other_state"]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Spans on threads (profiler lines), ordered by thread, then start: picoseconds, and index into
    `strings`."""

    thread: Integers
    start_ps: Integers
    end_ps: Integers
    name: Integers

    def __len__(self) -> int:
        return len(self.thread)


NO_INTERVALS = Intervals(*np.zeros((4, 0), np.int64))


@dataclasses.dataclass(frozen=True)
class AllocationTrace:
    """All allocations and deallocations of one allocator in a window, in the allocator's order.

    Attributes:
        device: ``GPU:0``, ``CPU:0``, or the allocator's own name where it belongs to no device.
        time_ps: Picoseconds on the profile's clock.
        kind: 1 allocation, -1 deallocation.
        address, allocated, requested: Start and bytes of the chunk, and requested bytes.
        op: Index into `strings`: the requesting op, -1 for none (deallocations, tf.data, eager
            constants).
        region: Index into `strings`: ``output``, ``temp``, ``dynamic``, ``persist``.
        shape, dtype: Index into `strings`, e.g. ``[32,64]``; DataType number.
        in_use, available: Bytes in use after the event, and the limit minus these.
        fragmentation: (free - largest free) / free in the pool after the event, six significant
            digits; NaN if unknown.
        thread: Number of the profiler line, whose names are `threads`.
        ops: Executions of ops, named ``op:Type``.
        calls: Calls of functions and eager ops from Python (``EagerLocalExecute``), named by
            function or op type.
        layers: The recorder's spans around layer calls in eager mode, named by layer path.
        launches: Executions of asynchronous ops on the threads that began them, named by op.
        start_in_use: Bytes in use before the first event.
        missed: Number of places where `in_use` does not follow from the previous event; 0 for a
            complete stream.
        start_map, end_map: The allocator's memory maps before the first and after the last event;
            None if they were not read, or if the events do not lead from one to the other."""

    device: str
    allocator: str
    time_ps: Integers
    kind: Integers
    address: Integers
    allocated: Integers
    requested: Integers
    op: Integers
    region: Integers
    shape: Integers
    dtype: Integers
    in_use: Integers
    available: Integers
    fragmentation: Floats
    thread: Integers
    strings: tuple[str, ...]
    ops: Intervals
    calls: Intervals
    layers: Intervals
    threads: tuple[str, ...]
    start_in_use: int
    missed: int
    modules: tuple["Module", ...] = ()
    launches: Intervals = NO_INTERVALS
    start_map: MemoryMap | None = None
    end_map: MemoryMap | None = None

    def __len__(self) -> int:
        return len(self.time_ps)

    def text(self, index: int) -> str | None:
        return None if index < 0 else self.strings[index]


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A logical buffer of a compiled module.

    Attributes:
        ops: Names of TensorFlow ops: the instruction's own first, then those of fused instructions,
            operands or users.
        readers: Names of the ops that read it.
        start, end: First and last position of the module's schedule at which it is live.
        named: Whether the first of `ops` is the instruction's own name, not a neighbor's.
        of_argument: Whether it is a copy of an argument in another layout.
        constant: Whether its value depends on no argument, e.g. zeros.
        line: The program's line that made it, e.g. ``train.py:42``; None if the module does not
            say.
        arguments: Names of the module's arguments that its instruction reads."""

    ops: tuple[str, ...]
    readers: tuple[str, ...]
    offset: int
    bytes: int
    start: int
    end: int
    named: bool
    of_argument: bool
    constant: bool = False
    shape: TensorShape | None = None
    line: str | None = None
    arguments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Argument:
    """Memory that a module is given or brings along: a parameter, or a `constant`.

    Attributes:
        name: The program's name of a parameter, e.g. ``state.params['dense']['kernel']``; empty if
            unknown.
        returned: Whether a result of the module is in the same memory.
        readers: Names of the ops that read it."""

    name: str
    bytes: int
    shape: TensorShape | None
    returned: bool = False
    constant: bool = False
    readers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BufferAllocation:
    """An allocation that a compiled module requests in one piece, with the buffers that the
    compiler placed in it."""

    bytes: int
    output: bool
    buffers: tuple[Buffer, ...]


@dataclasses.dataclass(frozen=True)
class Module:
    """The buffer assignment of one XLA module: allocations of its temporaries and results.

    Its name is e.g. ``a_inference_one_step_on_data_1234__.9``, that of its function
    ``one_step_on_data``, empty if unknown."""

    name: str
    function: str
    allocations: tuple[BufferAllocation, ...]
    arguments: tuple[Argument, ...] = ()

    @property
    def bytes(self) -> int:
        """What the compiler planned: arguments, temporaries and results in memory of their own."""
        given = sum(one.bytes for one in self.arguments)
        return given + sum(one.bytes for one in self.allocations)


@dataclasses.dataclass(frozen=True)
class OpFact:
    """The recorder's facts about one op of a function graph.

    Attributes:
        layer: Path of the layer that made it, None without one.
        saved_for_backward: Whether a backward op reads its result, or that of an op that reuses its
            buffer.
        read_late: Number of the backward pass that reads its result, if that pass differentiates
            another one. Ops of such passes run interleaved, so at no time all that it reads is in
            use.
        gradient_of: Path of the layer with the variable that this op's result is a gradient of.
        made_dense: Whether it makes a dense gradient of a sparse one.
        communicates: Whether it is a collective operation of replicas, or packs their gradients for
            one.
        assigns: Name of the variable that it writes to.
        passes_to: Ops that may reuse this op's buffer.
        relayout: Whether TensorFlow added it to convert another op's input to another layout; the
            other facts are then that op's.
        forward_inputs: Indices of a backward op's inputs that are of the forward pass.
        gradient_inputs: Backward ops whose results a backward op reads.
        gradient_free: Whether a backward op's result depends on no gradient. TensorFlow may run
            such ops during the forward pass.
        output_shapes: Shapes of its outputs, if known when the function was traced: -1 for open
            dimensions, such as the batch; None for an unknown rank.
        batch_powers: For each output, the power of the batch size in each dimension, None where
            that is unknown; None for an output of unknown rank. Empty if unknown.
        is_constant: Whether its results depend on constants only: TensorFlow may keep them.
        has_rows: Whether its first output has the first dimension of an argument of the step.
        line: The user's line that called the layer or op, e.g. ``train.py:42``; None if unknown."""

    layer: str | None
    pass_name: Pass
    saved_for_backward: bool = False
    read_late: int | None = None
    gradient_of: str | None = None
    is_gradient: bool = False
    made_dense: bool = False
    communicates: bool = False
    assigns: str | None = None
    passes_to: tuple[str, ...] = ()
    relayout: bool = False
    forward_inputs: tuple[int, ...] = ()
    gradient_inputs: tuple[str, ...] = ()
    gradient_free: bool = False
    output_shapes: tuple[tuple[int, ...] | None, ...] = ()
    batch_powers: tuple[tuple[int | None, ...] | None, ...] = ()
    is_constant: bool = False
    has_rows: bool = False
    output_dtypes: tuple[str, ...] = ()
    line: str | None = None


@dataclasses.dataclass(frozen=True)
class ConstantFact:
    """A constant of a function graph.

    Attributes:
        layer: Path of the layer whose call made it; None without one.
        line: The user's line that used the value, e.g. ``train.py:42``; None if unknown.
        of_input: Whether the function belongs to an input pipeline."""

    requested_bytes: int
    shape: tuple[int, ...]
    dtype: str
    layer: str | None = None
    function: str | None = None
    line: str | None = None
    of_input: bool = False


@dataclasses.dataclass(frozen=True)
class GraphFacts:
    """One function graph.

    Attributes:
        name: Its name without TensorFlow's number, e.g. ``one_step_on_data``.
        callees: Name of a calling op to (branch label, index into `TraceFacts.graphs`); the label
            is part of the names of inlined ops: ``body``, ``cond``, ``then``, ``else``, or empty.
        root: Whether no other graph calls it.
        arguments: Names of its arguments as they run, without variables and other captures.
        unrepeatable: Layers whose forward pass has an op that may return something else when it
            runs again.
        fixed_batch: Whether it was traced for one batch size.
        by_scope: Whether the layers of its ops are name scopes."""

    name: str
    ops: Mapping[str, OpFact]
    callees: Mapping[str, tuple[tuple[str, int], ...]]
    root: bool
    arguments: frozenset[str] = frozenset()
    unrepeatable: frozenset[str] = frozenset()
    constants: tuple[ConstantFact, ...] = ()
    fixed_batch: bool = False
    by_scope: bool = False


@dataclasses.dataclass(frozen=True)
class VariableFact:
    """One variable of the program.

    Attributes:
        name: Unique within the window.
        role: Category of its value.
        layer: Path of the layer that owns it, or its weight if it is an optimizer slot; None
            without one.
        trainable: Whether it, or the weight of a slot, is trainable; None if not applicable.
        start_address, end_address: Address of its value when the window opened and closed; None if
            unknown.
        of_model: Whether it is known to belong to a model, an optimizer or a metric."""

    name: str
    role: VariableRole
    layer: str | None
    trainable: bool | None
    requested_bytes: int
    device: str
    start_address: int | None
    end_address: int | None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    of_model: bool = True


@dataclasses.dataclass(frozen=True)
class KnownChunk:
    """A chunk observed before the window; one with these sizes at the same address is the same
    chunk."""

    allocated: int
    requested: int
    category: Literal["inputs", "other_state"]


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The device's chunks observed before the window.

    Attributes:
        input_sizes: Sizes that the input pipeline has requested so far.
        handle_bytes: Requested bytes of a variable's resource handle; None if handles are on
            another device."""

    chunks: Mapping[int, KnownChunk] = dataclasses.field(default_factory=dict)
    input_sizes: frozenset[int] = frozenset()
    handle_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class TensorFact:
    """An eager tensor that Python holds.

    Attributes:
        category: ``inputs`` if the program was fed it, ``other_state`` if a function graph captured
            it, ``unattributed`` if it is an unnamed argument of a module, otherwise
            ``held_tensors``.
        held_by: Its holder in words; None if unknown, and for inputs other than data sets.
        retaining_path: The references to it from a module or a running function in words; None if
            unknown.
        line: The user's line that took it from an iterator; None if unknown, and for others."""

    category: Literal["inputs", "other_state", "held_tensors", "unattributed"]
    requested_bytes: int
    address: int
    shape: tuple[int, ...] = ()
    dtype: str = ""
    held_by: str | None = None
    retaining_path: str | None = None
    line: str | None = None


TensorSpec: TypeAlias = tuple[tuple[int, ...], str]
"""Shape with -1 for open dimensions, and name of the dtype."""


PipelineStage: TypeAlias = tuple[str, int, int]
"""Name of a stage of an input pipeline, the elements that it has ready, and their bytes."""


@dataclasses.dataclass(frozen=True)
class BatchFacts:
    """The batch that a step was given: examples for one of the `replicas`, and its tensors without
    scalars (empty if unknown); and the stages of the input pipelines as the window opened, the last
    ones of a pipeline first. The program may have `named` its size."""

    size: int | None = None
    components: tuple[TensorSpec, ...] = ()
    stages: tuple[PipelineStage, ...] = ()
    named: bool = dataclasses.field(default=False, compare=False)
    replicas: int = dataclasses.field(default=1, compare=False)

    @property
    def whole(self) -> int | None:
        """Examples for all replicas together."""
        return None if self.size is None else self.size * self.replicas

    def tensor_bytes(self, size: int) -> frozenset[int]:
        """Bytes of each tensor of a batch of this size whose other dimensions are known."""
        return frozenset(
            size * math.prod(shape[1:]) * DTYPE_BYTES[dtype]
            for shape, dtype in self.components
            if shape[0] in (-1, size) and -1 not in shape[1:] and dtype in DTYPE_BYTES
        )


@dataclasses.dataclass(frozen=True)
class TraceFacts:
    """The recorder's facts about a window.

    Attributes:
        mode: How the model ran, according to Python.
        trainable: Layer path to whether the layer has trainable weights, in the model's order.
        graphs: Function graphs with layers, callers and callees; the newest last.
        tensors: Tensors that Python held when the window opened.
        tensors_at_end: Tensors made in the window that Python held when it closed.
        gradients: (address, requested bytes, layer) of the gradients that eager backward passes
            returned.
        earlier: Chunks observed before the window.
        start_in_use: The device's bytes in use just before the window, None if unknown.
        interrupted: Whether the window ends within a training step because an allocation failed.
        before_backward: Whether that allocation was of the forward pass, so that no gradient exists
            yet."""

    mode: Mode = "graph"
    trainable: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    graphs: tuple[GraphFacts, ...] = ()
    variables: tuple[VariableFact, ...] = ()
    tensors: tuple[TensorFact, ...] = ()
    gradients: tuple[tuple[int, int, str | None], ...] = ()
    earlier: Earlier = dataclasses.field(default_factory=Earlier)
    start_in_use: int | None = None
    interrupted: bool = False
    before_backward: bool = False
    notes: tuple[str, ...] = ()
    tensors_at_end: tuple[TensorFact, ...] = ()
    batch: BatchFacts = dataclasses.field(default_factory=BatchFacts)

    @property
    def constants(self) -> list[ConstantFact]:
        return [constant for graph in self.graphs for constant in graph.constants]

    @property
    def arguments(self) -> frozenset[str]:
        """Names of the arguments of the functions that Python calls."""
        return frozenset().union(*(graph.arguments for graph in self.graphs if graph.root))
