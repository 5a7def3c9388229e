"""Checks as other tools read them: annotations of GitHub Actions, JUnit XML, and a table in Markdown.

What comes from a run directory (names, devices, sentences) is escaped by the rules of each.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from tb_memplugin.analysis.budget import BudgetCheck, CheckStatus
from tb_memplugin.commands.check.checks import STATUS_WORDS, count_line, ordered, place
from tb_memplugin.model.text import clean

_NOT_XML = re.compile("[\ufffe\uffff]")
"""What XML 1.0 cannot contain and `clean` keeps."""
_BACKTICKS = re.compile("`+")


def github_annotations(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """Workflow commands: an error for each check that makes the job fail, a notice for the others."""
    lines = []
    for check in ordered(checks):
        level = "error" if _fails(check.status, allow_new) else "notice"
        title = f"Memory {STATUS_WORDS[check.status]}: {place(check, logdir)}"
        lines.append(f"::{level} title={_github_property(title)}::{_github_data(check.reason)}")
    return "\n".join([*lines, count_line(checks)])


def _github_data(text: str) -> str:
    return clean(text).replace("%", "%25")  # line breaks are replaced already


def _github_property(text: str) -> str:
    return _github_data(text).replace(":", "%3A").replace(",", "%2C")


def junit_xml(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """A JUnit report: a test suite for each run, a test case for each comparison."""
    root = ElementTree.Element("testsuites", name="tb-memplugin check")
    in_order = sorted(checks, key=lambda check: check.run)
    for _, of_run in groupby(in_order, key=lambda check: check.run):
        cases = list(of_run)
        name = _xml_text(place(cases[0], logdir, with_device=False))
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
        counts = dict.fromkeys(("failures", "errors", "skipped"), 0)
        for check in cases:
            what = ", ".join(filter(None, [check.device, check.limit and check.limit.replace("_", " ")]))
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=_xml_text(what or "run"))
            found = _junit_result(check.status, allow_new)
            if found is None:
                ElementTree.SubElement(case, "system-out").text = _xml_text(check.reason)
            else:
                tag, count = found
                counts[count] += 1
                ElementTree.SubElement(case, tag, message=_xml_text(f"{STATUS_WORDS[check.status]}: {check.reason}"))
        suite.attrib |= {key: str(count) for key, count in counts.items()}
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}'


def _junit_result(status: CheckStatus, allow_new: bool) -> tuple[str, str] | None:
    """The element of a check that is not within the budget, and the attribute that counts it."""
    if status == "within":
        return None
    if status == "violated":
        return "failure", "failures"
    return ("error", "errors") if _fails(status, allow_new) else ("skipped", "skipped")


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("�", clean(text))


def markdown_table(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """A table in GitHub's Markdown, for a job's summary or a comment."""
    lines = ["| | run | device | comparison |", "|---|---|---|---|"]
    for check in ordered(checks):
        run = place(check, logdir, with_device=False)
        mark = "❌" if _fails(check.status, allow_new) else "✅" if check.status == "within" else "➖"
        cells = [_code(run), _code(check.device) if check.device else "", _code(check.reason)]
        lines.append(f"| {mark} {STATUS_WORDS[check.status]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", count_line(checks)])


def _code(text: str) -> str:
    """Text as code, in which nothing is markup, a link or a mention; a table's cell still ends at a bare ``|``."""
    text = clean(text)
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    if "\\|" in text:  # which cannot be written in a cell: a backslash before an escaped | escapes the escape
        text = text.replace("\\", "⧵")
    escaped = text.replace("|", "\\|")
    return f"{fence}{space}{escaped}{space}{fence}"


def _fails(status: CheckStatus, allow_new: bool) -> bool:
    """Whether a check alone makes the exit code other than 0."""
    return status in ("violated", "unchecked") or (status == "new" and not allow_new)


FORMATS: Mapping[str, Callable[[Sequence[BudgetCheck], str, bool], str]] = {
    "github": github_annotations,
    "junit": junit_xml,
    "markdown": markdown_table,
}
"""Value of ``--format`` to its function of the checks, the log directory, and whether new runs are accepted."""
