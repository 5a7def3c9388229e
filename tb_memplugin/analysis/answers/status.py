"""What is wrong with a run, in one word, and which run of a directory to open first. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.analysis.answers.answer_memory import fits, fragmented
from tb_memplugin.analysis.steps.facts import device_names, device_phase
from tb_memplugin.model import Run
from tb_memplugin.model.worker_summary import RunStatus

WORST_FIRST: tuple[RunStatus, ...] = ("failed", "growing", "fragmented")
"""These come before every other run; among equal ones, and among the others, the newest run comes first."""
TRAINING_SECONDS = 60
"""A run whose recorder was not closed and that recorded within this time is still training."""


def run_status(run: Run, grows: bool) -> RunStatus:
    """The status of a worker's run.

    Args:
        grows: Whether growing device or host memory was found.
    """
    phases = {device: device_phase(run, device) for device in device_names(run)}
    if run.ooms and any(fits(run, device, phase).status == "failed" for device, phase in phases.items()):
        return "failed"
    if grows:
        return "growing"
    answers = (fragmented(run, device, phase) for device, phase in phases.items())
    if any(answer.status in ("warning", "failed") for answer in answers):
        return "fragmented"
    return "ok" if len(run.samples) or run.snapshots or len(run.activations) else "unknown"


def worst(statuses: Sequence[RunStatus]) -> RunStatus:
    """The status of a run with workers of these statuses."""
    found = [status for status in WORST_FIRST if status in statuses]
    return found[0] if found else "ok" if "ok" in statuses else "unknown"


def with_ranks(runs: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """The entries of a list of runs, each with its place in the order in which to open them, and the runs that still
    train marked as such.

    Args:
        runs: Entries of ``GET runs``.
        now: Seconds since the epoch.
    """
    order = sorted(range(len(runs)), key=lambda at: _place(runs[at]))
    ranks = {at: rank for rank, at in enumerate(order)}
    return [{**run, "status": _at(run, now), "rank": ranks[at]} for at, run in enumerate(runs)]


def _place(run: Mapping[str, Any]) -> tuple[int, bool, float]:
    status = run["status"]
    severity = WORST_FIRST.index(status) if status in WORST_FIRST else len(WORST_FIRST)
    return severity, not run["devices"], -(run["started"] or 0.0)


def _at(run: Mapping[str, Any], now: float) -> RunStatus:
    until, status = run["recorded_until"], run["status"]
    trains = not run["ended"] and until is not None and now - until < TRAINING_SECONDS
    return "training" if status == "ok" and trains else status
