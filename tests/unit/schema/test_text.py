"""Suggestions for names that do not exist."""

import html.parser

import pytest

from tb_memplugin.schema import did_you_mean, html_details, html_table, html_text, some, unknown_name


@pytest.mark.parametrize(
    ("name", "meant"),
    [("small", "small"), ("smal", "small"), ("SMALL", "small"), ("samll", "small"), ("other", None), ("", None)],
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


class Parsed(html.parser.HTMLParser):
    """The tags and the texts of a document."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_text_stays_text() -> None:
    parsed = Parsed(html_details(HOSTILE, html_text(f"one\n{HOSTILE}")))
    readable = HOSTILE.replace("\x1b", "�")
    assert parsed.tags == ["details", "summary", "pre"]
    assert parsed.texts == [readable, f"one\n{readable}"]


def test_a_table_has_the_cells_and_nothing_else() -> None:
    document = html_table(["layer", "bytes"], [[HOSTILE, "1"], ["b", "2"]])
    parsed = Parsed(document)
    assert parsed.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "tr", "td", "td"]
    assert parsed.texts == ["layer", "bytes", HOSTILE.replace("\x1b", "�"), "1", "b", "2"]
    assert document.count("text-align: left") == document.count("text-align: right") == 3
