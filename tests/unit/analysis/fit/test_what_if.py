"""The capacity of a question as it is typed."""

import pytest
from reading_cases import MIB

from tb_memplugin.analysis.fit.what_if import capacity_bytes
from tb_memplugin.errors import RequestError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("8", 8 * GIB),
        ("8.5", 8 * GIB + GIB // 2),
        (" 24 ", 24 * GIB),
        ("8 GiB", 8 * GIB),
        ("512MiB", 512 * MIB),
        ("900 B", 900),
        ("512 KiB", 512 << 10),
        ("17179869184", 16 * GIB),
        (8, 8),  # in Python, numbers are bytes
        (16 * GIB, 16 * GIB),
    ],
)
def test_a_number_without_a_unit_is_gib(typed: int | str, size: int) -> None:
    assert capacity_bytes(typed) == size


@pytest.mark.parametrize("typed", ["", "much", "-8", "0", "2PiB", "8 GiB of memory"])
def test_other_texts_are_refused(typed: str) -> None:
    with pytest.raises(RequestError, match="a capacity is a size such as 24GiB"):
        capacity_bytes(typed)
