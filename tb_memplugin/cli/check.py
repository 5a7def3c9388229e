"""``tb-memplugin check``: whether the peaks of runs, or the bytes live at once in their traced
steps, stay in a budget.

A budget is a fixed limit, or a baseline run plus what it may grow by. A peak that is only known to
be a lower bound, because data is damaged or steps were not recorded, never passes. Names, devices
and sentences come from a run directory: each format escapes them by its rules."""

import argparse
import dataclasses
import functools
import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from tb_memplugin.analysis import Peak, device_facts, highest_peak
from tb_memplugin.cli.parser import USER_ERROR, CommandParser, print_json
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import Runs, existing_runs
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
class Amount:
    """A size, or a share of another size, and the text that the user gave."""

    text: str
    share: Fraction | None
    bytes: int

    @classmethod
    def parse(cls, text: str) -> "Amount":
        share = parse_share(text)
        size = capacity_bytes(text, "limit, unless a share such as 5%,") if share is None else 0
        return cls(text.strip(), share, size)

    def of(self, whole: int) -> int:
        """The amount in bytes, rounded down to whole ones."""
        return self.bytes if self.share is None else int(whole * self.share)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The limits, what they limit, and the devices (``GPU:0`` of each worker, or
    ``worker_1/GPU:0``) and phases that they are for; none means all.

    ``max_peak`` may be a share of a device's capacity, ``max_regression`` of the baseline's peak.
    ``live`` are the most requested bytes that are live at once in a traced step, which neither
    parallel operations of the CPU nor unsplit remainders of chunks change much."""

    max_peak: Amount | None = None
    max_regression: Amount | None = None
    devices: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    of: Measure = "peak"


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


class DeviceValue(NamedTuple):
    """What a budget limits of a device, each None if there is none: its highest value in the
    selected phases; sentence, step and phase of its last failure in them; its capacity. `doubts`
    say why the value may have been higher."""

    highest: Peak | None = None
    failure: tuple[str, int | None, Phase | None] | None = None
    capacity_bytes: int | None = None
    doubts: Sequence[str] = ()


NO_VALUE = DeviceValue()


class Measured(NamedTuple):
    """What a budget limits of one worker: all devices by their names in the whole run; the values
    of those that the budget is for; sentences on unknown steps, and on devices that were not
    recorded."""

    devices: tuple[str, ...]
    values: Mapping[str, DeviceValue]
    lost: Sequence[str]
    unrecorded: Sequence[str]


def measure(run: Run, budget: Budget, worker: str = "") -> Measured:
    lost = [f"not read: {one}" for one in run.damage] + lost_step_notes(run.notes)
    lost[1:] = [f"{len(lost) - 1} more"] if len(lost) > 1 else []
    names, values = [], {}
    for facts in device_facts(run):
        device = facts.device
        name = full_device_name(worker, device)
        names.append(name)
        if not budget.devices or {device, name} & set(budget.devices):
            highest, doubts = _highest(run, device, budget), [*lost]
            if highest is not None and highest.at_step_end:
                doubts.append("the allocator keeps no peak: this is the memory in use at step end")
            failure = _failure(run, device, budget)
            values[device] = DeviceValue(highest, failure, facts.capacity_bytes, doubts)
    return Measured(tuple(names), values, lost, unrecorded_devices(run.notes))


def check_workers(
    run: str, workers: Mapping[str, Measured], budget: Budget, baseline: Mapping[str, Measured]
) -> list[BudgetCheck]:
    """Compare each device of each worker of a run with the budget.

    `baseline` has the workers to compare with if the budget has `max_regression`; none if it has no
    such run."""
    checks: list[BudgetCheck] = []
    named: set[str] = set()
    for worker, found in workers.items():
        if not budget.devices:
            notes = [f"{worker}: {note}" if worker else note for note in found.unrecorded]
            checks += [BudgetCheck(run, None, None, "unchecked", note) for note in notes]
            if not found.values and not notes:
                reason = "; ".join([_nothing(budget), *found.lost])
                checks.append(BudgetCheck(run, worker or None, None, "unchecked", reason))
        before = baseline.get(worker)
        others = () if before is None or budget.max_regression is None else before.values
        for device in dict.fromkeys([*found.values, *others] if found.values else ()):
            name = full_device_name(worker, device)
            named |= {device, name}
            make = functools.partial(BudgetCheck, run, name)
            checks += _check_device(make, device, found, budget, before)
    lost = next((found.lost for found in workers.values() if found.lost), ())
    reason = "; ".join([_nothing(budget), *lost])
    unknown = [device for device in budget.devices if device not in named]
    return checks + [BudgetCheck(run, device, None, "unchecked", reason) for device in unknown]


def exit_status(
    checks: Sequence[BudgetCheck], allow_new: bool = False
) -> Literal["within", "violated", "unchecked"]:
    """Of all checks together: a violation counts more than something that could not be checked."""
    if any(check.status == "violated" for check in checks):
        return "violated"
    fails = not checks or any(_fails(check.status, allow_new) for check in checks)
    return "unchecked" if fails else "within"


def _check_device(
    make: Callable[..., BudgetCheck],
    device: str,
    found: Measured,
    budget: Budget,
    before: Measured | None,
) -> Iterator[BudgetCheck]:
    value = found.values.get(device, NO_VALUE)
    former = NO_VALUE if before is None else before.values.get(device, NO_VALUE)
    highest, peak, growth = value.highest, budget.max_peak, budget.max_regression
    if value.failure is not None:
        sentence, *place = value.failure
        yield make("out_of_memory", "violated", sentence, None, *place)
        return
    if highest is None:
        more = "" if former.highest is None else ", unlike in the baseline"
        yield make(None, "unchecked", "; ".join([_nothing(budget) + more, *found.lost]))
        return
    figures = highest.bytes, highest.step, highest.phase
    if peak is not None and peak.share is not None and value.capacity_bytes is None:
        why = "the capacity of the device is unknown, so is a share of it"
        yield make("max_peak", "unchecked", why, *figures)
    elif peak is not None:
        allowed = peak.of(value.capacity_bytes or 0)
        result = _compared(budget, highest, allowed, value.doubts)
        yield make("max_peak", *result, *figures, allowed)
    if growth is None:
        return
    if former.highest is None or former.failure is not None:
        result = _without_baseline(former, budget, before)
        yield make("max_regression", *result, *figures)
        return
    baseline = former.highest.bytes
    allowed = baseline + growth.of(baseline)
    suffix = f" (baseline {format_bytes(baseline)} + {growth.text})"
    result = _compared(budget, highest, allowed, value.doubts, suffix, former.doubts)
    yield make("max_regression", *result, *figures, allowed, baseline)


def _without_baseline(
    former: DeviceValue, budget: Budget, before: Measured | None
) -> tuple[CheckStatus, str]:
    if before is None:
        return "new", "the baseline has no such run"
    if former.failure is not None:
        return "unchecked", f"the baseline {former.failure[0]}"
    what = WORDS[budget.of]
    lost = [*before.lost, *before.unrecorded]
    if lost:
        return "unchecked", f"the baseline's {what} is unknown: {lost[0]}"
    phase = " and phase" if budget.phases else ""
    return "new", f"the baseline has no {what} of this device{phase}"


def _compared(
    budget: Budget,
    highest: Peak,
    allowed: int,
    doubts: Sequence[str],
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
    text = f"ran out of memory {last.place}".rstrip()
    if last.requested_bytes is not None:
        text += f": {format_bytes(last.requested_bytes)} requested"
    more = f" ({len(chosen)} failures)" if len(chosen) > 1 else ""
    return text + more, last.step, last.phase


def _nothing(budget: Budget) -> str:
    what = "no peak recorded" if budget.of == "peak" else "no traced step with its requests"
    return what + (f" in phase {' or '.join(budget.phases)}" if budget.phases else "")


def _highest(run: Run, device: str, budget: Budget) -> Peak | None:
    """The highest value of what the budget limits, in the selected phases."""
    if budget.of == "peak":
        found = [highest_peak(run, device, phase) for phase in budget.phases or (None,)]
    else:
        phases = budget.phases or PHASES
        live = (
            demand_of(one) for one in run.requests if one.device == device and one.phase in phases
        )
        found = [Peak(one.demand_bytes, one.step, one.phase, at_step_end=False) for one in live]
    return max(filter(None, found), key=lambda one: one.bytes, default=None)


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
    parser.option(
        "--max-peak SIZE",
        "highest allowed peak of a device: a size such as 10GiB, or 60%% of its capacity",
    )
    parser.option(
        "--max-regression R", "allowed growth over the baseline's peak: 5%% of it, or a size"
    )
    parser.option(
        "--baseline DIR",
        "the run to compare all runs with, or a log directory with runs of their names",
    )
    of = (
        "the allocator's peak (default), or the bytes that are live at once, which vary less "
        "from run to run"
    )
    parser.option("--of", of, choices=WORDS, default="peak")
    several: dict[str, Any] = {"action": "append", "default": []}
    parser.option("--run R", "only this run; can be repeated", **several)
    parser.option("--device D", "only this device, e.g. GPU:0 of each worker", **several)
    parser.option("--phase", "only peaks of this phase", choices=PHASES, **several)
    parser.option("--allow-new", "accept runs and devices that the baseline does not have")
    said = "text (default), JSON, annotations of GitHub Actions, JUnit XML, or a table in Markdown"
    parser.add_format(said, "github", "junit", "markdown")
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    checks = check(options.logdir, _budget(options), options.baseline, options.run)
    status = exit_status(checks, options.allow_new)
    if options.format == "json":
        objects = [dataclasses.asdict(one) for one in checks]
        print_json({"of": options.of, "status": status, "checks": objects})
    else:
        shown = [
            dataclasses.replace(one, run=options.logdir) if one.run == _THE_RUN else one
            for one in checks
        ]
        print(FORMATS[options.format](shown, options.allow_new))
    return EXIT_CODES[status]


def _budget(options: argparse.Namespace) -> Budget:
    if options.max_peak is None and options.max_regression is None:
        raise RequestError("nothing to check: pass --max-peak, or --max-regression with --baseline")
    return Budget(
        max_peak=options.max_peak and Amount.parse(options.max_peak),
        max_regression=options.max_regression and Amount.parse(options.max_regression),
        devices=tuple(options.device),
        phases=tuple(dict.fromkeys(options.phase)),
        of=options.of,
    )


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
    for name in names:
        if name not in runs:
            raise NotFoundError(unknown_name("no run", name, runs))
    before = None if baseline is None else existing_runs(baseline, details=False)
    of_baseline = set(before or ())
    outside = [name for name in runs if baseline is None or not _inside(logdir, name, baseline)]
    chosen = list(dict.fromkeys(names)) or outside
    if not chosen:
        raise NotFoundError(f"every run under {logdir} belongs to the baseline {baseline}")
    checks = []
    devices: dict[str, None] = {}
    for name in chosen:
        former = _THE_RUN if of_baseline == {_THE_RUN} else name
        baselines = {}
        if before is not None and former in of_baseline:
            baselines = _measured(before, former, limits)
        measured = _measured(runs, name, limits)
        checks += check_workers(name, measured, limits, baselines)
        devices |= {device: None for worker in measured.values() for device in worker.devices}
    if not names:
        reason = f"in the baseline, but not under {logdir}"
        checks += [
            BudgetCheck(name, None, "max_regression", "unchecked", reason)
            for name in before or ()
            if name not in chosen and name != _THE_RUN
        ]
    if limits.devices and not any(check.limit for check in checks):
        there = f"; available: {some(list(devices))}" if devices else ""
        raise NotFoundError(
            f"no {WORDS[limits.of]} on {' or '.join(limits.devices)} in any run{there}"
        )
    return checks


def ordered(checks: Sequence[BudgetCheck]) -> list[BudgetCheck]:
    return sorted(checks, key=lambda check: (check.status == "violated", check.status != "within"))


def place(check: BudgetCheck) -> str:
    """The run of a check, and its device."""
    return check.run if check.device is None else f"{check.run}, {check.device}"


def count_line(checks: Sequence[BudgetCheck]) -> str:
    counts = Counter(check.status for check in checks)
    return ", ".join(
        f"{counts[status]} {word}" for status, word in STATUS_WORDS.items() if counts[status]
    )


def _measured(runs: Runs, name: str, limits: Budget) -> dict[str, Measured]:
    workers = runs.each_worker(name, requests=limits.of == "live")
    return {worker: measure(run, limits, worker) for worker, run in workers}


def _inside(logdir: str, run: str, of: str) -> bool:
    """Whether a run of a log directory is a directory or lies in it."""
    directory = logdir if run == _THE_RUN else f"{logdir.rstrip('/')}/{run}"
    one, other = (
        path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (directory, of)
    )
    return f"{one}/".startswith(f"{other}/")


def text_lines(checks: Sequence[BudgetCheck], allow_new: bool) -> str:
    lines = [
        clean(f"{STATUS_WORDS[one.status]}: {place(one)}: {one.reason}") for one in ordered(checks)
    ]
    return "\n".join([*lines, count_line(checks)])


def github_annotations(checks: Sequence[BudgetCheck], allow_new: bool) -> str:
    """Workflow commands: an error for each check that makes the job fail, a notice for the
    others."""
    lines = []
    for check in ordered(checks):
        level = "error" if _fails(check.status, allow_new) else "notice"
        said = (f"Memory {STATUS_WORDS[check.status]}: {place(check)}", check.reason)
        # which has no line breaks any more
        title, reason = (clean(text).replace("%", "%25") for text in said)
        title = title.replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{reason}")
    return "\n".join([*lines, count_line(checks)])


def junit_xml(checks: Sequence[BudgetCheck], allow_new: bool) -> str:
    """A JUnit report: a test suite for each run, a test case for each comparison."""
    root = ElementTree.Element("testsuites", name="tb-memplugin check")
    in_order = sorted(checks, key=lambda check: check.run)
    for run, of_run in groupby(in_order, key=lambda check: check.run):
        cases, name = list(of_run), _xml_text(run)
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
        for check in cases:
            limit = (check.limit or "").replace("_", " ")
            what = ", ".join(filter(None, [check.device, limit])) or "run"
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=_xml_text(what))
            if check.status == "within":
                ElementTree.SubElement(case, "system-out").text = _xml_text(check.reason)
                continue
            fails = "error" if _fails(check.status, allow_new) else "skipped"
            tag = "failure" if check.status == "violated" else fails
            message = _xml_text(f"{STATUS_WORDS[check.status]}: {check.reason}")
            ElementTree.SubElement(case, tag, message=message)
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(len(suite.findall(f"*/{tag}"))))
    ElementTree.indent(root)
    xml = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml}'


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("�", clean(text))


def markdown_table(checks: Sequence[BudgetCheck], allow_new: bool) -> str:
    """A table in GitHub's Markdown, for a job's summary or a comment."""
    lines = ["| | run | device | comparison |", "|---|---|---|---|"]
    for check in ordered(checks):
        passes = "✅" if check.status == "within" else "➖"
        mark = "❌" if _fails(check.status, allow_new) else passes
        cells = [_code(check.run), _code(check.device) if check.device else "", _code(check.reason)]
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


FORMATS: Mapping[str, Callable[[Sequence[BudgetCheck], bool], str]] = {
    "table": text_lines,
    "github": github_annotations,
    "junit": junit_xml,
    "markdown": markdown_table,
}
"""Value of ``--format`` to its function of the checks and of whether new runs are accepted."""
