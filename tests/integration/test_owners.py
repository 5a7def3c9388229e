"""Programs of tests/programs/reported whose bytes once had no owner: what the tool says of them, against formulas."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "programs"))

from reported_table import CASES

EXAMPLES = 64 * 4 * (256 * 128 + 128 + 128 + 1)
"""Bytes of the gradients for each of 64 examples of two dense layers."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "begin", "least", "more"),
    [
        ("replaybuf", "other_state", 160_000 * 64 * 4, 8192),
        ("consts", "other_state", 20 * 512 * 512 * 4, 20 * 512 * 4),
        ("const_layer", "other_state", 16 << 20, 0),
        ("vecmap", "weight gradients", 64 * 4 * 256 * 128, EXAMPLES // 50),
        ("jacobian", "weight gradients", 64 * 4 * 256 * 128, EXAMPLES // 50),
        # KiB that the outer gradient's ops read.
        ("gp", "outer gradient's ops: 9600 KiB; saved for backward:", 9600, 96),
        # The optimizer's and the metrics' scalars; no teacher.
        ("ema", "", 1, 8192),
    ],
)
def test_bytes_have_their_owner(name: str, begin: str, least: int, more: int, tmp_path: pathlib.Path) -> None:
    said = CASES[name](tmp_path)
    assert said.startswith(begin), said
    assert least <= int(re.findall(r"[\d,]+", said.removeprefix(begin))[0].replace(",", "")) <= least + more, said
