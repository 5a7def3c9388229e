"""A report's page and limits: data is never markup, and missing data is reported."""

import base64
import hashlib
import html.parser
import json
import os
import pathlib
import re
from typing import Any

import pytest
from reading_cases import MIB, make_map, make_samples, make_snapshot, make_table, write_samples, write_small_run

from tb_memplugin.cli import main, report
from tb_memplugin.cli.report import (
    DATA_ID,
    Contents,
    Question,
    StoredAnswer,
    collect,
    escape_json,
    escape_script,
    render,
    write_report,
)
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.storage.write import run_writer
from tb_memplugin.storage.write.run_writer import RunWriter

MARKUP = "</script><script>alert(1)</script><!--<script>\u2028]]>"


class Scripts(html.parser.HTMLParser):
    """What an HTML parser takes for scripts, and every element it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        given = dict(attrs)
        if tag == "script":
            self.scripts.append((given, ""))
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given.get("content") or ""

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] == ["script"]:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

    def handle_endtag(self, tag: str) -> None:
        self.elements.append(f"/{tag}")


def page_of(name: str, script: str) -> Scripts:
    answer = StoredAnswer(Question("runs", {"run": name}), 200, "application/json", "")
    parser = Scripts()
    parser.feed(render(Contents((name,), (answer,), ((Question("map", {"run": name}), name),), (name,)), script))
    return parser


def packed(logdir: pathlib.Path, **limit: Any) -> tuple[Contents, int]:
    found = collect(logdir, **limit)
    return found, sum(len(answer.packed) for answer in found.answers)


def asked(found: Contents, route: str) -> list[dict[str, str]]:
    return [dict(answer.question.parameters) for answer in found.answers if answer.question.route == route]


def test_hostile_names_are_not_markup() -> None:
    parser = page_of(MARKUP, f"export const text = {json.dumps(MARKUP)};")
    # THEN there are the two scripts that the page is made of, and the name is in the data as it was
    (data_attributes, data), (code_attributes, code) = parser.scripts
    assert data_attributes == {"type": "application/json", "id": DATA_ID} and code_attributes == {"type": "module"}
    assert json.loads(data)["absent"] == [MARKUP] and json.loads(data)["answers"][0]["parameters"] == {"run": MARKUP}
    assert parser.elements.count("title") == 1 and "img" not in parser.elements
    assert code.startswith("export const text") and code.rstrip().endswith(";")


def test_the_code_is_escaped_where_it_must_be_and_means_the_same() -> None:
    assert escape_script("a<b; '</SCRIPT>' + '<!--' + '<script>'") == "a<b; '\\x3C/SCRIPT>' + '\\x3C!--' + '<script>'"
    assert "<" not in escape_json({"<": ["</script"]}) and json.loads(escape_json({"<": 1})) == {"<": 1}


def test_the_policy_allows_this_one_script_and_no_connection() -> None:
    parser = page_of("exp", "export const a = '</script>';")
    code = parser.scripts[1][1]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in parser.policy
    assert "default-src 'none'" in parser.policy and "connect-src 'none'" in parser.policy
    assert "unsafe-eval" not in parser.policy and not re.search(r"https?:", parser.policy)


def test_snapshots_and_maps_beyond_the_limits_are_reported(tmp_path, monkeypatch) -> None:
    # GIVEN ten traced steps of which the second has the highest peak, and room for three snapshots and two maps
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [200 * MIB] * 10))
    for step in range(10):
        writer.snapshot(make_snapshot(step, activations=(500 if step == 1 else 100) * MIB))
        writer.memory_map(make_map(step))
    writer.close()
    monkeypatch.setattr(report, "MAX_SNAPSHOTS", 3)
    monkeypatch.setattr(report, "MAX_MAPS", 2)
    found, _ = packed(tmp_path)
    assert [place["step"] for place in asked(found, "snapshot")] == ["1", "7", "8", "9"]
    assert {"0", "8", "9"} >= {place["step"] for place in asked(found, "map")} >= {"8", "9"}
    refused = {(question.route, question.parameters["step"]): why for question, why in found.refusals}
    assert {step for route, step in refused if route == "snapshot"} == {"0", "2", "3", "4", "5", "6"}
    assert refused["snapshot", "0"] == (
        "Not in this report: it contains the last 3 snapshots and that of the highest peak."
    )
    assert any(
        sentence.startswith("6 of the 10 snapshots of exp on CPU:0 are not in this report") for sentence in found.absent
    )
    assert any("memory maps of exp on CPU:0 are not in this report" in sentence for sentence in found.absent)


def test_the_size_is_limited_and_missing_responses_are_reported(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    whole, size = packed(tmp_path)
    part, small = packed(tmp_path, max_data_bytes=size // 2)
    assert small <= size // 2 < size
    known = {str(question) for question, _ in part.refusals} | {str(answer.question) for answer in part.answers}
    assert {str(answer.question) for answer in whole.answers} <= known
    assert any("it reached its limit of " in sentence and sentence.endswith("KiB of data.") for sentence in part.absent)
    with pytest.raises(RequestError, match="list of runs"):
        collect(tmp_path, max_data_bytes=10)


def test_answers_are_in_order_and_the_same_again(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    found, _ = packed(tmp_path)
    assert found.answers[0].fields()["runs"][0]["run"] == "exp"
    assert next(answer for answer in found.answers if answer.question.route == "overview").fields()["rows"] == 60
    assert packed(tmp_path)[0] == found


def test_the_newest_runs_are_taken_unless_some_are_named(tmp_path, monkeypatch) -> None:
    sessions = [f"2026092{day}T000000Z-00000000" for day in (3, 1, 2)]
    monkeypatch.setattr(run_writer, "new_session_id", sessions.pop)
    for name in ("b", "c", "a"):
        write_samples(tmp_path / name, make_samples([0], [MIB]))
    assert collect(tmp_path).runs == ("a", "b", "c") and not any("--run" in text for text in collect(tmp_path).absent)
    monkeypatch.setattr(report, "MAX_RUNS", 2)
    found = collect(tmp_path)
    assert found.runs == ("a", "b")
    assert found.absent[0] == "c is not in this report: without --run it contains the newest 2 runs."
    monkeypatch.setattr(report, "MAX_RUNS", 1)
    assert collect(tmp_path).absent[0].startswith("b, c are not in this report")
    monkeypatch.setattr(report, "NAMED_RUNS", 1)
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


def test_an_existing_file_is_overwritten(logdir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    assert main(["report", str(logdir), "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


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
    # GIVEN a device whose name is longer than a request may be, as that of a worker can be, beside a good run
    write_small_run(tmp_path / "runs" / "good")
    write_samples(tmp_path / "runs" / "odd", make_samples([0], [1], device="d" * 4000), worker="w" * 200)
    contents, _ = write_report(str(tmp_path / "runs"), str(tmp_path / "report.html"))
    assert set(contents.runs) == {"good", "odd"}
    assert any("characters; at most" in why for _, why in contents.refusals)
    assert any(answer.question.parameters.get("run") == "good" for answer in contents.answers)


def write_tables(directory: pathlib.Path, tables: int, worker: str = "") -> None:
    writer = RunWriter(directory, worker=worker)
    writer.samples(make_samples(range(tables), [1000] * tables))
    for step in range(tables):
        writer.layer_table(make_table(step, unfrozen=bool(step % 2)))
    writer.close()


def tables_in(found: Contents) -> list[str]:
    questions = [dict(answer.question.parameters) for answer in found.answers if answer.question.route == "layers"]
    return sorted(question["step"] for question in questions if "step" in question)


def test_the_layers_of_each_worker_are_in_a_report(tmp_path: pathlib.Path) -> None:
    for worker in range(2):
        write_tables(tmp_path / "run", 1 + worker, f"worker_{worker}")
    found = collect(tmp_path)
    answers = [answer.question.parameters for answer in found.answers if answer.question.route == "layers"]
    devices = [dict(parameters).get("device") for parameters in answers if "step" in dict(parameters)]
    assert devices == [None, "worker_0/CPU:0", "worker_1/CPU:0", "worker_1/CPU:0"]


@pytest.mark.parametrize(("tables", "left_out"), [(3, 0), (4, 0), (5, 1), (9, 5)])
def test_the_last_layer_tables_are_in_a_report(tables, left_out, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "MAX_TABLES", 4)
    write_tables(tmp_path / "run", tables)
    found = collect(tmp_path)
    assert tables_in(found) == [str(step) for step in range(left_out, tables)]
    refused = [(question.parameters, why) for question, why in found.refusals if question.route == "layers"]
    assert len(refused) == left_out
    said = [sentence for sentence in found.absent if "layer tables" in sentence]
    assert said == (
        [f"{left_out} layer tables of run are not in this report: it contains the last 4."] if left_out else []
    )
