"""HTML for notebooks: what comes from a run directory stays text."""

import html.parser

from tb_memplugin.model.markup import html_details, html_table, html_text

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
