"""What is known about one traced window: the allocator's events, and what the recorder knew of the program that made
them.

Plain immutable data between `importers.xplane` and `recorder.observe`, which make it, and `analysis.attribution`, which
reads it. Columns of equal length, strings interned; -1 is "none" in a column of string numbers and "not said" in a
column of sizes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from tb_memplugin.model import Floats, Integers, Mode

Pass: TypeAlias = Literal["forward", "backward", "update", "other"]
"""Part of a training step: layers and loss; gradients; optimizer; metrics, input and everything else."""

VariableRole: TypeAlias = Literal["weights", "optimizer_state", "other_state"]


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Named spans of time on threads, ordered by thread, then start.

    Attributes:
        thread: Number of the profiler line.
        start_ps, end_ps: Picoseconds on the profile's clock.
        name: Index into the trace's `strings`.
    """

    thread: Integers
    start_ps: Integers
    end_ps: Integers
    name: Integers

    def __len__(self) -> int:
        return len(self.thread)


@dataclasses.dataclass(frozen=True)
class AllocationTrace:
    """Every allocation and deallocation of one allocator in a window, in the order in which the allocator made them.

    Attributes:
        device: ``GPU:0``, ``CPU:0``, or the allocator's own name where it belongs to no device.
        allocator: The allocator's own name.
        time_ps: Picoseconds on the profile's clock.
        kind: 1 allocation, -1 deallocation.
        address: Start of the chunk.
        allocated: Bytes of the chunk.
        requested: Bytes asked for.
        op: Index into `strings`: the op that asked, -1 for none (deallocations, tf.data, eager constants).
        region: Index into `strings`: ``output``, ``temp``, ``dynamic``, ``persist``.
        shape, dtype: Index into `strings`, e.g. ``[32,64]``; DataType number.
        in_use: Bytes in use after the event.
        available: Limit minus `in_use`.
        fragmentation: (pool free - largest free) / pool free after the event, six significant digits; NaN if the event
            does not say.
        thread: Number of the profiler line.
        strings: What the indices point to.
        ops: Executions of ops, named ``op:Type``.
        calls: Calls of functions and eager ops from Python (``EagerLocalExecute``), named by function or op type.
        layers: Spans that `recorder.observe` put round layer calls in eager mode, named by layer path.
        threads: Names of profiler lines.
        start_in_use: Bytes in use before the first event.
        modules: Plans of the compiled modules that the profile holds.
        missed: Number of places where `in_use` does not follow from the event before, 0 where the stream closes.
    """

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

    def __len__(self) -> int:
        return len(self.time_ps)

    def text(self, index: int) -> str | None:
        """The string of an index, None for -1."""
        return None if index < 0 else self.strings[index]


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A logical buffer of a compiled module.

    Attributes:
        ops: Names of the TensorFlow ops it stands for, the instruction's own first, then of what is fused into it, of
            its operands and of its users.
        readers: Names of the ops that read it.
        offset, bytes: Its place in its allocation.
        start, end: Positions in the module's schedule from which and up to which it holds its value.
        named: Whether the first of `ops` is the instruction's own, not a neighbour's.
        of_argument: Whether it is a copy of an argument in another layout.
        constant: Whether it holds what depends on no argument, e.g. zeros of some shape.
    """

    ops: tuple[str, ...]
    readers: tuple[str, ...]
    offset: int
    bytes: int
    start: int
    end: int
    named: bool
    of_argument: bool
    constant: bool = False


@dataclasses.dataclass(frozen=True)
class PlannedAllocation:
    """A block that a compiled module asks for in one piece, with the buffers that the compiler put into it."""

    bytes: int
    output: bool
    buffers: tuple[Buffer, ...]


@dataclasses.dataclass(frozen=True)
class Module:
    """The compiler's plan of one XLA module.

    Attributes:
        name: Module name, e.g. ``a_inference_one_step_on_data_1234__.9``.
        function: Name of the function graph that was compiled, e.g. ``one_step_on_data``; empty if the name does not
            say.
        allocations: Those of its temporaries and results.
    """

    name: str
    function: str
    allocations: tuple[PlannedAllocation, ...]


@dataclasses.dataclass(frozen=True)
class OpFact:
    """What is known of one op of a function graph.

    Attributes:
        layer: Path of the layer that made it, None if none did.
        phase: Part of the step.
        awaited: Whether an op of the backward pass reads its result (of the op itself or of one that may pass its
            buffer on).
        gradient_of: Path of the layer for whose variable this op's result is a gradient.
        is_gradient: Whether this op's result is a variable's gradient.
        assigns: Name of the variable it writes to.
        passes_to: Ops that may go on in this op's buffer.
        relayout: Whether it is none of the program's, but brings another op's input (of which the other facts are) into
            another layout.
        forward_inputs: Of an op of the backward pass: which of its inputs are of the forward pass.
    """

    layer: str | None
    phase: Pass
    awaited: bool = False
    gradient_of: str | None = None
    is_gradient: bool = False
    assigns: str | None = None
    passes_to: tuple[str, ...] = ()
    relayout: bool = False
    forward_inputs: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class GraphFacts:
    """One function graph.

    Attributes:
        name: Its name without TensorFlow's number, e.g. ``one_step_on_data``.
        ops: Op name to fact.
        callees: Name of an op that calls functions to (branch label, index into `TraceFacts.graphs`); the label is
            what TensorFlow puts into the names of inlined ops: ``body``, ``cond``, ``then``, ``else``, or empty.
        root: Whether no other graph calls it.
    """

    name: str
    ops: Mapping[str, OpFact]
    callees: Mapping[str, tuple[tuple[str, int], ...]]
    root: bool


@dataclasses.dataclass(frozen=True)
class VariableFact:
    """One variable of the program.

    Attributes:
        name: Unique within the window.
        role: What it is for.
        layer: Path of the layer that owns it (of an optimizer slot: the layer of its weight), None for none.
        trainable: Whether training changes it by gradients (of a slot: its weight); None where it means nothing.
        requested_bytes: Elements × size of the dtype.
        device: ``GPU:0``.
        start_address, end_address: Where its value was when the window opened and closed; None if not known.
    """

    name: str
    role: VariableRole
    layer: str | None
    trainable: bool | None
    requested_bytes: int
    device: str
    start_address: int | None
    end_address: int | None


@dataclasses.dataclass(frozen=True)
class KnownChunk:
    """A chunk that an earlier window saw being allocated and that was there at that window's end."""

    allocated: int
    requested: int
    category: Literal["inputs", "other_state"]


@dataclasses.dataclass(frozen=True)
class KnownRemainders:
    """By how much chunks of one kind, or of one category, are larger than needed, as an earlier window proved it.

    Attributes:
        window: The number of that window.
        more: Address to bytes of each of these chunks.
        together: Bytes beyond these that some of them have.
    """

    window: int
    more: Mapping[int, int]
    together: int


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What the windows before one taught about the device's address space.

    Attributes:
        chunks: Address to what they saw being allocated there.
        addresses: Where chunks began that they saw, sorted.
        last_seen: For each of `addresses`, the number of the last window that saw it.
        since: Address of a variable or held tensor to the number of the first window in all of which it lay there: what
            windows before that one saw says nothing of its chunk. 0 where it is missing.
        remainders: What they proved of chunks larger than needed.
    """

    chunks: Mapping[int, KnownChunk] = dataclasses.field(default_factory=dict)
    addresses: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    last_seen: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    since: Mapping[int, int] = dataclasses.field(default_factory=dict)
    remainders: tuple[KnownRemainders, ...] = ()


@dataclasses.dataclass(frozen=True)
class TensorFact:
    """An eager tensor that the program held when the window opened."""

    category: Literal["inputs", "other_state"]
    requested_bytes: int
    address: int


@dataclasses.dataclass(frozen=True)
class TraceFacts:
    """What the recorder knew about a window.

    Attributes:
        mode: How the model ran as far as Python can say.
        trainable: Layer path to whether the layer has trainable weights, in the model's order.
        graphs: Function graphs that layers were seen in, callers and callees; the newest last.
        variables: Those of the model, its optimizer and metrics.
        tensors: Others that Python held.
        gradients: (address, requested bytes, layer) of variables' gradients as the eager backward pass returned them.
        earlier: What earlier windows taught.
        window: The number of this window.
        start_in_use: The device's bytes in use just before the window, None if not known.
        quiet_bytes: Bytes in use beyond what the model's variables needed, before the first batch was asked for; None
            if that moment was not seen.
        notes: Sentences on what could not be learned.
    """

    mode: Mode = "graph"
    trainable: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    graphs: tuple[GraphFacts, ...] = ()
    variables: tuple[VariableFact, ...] = ()
    tensors: tuple[TensorFact, ...] = ()
    gradients: tuple[tuple[int, int, str | None], ...] = ()
    earlier: Earlier = dataclasses.field(default_factory=Earlier)
    window: int = 0
    start_in_use: int | None = None
    quiet_bytes: int | None = None
    notes: tuple[str, ...] = ()
