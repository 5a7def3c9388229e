"""The timelines of one traced step, and their bytes by category at every moment."""

from collections.abc import Iterable

import numpy as np

from tb_memplugin.analysis.steps.facts import device_order
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.events import own_recordings
from tb_memplugin.model import CATEGORIES, MISSING, PHASES, Integers, Timeline
from tb_memplugin.model.text import some, unknown_name
from tb_memplugin.model.timeline import live_sums
from tb_memplugin.reader.decode.streams import META, TIMELINES
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader


def step_timelines(
    logdir: str, run: str | None, step: int, device: str | None = None, phase: str | None = None
) -> tuple[str, list[Timeline]]:
    """The name of a run, and the timelines of a step, the accelerators first: one for each device.

    Args:
        logdir: Log directory.
        run: The run; None if there is only one.
        step: The traced step.
        device: Only this device.
        phase: Only this phase; None for the first of the step's.

    Raises:
        NotFoundError: There is no such run, or it has no such timeline.
        RequestError: There are several runs and none is named.
    """
    own_recordings.write_under(logdir)
    source, reader = FileSource(logdir), Reader()
    catalog = reader.catalog(source)
    if run is None and len(catalog) > 1:
        raise RequestError(f"several runs: choose one with --run. Available: {some(list(catalog))}")
    name = run or next(iter(catalog), "")
    if name not in catalog:
        raise NotFoundError(unknown_name("no run", name, catalog))
    every = reader.load(source, catalog[name], frozenset({META, TIMELINES})).run.timelines
    wanted = [one for one in every if device in (None, one.device) and phase in (None, one.phase)]
    of_step = [one for one in wanted if one.step == step]
    if not of_step:
        about = "".join(f" {of}" for of in (phase and f"of phase {phase}", device and f"on {device}") if of)
        steps = sorted({one.step for one in wanted})
        raise NotFoundError(f"run {name} has no timeline of step {step}{about}; available steps: {some(steps)}")
    first = min((one.phase for one in of_step), key=PHASES.index)
    return name, _one_for_each_device(one for one in of_step if one.phase == first)


def _one_for_each_device(timelines: Iterable[Timeline]) -> list[Timeline]:
    """The timeline with the highest peak of each device."""
    highest: dict[str, Timeline] = {}
    for timeline in timelines:
        known = highest.get(timeline.device)
        if known is None or timeline.in_use_bytes > known.in_use_bytes:
            highest[timeline.device] = timeline
    return [highest[device] for device in sorted(highest, key=device_order)]


def split_row_rounding(timeline: Timeline) -> tuple[Integers, Integers]:
    """Requested bytes and rounding of each row; all bytes count as requested where the rounding is unknown."""
    rounding = np.where(timeline.rounding_bytes == MISSING, 0, timeline.rounding_bytes)
    rounding = np.clip(rounding, 0, timeline.bytes)
    return timeline.bytes - rounding, rounding


def category_bytes(timeline: Timeline) -> dict[str, Integers]:
    """Bytes of each category at every moment, shape [moments] each, without categories that have none."""
    requested, rounding = split_row_rounding(timeline)
    moments = len(timeline.time_ns)
    of_owner = np.asarray([CATEGORIES.index(owner.category) for owner in timeline.owners], np.int64)
    category = of_owner[timeline.owner]
    totals = {
        name: live_sums(timeline.start, timeline.end, np.where(category == number, requested, 0), moments)
        for number, name in enumerate(CATEGORIES)
    }
    totals["rounding"] += live_sums(timeline.start, timeline.end, rounding, moments)
    return {name: total for name, total in totals.items() if total.any()}
