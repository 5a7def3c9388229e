"""The line about long work: only after a while, only in a terminal, and gone at the end."""

import io
import time

import pytest

from tb_memplugin.progress import Progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    def wait_for(self, text: str) -> None:
        limit = time.monotonic() + 30
        while text not in self.getvalue():
            assert time.monotonic() < limit, self.getvalue()
            time.sleep(0.01)

    def screen(self) -> str:
        """What the line shows at the end."""
        return self.getvalue().rsplit("\r\x1b[K", 1)[-1]


def test_the_line_appears_changes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    with Progress("report", 3, terminal, delay=0.05) as progress:
        progress.part("run a")
        terminal.wait_for("report: run a (1 of 3)")
        progress.part("run b")
        assert terminal.screen() == "report: run b (2 of 3)"
    assert terminal.screen() == ""


def test_short_work_shows_nothing() -> None:
    terminal = Terminal()
    with Progress("probe", None, terminal, delay=60) as progress:
        progress.part("batch size 4")
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_gets_nothing() -> None:
    stream = io.StringIO()
    with Progress("probe", None, stream, delay=0) as progress:
        progress.part("batch size 4")
        time.sleep(0.1)
    assert stream.getvalue() == ""
    closed = io.StringIO()
    closed.close()
    with Progress("probe", None, closed, delay=0) as progress:
        progress.part("batch size 4")


def test_a_long_line_is_cut_and_an_error_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    with pytest.raises(KeyError), Progress("report", None, terminal, delay=0) as progress:
        progress.part("x" * 500)
        terminal.wait_for("report: xxxx")
        assert len(terminal.screen()) == 19
        raise KeyError
    assert terminal.screen() == ""
