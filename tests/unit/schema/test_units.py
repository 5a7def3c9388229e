"""Byte sizes as text; the cases are shared with the page's formatter."""

import json
import pathlib

import pytest

from tb_memplugin.schema import counted, format_bytes, format_figure, parse_bytes, unit_for

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "bytes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["text"])
def test_sizes_read_as_on_the_page(case: dict[str, object]) -> None:
    assert format_bytes(case["bytes"], case["unit"]) == case["text"]  # type: ignore[arg-type]


def test_unknown_size_is_a_dash() -> None:
    assert format_bytes(None) == format_figure(None, "MiB") == "–"


def test_one_unit_fits_a_column() -> None:
    assert unit_for([3, None, 5 << 20, -(7 << 30)]) == "GiB"
    assert unit_for([]) == unit_for([None]) == "B"


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [counted(count, "slot") for count in (0, 1, 2)] == ["0 slots", "1 slot", "2 slots"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("10GiB", 10 << 30), ("500 MiB", 500 << 20), (" 1.5mib ", 3 << 19), ("1PiB", 1 << 50), ("1TiB", 1 << 40)),
        *(("10GB", 10**10), ("1.5 kb", 1500), ("80 gB", 80 * 10**9), ("80 gIb", 80 << 30), ("1TB", 10**12)),
        *(("0.123456789 GB", 123_456_789), ("999999999999999.5 B", 10**15), ("7 B", 7), ("0B", 0)),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "ten", "0", "300", "10 GiB/s", "-1", "1e9", "10XB", "GiB", "1.GiB", "٣ MiB", "1" * 30]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    assert parse_bytes(text) is None
