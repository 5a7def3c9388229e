"""Integer columns take as few bytes as their values or differences need, so that frames compress well."""

from collections.abc import Sequence

import numpy as np
import pytest

from tb_memplugin.storage.frames.column_codec import decode_table, encode_column


@pytest.mark.parametrize(
    ("values", "kind", "size"),
    [
        ([200, 3, 255, 0], "r1", 4),  # values below 256: their lowest byte each
        ([70_000, 3, 70_000, 9], "r3", 12),
        ([-1, 3, 255, 0], "r8", 32),  # a negative value fills all its bytes
        ([0, 0], "i", 16),
        (list(range(1_000_000, 1_000_100)), "i", 800),  # steps: differences of 1 are bytes of zeros
        ([], "i", 0),
    ],
)
def test_values_are_stored_without_the_bytes_that_are_zero_in_all(values: Sequence[int], kind: str, size: int) -> None:
    stored, body = encode_column(np.asarray(values, np.int64), {})
    assert (stored, len(body)) == (kind, size)
    rest = memoryview(body)

    def take(wanted: int) -> memoryview:
        nonlocal rest
        taken, rest = rest[:wanted], rest[wanted:]
        return taken

    decoded = decode_table([("column", stored, len(values))], [take], [])
    assert decoded["column"].tolist() == values
