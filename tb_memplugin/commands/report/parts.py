"""The parts of a report on a run: its responses, and sentences on data left out."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tb_memplugin.commands.report.answers import CollectedAnswers, Question
from tb_memplugin.model import MemoryMap, Snapshot, Timeline, with_layers_of
from tb_memplugin.reader.decode.streams import BASIC, MAPS, TIMELINES

POINTS = 5000
"""Points of step series: all steps of runs with up to twice as many, since zooming cannot request more."""
ACTIVATION_POINTS = 600
MAX_SNAPSHOTS = 200
"""Snapshots per device of a run: the last ones, and that of the highest peak."""
MAX_MAPS = 10
"""Memory maps per device of a run: the last ones, and that of the highest peak."""
MAX_TIMELINES = 6
"""Timelines per device of a run: the last ones, and that of the highest peak."""
MAX_TABLES = 50
MAX_DEVICES = 16
"""Devices per run: the first ones."""
MAX_SESSIONS = 8
MAX_OOMS = 8

Step = tuple[int, str]
"""Step and phase."""
_Record: TypeAlias = Snapshot | MemoryMap | Timeline


@dataclasses.dataclass
class ReportRun:
    """A run in a report.

    Attributes:
        info: The run's entry in the response of ``runs``.
        kept: Steps and phases of the snapshots in the report, by device.
    """

    info: dict[str, Any]
    kept: dict[str, list[Step]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.info["run"])

    @property
    def devices(self) -> list[str]:
        return [device["device"] for device in self.info["devices"][:MAX_DEVICES]]


def _answers(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    devices: list[str | None] = [*run.devices]
    for device in devices or [None]:
        for phase in run.info["phases"] or ["train"]:
            collected.take("answers", run=run.name, device=device, phase=phase)
    return ()


def _devices(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    for phase in run.info["phases"] or ["train"]:
        collected.take("devices", run=run.name, phase=phase)
    return ()


def _overviews(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    if len(run.info["devices"]) > MAX_DEVICES:
        yield (
            f"{len(run.info['devices']) - MAX_DEVICES} devices of {run.name} are not in this report: it contains the "
            f"first {MAX_DEVICES}."
        )
    reduced = 0
    for device in run.devices:
        for phase in run.info["phases"]:
            place = {"run": run.name, "device": device, "phase": phase}
            common = {**place, "points": POINTS}
            answer = collected.take("overview", **common)
            if answer is None or answer.status != 200:
                continue
            collected.take("ledger_totals", **place)
            collected.take("pool", **common)
            collected.take("host_memory", **common)
            head = answer.fields()
            reduced = max(reduced, head["total_rows"] if head["rows"] < head["total_rows"] else 0)
            sessions = [span["session"] for span in head["sessions"]]
            for at, session in enumerate(sessions if len(sessions) > 1 else []):
                if at >= len(sessions) - MAX_SESSIONS:
                    collected.take("overview", **common, session=session)
                    collected.take("ledger_totals", **place, session=session)
                    collected.take("pool", **common, session=session)
                    collected.take("host_memory", **common, session=session)
                else:
                    why = f"it contains only the last {MAX_SESSIONS} sessions separately"
                    for route in ("overview", "pool", "host_memory", "ledger_totals"):
                        collected.refuse(Question(route, {**place, "session": session}), why)
    if reduced:
        yield (
            f"This report contains about {2 * POINTS} of the {reduced} steps of {run.name}, including the extremes; "
            "zooming shows no more steps."
        )


def _layers(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    loaded = collected.reader.run(collected.source, run.name)
    of_workers = [device for device in run.devices if "/" in device]
    for device in (None, *of_workers):
        place = {"run": run.name} if device is None else {"run": run.name, "device": device}
        collected.take("layers", **place)
        tables = with_layers_of(loaded.run, loaded.by_worker, device).layer_tables
        steps = sorted({table.step for table in tables})
        for step in steps[-MAX_TABLES:]:
            collected.take("layers", **place, step=step)
        for step in steps[:-MAX_TABLES]:
            question = Question("layers", {**place, "step": str(step)})
            collected.refuse(question, f"it contains the last {MAX_TABLES} layer tables")
        if len(steps) > MAX_TABLES:
            yield (
                f"{len(steps) - MAX_TABLES} layer tables of {device or run.name} are not in this report: it contains "
                f"the last {MAX_TABLES}."
            )


def _lists(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    collected.take("oom", run=run.name)
    everything = collected.reader.run(collected.source, run.name).run.snapshots
    for device in run.devices:
        collected.take("maps", run=run.name, device=device)
        collected.take("snapshots", run=run.name, device=device)
        of_device = [one for one in everything if one.device == device]
        steps, kept = _last_and_peak(of_device, MAX_SNAPSHOTS)
        run.kept[device] = kept
        if len(kept) == len(steps):
            continue
        why = f"it contains the last {MAX_SNAPSHOTS} snapshots and that of the highest peak"
        yield (
            f"{len(steps) - len(kept)} of the {len(steps)} snapshots of {run.name} on {device} are not in this report: "
            f"{why}."
        )
        for step, phase in sorted(set(steps) - set(kept)):
            common = {"run": run.name, "device": device, "step": str(step)}
            collected.refuse(Question("snapshot", {**common, "phase": phase}), why)
            if step not in {step for step, _ in kept}:
                collected.refuse(Question("device_memory", common), why)


def _last_and_peak(records: Sequence[_Record], limit: int) -> tuple[list[Step], list[Step]]:
    """All steps of the records, and those in the report: the last `limit` and that of the highest peak."""
    steps = list(dict.fromkeys(map(_step, records)))
    peak = max(records, key=lambda one: one.in_use_bytes or 0, default=None)
    last = steps[-limit:]
    return steps, last if peak is None or _step(peak) in last else [_step(peak), *last]


def _step(record: _Record) -> Step:
    return record.step or 0, str(record.phase)


def _snapshots(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    for device, steps in run.kept.items():
        collected.take("device_memory", run=run.name, device=device)
        for step in sorted({step for step, _ in steps}):
            collected.take("device_memory", run=run.name, device=device, step=step)
        for step, phase in steps:
            collected.take("snapshot", run=run.name, device=device, step=step, phase=phase)
    return ()


def _what_ifs(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    # Other conditions and budgets need the server; the page says so.
    for device in run.devices:
        collected.take("what_if", run=run.name, device=device)
        collected.take("plan", run=run.name, device=device)
        collected.take("demand", run=run.name, device=device)
    return ()


def _activations(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    if run.info["activation_layers"]:
        collected.take("activations", run=run.name, points=ACTIVATION_POINTS)
    return ()


def _failures(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    ooms = collected.reader.run(collected.source, run.name).run.ooms
    for at, oom in enumerate(ooms):
        for route in ("fixes", "map") if oom.map is not None else ("fixes",):
            if at >= len(ooms) - MAX_OOMS:
                collected.take(route, run=run.name, oom=at)
            else:
                question = Question(route, {"run": run.name, "oom": str(at)})
                collected.refuse(question, f"it contains the fixes and maps of the last {MAX_OOMS} failed allocations")
    return ()


def _maps(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    maps = collected.reader.run(collected.source, run.name, {*BASIC, MAPS}).run.maps
    for device in run.devices:
        of_device = [one for one in maps if one.device == device and one.step is not None and one.phase is not None]
        yield from _each_kept(collected, run, device, of_device, ("map", "memory maps", MAX_MAPS))


def _timelines(collected: CollectedAnswers, run: ReportRun) -> Iterable[str]:
    timelines = collected.reader.run(collected.source, run.name, {*BASIC, TIMELINES}).run.timelines
    for device in run.devices:
        collected.take("timelines", run=run.name, device=device)
        of_device = [one for one in timelines if one.device == device]
        yield from _each_kept(collected, run, device, of_device, ("timeline", "timelines", MAX_TIMELINES))


def _each_kept(
    collected: CollectedAnswers,
    run: ReportRun,
    device: str,
    records: Sequence[_Record],
    kind: tuple[str, str, int],
) -> Iterable[str]:
    """Add the records of a device's traced steps, the last first; `kind` is route, noun and limit."""
    route, noun, limit = kind
    steps, kept = _last_and_peak(records, limit)
    for step, phase in reversed(steps):
        place = {"run": run.name, "device": device, "step": str(step), "phase": phase}
        if (step, phase) in kept:
            collected.take(route, **place)
        else:
            why = f"it contains the last {limit} {noun} and that of the highest peak"
            collected.refuse(Question(route, place), why)
    if len(kept) < len(steps):
        yield (
            f"{len(steps) - len(kept)} of the {len(steps)} {noun} of {run.name} on {device} are not in this report: "
            f"it contains the last {limit} and that of the highest peak."
        )


PARTS: tuple[Callable[[CollectedAnswers, ReportRun], Iterable[str]], ...] = (
    _answers,
    _devices,
    _overviews,
    _layers,
    _lists,
    _snapshots,
    _failures,
    _what_ifs,
    _timelines,
    _maps,
    _activations,
)
"""The parts of a report by priority: the last ones are dropped first at the size limit."""
