"""The rules of TensorFlow's best-fit-with-coalescing (BFC) allocator for sizes. Pure.

Source: ``tsl/framework/bfc_allocator.cc`` of TensorFlow 2.21; these rules are the same since 2.16.
"""

ROUNDING = 256
"""Chunk sizes are multiples of this many bytes."""
BINS = 21
SPLIT_AT_BYTES = 128 << 20
"""A chunk is split, whatever the request, if the remainder would have this many bytes."""


def rounded_bytes(requested: int) -> int:
    """The request rounded up to a possible chunk size."""
    return -(-requested // ROUNDING) * ROUNDING or ROUNDING


def bin_index(size: int) -> int:
    """Number of the bin for free chunks of `size` bytes."""
    return min(BINS - 1, max(0, (size // ROUNDING).bit_length() - 1))


def bin_bytes(size: int) -> int:
    """Smallest chunk of the bin for chunks of `size` bytes."""
    return ROUNDING << bin_index(size)


def chunk_after_split(chunk: int, rounded: int) -> int:
    """Bytes of a free chunk that a request of `rounded` bytes gets."""
    return rounded if chunk >= 2 * rounded or chunk - rounded >= SPLIT_AT_BYTES else chunk
