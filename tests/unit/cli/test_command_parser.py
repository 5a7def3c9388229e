"""The parser of the command line: its help keeps the lines of examples."""

import pytest

from tb_memplugin.cli.parser import CommandParser


def test_examples_stay_as_they_are_and_text_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    long = "prog " + "x" * 100
    codes = {0: "fine", 2: "not fine"}
    parser = CommandParser(prog="prog")
    parser.describe("", examples=(long, "prog 5%"), exit_codes=codes, more="word " * 30)
    lines = parser.format_help().splitlines()
    assert lines[-8:] == ["", "examples:", f"  {long}", "  prog 5%", "", "exit codes:", "  0  fine", "  2  not fine"]
    assert max(len(line) for line in lines if "word" in line) <= 60


def test_an_unknown_argument_is_the_error_of_the_command_that_got_it(capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser(prog="prog")
    commands = parser.add_subparsers()
    commands.add_parser("sub").add_argument("--count", type=int)
    assert parser.parse_args(["sub", "--count", "3"]).count == 3
    with pytest.raises(SystemExit):
        parser.parse_args(["sub", "--cuont", "3"])
    said = "prog sub: unknown option --cuont; did you mean '--count'? (see prog sub --help)\n"
    assert capsys.readouterr().err == said
