"""Memory dumps of TensorFlow's allocator, encoded by hand."""

from collections.abc import Sequence

CHUNKS = [
    (0x1000, 512, 300, True),
    (0x1200, 256, 0, False),
    (0x9000, 1024, 1000, True),
    (0x9400, 4096, 0, False),
]


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


Chunk = tuple[int, int, int, bool]
"""Address, size, requested size and whether it is in use."""


def make_dump(
    name: bytes = b"GPU_0_bfc", in_use: int = 1536, listed: Sequence[Chunk] = CHUNKS
) -> bytes:
    """Field numbers of tsl/protobuf/bfc_memory_map.proto."""
    bins = field(2, field(2, 1536) + field(3, 5888) + field(4, 2) + field(5, 4))
    chunks = b"".join(
        field(3, field(1, address) + field(2, size) + field(3, requested) + field(8, int(used)))
        for address, size, requested, used in listed
    )
    return field(1, name) + bins + chunks + field(5, field(1, 7) + field(2, in_use))
