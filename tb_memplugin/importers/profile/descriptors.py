"""Message classes for the parts of TensorFlow's profile formats that are read here, in a descriptor pool of their own.

Without generated code there is no dependency on one protobuf release, and no conflict with the same messages of an
imported TensorFlow. The parser skips undeclared fields. Field numbers: xla/service/hlo.proto, xla/xla_data.proto.
"""

import functools
from typing import Any

_PACKAGE = "tb_memplugin"
_I64, _BYTES, _BOOL = "int64", "bytes", "bool"

# Message to {field: (number, type, whether repeated)}; a type is a scalar or a message of the same table.
_HLO: dict[str, dict[str, tuple[Any, ...]]] = {
    "OpMetadata": {"op_name": (2, _BYTES)},
    "Shape": {
        "element_type": (2, _I64),
        "dimensions": (3, _I64, True),
        "tuple_shapes": (4, "Shape", True),
    },
    "HloInstruction": {
        "name": (1, _BYTES),
        "opcode": (2, _BYTES),
        "shape": (3, "Shape"),
        "metadata": (7, "OpMetadata"),
        "tuple_index": (13, _I64),
        "id": (35, _I64),
        "operand_ids": (36, _I64, True),
        "called_computation_ids": (38, _I64, True),
    },
    "HloComputation": {
        "name": (1, _BYTES),
        "instructions": (2, "HloInstruction", True),
        "id": (5, _I64),
        "root_id": (6, _I64),
    },
    "InstructionSequence": {"instruction_ids": (1, _I64, True)},
    "SequenceEntry": {"key": (1, _I64), "value": (2, "InstructionSequence")},
    "HloSchedule": {"sequences": (1, "SequenceEntry", True)},
    "HloModule": {
        "name": (1, _BYTES),
        "computations": (3, "HloComputation", True),
        "entry_computation_id": (6, _I64),
        "schedule": (7, "HloSchedule"),
    },
    "Location": {"shape_index": (3, _I64, True), "instruction_id": (4, _I64)},
    "LogicalBuffer": {"id": (1, _I64), "size": (2, _I64), "defined_at": (3, "Location")},
    "Assigned": {"logical_buffer_id": (1, _I64), "offset": (2, _I64), "size": (3, _I64)},
    "BufferAllocation": {
        "index": (1, _I64),
        "size": (2, _I64),
        "is_thread_local": (3, _BOOL),
        "is_entry_computation_parameter": (5, _BOOL),
        "maybe_live_out": (7, _BOOL),
        "assigned": (9, "Assigned", True),
        "is_constant": (12, _BOOL),
    },
    "BufferAssignment": {
        "logical_buffers": (1, "LogicalBuffer", True),
        "buffer_allocations": (3, "BufferAllocation", True),
    },
    "HloProto": {"hlo_module": (1, "HloModule"), "buffer_assignment": (3, "BufferAssignment")},
}


@functools.cache
def hlo_class() -> Any:
    """The message class of an HloProto; a profile has one for each compiled module."""
    return message_classes("hlo", _HLO)["HloProto"]


# tsl/protobuf/bfc_memory_map.proto
_MEMORY_DUMP: dict[str, dict[str, tuple[Any, ...]]] = {
    "MemAllocatorStats": {"num_allocs": (1, _I64), "bytes_in_use": (2, _I64), "peak_bytes_in_use": (3, _I64)},
    "BinSummary": {
        "total_bytes_in_use": (2, _I64),
        "total_bytes_in_bin": (3, _I64),
        "total_chunks_in_use": (4, _I64),
        "total_chunks_in_bin": (5, _I64),
    },
    "MemoryDump": {
        "allocator_name": (1, _BYTES),
        "bin_summary": (2, "BinSummary", True),
        "chunk": (3, _BYTES, True),  # MemChunk: address 1, size 2, requested_size 3, in_use 8; read by `memory_dump`
        "stats": (5, "MemAllocatorStats"),
    },
}


@functools.cache
def memory_dump_class() -> Any:
    """The message class of a memory dump (``TF_BFC_MEMORY_DUMP``) with unparsed chunks, for `wire`."""
    return message_classes("memory_dump", _MEMORY_DUMP)["MemoryDump"]


def message_classes(name: str, messages: dict[str, dict[str, tuple[Any, ...]]]) -> dict[str, Any]:
    """Message name to class, in a pool of their own."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}/{name}.proto", package=f"{_PACKAGE}.{name}", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind, *repeated) in fields.items():
            entry = described.field.add(name=field, number=number)
            entry.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in messages:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message}"))
        for message in messages
    }
