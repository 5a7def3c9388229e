"""Reads the buffer assignment from the HloProto of an XLA module: each buffer's place, lifetime and
ops."""

import re
from collections.abc import Iterator
from typing import Any

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.hlo_instructions import (
    COPIES,
    MAX_NAMES,
    MAX_STEPS,
    NO_OP,
    buffer_shape,
    decoded,
    hlo_class,
)
from tb_memplugin.importers.hlo_schedule import (
    Allocation,
    Kind,
    Placed,
    ScheduledInstructions,
    Totals,
)
from tb_memplugin.schema import Argument, Buffer, BufferAllocation, Module

MAX_MODULE_BYTES = 64 << 20
"""Largest file with a module: parsed, it takes about ten times as much memory."""
_FUNCTION = re.compile(r"^(?:a|cluster)?_*inference_(.+?)_\d+__")


def read_module(data: bytes, totals: Totals | None = None) -> Module | None:
    """The module of an HloProto; None for other bytes, without a buffer assignment, and with
    excessive nesting. With XLA's totals, a schedule is enough."""
    proto = hlo_class()()
    try:
        proto.ParseFromString(data)
    except Exception:  # protobuf's DecodeError: the profile is still usable
        return None
    if not proto.buffer_assignment.buffer_allocations and (
        totals is None or not proto.hlo_module.schedule.sequences
    ):
        return None
    name = decoded(proto.hlo_module.name)
    function = _FUNCTION.match(name)
    try:
        reader = _ModuleReader(proto, totals)
        return Module(
            name,
            function[1] if function else "",
            tuple(reader.allocations()),
            tuple(reader.arguments()),
        )
    except RecursionError:  # a thousand nested calls or copies: not made by a compiler
        return None


def read_dumped_module(data: bytes, totals: Totals | None = None) -> Module:
    """The module of a file ``*.after_optimizations.hlo.pb``, or as `read_module` says; a
    FormatError for anything else."""
    if len(data) > MAX_MODULE_BYTES:
        raise FormatError(
            f"the module of {len(data)} bytes is larger than the limit of {MAX_MODULE_BYTES}"
        )
    module = read_module(data, totals)
    if module is None:
        raise FormatError(
            f"no buffer assignment of XLA in {len(data)} bytes: the file is damaged, or of a stage "
            "before the optimizations. Pass *after_optimizations.hlo.pb of "
            "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'"
        )
    return module


def _assigned(assignment: Any) -> Iterator[Allocation]:
    """Allocations of the module's own threads as XLA assigned them."""
    logical = {buffer.id: buffer.defined_at for buffer in assignment.logical_buffers}
    for one in assignment.buffer_allocations:
        if one.size <= 0 or one.is_thread_local:
            continue
        kind: Kind = "constant" if one.is_constant else "own"
        kind = "given" if one.is_entry_computation_parameter else kind
        places = [
            Placed(at.instruction_id, tuple(at.shape_index), int(part.offset), int(part.size))
            for part in one.assigned
            if (at := logical.get(part.logical_buffer_id)) is not None
        ]
        yield Allocation(kind, int(one.size), bool(one.maybe_live_out), places)


class _ModuleReader(ScheduledInstructions):
    """The memory of a module, with what its instructions say of it."""

    def __init__(self, proto: Any, totals: Totals | None) -> None:
        super().__init__(proto)
        plan = proto.buffer_assignment
        if totals is None or plan.buffer_allocations:
            self._plan = list(_assigned(plan))
        else:
            self._plan = list(self.scheduled(proto.hlo_module, totals))

    def allocations(self) -> Iterator[BufferAllocation]:
        for one in self._plan:
            if one.kind == "own":
                buffers = (self._buffer(place) for place in one.places)
                known = tuple(buffer for buffer in buffers if buffer is not None)
                yield BufferAllocation(one.bytes, one.returned, known)

    def arguments(self) -> Iterator[Argument]:
        """What the module is given or brings along: its parameters and constants."""
        for kind, size, returned, places in self._plan:
            if kind == "own":
                continue
            given = kind == "given"
            opcode = b"parameter" if given else b"constant"
            own = (one for one in places if self._with_opcode(one.instruction, opcode))
            place = next(own, None)
            if place is None:
                yield Argument("", size, None, returned)
                continue
            instruction = self._instructions[place.instruction]
            yield Argument(
                name=decoded(instruction.metadata.op_name) if given else "",
                bytes=size,
                shape=buffer_shape(instruction.shape, place.part, size),
                returned=returned,
                constant=not given,
                readers=tuple(dict.fromkeys(self._readers_of(place.instruction)))[:MAX_NAMES],
            )

    def _readers_of(self, number: int) -> Iterator[str]:
        """Names of the ops that read a parameter, or a copy of it in another layout."""
        waiting, seen = [number], set[int]()
        while waiting and len(seen) < MAX_STEPS:
            source = waiting.pop()
            for reader in dict.fromkeys(self._readers.get((source, -1), ())):
                if reader in seen:
                    continue
                seen.add(reader)
                if self._is_copy_of_argument(reader):
                    waiting.append(reader)
                else:
                    yield from list(self._fused_readers(reader, source)) or self._names(reader)[:1]

    def _fused_readers(self, number: int, source: int) -> Iterator[str]:
        """Names of the ops in a fusion that read what it is given of an instruction."""
        instruction = self._instructions[number]
        fused = list(self._fused(instruction)) if instruction.opcode == b"fusion" else []
        operands = enumerate(self._operands[number])
        places = {at for at, one in operands if (source, -1) in self._alias(one)}
        given = {
            one.id for one in fused if one.opcode == b"parameter" and one.parameter_number in places
        }
        for inner in sorted(fused, key=lambda one: one.id):
            if not given.intersection(inner.operand_ids):
                continue
            if inner.opcode in COPIES:
                given.add(inner.id)
            elif inner.metadata.op_name not in NO_OP:
                yield decoded(inner.metadata.op_name)

    def _line(self, number: int) -> str | None:
        instruction = self._instructions[number]
        inner = self._fused(instruction) if instruction.opcode == b"fusion" else ()
        lines = (self._lines.of(one.metadata) for one in (instruction, *inner))
        return next(filter(None, lines), None)

    def _buffer(self, place: Placed) -> Buffer | None:
        number = place.instruction
        start = self._position.get(number)
        if start is None or place.bytes <= 0:
            return None
        part = place.part[0] if place.part else -1
        keys = {(number, part), (number, -1)}
        readers = (reader for key in sorted(keys) for reader in self._readers.get(key, ()))
        names = (name for reader in dict.fromkeys(readers) for name in self._names(reader)[:1])
        return Buffer(
            ops=self._names(number),
            readers=tuple(dict.fromkeys(names))[:MAX_NAMES],
            offset=place.offset,
            bytes=place.bytes,
            start=start,
            end=self._end((number, part)),
            named=any(True for _ in self._own_names(number)),
            of_argument=self._is_copy_of_argument(number),
            constant=self._is_constant(number, part),
            shape=buffer_shape(self._instructions[number].shape, place.part, place.bytes),
            line=self._line(number),
            arguments=tuple(self._arguments_of(number))[:MAX_NAMES],
        )

    def _arguments_of(self, number: int) -> Iterator[str]:
        """Names of the parameters that an instruction reads itself."""
        for operand in self._operands[number]:
            for key, _ in self._alias(operand):
                source = self._with_opcode(key, b"parameter")
                if source is not None:
                    yield decoded(source.metadata.op_name)
