"""The instructions of an XLA module: what they read, when they run, and what made them."""

import collections
import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tb_memplugin.importers import wire
from tb_memplugin.schema import DTYPE_BYTES, TensorShape, tensor_shape

# Of xla/service/hlo.proto and xla/xla_data.proto.
_MESSAGES = {
    "OpMetadata": "op_name 2 bytes, source_file 3 bytes, source_line 4 int64, "
    "stack_frame_id 15 int64",
    "Shape": "element_type 2 int64, dimensions 3 int64[], tuple_shapes 4 Shape[]",
    "HloInstruction": "name 1 bytes, opcode 2 bytes, shape 3 Shape, metadata 7 OpMetadata, "
    "parameter_number 9 int64, tuple_index 13 int64, id 35 int64, operand_ids 36 int64[], "
    "called_computation_ids 38 int64[], output_operand_aliasing 74 OperandAlias[]",
    "OperandAlias": "operand_index 2 int64",
    "HloComputation": "name 1 bytes, instructions 2 HloInstruction[], id 5 int64, root_id 6 int64",
    "InstructionSequence": "instruction_ids 1 int64[]",
    "SequenceEntry": "key 1 int64, value 2 InstructionSequence",
    "HloSchedule": "sequences 1 SequenceEntry[]",
    "FileLocation": "file_name_id 1 int64, line 3 int64",
    "StackFrame": "file_location_id 1 int64, parent_frame_id 2 int64",
    "StackFrames": "file_names 1 bytes[], file_locations 3 FileLocation[], "
    "stack_frames 4 StackFrame[]",
    "HloModule": "name 1 bytes, computations 3 HloComputation[], entry_computation_id 6 int64, "
    "schedule 7 HloSchedule, input_output_alias 8 InputOutputAlias, frames 17 StackFrames",
    "InputOutputAlias": "entries 1 AliasEntry[]",
    "AliasEntry": "output_shape_index 1 int64[], parameter_number 2 int64",
    "Location": "shape_index 3 int64[], instruction_id 4 int64",
    "LogicalBuffer": "id 1 int64, size 2 int64, defined_at 3 Location",
    "Assigned": "logical_buffer_id 1 int64, offset 2 int64, size 3 int64",
    "BufferAllocation": "index 1 int64, size 2 int64, is_thread_local 3 bool, "
    "is_entry_computation_parameter 5 bool, maybe_live_out 7 bool, assigned "
    "9 Assigned[], is_constant 12 bool",
    "BufferAssignment": "logical_buffers 1 LogicalBuffer[], buffer_allocations 3 "
    "BufferAllocation[]",
    "HloProto": "hlo_module 1 HloModule, buffer_assignment 3 BufferAssignment",
}
_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
_LATER = {15: "complex64", 16: "bfloat16", 18: "complex128", 19: "float8_e5m2", 20: "float8_e4m3fn"}
_DTYPES = dict(enumerate(_NAMES.split(), start=1)) | _LATER
"""Number in XLA's PrimitiveType to the name of the dtype."""

MAX_NAMES = 6
MAX_STEPS = 64
"""Most instructions that are searched for the name of an unnamed one."""
Key = tuple[int, int]  # instruction, index into its tuple result; -1 for the whole result
_FORWARDS = frozenset({b"bitcast", b"add-dependency", b"optimization-barrier", b"domain"})
PASSED_ON = _FORWARDS | {b"tuple", b"get-tuple-element"}
CALLING = frozenset({b"call", b"while", b"conditional"})
COPIES = frozenset({b"copy", b"transpose", b"convert", b"bitcast", b"reshape"})
# XLA merges equal ones of several ops under one op's name
_SHARED = frozenset({b"constant", b"iota", b"parameter"})
_CONSTANT = COPIES | {b"constant", b"iota", b"broadcast", b"tuple"}
NO_OP = frozenset({b"", b"XLA_Args", b"XLA_Retvals"})
_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/|/lib/python3")


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def source_line(file: bytes, line: int) -> str | None:
    """``train.py:42``; None without a file, and for files of installed packages."""
    path = decoded(file).replace("\\", "/")
    if not path or path[0] == "<" or _INSTALLED.search(path):
        return None
    return f"{path.rpartition('/')[2]}:{line}"


@functools.cache
def hlo_class() -> Any:
    return wire.message_classes("hlo", _MESSAGES)["HloProto"]


def buffer_shape(shape: Any, index: Sequence[int], size: int) -> TensorShape | None:
    """The shape of a buffer of `size` bytes, at a place in a result that may be a tuple of
    tuples."""
    for place in index:
        if not 0 <= place < len(shape.tuple_shapes):
            return None
        shape = shape.tuple_shapes[place]
    return tensor_shape(tuple(shape.dimensions), _DTYPES.get(shape.element_type), size)


def bytes_of(shape: Any) -> int:
    """Bytes of an array; 0 for a tuple and for what is no array."""
    element = DTYPE_BYTES.get(_DTYPES.get(shape.element_type, ""), 0)
    return 0 if shape.tuple_shapes else element * math.prod(shape.dimensions)


class _SourceLines:
    """The lines of the program, not of installed packages, that made the instructions of a
    module."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._found: dict[int, str | None] = {}  # by number of a stack frame

    def of(self, metadata: Any) -> str | None:
        frame = int(metadata.stack_frame_id)
        if not frame:
            return source_line(metadata.source_file, metadata.source_line)
        if frame not in self._found:
            self._found[frame] = next(filter(None, self._lines(frame)), None)
        return self._found[frame]

    def _lines(self, number: int) -> Iterator[str | None]:
        """Those of a stack frame and its callers; numbers count from 1."""
        table = self._table
        for _ in range(MAX_STEPS):
            if not 0 < number <= len(table.stack_frames):
                return
            frame = table.stack_frames[number - 1]
            number = frame.parent_frame_id
            if 0 < frame.file_location_id <= len(table.file_locations):
                place = table.file_locations[frame.file_location_id - 1]
                if 0 < place.file_name_id <= len(table.file_names):
                    yield source_line(table.file_names[place.file_name_id - 1], place.line)


class Instructions:
    """The instructions of a module in the order of its schedule, and how they read each other."""

    def __init__(self, proto: Any) -> None:
        module = proto.hlo_module
        self._lines = _SourceLines(module.frames)
        self._computations = {computation.id: computation for computation in module.computations}
        self._instructions = {
            instruction.id: instruction
            for computation in module.computations
            for instruction in computation.instructions
        }
        self._operands = {
            number: list(one.operand_ids) for number, one in self._instructions.items()
        }
        self._sequences = {
            entry.key: entry.value.instruction_ids for entry in module.schedule.sequences
        }
        if not self._sequences:  # TensorFlow 2.16 lists instructions in a valid order
            called = {module.entry_computation_id}
            for one in self._instructions.values():
                called.update(one.called_computation_ids if one.opcode in CALLING else ())
            self._sequences = {
                one.id: [instruction.id for instruction in one.instructions]
                for one in module.computations
                if one.id in called
            }
        self._given = dict(self._parameters())
        self._order: list[int] = []
        self._ends: dict[int, int] = {}
        self._schedule(module.entry_computation_id, set())
        self._position = {instruction: position for position, instruction in enumerate(self._order)}
        self._users: dict[int, list[int]] = collections.defaultdict(list)
        self._last: dict[Key, int] = {}
        self._readers: dict[Key, list[int]] = collections.defaultdict(list)
        self._aliases: dict[int, frozenset[Key]] = {}
        for position, instruction in enumerate(self._order):
            self._use(position, self._instructions[instruction])
        for computation in self._ends:
            for key in self._alias(self._computations[computation].root_id):
                self._last[key] = max(self._last.get(key, 0), self._ends[computation])

    def _schedule(self, computation: int, inside: set[int]) -> None:
        """Append a computation's instructions to the order; those of called loops and branches
        precede the caller."""
        if computation in inside or computation in self._ends:  # XLA calls each from one place only
            return
        for number in self._sequences.get(computation, ()):
            instruction = self._instructions.get(number)
            if instruction is None:
                continue
            for called in instruction.called_computation_ids:
                if called in self._sequences and instruction.opcode != b"fusion":
                    self._schedule(called, inside | {computation})
            self._order.append(number)
        self._ends[computation] = len(self._order)

    def _use(self, position: int, instruction: Any) -> None:
        for operand in instruction.operand_ids:
            self._users[operand].append(instruction.id)
            for key in self._alias(operand) if instruction.opcode not in PASSED_ON else ():
                self._last[key] = position
                self._readers[key].append(instruction.id)

    def _alias(self, number: int) -> frozenset[Key]:
        if number not in self._aliases:
            self._aliases[number] = frozenset({(number, -1)})  # ends a cycle in a malformed module
            self._aliases[number] = self._find_alias(number)
        return self._aliases[number]

    def _with_opcode(self, number: int, opcode: bytes) -> Any:
        """The instruction of this number if it has the opcode; else None."""
        instruction = self._instructions.get(number)
        return None if instruction is None or instruction.opcode != opcode else instruction

    def _called(self, instruction: Any) -> Any:
        """The first computation that an instruction calls; None without one, and for None."""
        called = () if instruction is None else instruction.called_computation_ids[:1]
        return next((self._computations.get(number) for number in called), None)

    def _result(self, number: int) -> int:
        """The instruction whose result an instruction has: that of a call is its computation's."""
        for _ in range(MAX_STEPS):
            computation = self._called(self._with_opcode(number, b"call"))
            if computation is None:
                break
            number = computation.root_id
        return number

    def _parameters(self) -> Iterator[tuple[int, int]]:
        """(parameter of a called computation, what the call passes)."""
        for instruction in self._instructions.values():
            inner = self._called(instruction) if instruction.opcode == b"call" else None
            operands = instruction.operand_ids
            for one in () if inner is None else inner.instructions:
                if one.opcode == b"parameter" and 0 <= one.parameter_number < len(operands):
                    yield one.id, operands[one.parameter_number]

    def _find_alias(self, number: int) -> frozenset[Key]:
        number = self._result(number)
        instruction = self._instructions.get(number)
        if instruction is None or not instruction.operand_ids:
            given = self._given.get(number)
            return frozenset({(number, -1)}) if given is None else self._alias(given)
        first = self._result(instruction.operand_ids[0])
        if instruction.opcode in _FORWARDS:
            return self._alias(first)
        if instruction.opcode == b"tuple":
            return frozenset(
                key for operand in instruction.operand_ids for key in self._alias(operand)
            )
        if instruction.opcode == b"get-tuple-element":
            source = self._with_opcode(first, b"tuple")
            if source is not None and instruction.tuple_index < len(source.operand_ids):
                return self._alias(source.operand_ids[instruction.tuple_index])
            return frozenset({(first, instruction.tuple_index)})
        return frozenset({(number, -1)})

    def _is_constant(self, number: int, part: int) -> bool:
        """Whether a result depends on no computation or argument, e.g. zeros to compare with."""
        waiting = [self._fused_result(number, part)]
        for _ in range(MAX_STEPS):
            if not waiting:
                return True
            instruction = self._instructions.get(waiting.pop())
            if instruction is None or instruction.opcode not in _CONSTANT:
                return False
            waiting.extend(instruction.operand_ids)
        return False

    def _fused_result(self, number: int, part: int) -> int:
        """The instruction in a fusion that makes a part of its result; outside a fusion, the
        instruction itself."""
        computation = self._called(self._with_opcode(number, b"fusion"))
        root = None if computation is None else self._instructions.get(computation.root_id)
        if root is None:
            return number
        if root.opcode == b"tuple" and 0 <= part < len(root.operand_ids):
            return int(root.operand_ids[part])
        return int(root.id)

    def _is_copy_of_argument(self, number: int) -> bool:
        """Whether an instruction only converts an argument of the module to another layout or
        dtype."""
        instruction = self._instructions.get(number)
        for _ in range(MAX_STEPS):
            if instruction is None:
                break
            if instruction.opcode == b"parameter":
                return True
            if len(instruction.operand_ids) != 1 or not self._copies(instruction):
                break
            instruction = self._instructions.get(instruction.operand_ids[0])
        return False

    def _copies(self, instruction: Any) -> bool:
        if instruction.opcode != b"fusion":
            return instruction.opcode in COPIES
        return all(
            inner.opcode in COPIES or inner.opcode == b"parameter"
            for inner in self._fused(instruction)
        )

    def _fused(self, instruction: Any) -> Iterator[Any]:
        for number in instruction.called_computation_ids:
            computation = self._computations.get(number)
            if computation is not None:
                yield from sorted(
                    computation.instructions, key=lambda inner: inner.id != computation.root_id
                )

    def _names(self, number: int) -> tuple[str, ...]:
        names = dict.fromkeys(self._own_names(number))
        if not names:
            copy = number in self._instructions and self._copies(self._instructions[number])
            names = dict.fromkeys(
                name for down in (copy, not copy) for name in self._searched(number, down)
            )
        return tuple(map(decoded, list(names)[:MAX_NAMES]))

    def _own_names(self, number: int) -> Iterator[bytes]:
        """The instruction's own name, then those of the instructions fused into it, its root
        first."""
        instruction = self._instructions.get(number)
        if instruction is None or instruction.opcode in _SHARED:
            return
        if instruction.metadata.op_name not in NO_OP:
            yield instruction.metadata.op_name
        for inner in self._fused(instruction) if instruction.opcode == b"fusion" else ():
            if inner.metadata.op_name not in NO_OP and inner.opcode not in _SHARED:
                yield inner.metadata.op_name

    def _searched(self, number: int, down: bool) -> Iterator[bytes]:
        """Names of the nearest named instruction, by way of the operands (`down`) or the users."""
        neighbors = self._operands if down else self._users
        seen, waiting = {number}, collections.deque(neighbors.get(number, ()))
        while waiting and len(seen) < MAX_STEPS:
            next_number = waiting.popleft()
            if next_number in seen:
                continue
            seen.add(next_number)
            names = list(self._own_names(next_number))
            if names:
                yield from names
                return
            waiting.extend(neighbors.get(next_number, ()))
