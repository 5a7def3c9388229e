"""Checks as other tools read them, with hostile names."""

import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest
from reading_cases import MIB, make_samples

from tb_memplugin.analysis.budget import BudgetCheck
from tb_memplugin.cli import main
from tb_memplugin.commands.check.reports import github_annotations, junit_xml, markdown_table
from tb_memplugin.events.run_writer import RunWriter

HOSTILE = 'a|b`c``<img src=x>&"%\n::error::x,y:@user\\| \ufffe\x1b]0;'
CHECKS = [
    BudgetCheck("small", "GPU:0", "max_peak", "within", "peak 1 MiB"),
    BudgetCheck(HOSTILE, HOSTILE, "max_regression", "violated", f"peak 5% {HOSTILE}"),
    BudgetCheck("gone", None, None, "unchecked", "no peak recorded"),
    BudgetCheck("fresh", "GPU:0", "max_regression", "new", "the baseline has no such run"),
]


def test_annotations_cannot_be_broken_out_of() -> None:
    lines = github_annotations(CHECKS, "runs", allow_new=False).split("\n")
    assert len(lines) == len(CHECKS) + 1 and lines[-1].startswith("1 within budget, 1 violated")
    levels = [re.fullmatch(r"::(error|notice) title=[^:,\n]*::.*", line) for line in lines[:-1]]
    assert all(levels)
    assert {line.split(" ")[0] for line in lines[:-1] if "small" in line} == {"::notice"}
    assert lines[-2].startswith("::error title=Memory violated%3A a|b")
    # AND decoded as GitHub does, the message is what was said
    message = lines[-2].split("::", 2)[2]
    assert message.replace("%25", "%").startswith('peak 5% a|b`c``<img src=x>&"%�::error::x,y:@user')
    accepted = github_annotations(CHECKS, "runs", allow_new=True).split("\n")
    assert next(line for line in accepted if "fresh" in line).startswith("::notice")


def test_junit_has_the_results_and_any_name() -> None:
    root = ElementTree.fromstring(junit_xml(CHECKS, "runs", allow_new=True))
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == 4
    found = {}
    for name, suite in suites.items():
        (case,) = suite
        found[name] = [child.tag for child in case], suite.get("failures"), suite.get("errors"), suite.get("skipped")
    assert found["small"] == (["system-out"], "0", "0", "0")
    assert found["gone"] == (["error"], "0", "1", "0") and found["fresh"] == (["skipped"], "0", "0", "1")
    hostile = HOSTILE.replace("\n", "�").replace("\ufffe", "�").replace("\x1b", "�")
    assert found[hostile] == (["failure"], "1", "0", "0")
    (case,) = suites[hostile]
    assert case.get("name") == f"{hostile}, max regression"
    assert case[0].get("message") == f"violated: peak 5% {hostile}"


def cells(line: str) -> list[str]:
    """A table's row, split as GitHub's Markdown does: a backslash escapes any punctuation after it."""
    parts = re.findall(r"(?:\\[^\w\s]|[^|])*", line.strip().strip("|"))
    return [part.strip() for part in parts if part]


def test_markdown_cells_stay_cells_and_code() -> None:
    text = markdown_table(CHECKS, "runs", allow_new=False)
    rows = text.split("\n")[2:-2]
    assert len(rows) == len(CHECKS)
    for row in rows:
        first, run, _, comparison = cells(row)
        assert first[0] in "✅❌"
        for cell in (run, comparison):
            fence = re.match("`+", cell)
            assert fence is not None and cell.endswith(fence[0])
            inside = cell[len(fence[0]) : -len(fence[0])]
            assert fence[0] not in inside
    assert cells(rows[0])[0] == "✅ within budget" and "❌ violated" in rows[-1]


@pytest.mark.parametrize("name", ["github", "junit", "markdown"])
def test_the_exit_code_does_not_depend_on_the_format(
    name: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples([0], [1100 * MIB], device="GPU:0"))
    writer.close()
    # 1,100 MiB are 1,153,433,600 bytes: more than 1.1 GB, less than 1.1 GiB
    assert main(["check", str(tmp_path), "--max-peak", "1.1GiB", "--format", name]) == 0
    assert "peak 1,153,433,600 B" in capsys.readouterr().out
    assert main(["check", str(tmp_path), "--max-peak", "1.1GB", "--format", name]) == 1
    assert "violated" in capsys.readouterr().out
