"""Text for a terminal, a log or a notebook: sizes, names, tables and paths of references."""

import html.parser
import json
import pathlib

import pytest

from tb_memplugin.schema import (
    common_path,
    did_you_mean,
    format_bytes,
    html_details,
    html_table,
    html_text,
    parse_bytes,
    some,
    unknown_name,
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("small", "small"),
        ("smal", "small"),
        ("SMALL", "small"),
        ("samll", "small"),
        ("other", None),
        ("", None),
    ],
)
def test_the_most_similar_name_is_suggested(name: str, meant: str | None) -> None:
    expected = None if meant is None else f"did you mean {meant!r}?"
    assert did_you_mean(name, ["finished", "small", "large"]) == expected


def test_many_or_long_names_are_not_all_listed() -> None:
    assert some([]) == "none" and some([1, "b"]) == "1, b"
    names = [f"run {number:02}" for number in range(99)]
    assert unknown_name("no run", "x" * 5_000, names) == (
        f"no run '{'x' * 80}'; available: {', '.join(names[:10])} and 89 more"
    )
    assert unknown_name("no run", "run 98", ["run 97" + "y" * 500]).count("y") == 74


HOSTILE = "<script>alert(1)</script>\x1b[31m&amp;\"'"


def parsed(document: str) -> tuple[list[str], list[str]]:
    """The tags and the texts of a document."""
    tags: list[str] = []
    texts: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)  # type: ignore[method-assign]
    parser.handle_data = texts.append  # type: ignore[method-assign]
    parser.feed(document)
    parser.close()
    return tags, texts


def test_text_stays_text() -> None:
    readable = HOSTILE.replace("\x1b", "�")
    expected = ["details", "summary", "pre"], [readable, f"one\n{readable}"]
    assert parsed(html_details(HOSTILE, html_text(f"one\n{HOSTILE}"))) == expected


def test_a_table_has_the_cells_and_nothing_else() -> None:
    document = html_table(["layer", "bytes"], [[HOSTILE, "1"], ["b", "2"]])
    tags, texts = parsed(document)
    assert tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "tr", "td", "td"]
    assert texts == ["layer", "bytes", HOSTILE.replace("\x1b", "�"), "1", "b", "2"]
    assert document.count("text-align: left") == document.count("text-align: right") == 3


GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[2] / "golden" / "bytes.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["text"])
def test_sizes_read_as_on_the_page(case: dict[str, object]) -> None:
    assert format_bytes(case["bytes"], case["unit"]) == case["text"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(
            ("10GiB", 10 << 30),
            ("500 MiB", 500 << 20),
            (" 1.5mib ", 3 << 19),
            ("1PiB", 1 << 50),
            ("1TiB", 1 << 40),
        ),
        *(
            ("10GB", 10**10),
            ("1.5 kb", 1500),
            ("80 gB", 80 * 10**9),
            ("80 gIb", 80 << 30),
            ("1TB", 10**12),
        ),
        *(("0.123456789 GB", 123_456_789), ("999999999999999.5 B", 10**15), ("7 B", 7), ("0B", 0)),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "ten", "0", "300", "10 GiB/s", "-1", "1e9", "10XB", "GiB", "1.GiB", "٣ MiB", "1" * 30],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    assert parse_bytes(text) is None


ROOT = "module __main__ › "


@pytest.mark.parametrize(
    ("paths", "common"),
    [
        ([], None),
        (["history (list) › [3]"], "history (list) › [3]"),
        (["history (list) › [3]"] * 2, "history (list) › [3]"),
        (["history (list) › [3]", "history (list) › [4]"], "history (list) › […]"),
        (
            ['h (list) › [3] (dict) › "loss"', 'h (list) › [4] (dict) › "loss"'],
            'h (list) › […] (dict) › "loss"',
        ),
        (
            ['h (dict) › "a" (list) › [0]', 'h (dict) › "b" (list) › [0]'],
            "h (dict) › … (list) › [0]",
        ),
        (["a (A) › kept", "a (B) › kept"], "a › kept"),
        (["a (A) › kept", "b (B) › kept"], "… › kept"),
        (["h (list) › [0]", "h (list) › [1] (list) › [0]"], "h (list) › …"),
        (["h (list) › [0]", "other (list) › [1] (list) › [0]"], "…"),
    ],
)
def test_what_differs_is_left_out(paths: list[str], common: str | None) -> None:
    assert common_path([ROOT + path for path in paths]) == (
        None if common is None else ROOT + common
    )
