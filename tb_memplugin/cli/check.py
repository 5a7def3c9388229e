"""``tb-memplugin check``: whether the peaks of runs, or the bytes live at once in their traced
steps, stay in a budget.

A budget is a fixed limit, or a baseline run plus what it may grow by. A peak that is only known to
be a lower bound, because data is damaged or steps were not recorded, never passes. Names, devices
and sentences come from a run directory: each format escapes them by its rules."""

import argparse
import dataclasses
import functools
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from tb_memplugin.analysis import Peak, capacity_of, device_facts, highest_peak
from tb_memplugin.cli.parser import USER_ERROR, CommandParser
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import FORMAT, Runs, existing_runs
from tb_memplugin.fit import capacity_bytes, demand_of
from tb_memplugin.schema import (
    PHASES,
    Phase,
    Run,
    clean,
    format_bytes,
    full_device_name,
    lost_step_notes,
    parse_share,
    some,
    unknown_name,
    unrecorded_devices,
)

Limit: TypeAlias = Literal["max_peak", "max_regression", "out_of_memory"]
CheckStatus: TypeAlias = Literal["within", "violated", "unchecked", "new"]
Measure: TypeAlias = Literal["peak", "live"]
WORDS: Mapping[Measure, str] = {"peak": "peak", "live": "live at once"}
EXIT_CODES = {"within": 0, "violated": 1, "unchecked": USER_ERROR}
STATUS_WORDS: dict[CheckStatus, str] = {
    "within": "within budget",
    "violated": "violated",
    "unchecked": "not checked",
    "new": "not in baseline",
}
_NOT_XML = re.compile("[\ufffe\uffff]")  # what XML 1.0 cannot contain and `clean` keeps
_THE_RUN = "."  # TensorBoard's name of a run that is the log directory itself


@dataclasses.dataclass(frozen=True)
class Regression:
    """How much a peak may exceed the baseline's: as the user wrote it, and as a share of it, or
    else as a size."""

    text: str
    share: Fraction | None
    bytes: int

    def allowed(self, baseline_bytes: int) -> int:
        """The highest allowed peak, rounded down to whole bytes."""
        return baseline_bytes + (
            self.bytes if self.share is None else int(baseline_bytes * self.share)
        )


@dataclasses.dataclass(frozen=True)
class Budget:
    """The limits, in bytes or as a share of a device's capacity, what they limit, and the devices
    (``GPU:0`` of each worker, or ``worker_1/GPU:0``) and phases that they are for; none means all.
    ``live`` are the most requested bytes that are live at once in a traced step, which neither
    parallel operations of the CPU nor unsplit remainders of chunks change much."""

    max_bytes: int | None = None
    max_regression: Regression | None = None
    devices: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    of: Measure = "peak"
    max_share: Fraction | None = None


@dataclasses.dataclass(frozen=True)
class BudgetCheck:
    """One comparison, or one that could not be made (`limit` None): a figure is unknown or a lower
    bound. `device` has its name in the whole run, None for all of it; `measured_bytes`, `step` and
    `phase` are of the highest value."""

    run: str
    device: str | None
    limit: Limit | None
    status: CheckStatus
    reason: str
    measured_bytes: int | None = None
    step: int | None = None
    phase: Phase | None = None
    allowed_bytes: int | None = None
    baseline_bytes: int | None = None


class Measured(NamedTuple):
    """What a budget limits of one worker: all devices by their names in the whole run; by device
    its highest value in the selected phases, and sentence, step and phase of its last failure in
    them; sentences on unknown steps, and on devices that were not recorded; by device what
    `Budget.max_share` allows, None if the capacity is unknown."""

    devices: tuple[str, ...]
    highest: Mapping[str, Peak | None]
    failures: Mapping[str, tuple[str, int | None, Phase | None]]
    lost: tuple[str, ...]
    unrecorded: tuple[str, ...]
    allowed: Mapping[str, int | None]


def measure(run: Run, budget: Budget, worker: str = "") -> Measured:
    names = {facts.device: full_device_name(worker, facts.device) for facts in device_facts(run)}
    devices = [
        own
        for own, full in names.items()
        if not budget.devices or {own, full} & set(budget.devices)
    ]
    values = {
        device: (_peak if budget.of == "peak" else _live)(run, device, budget) for device in devices
    }
    failures = {
        device: found for device in devices if (found := _failure(run, device, budget)) is not None
    }
    lost = [f"not read: {one}" for one in run.damage] + lost_step_notes(run.notes)
    lost[1:] = [f"{len(lost) - 1} more"] if len(lost) > 1 else []
    capacities = {
        device: capacity_of(run, device) for device in devices if budget.max_share is not None
    }
    allowed = {
        one: size and int(size * (budget.max_share or 0)) for one, size in capacities.items()
    }
    return Measured(
        tuple(names.values()),
        values,
        failures,
        tuple(lost),
        tuple(unrecorded_devices(run.notes)),
        allowed,
    )


def check_workers(
    run: str, workers: Mapping[str, Measured], budget: Budget, baseline: Mapping[str, Measured]
) -> list[BudgetCheck]:
    """Compare each device of each worker of a run with the budget.

    `baseline` has the workers to compare with if the budget has `max_regression`; none if it has no
    such run."""
    checks: list[BudgetCheck] = []
    named: set[str] = set()
    for worker, found in workers.items():
        own = list(_check_worker(run, worker, found, budget, baseline.get(worker)))
        devices = {check.device for check in own if check.device is not None}
        named |= devices | {device.removeprefix(f"{worker}/") for device in devices}
        checks += own
    lost = next((found.lost for found in workers.values() if found.lost), ())
    reason = "; ".join([_nothing(budget), *lost])
    unknown = [device for device in budget.devices if device not in named]
    return checks + [BudgetCheck(run, device, None, "unchecked", reason) for device in unknown]


def _check_worker(
    run: str, worker: str, found: Measured, budget: Budget, before: Measured | None
) -> Iterator[BudgetCheck]:
    if not budget.devices:
        for note in found.unrecorded:
            yield BudgetCheck(run, None, None, "unchecked", f"{worker}: {note}" if worker else note)
        if not found.highest and not found.unrecorded:
            yield BudgetCheck(
                run, worker or None, None, "unchecked", "; ".join([_nothing(budget), *found.lost])
            )
    others = () if before is None or budget.max_regression is None else before.highest
    for device in dict.fromkeys([*found.highest, *others] if found.highest else ()):
        make = functools.partial(BudgetCheck, run, full_device_name(worker, device))
        yield from _check_device(make, device, found, budget, before)


def exit_status(
    checks: Sequence[BudgetCheck], allow_new: bool = False
) -> Literal["within", "violated", "unchecked"]:
    """Of all checks together: a violation counts more than something that could not be checked."""
    if any(check.status == "violated" for check in checks):
        return "violated"
    return (
        "unchecked"
        if not checks or any(_fails(check.status, allow_new) for check in checks)
        else "within"
    )


def _check_device(
    make: Callable[..., BudgetCheck],
    device: str,
    found: Measured,
    budget: Budget,
    before: Measured | None,
) -> Iterator[BudgetCheck]:
    if device in found.failures:
        sentence, *place = found.failures[device]
        yield make("out_of_memory", "violated", sentence, None, *place)
        return
    highest = found.highest.get(device)
    if highest is None:
        reason = _nothing(budget)
        if before is not None and before.highest.get(device) is not None:
            reason += ", unlike in the baseline"
        yield make(None, "unchecked", "; ".join([reason, *found.lost]))
        return
    figures = highest.bytes, highest.step, highest.phase
    doubts = _doubts(found, highest)
    limit = budget.max_bytes if budget.max_share is None else found.allowed.get(device)
    if limit is not None:
        yield make("max_peak", *_compared(budget, highest, doubts, limit), *figures, limit)
    elif budget.max_share is not None:
        yield make(
            "max_peak",
            "unchecked",
            "the capacity of the device is unknown, so is a share of it",
            *figures,
        )
    if budget.max_regression is not None:
        former = None if before is None else before.highest.get(device)
        if before is None or former is None or device in before.failures:
            yield make("max_regression", *_without_baseline(device, budget, before), *figures)
            return
        allowed = budget.max_regression.allowed(former.bytes)
        suffix = f" (baseline {format_bytes(former.bytes)} + {budget.max_regression.text})"
        status, reason = _compared(
            budget, highest, doubts, allowed, suffix, _doubts(before, former)
        )
        yield make("max_regression", status, reason, *figures, allowed, former.bytes)


def _without_baseline(
    device: str, budget: Budget, before: Measured | None
) -> tuple[CheckStatus, str]:
    if before is None:
        return "new", "the baseline has no such run"
    if device in before.failures:
        return "unchecked", f"the baseline {before.failures[device][0]}"
    lost = [*before.lost, *before.unrecorded]
    if lost:
        return "unchecked", f"the baseline's {WORDS[budget.of]} is unknown: {lost[0]}"
    return "new", (f"the baseline has no {WORDS[budget.of]} of this device") + (
        " and phase" if budget.phases else ""
    )


def _compared(
    budget: Budget,
    highest: Peak,
    doubts: Sequence[str],
    allowed: int,
    suffix: str = "",
    former: Sequence[str] = (),
) -> tuple[CheckStatus, str]:
    """A value against what is allowed; each may be a lower bound, for these reasons."""
    status: CheckStatus = "violated" if highest.bytes > allowed else "within"
    reasons = doubts if status == "within" else [f"baseline: {one}" for one in former]
    received, limiting = format_bytes(highest.bytes), format_bytes(allowed)
    # exact bytes if rounding would make them equal
    if received == limiting and highest.bytes != allowed:
        received, limiting = f"{highest.bytes:,} B", f"{allowed:,} B"
    at_least = "at least " if doubts else ""
    where = f"at step {highest.step} ({highest.phase})"
    text = f"{WORDS[budget.of]} {at_least}{received} {where}, allowed {limiting}{suffix}"
    return "unchecked" if reasons else status, "; ".join([text, *reasons])


def _failure(run: Run, device: str, budget: Budget) -> tuple[str, int | None, Phase | None] | None:
    """The last failed allocation of a device in the selected phases; an imported one has no
    phase."""
    phases = (None, *(budget.phases or PHASES))
    chosen = [oom for oom in run.ooms if oom.device == device and oom.phase in phases]
    if not chosen:
        return None
    last = chosen[-1]
    where = f" {last.place}".rstrip()
    size = (
        ""
        if last.requested_bytes is None
        else (f": {format_bytes(last.requested_bytes)} requested")
    )
    more = f" ({len(chosen)} failures)" if len(chosen) > 1 else ""
    return f"ran out of memory{where}{size}{more}", last.step, last.phase


def _nothing(budget: Budget) -> str:
    what = "no peak recorded" if budget.of == "peak" else "no traced step with its requests"
    return what + (f" in phase {' or '.join(budget.phases)}" if budget.phases else "")


def _peak(run: Run, device: str, budget: Budget) -> Peak | None:
    found = [highest_peak(run, device, phase) for phase in budget.phases or (None,)]
    return max(
        (peak for peak in found if peak is not None), key=lambda peak: peak.bytes, default=None
    )


def _live(run: Run, device: str, budget: Budget) -> Peak | None:
    requests = [
        one
        for one in run.requests
        if one.device == device and one.phase in (budget.phases or PHASES)
    ]
    most = max(map(demand_of, requests), key=lambda one: one.demand_bytes, default=None)
    return (
        None if most is None else Peak(most.demand_bytes, most.step, most.phase, at_step_end=False)
    )


def _doubts(found: Measured, highest: Peak) -> list[str]:
    """Why the value may have been higher."""
    return [
        *found.lost,
        *["the allocator keeps no peak: this is the memory in use at step end"]
        * highest.at_step_end,
    ]


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Compares the highest peak of each device of each run with a budget, or the bytes that "
        "are live at once in a recorded step. A run that ran out of memory violates any budget.",
        more="Sizes have a unit: 10GiB (10 x 2^30 bytes), 10GB (10 x 10^9 bytes), 500MiB or 900B.",
        examples=(
            "tb-memplugin check runs --max-peak 10GiB",
            "tb-memplugin check runs --run exp2 --of live --max-regression 5% --baseline runs/exp1",
            "tb-memplugin check runs --max-peak 10GiB --format github",
        ),
        exit_codes={
            0: "every peak is within the budget",
            1: "a peak exceeds it, or a run ran out of memory",
            USER_ERROR: "wrong usage, nothing to check, or something could not be checked",
        },
    )
    parser.add_logdir("log directory, or the directory of one run")
    for name, unit, limit in (
        (
            "max-peak",
            "SIZE",
            "highest allowed peak of a device: a size such as 10GiB, or 60%% of its capacity",
        ),
        ("max-regression", "R", "allowed growth over the baseline's peak: 5%% of it, or a size"),
        (
            "baseline",
            "DIR",
            "the run to compare all runs with, or a log directory with runs of their names",
        ),
    ):
        parser.add_argument(f"--{name}", metavar=unit, help=limit)
    of = (
        "the allocator's peak (default), or the bytes that are live at once, which vary less "
        "from run to run"
    )
    parser.add_argument("--of", choices=("peak", "live"), default="peak", help=of)
    several: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--run", metavar="R", help="only this run; can be repeated", **several)
    parser.add_argument(
        "--device", metavar="D", help="only this device, e.g. GPU:0 of each worker", **several
    )
    parser.add_argument("--phase", choices=PHASES, help="only peaks of this phase", **several)
    new = "accept runs and devices that the baseline does not have"
    parser.add_argument("--allow-new", action="store_true", help=new)
    said = "text (default), JSON, annotations of GitHub Actions, JUnit XML, or a table in Markdown"
    parser.add_format(said, "github", "junit", "markdown")
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    checks = check(options.logdir, _budget(options), options.baseline, options.run)
    status = exit_status(checks, options.allow_new)
    if options.format == "json":
        about = {"format": FORMAT, "of": options.of, "status": status}
        print(
            json.dumps(about | {"checks": list(map(dataclasses.asdict, checks))}, allow_nan=False)
        )
    else:
        print(FORMATS[options.format](checks, options.logdir, options.allow_new))
    return EXIT_CODES[status]


def _budget(options: argparse.Namespace) -> Budget:
    peak, regression = options.max_peak, options.max_regression
    if peak is None and regression is None:
        raise RequestError("nothing to check: pass --max-peak, or --max-regression with --baseline")
    limits = [(None, None) if text is None else _limit(text) for text in (peak, regression)]
    share, size = limits[1]
    allowed = None if regression is None else Regression(regression.strip(), share, size or 0)
    chosen = tuple(dict.fromkeys(options.device)), tuple(dict.fromkeys(options.phase))
    return Budget(limits[0][1], allowed, *chosen, options.of, limits[0][0])


def _limit(text: str) -> tuple[Fraction | None, int | None]:
    """A limit as a share, or else in bytes."""
    share = parse_share(text)
    return share, capacity_bytes(
        text, "limit, unless a share such as 5%,"
    ) if share is None else None


def check(
    logdir: str, limits: Budget, baseline: str | None = None, names: Sequence[str] = ()
) -> list[BudgetCheck]:
    """Compare the runs under `logdir` with a budget, and with the baseline's run of the same name;
    if the baseline is itself a run, with that. Runs inside the baseline's directory are only
    checked if `names` has them. Without `names` all runs are checked, and those that only the
    baseline has are listed as not checked."""
    if (limits.max_regression is None) != (baseline is None):
        raise RequestError("--max-regression and --baseline belong together: pass both or neither")
    runs = existing_runs(logdir, details=False)
    unknown = [name for name in names if name not in runs]
    if unknown:
        raise NotFoundError(unknown_name("no run", unknown[0], runs))
    before = None if baseline is None else existing_runs(baseline, details=False)
    places = {name: logdir if name == _THE_RUN else f"{logdir.rstrip('/')}/{name}" for name in runs}
    outside = [
        name for name, place in places.items() if baseline is None or not _inside(place, baseline)
    ]
    chosen = list(dict.fromkeys(names)) or outside
    if not chosen:
        raise NotFoundError(f"every run under {logdir} belongs to the baseline {baseline}")
    checks = []
    devices: dict[str, None] = {}
    for name in chosen:
        former = _THE_RUN if before is not None and set(before) == {_THE_RUN} else name
        baselines = (
            {} if before is None or former not in before else _measured(before, former, limits)
        )
        measured = _measured(runs, name, limits)
        checks += check_workers(name, measured, limits, baselines)
        devices |= {device: None for worker in measured.values() for device in worker.devices}
    if before is not None and not names:
        missing = [name for name in before if name not in chosen and name != _THE_RUN]
        reason = f"in the baseline, but not under {logdir}"
        checks += [
            BudgetCheck(name, None, "max_regression", "unchecked", reason) for name in missing
        ]
    if limits.devices and not any(check.limit for check in checks):
        there = f"; available: {some(list(devices))}" if devices else ""
        raise NotFoundError(
            f"no {WORDS[limits.of]} on {' or '.join(limits.devices)} in any run{there}"
        )
    return checks


def ordered(checks: Sequence[BudgetCheck]) -> list[BudgetCheck]:
    return sorted(checks, key=lambda check: (check.status == "violated", check.status != "within"))


def place(check: BudgetCheck, logdir: str, with_device: bool = True) -> str:
    """The run of a check, and its device; a run that is the log directory itself has its name."""
    run = logdir if check.run == _THE_RUN else check.run
    return ", ".join(filter(None, [run, check.device if with_device else None]))


def count_line(checks: Sequence[BudgetCheck]) -> str:
    counts = Counter(check.status for check in checks)
    return ", ".join(
        f"{counts[status]} {word}" for status, word in STATUS_WORDS.items() if counts[status]
    )


def _measured(runs: Runs, name: str, limits: Budget) -> dict[str, Measured]:
    workers = runs.each_worker(name, requests=limits.of == "live")
    return {worker: measure(run, limits, worker) for worker, run in workers}


def _inside(directory: str, of: str) -> bool:
    one, other = (
        path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (directory, of)
    )
    return f"{one}/".startswith(f"{other}/")


def text_lines(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    lines = [
        clean(f"{STATUS_WORDS[one.status]}: {place(one, logdir)}: {one.reason}")
        for one in ordered(checks)
    ]
    return "\n".join([*lines, count_line(checks)])


def github_annotations(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """Workflow commands: an error for each check that makes the job fail, a notice for the
    others."""
    lines = []
    for check in ordered(checks):
        level = "error" if _fails(check.status, allow_new) else "notice"
        said = (f"Memory {STATUS_WORDS[check.status]}: {place(check, logdir)}", check.reason)
        # which has no line breaks any more
        title, reason = (clean(text).replace("%", "%25") for text in said)
        title = title.replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{reason}")
    return "\n".join([*lines, count_line(checks)])


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
            what = ", ".join(
                filter(None, [check.device, check.limit and check.limit.replace("_", " ")])
            )
            case = ElementTree.SubElement(
                suite, "testcase", classname=name, name=_xml_text(what or "run")
            )
            if check.status == "within":
                ElementTree.SubElement(case, "system-out").text = _xml_text(check.reason)
                continue
            fails = "error" if _fails(check.status, allow_new) else "skipped"
            tag = "failure" if check.status == "violated" else fails
            counts["skipped" if tag == "skipped" else f"{tag}s"] += 1
            ElementTree.SubElement(
                case, tag, message=_xml_text(f"{STATUS_WORDS[check.status]}: {check.reason}")
            )
        suite.attrib |= {key: str(count) for key, count in counts.items()}
    ElementTree.indent(root)
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}'
    )


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("�", clean(text))


def markdown_table(checks: Sequence[BudgetCheck], logdir: str, allow_new: bool) -> str:
    """A table in GitHub's Markdown, for a job's summary or a comment."""
    lines = ["| | run | device | comparison |", "|---|---|---|---|"]
    for check in ordered(checks):
        run = place(check, logdir, with_device=False)
        mark = (
            "❌" if _fails(check.status, allow_new) else "✅" if check.status == "within" else "➖"
        )
        cells = [_code(run), _code(check.device) if check.device else "", _code(check.reason)]
        lines.append(f"| {mark} {STATUS_WORDS[check.status]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", count_line(checks)])


def _code(text: str) -> str:
    """Text as code, in which nothing is markup, a link or a mention; a table's cell still ends at a
    bare ``|``."""
    text = clean(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    # which cannot be written in a cell: a backslash before an escaped | escapes the escape
    if "\\|" in text:
        text = text.replace("\\", "⧵")
    escaped = text.replace("|", "\\|")
    return f"{fence}{space}{escaped}{space}{fence}"


def _fails(status: CheckStatus, allow_new: bool) -> bool:
    return status in ("violated", "unchecked") or (status == "new" and not allow_new)


FORMATS: Mapping[str, Callable[[Sequence[BudgetCheck], str, bool], str]] = {
    "table": text_lines,
    "github": github_annotations,
    "junit": junit_xml,
    "markdown": markdown_table,
}
"""Value of ``--format`` to its function of the checks, the log directory, and whether new runs are
accepted."""
