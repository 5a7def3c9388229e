"""A report's page and limits: data is never markup, and missing data is reported."""

import base64
import hashlib
import json
import os
import pathlib
import re
from typing import Any

import pytest
from reading_cases import MIB, make_map, make_samples, make_snapshot, write_records, write_small_run

from tb_memplugin.cli import main
from tb_memplugin.cli.report import (
    Contents,
    Question,
    StoredAnswer,
    collect,
    render,
    write_report,
)
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.storage.write import RunWriter


def test_hostile_names_are_no_markup_and_the_policy_allows_this_script_alone() -> None:
    name = "</script><script>alert(1)</script><!--<script>\u2028]]>"
    answer = StoredAnswer(Question("runs", {"run": name}), 200, "application/json", "")
    page = render(
        Contents((name,), (answer,), ((Question("map", {"run": name}), name),), (name,)),
        f"text = {name!r};",
    )
    # THEN there are the two scripts that the page is made of, and the name is in the data as it was
    # (Inside a script, only its end tag and a comment's beginning are markup.)
    assert len(re.findall("</script", page, re.IGNORECASE)) == 2 and "<!--" not in page
    data, code = re.findall(r"<script [^>]*>(.*?)</script>", page, re.DOTALL)
    assert (
        "<" not in data
        and json.loads(data)["absent"] == [name]
        and json.loads(data)["answers"][0]["parameters"] == {"run": name}
    )
    assert code.replace("\\x3C", "<") == f"text = {name!r};"
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert (
        f"script-src 'sha256-{digest}'" in policy
        and "unsafe-eval" not in policy
        and "http" not in policy
    )
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy


def packed(logdir: pathlib.Path, **limit: Any) -> tuple[Contents, int]:
    found = collect(logdir, **limit)
    return found, sum(len(answer.packed) for answer in found.answers)


def asked(found: Contents, route: str) -> list[dict[str, str]]:
    return [
        dict(answer.question.parameters)
        for answer in found.answers
        if answer.question.route == route
    ]


def test_snapshots_and_maps_beyond_the_limits_are_reported(tmp_path, monkeypatch) -> None:
    # GIVEN ten traced steps of which the second has the highest peak, and room for three snapshots
    # and two maps
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [200 * MIB] * 10))
    for step in range(10):
        writer.traced(make_snapshot(step, activations=(500 if step == 1 else 100) * MIB))
        writer.traced(make_map(step))
    writer.close()
    monkeypatch.setattr("tb_memplugin.cli.report.MAX_SNAPSHOTS", 3)
    monkeypatch.setattr("tb_memplugin.cli.report.MAX_MAPS", 2)
    found, _ = packed(tmp_path)
    assert [place["step"] for place in asked(found, "snapshot")] == ["1", "9", "8", "7"]
    assert {"0", "8", "9"} >= {place["step"] for place in asked(found, "map")} >= {"8", "9"}
    refused = {
        (question.route, question.parameters["step"]): why for question, why in found.refusals
    }
    assert {step for route, step in refused if route == "snapshot"} == {
        "0",
        "2",
        "3",
        "4",
        "5",
        "6",
    }
    assert refused["snapshot", "0"] == (
        "Not in this report: it contains the last 3 snapshots and that of the highest peak."
    )
    assert any(
        sentence.startswith("6 of the 10 snapshots of exp on CPU:0 are not in this report")
        for sentence in found.absent
    )
    assert any(
        "memory maps of exp on CPU:0 are not in this report" in sentence
        for sentence in found.absent
    )


def test_the_size_is_limited_and_missing_responses_are_reported(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    whole, size = packed(tmp_path)
    part, small = packed(tmp_path, max_data_bytes=size // 2)
    assert small <= size // 2 < size
    known = {str(question) for question, _ in part.refusals} | {
        str(answer.question) for answer in part.answers
    }
    assert {str(answer.question) for answer in whole.answers} <= known
    assert any(
        "it reached its limit of " in sentence and sentence.endswith("KiB of data.")
        for sentence in part.absent
    )
    with pytest.raises(RequestError, match="list of runs"):
        collect(tmp_path, max_data_bytes=10)


def test_the_newest_runs_are_taken_unless_some_are_named(tmp_path, monkeypatch) -> None:
    sessions = [f"2026092{day}T000000Z-00000000" for day in (3, 1, 2)]
    monkeypatch.setattr("tb_memplugin.storage.write.run_writer.new_session_id", sessions.pop)
    for name in ("b", "c", "a"):
        write_records(tmp_path / name, make_samples([0], [MIB]))
    assert collect(tmp_path).runs == ("a", "b", "c") and not any(
        "--run" in text for text in collect(tmp_path).absent
    )
    monkeypatch.setattr("tb_memplugin.cli.report.MAX_RUNS", 2)
    found = collect(tmp_path)
    assert found.runs == ("a", "b")
    assert found.absent[0] == (
        "c is not in this report: without --run it contains the newest 2 runs."
    )
    monkeypatch.setattr("tb_memplugin.cli.report.MAX_RUNS", 1)
    assert collect(tmp_path).absent[0].startswith("b, c are not in this report")
    monkeypatch.setattr("tb_memplugin.cli.report.NAMED_RUNS", 1)
    assert collect(tmp_path).absent[0].startswith("b and 1 more are not in this report")
    named = collect(tmp_path, ["a", "a"])
    assert named.runs == ("a",) and not any("--run" in sentence for sentence in named.absent)
    with pytest.raises(NotFoundError, match="no run 'd'; available: a, b, c"):
        collect(tmp_path, ["d"])
    with pytest.raises(RequestError, match=r"at most 1 runs\. Received: 2"):
        collect(tmp_path, ["a", "b"])


def test_errors_are_one_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    write_small_run(tmp_path / "runs" / "exp")
    cases = {
        (str(tmp_path / "none"), str(tmp_path / "r.html")): "no directory",
        (str(tmp_path / "empty"), str(tmp_path / "r.html")): "no memory records under",
        (str(tmp_path / "runs"), str(tmp_path / "no" / "r.html")): "cannot be written",
        (str(tmp_path / "runs"), str(tmp_path)): "cannot be written",
    }
    for (logdir, file), said in cases.items():
        assert main(["report", logdir, "-o", file]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1 and said in printed.err
    assert not list(tmp_path.glob("*.html*"))
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "r.html")]) == 0
    assert "with exp\n" in capsys.readouterr().out


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    write_small_run(tmp_path / "runs" / "exp")
    return tmp_path / "runs"


def test_links_devices_pipes_and_directories_are_refused(logdir, tmp_path, capsys) -> None:
    target, link, pipe = tmp_path / "precious", tmp_path / "link.html", tmp_path / "pipe.html"
    target.write_text("precious")
    os.symlink(target, link)
    os.mkfifo(pipe)
    for path in (str(link), str(pipe), str(tmp_path)):
        assert main(["report", str(logdir), "-o", path]) == 2
        assert "it is a link, a device or a directory" in capsys.readouterr().err
    # Nor is a link in the place of the unfinished file followed.
    os.symlink(target, tmp_path / "report.html.unfinished")
    assert main(["report", str(logdir), "-o", str(tmp_path / "report.html")]) == 2
    assert link.is_symlink() and pipe.is_fifo() and target.read_text() == "precious"


def test_a_name_that_no_request_may_have_costs_only_its_answers(tmp_path: pathlib.Path) -> None:
    # GIVEN a device whose name is longer than a request may be, as that of a worker can be, beside
    # a good run
    write_small_run(tmp_path / "runs" / "good")
    write_records(
        tmp_path / "runs" / "odd", make_samples([0], [1], device="d" * 4000), worker="w" * 200
    )
    contents, _ = write_report(str(tmp_path / "runs"), str(tmp_path / "report.html"))
    assert set(contents.runs) == {"good", "odd"}
    assert any("characters; at most" in why for _, why in contents.refusals)
    assert any(answer.question.parameters.get("run") == "good" for answer in contents.answers)
