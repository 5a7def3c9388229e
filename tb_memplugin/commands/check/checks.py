"""``tb-memplugin check``: whether runs stay within a memory budget, as text or JSON, with an exit code for CI."""

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any

from tb_memplugin.analysis.budget import (
    WORDS,
    Budget,
    BudgetCheck,
    CheckStatus,
    Measure,
    Measured,
    Regression,
    check_workers,
    exit_status,
    measure,
)
from tb_memplugin.analysis.describe import FORMAT
from tb_memplugin.commands.loading import Runs, existing_runs
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.model import Phase
from tb_memplugin.model.text import clean, some, unknown_name
from tb_memplugin.model.units import SIZE_RULE, parse_bytes

EXIT_CODES = {"within": 0, "violated": 1, "unchecked": 2}
STATUS_WORDS: dict[CheckStatus, str] = {
    "within": "within budget",
    "violated": "violated",
    "unchecked": "not checked",
    "new": "not in baseline",
}
_ORDER = tuple(STATUS_WORDS)
_SHARE = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%", re.ASCII)
_THE_RUN = "."
"""TensorBoard's name of a run that is the log directory itself."""


def budget(
    max_peak: str | None,
    max_regression: str | None,
    devices: Sequence[str],
    phases: Sequence[Phase],
    of: Measure = "peak",
) -> Budget:
    """The limits as given on the command line.

    Raises:
        RequestError: One is malformed, or there is none.
    """
    if max_peak is None and max_regression is None:
        raise RequestError("nothing to check: pass --max-peak, or --max-regression with --baseline")
    peak = None if max_peak is None else parse_bytes(max_peak)
    if max_peak is not None and not peak:
        raise RequestError(f"--max-peak is {SIZE_RULE}. Received: {max_peak!r:.80}")
    regression = None if max_regression is None else _regression(max_regression)
    return Budget(peak, regression, tuple(dict.fromkeys(devices)), tuple(dict.fromkeys(phases)), of)


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
    the baseline's directory are only checked if `names` has them.

    Args:
        logdir: Log directory, or directory of one run.
        limits: The budget.
        baseline: Log directory, or directory of one run, if the budget limits the regression.
        names: The runs to check; by default all, and runs that only the baseline has are listed as not checked.

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
        former = None if before is None else _counterpart(before, name)
        baselines = {} if before is None or former is None else dict(_measured(before, former, limits))
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


def format_checks(checks: Sequence[BudgetCheck], logdir: str) -> str:
    """One line for each check, violations last, and a line that counts them."""
    lines = [
        clean(f"{STATUS_WORDS[check.status]}: {place(check, logdir)}: {check.reason}") for check in ordered(checks)
    ]
    return "\n".join([*lines, count_line(checks)])


def ordered(checks: Sequence[BudgetCheck]) -> list[BudgetCheck]:
    """The checks, violations last."""
    return sorted(checks, key=lambda check: (check.status == "violated", check.status != "within"))


def place(check: BudgetCheck, logdir: str, with_device: bool = True) -> str:
    """The run of a check, and its device; a run that is the log directory itself has its name."""
    run = logdir if check.run == _THE_RUN else check.run
    return ", ".join(filter(None, [run, check.device if with_device else None]))


def count_line(checks: Sequence[BudgetCheck]) -> str:
    """The number of checks of each status."""
    counts = [(sum(check.status == status for check in checks), STATUS_WORDS[status]) for status in _ORDER]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def describe_checks(checks: Sequence[BudgetCheck], of: Measure, allow_new: bool) -> dict[str, Any]:
    """The checks as a JSON object; `of` is what was checked."""
    status = exit_status(list(checks), allow_new)
    return {"format": FORMAT, "of": of, "status": status, "checks": [dataclasses.asdict(check) for check in checks]}


def _measured(runs: Runs, name: str, limits: Budget) -> Iterator[tuple[str, Measured]]:
    """What the limits limit of each worker of a run."""
    for worker, run in runs.each_worker(name, requests=limits.of == "live"):
        yield worker, measure(run, limits, worker)


def _counterpart(baseline: Collection[str], name: str) -> str | None:
    """The name of a run's counterpart in the baseline."""
    single = set(baseline) == {_THE_RUN}
    return _THE_RUN if single else name if name in baseline else None


def _directory(logdir: str, name: str) -> str:
    return logdir if name == _THE_RUN else f"{logdir.rstrip('/')}/{name}"


def _inside(directory: str, of: str) -> bool:
    one, other = (path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (directory, of))
    return f"{one}/".startswith(f"{other}/")
