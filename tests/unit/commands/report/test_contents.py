"""A report's page and limits: data is never markup, and missing data is reported."""

import base64
import gzip
import hashlib
import html.parser
import json
import pathlib
import re
from typing import Any

import pytest
from reading_cases import MIB, make_map, make_samples, make_snapshot, write_small_run

from tb_memplugin.cli import main
from tb_memplugin.commands.report import contents as contents_module
from tb_memplugin.commands.report import parts
from tb_memplugin.commands.report.answers import Question, StoredAnswer
from tb_memplugin.commands.report.contents import Contents, collect
from tb_memplugin.commands.report.page import DATA_ID, escape_json, escape_script, render
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.events import run_writer
from tb_memplugin.events.run_writer import RunWriter

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


def test_snapshots_and_maps_beyond_the_limits_are_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN ten traced steps of which the second has the highest peak, and room for three snapshots and two maps
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [200 * MIB] * 10))
    for step in range(10):
        writer.snapshot(make_snapshot(step, activations=(500 if step == 1 else 100) * MIB))
        writer.memory_map(make_map(step))
    writer.close()
    monkeypatch.setattr(parts, "MAX_SNAPSHOTS", 3)
    monkeypatch.setattr(parts, "MAX_MAPS", 2)
    found, _ = packed(tmp_path)
    # THEN the last ones and the peak's are there, and a sentence on each of the others
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


def test_packed_responses_equal_the_servers(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp", allocator=True)
    found, _ = packed(tmp_path)
    assert all(gzip.decompress(base64.b64decode(answer.packed)) == answer.body for answer in found.answers)
    assert found.answers[0].fields()["runs"][0]["run"] == "exp"
    assert next(answer for answer in found.answers if answer.question.route == "overview").fields()["rows"] == 60
    assert packed(tmp_path)[0] == found


def test_the_newest_runs_are_taken_unless_some_are_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [f"2026092{day}T000000Z-00000000" for day in (3, 1, 2)]
    monkeypatch.setattr(run_writer, "new_session_id", sessions.pop)
    for name in ("b", "c", "a"):
        writer = RunWriter(tmp_path / name)
        writer.samples(make_samples([0], [MIB]))
        writer.close()
    # THEN a report has all runs, and names those that do not fit
    assert collect(tmp_path).runs == ("a", "b", "c") and not any("--run" in text for text in collect(tmp_path).absent)
    monkeypatch.setattr(contents_module, "MAX_RUNS", 2)
    found = collect(tmp_path)
    assert found.runs == ("a", "b")
    assert found.absent[0] == "c is not in this report: without --run it contains the newest 2 runs."
    monkeypatch.setattr(contents_module, "MAX_RUNS", 1)
    assert collect(tmp_path).absent[0].startswith("b, c are not in this report")
    monkeypatch.setattr(contents_module, "NAMED_RUNS", 1)
    assert collect(tmp_path).absent[0].startswith("b and 1 more are not in this report")
    named = collect(tmp_path, ["a", "a"])
    assert named.runs == ("a",) and not any("--run" in sentence for sentence in named.absent)
    with pytest.raises(NotFoundError, match="no run 'd'; available: a, b, c"):
        collect(tmp_path, ["d"])


def test_more_runs_than_the_limit_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_small_run(tmp_path / name)
    monkeypatch.setattr(contents_module, "MAX_RUNS", 1)
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
