"""Where ``tb-memplugin report`` writes."""

import os
import pathlib

import pytest
from reading_cases import make_samples, write_small_run

from tb_memplugin.cli import main
from tb_memplugin.commands.report.page import write_report
from tb_memplugin.events.run_writer import RunWriter


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
        assert "it is a link, a device or a directory" in capsys.readouterr().err
    assert link.is_symlink() and pipe.is_fifo() and target.read_text() == "precious"


def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(
    logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    os.symlink(target, tmp_path / "report.html.unfinished")
    assert main(["report", str(logdir), "-o", str(tmp_path / "report.html")]) == 2
    assert target.read_text() == "precious"


def test_a_name_that_no_request_may_have_costs_only_its_answers(tmp_path: pathlib.Path) -> None:
    # GIVEN a device whose name is longer than a request may be, as that of a worker can be, beside a good run
    write_small_run(tmp_path / "runs" / "good")
    writer = RunWriter(tmp_path / "runs" / "odd", worker="w" * 200)
    writer.samples(make_samples([0], [1], device="d" * 4000))
    writer.close()
    contents, _ = write_report(str(tmp_path / "runs"), str(tmp_path / "report.html"))
    assert set(contents.runs) == {"good", "odd"}
    assert any("characters; at most" in why for _, why in contents.refusals)
    assert any(answer.question.parameters.get("run") == "good" for answer in contents.answers)
