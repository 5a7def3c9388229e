"""What of a directory goes into a report: which runs, and of each run which of the page's questions are answered."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.model import AllocatorMap, Snapshot, Timeline
from tb_memplugin.report.answers import Answer, ChosenRuns, Collected, Question
from tb_memplugin.store.file_source import FileSource
from tb_memplugin.store.reader import Reader, RunTags

DEFAULT_RUNS = 2
"""Runs that are taken if none is named: the newest."""
MAX_RUNS = 8
MAX_DATA_BYTES = 24 << 20
"""Characters of packed answers: what a mail still takes."""
POINTS = 5000
"""More than the tab asks for, since no zoom can ask again: every step of a run of up to twice as many."""
ACTIVATION_POINTS = 600
MAX_SNAPSHOTS = 200
"""Snapshots of a device of a run: the last ones, and that of the highest peak."""
MAX_MAPS = 10
"""Allocator maps of a device of a run: the last ones, and that of the highest peak."""
MAX_TIMELINES = 6
"""Timelines of a device of a run: the last ones, and that of the highest peak."""
MAX_TABLES = 50
MAX_DEVICES = 16
"""Devices of a run, the first ones."""
MAX_SESSIONS = 8
MAX_OOMS = 8

Step = tuple[int, str]
"""Step and phase."""
_Taken: TypeAlias = Snapshot | AllocatorMap | Timeline


@dataclasses.dataclass
class _Run:
    """A run while its answers are collected.

    Attributes:
        info: Its entry in the answer of ``runs``.
        kept: By device, the steps and phases whose snapshots the report holds.
    """

    info: dict[str, Any]
    kept: dict[str, list[Step]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.info["run"])

    @property
    def devices(self) -> list[str]:
        return [device["device"] for device in self.info["devices"][:MAX_DEVICES]]


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a report holds.

    Attributes:
        runs: Their names.
        answers: In the order in which they were asked for; the first one is that of ``runs``.
        refusals: Questions that the page answers with a sentence.
        absent: Sentences on what the report does not hold.
    """

    runs: tuple[str, ...]
    answers: tuple[Answer, ...]
    refusals: tuple[tuple[Question, str], ...]
    absent: tuple[str, ...]


def collect(
    logdir: str | os.PathLike[str], names: Sequence[str] = (), max_data_bytes: int = MAX_DATA_BYTES
) -> Contents:
    """The contents of a report on the runs `names` under `logdir`, or on the newest of all.

    Raises:
        NotFoundError: There is no such directory, or no such run in it, or none at all.
        RequestError: More runs than a report holds.
    """
    source = FileSource(logdir)
    catalog = Reader().catalog(source)
    chosen = _chosen(catalog.values(), os.fspath(logdir), list(dict.fromkeys(names)))
    collected = Collected(Reader(), ChosenRuns(source, chosen), max_data_bytes)
    listed = collected.take("runs")
    if listed is None:
        raise RequestError(f"the list of runs alone is over the limit of {max_data_bytes} bytes")
    runs = [_Run(info) for info in listed.fields()["runs"]]
    absent: list[str] = []
    others = len(catalog) - len(chosen)
    if others and not names:
        which = "The other run of the directory is" if others == 1 else f"The other {others} runs of the directory are"
        absent.append(
            f"{which} not available in a report, because it takes the newest {DEFAULT_RUNS} unless some are named "
            "with --run."
        )
    for part in _PARTS:
        for run in runs:
            absent.extend(part(collected, run))
    absent.extend(_dropped(collected))
    return Contents(tuple(run.name for run in runs), tuple(collected.answers), tuple(collected.refusals), tuple(absent))


def _chosen(catalog: Iterable[RunTags], logdir: str, names: list[str]) -> list[str]:
    known = {tags.name: tags for tags in catalog}
    if not known:
        raise NotFoundError(
            f"there are no memory records under {logdir}; "
            "record some with tb_memplugin.MemoryCallback or MemoryRecorder"
        )
    for name in names:
        if name not in known:
            raise NotFoundError(f"there is no run {name!r}; there are: {', '.join(known)}")
    if len(names) > MAX_RUNS:
        raise RequestError(f"a report holds at most {MAX_RUNS} runs; {len(names)} were named")
    # Identifiers of sessions sort by their start.
    newest = sorted(known, key=lambda name: max((entry[2].session for entry in known[name].tags), default=""))
    return names or newest[-DEFAULT_RUNS:]


def _overviews(collected: Collected, run: _Run) -> Iterable[str]:
    if len(run.info["devices"]) > MAX_DEVICES:
        yield (
            f"{len(run.info['devices']) - MAX_DEVICES} devices of {run.name} are not available in a report, because it "
            f"holds the first {MAX_DEVICES}."
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
            head = answer.fields()
            reduced = max(reduced, head["total_rows"] if head["rows"] < head["total_rows"] else 0)
            sessions = [span["session"] for span in head["sessions"]]
            for at, session in enumerate(sessions if len(sessions) > 1 else []):
                if at >= len(sessions) - MAX_SESSIONS:
                    collected.take("overview", **common, session=session)
                    collected.take("ledger_totals", **place, session=session)
                    collected.take("pool", **common, session=session)
                else:
                    why = f"it holds the last {MAX_SESSIONS} attempts one by one"
                    for route in ("overview", "pool", "ledger_totals"):
                        collected.refuse(Question(route, {**place, "session": session}), why)
    if reduced:
        yield (
            f"Every single one of the {reduced} steps of {run.name} is not available in a report, because it holds "
            f"about {2 * POINTS} of them, with the extremes: a zoom shows the same ones."
        )


def _layers(collected: Collected, run: _Run) -> Iterable[str]:
    collected.take("layers", run=run.name)
    steps = sorted({table.step for table in collected.reader.run(collected.source, run.name).run.layer_tables})
    for step in steps[-MAX_TABLES:]:
        collected.take("layers", run=run.name, step=step)
    for step in steps[:-MAX_TABLES]:
        question = Question("layers", {"run": run.name, "step": str(step)})
        collected.refuse(question, f"it holds the last {MAX_TABLES} layer tables")
    if len(steps) > MAX_TABLES:
        yield (
            f"{len(steps) - MAX_TABLES} layer tables of {run.name} are not available in a report, because it holds the "
            f"last {MAX_TABLES}."
        )


def _lists(collected: Collected, run: _Run) -> Iterable[str]:
    collected.take("oom", run=run.name)
    everything = collected.reader.run(collected.source, run.name).run.snapshots
    for device in run.devices:
        collected.take("maps", run=run.name, device=device)
        collected.take("snapshots", run=run.name, device=device)
        taken = [one for one in everything if one.device == device]
        steps, kept = _last_and_peak(taken, MAX_SNAPSHOTS)
        run.kept[device] = kept
        if len(kept) == len(steps):
            continue
        why = f"it holds the last {MAX_SNAPSHOTS} snapshots and that of the highest peak"
        yield (
            f"{len(steps) - len(kept)} of the {len(steps)} snapshots of {run.name} on {device} are not available in a "
            f"report, because {why}."
        )
        for step, phase in sorted(set(steps) - set(kept)):
            common = {"run": run.name, "device": device, "step": str(step)}
            collected.refuse(Question("snapshot", {**common, "phase": phase}), why)
            if step not in {step for step, _ in kept}:
                collected.refuse(Question("card", common), why)


def _last_and_peak(taken: Sequence[_Taken], limit: int) -> tuple[list[Step], list[Step]]:
    """Steps of what was taken, and those that a report holds: the last `limit` and that of the highest peak."""
    steps = list(dict.fromkeys(map(_step, taken)))
    peak = max(taken, key=lambda one: one.in_use_bytes or 0, default=None)
    last = steps[-limit:]
    return steps, last if peak is None or _step(peak) in last else [_step(peak), *last]


def _step(taken: _Taken) -> Step:
    return taken.step or 0, str(taken.phase)


def _snapshots(collected: Collected, run: _Run) -> Iterable[str]:
    for device, steps in run.kept.items():
        collected.take("card", run=run.name, device=device)
        for step in sorted({step for step, _ in steps}):
            collected.take("card", run=run.name, device=device, step=step)
        for step, phase in steps:
            collected.take("snapshot", run=run.name, device=device, step=step, phase=phase)
    return ()


def _activations(collected: Collected, run: _Run) -> Iterable[str]:
    if run.info["activation_layers"]:
        collected.take("activations", run=run.name, points=ACTIVATION_POINTS)
    return ()


def _failures(collected: Collected, run: _Run) -> Iterable[str]:
    ooms = collected.reader.run(collected.source, run.name).run.ooms
    for at, oom in enumerate(ooms):
        if oom.map is None:
            continue
        if at >= len(ooms) - MAX_OOMS:
            collected.take("map", run=run.name, oom=at)
        else:
            question = Question("map", {"run": run.name, "oom": str(at)})
            collected.refuse(question, f"it holds the maps of the last {MAX_OOMS} failures")
    return ()


def _maps(collected: Collected, run: _Run) -> Iterable[str]:
    maps = collected.reader.run(collected.source, run.name, maps=True).run.maps
    for device in run.devices:
        taken = [one for one in maps if one.device == device and one.step is not None and one.phase is not None]
        yield from _each_kept(collected, run, device, taken, ("map", "allocator maps", MAX_MAPS))


def _timelines(collected: Collected, run: _Run) -> Iterable[str]:
    timelines = collected.reader.run(collected.source, run.name, timelines=True).run.timelines
    for device in run.devices:
        collected.take("timelines", run=run.name, device=device)
        taken = [one for one in timelines if one.device == device]
        yield from _each_kept(collected, run, device, taken, ("timeline", "timelines", MAX_TIMELINES))


def _each_kept(
    collected: Collected,
    run: _Run,
    device: str,
    taken: Sequence[_Taken],
    kind: tuple[str, str, int],
) -> Iterable[str]:
    """Takes what a device's traced steps left, the last first; `kind` is its route, its word and how many are held."""
    route, word, limit = kind
    steps, kept = _last_and_peak(taken, limit)
    for step, phase in reversed(steps):
        place = {"run": run.name, "device": device, "step": str(step), "phase": phase}
        if (step, phase) in kept:
            collected.take(route, **place)
        else:
            why = f"it holds the last {limit} {word} and that of the highest peak"
            collected.refuse(Question(route, place), why)
    if len(kept) < len(steps):
        yield (
            f"{len(steps) - len(kept)} of the {len(steps)} {word} of {run.name} on {device} are not available in a "
            f"report, because it holds the last {limit} and that of the highest peak."
        )


_PARTS: tuple[Callable[[Collected, _Run], Iterable[str]], ...] = (
    _overviews,
    _layers,
    _lists,
    _snapshots,
    _failures,
    _timelines,
    _maps,
    _activations,
)
"""The parts of a report, those first that must not be missing if it grows too large."""


def _dropped(collected: Collected) -> list[str]:
    return [
        f"{count} of the answers of “{route}” are not available in a report, because its size is limited, and they "
        "had no room in it."
        for route, count in collected.dropped.items()
    ]
