"""Handlers of the timeline routes."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, Phase, Timeline
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.reader.streams import BASIC, TIMELINES
from tb_memplugin.server.columns import Columns
from tb_memplugin.server.worker_lookup import at_step

_COLUMNS = ("start", "end", "bytes", "rounding_bytes", "count", "owner")
_MAYBE_UNKNOWN = ("op", "address", "shape", "line")
"""Columns in which -1 is unknown."""


class TimelineHandlers:
    """Handlers on top of one `Reader`; errors as in `Handlers`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def timelines(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        """``GET timelines``: the timelines, without allocations."""
        loaded = self._reader.run(source, run, {*BASIC, TIMELINES})
        return {
            "run": run,
            "timelines": [_facts(timeline) for timeline in loaded.run.timelines if device in (None, timeline.device)],
        }

    def timeline(self, source: Source, run: str, device: str, step: int, phase: Phase) -> Columns:
        """``GET timeline``: one timeline with its allocations; of several of a step, that of the highest peak."""
        timelines = self._reader.run(source, run, {*BASIC, TIMELINES}).run.timelines
        missing = f"no timeline of step {step} in phase {phase} on {device!r:.200}"
        timeline = max(at_step(timelines, device, step, phase, missing), key=lambda timeline: timeline.in_use_bytes)
        fields = {
            "run": run,
            **_facts(timeline),
            "owners": [dataclasses.asdict(owner) for owner in timeline.owners],
            "ops": list(timeline.ops),
            "shapes": [{"shape": list(one.shape), "dtype": one.dtype} for one in timeline.shapes],
            "lines": list(timeline.lines),
            "bands": [dataclasses.asdict(band) for band in timeline.bands],
            "compiled": [dataclasses.asdict(span) for span in timeline.compiled],
            "time_ns": timeline.time_ns.tolist(),
            "event": timeline.event.tolist(),
        }
        columns: dict[str, npt.NDArray[Any]] = {name: getattr(timeline, name) for name in _COLUMNS}
        for name in _MAYBE_UNKNOWN:
            column = getattr(timeline, name)
            columns[name] = np.where(column < 0, MISSING, column)
        return Columns(fields, columns)


def _facts(timeline: Timeline) -> dict[str, Any]:
    return {
        "step": timeline.step,
        "phase": timeline.phase,
        "device": timeline.device,
        "wall_time": timeline.wall_time,
        "mode": timeline.mode,
        "in_use_bytes": timeline.in_use_bytes,
        "allocations": len(timeline),
        "moments": len(timeline.time_ns),
        "peak": timeline.peak,
        "events": timeline.events,
        "duration_ns": timeline.duration_ns,
        "not_available": list(timeline.not_available),
    }
