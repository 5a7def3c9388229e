"""``tb-memplugin check``: whether runs stay within a memory budget, as text or for other tools; an exit code for CI.

Names, devices and sentences come from a run directory: each format escapes them by its rules.
"""

import argparse
import dataclasses
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby

from tb_memplugin.cli.budget import (
    WORDS,
    Budget,
    BudgetCheck,
    CheckStatus,
    Measured,
    Regression,
    check_workers,
    exit_status,
    measure,
)
from tb_memplugin.cli.command_parser import USER_ERROR, Commands
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import FORMAT, Runs, existing_runs
from tb_memplugin.schema import PHASES, SIZE_RULE, clean, parse_bytes, some, unknown_name

EXIT_CODES = {"within": 0, "violated": 1, "unchecked": USER_ERROR}
STATUS_WORDS: dict[CheckStatus, str] = {
    "within": "within budget",
    "violated": "violated",
    "unchecked": "not checked",
    "new": "not in baseline",
}
_SHARE = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%", re.ASCII)
_NOT_XML = re.compile("[\ufffe\uffff]")
"""What XML 1.0 cannot contain and `clean` keeps."""
_THE_RUN = "."
"""TensorBoard's name of a run that is the log directory itself."""


def add_command(commands: Commands) -> None:
    checking = commands.add_parser(
        "check",
        help="compare peaks with a budget, for CI",
        description="Compares the highest peak of each device of each run with a budget, or the bytes that are live at "
        "once in a traced step. A run that ran out of memory violates any budget.",
        epilog="Sizes: 10GiB (10 x 2^30 bytes), 10GB (10 x 10^9 bytes), 500MiB or 900B.",
        examples=(
            "tb-memplugin check runs/pr --max-peak 10GiB",
            "tb-memplugin check runs/pr --of live --max-regression 5% --baseline runs/main",
            "tb-memplugin check runs/pr --max-peak 10GiB --format github",
        ),
        exit_codes={
            0: "every peak is within the budget",
            1: "a peak exceeds it, or a run ran out of memory",
            USER_ERROR: "wrong usage, nothing to check, or something could not be checked",
        },
    )
    checking.add_argument("logdir", metavar="LOGDIR", help="log directory, or the directory of one run")
    checking.add_argument("--max-peak", metavar="SIZE", help="highest allowed peak of a device, e.g. 10GiB")
    checking.add_argument(
        "--max-regression", metavar="R", help="allowed growth over the baseline's peak: 5%% of it, or a size"
    )
    checking.add_argument(
        "--baseline",
        metavar="DIR",
        help="the run to compare all runs with, or a log directory with runs of their names",
    )
    checking.add_argument(
        "--of",
        choices=("peak", "live"),
        default="peak",
        help="the allocator's peak (default), or the bytes that are live at once, which vary less from run to run",
    )
    checking.add_argument("--run", metavar="R", action="append", default=[], help="only this run; can be repeated")
    checking.add_argument(
        "--device", metavar="D", action="append", default=[], help="only this device, e.g. GPU:0 of each worker"
    )
    checking.add_argument("--phase", choices=PHASES, action="append", default=[], help="only peaks of this phase")
    checking.add_argument(
        "--allow-new", action="store_true", help="accept runs and devices that the baseline does not have"
    )
    checking.add_argument(
        "--format",
        choices=("table", "json", *FORMATS),
        default="table",
        help="text (default), JSON, annotations of GitHub Actions, JUnit XML, or a table in Markdown",
    )
    checking.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    checks = check(options.logdir, _budget(options), options.baseline, options.run)
    status = exit_status(checks, options.allow_new)
    if options.format == "table":
        for one in ordered(checks):
            print(clean(f"{STATUS_WORDS[one.status]}: {place(one, options.logdir)}: {one.reason}"))
        print(count_line(checks))
    elif options.format == "json":
        described = {
            "format": FORMAT,
            "of": options.of,
            "status": status,
            "checks": list(map(dataclasses.asdict, checks)),
        }
        print(json.dumps(described, allow_nan=False))
    else:
        print(FORMATS[options.format](checks, options.logdir, options.allow_new))
    return EXIT_CODES[status]


def _budget(options: argparse.Namespace) -> Budget:
    if options.max_peak is None and options.max_regression is None:
        raise RequestError("nothing to check: pass --max-peak, or --max-regression with --baseline")
    peak = None if options.max_peak is None else parse_bytes(options.max_peak)
    if options.max_peak is not None and not peak:
        raise RequestError(f"--max-peak is {SIZE_RULE}. Received: {options.max_peak!r:.80}")
    regression = None if options.max_regression is None else _regression(options.max_regression)
    return Budget(
        peak, regression, tuple(dict.fromkeys(options.device)), tuple(dict.fromkeys(options.phase)), options.of
    )


def _regression(text: str) -> Regression:
    share, size = _SHARE.fullmatch(text.strip()), parse_bytes(text)
    if share is not None:
        return Regression(text.strip(), Fraction(share[1]) / 100, 0)
    if size is None:
        raise RequestError(f"--max-regression is a share such as 5% or a size such as 200MiB. Received: {text!r:.80}")
    return Regression(text.strip(), None, size)


def check(logdir: str, limits: Budget, baseline: str | None = None, names: Sequence[str] = ()) -> list[BudgetCheck]:
    """Compare the runs under `logdir` with a budget.

    Runs are compared with the baseline's run of the same name; if the baseline is itself a run, with that. Runs inside
    the baseline's directory are only checked if `names` has them. Without `names` all runs are checked, and those that
    only the baseline has are listed as not checked.

    Raises:
        NotFoundError: A directory has no runs, or `logdir` none of that name.
        RequestError: The baseline does not belong to the limits.
    """
    if (limits.max_regression is None) != (baseline is None):
        raise RequestError("--max-regression and --baseline belong together: pass both or neither")
    runs = existing_runs(logdir, details=False)
    unknown = [name for name in names if name not in runs]
    if unknown:
        raise NotFoundError(unknown_name("no run", unknown[0], runs))
    before = None if baseline is None else existing_runs(baseline, details=False)
    chosen = list(dict.fromkeys(names)) or [
        name for name in runs if baseline is None or not _inside(_directory(logdir, name), baseline)
    ]
    if not chosen:
        raise NotFoundError(f"every run under {logdir} belongs to the baseline {baseline}")
    checks = []
    devices: dict[str, None] = {}
    for name in chosen:
        former = _THE_RUN if before is not None and set(before) == {_THE_RUN} else name
        baselines = {} if before is None or former not in before else dict(_measured(before, former, limits))
        measured = list(_measured(runs, name, limits))
        checks += check_workers(name, measured, limits, baselines)
        devices |= {device: None for _, worker in measured for device in worker.devices}
    if before is not None and not names:
        missing = [name for name in before if name not in chosen and name != _THE_RUN]
        reason = f"in the baseline, but not under {logdir}"
        checks += [BudgetCheck(name, None, "max_regression", "unchecked", reason) for name in missing]
    if limits.devices and not any(check.limit for check in checks):
        there = f"; available: {some(list(devices))}" if devices else ""
        raise NotFoundError(f"no {WORDS[limits.of]} on {' or '.join(limits.devices)} in any run{there}")
    return checks


def ordered(checks: Sequence[BudgetCheck]) -> list[BudgetCheck]:
    return sorted(checks, key=lambda check: (check.status == "violated", check.status != "within"))


def place(check: BudgetCheck, logdir: str, with_device: bool = True) -> str:
    """The run of a check, and its device; a run that is the log directory itself has its name."""
    run = logdir if check.run == _THE_RUN else check.run
    return ", ".join(filter(None, [run, check.device if with_device else None]))


def count_line(checks: Sequence[BudgetCheck]) -> str:
    counts = [(sum(check.status == status for check in checks), STATUS_WORDS[status]) for status in STATUS_WORDS]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _measured(runs: Runs, name: str, limits: Budget) -> Iterator[tuple[str, Measured]]:
    for worker, run in runs.each_worker(name, requests=limits.of == "live"):
        yield worker, measure(run, limits, worker)


def _directory(logdir: str, name: str) -> str:
    return logdir if name == _THE_RUN else f"{logdir.rstrip('/')}/{name}"


def _inside(directory: str, of: str) -> bool:
    one, other = (path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (directory, of))
    return f"{one}/".startswith(f"{other}/")


def github_annotations(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """Workflow commands: an error for each check that makes the job fail, a notice for the others."""
    lines = []
    for check in ordered(checks):
        level = "error" if _fails(check.status, allow_new) else "notice"
        title = _github_data(f"Memory {STATUS_WORDS[check.status]}: {place(check, logdir)}")
        title = title.replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{_github_data(check.reason)}")
    return "\n".join([*lines, count_line(checks)])


def _github_data(text: str) -> str:
    return clean(text).replace("%", "%25")  # line breaks are replaced already


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
            if check.status == "within":
                ElementTree.SubElement(case, "system-out").text = _xml_text(check.reason)
                continue
            fails = "error" if _fails(check.status, allow_new) else "skipped"
            tag = "failure" if check.status == "violated" else fails
            counts["skipped" if tag == "skipped" else f"{tag}s"] += 1
            ElementTree.SubElement(case, tag, message=_xml_text(f"{STATUS_WORDS[check.status]}: {check.reason}"))
        suite.attrib |= {key: str(count) for key, count in counts.items()}
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}'


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
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    if "\\|" in text:  # which cannot be written in a cell: a backslash before an escaped | escapes the escape
        text = text.replace("\\", "⧵")
    escaped = text.replace("|", "\\|")
    return f"{fence}{space}{escaped}{space}{fence}"


def _fails(status: CheckStatus, allow_new: bool) -> bool:
    return status in ("violated", "unchecked") or (status == "new" and not allow_new)


FORMATS: Mapping[str, Callable[[Sequence[BudgetCheck], str, bool], str]] = {
    "github": github_annotations,
    "junit": junit_xml,
    "markdown": markdown_table,
}
"""Value of ``--format`` to its function of the checks, the log directory, and whether new runs are accepted."""
