"""What is printed at the end of a recorded program."""

import pathlib

from reading_cases import write_small_run

from tb_memplugin.commands.run.ending import NOTHING, ending


def test_runs_are_printed_with_the_line_that_shows_them(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "my runs" / "one")
    write_small_run(tmp_path / "my runs" / "another")
    text = ending(str(tmp_path / "my runs"), "my runs", ["one", "missing"], ["A note."])
    assert "\none: 60 steps (0 to 59)" in text and "another" not in text
    assert "\nmissing: nothing was written\n\nA note.\n" in text
    assert text.endswith("\ntensorboard --logdir 'my runs'")


def test_without_runs_it_says_why(tmp_path: pathlib.Path) -> None:
    assert ending(str(tmp_path), "runs", [], []) == f"\n{NOTHING}"
    assert ending(str(tmp_path), "runs", [], ["A note."]) == "\nA note."
