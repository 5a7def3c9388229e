"""Where ``tb-memplugin report`` writes."""

import os
import pathlib

import pytest
from reading_cases import write_small_run

from tb_memplugin.cli import main


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    write_small_run(tmp_path / "runs" / "exp")
    return tmp_path / "runs"


def test_an_existing_file_is_overwritten(logdir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    assert main(["report", str(logdir), "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


def test_links_devices_pipes_and_directories_are_refused(
    logdir: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, link, pipe = tmp_path / "precious", tmp_path / "link.html", tmp_path / "pipe.html"
    target.write_text("precious")
    os.symlink(target, link)
    os.mkfifo(pipe)
    for path in (str(link), str(pipe), str(tmp_path)):
        assert main(["report", str(logdir), "-o", path]) == 2
        assert "is a link, a device or a directory" in capsys.readouterr().err
    assert link.is_symlink() and pipe.is_fifo() and target.read_text() == "precious"


def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(
    logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    os.symlink(target, tmp_path / "report.html.unfinished")
    assert main(["report", str(logdir), "-o", str(tmp_path / "report.html")]) == 2
    assert target.read_text() == "precious"
