"""What the routes about the inside of steps answer."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.codec import MISSING
from tb_memplugin.model import Phase, Timeline
from tb_memplugin.server.columns import Columns
from tb_memplugin.server.lookup import at_step
from tb_memplugin.store.reader import Reader
from tb_memplugin.store.source import Source

_COLUMNS = ("start", "end", "bytes", "rounding_bytes", "count", "owner")


class TimelineHandlers:
    """Answers from what one `Reader` holds; raises as `Handlers` does."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def timelines(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        """``GET timelines``: the list of them."""
        loaded = self._reader.run(source, run, timelines=True)
        return {
            "run": run,
            "timelines": [_facts(taken) for taken in loaded.run.timelines if device in (None, taken.device)],
        }

    def timeline(self, source: Source, run: str, device: str, step: int, phase: Phase) -> Columns:
        """``GET timeline``: one, whole; of several of a step the one with the highest peak."""
        timelines = self._reader.run(source, run, timelines=True).run.timelines
        missing = f"no timeline of step {step} in phase {phase} on {device!r:.200}"
        taken = max(at_step(timelines, device, step, phase, missing), key=lambda taken: taken.in_use_bytes)
        fields = {
            "run": run,
            **_facts(taken),
            "owners": [dataclasses.asdict(owner) for owner in taken.owners],
            "ops": list(taken.ops),
            "bands": [dataclasses.asdict(band) for band in taken.bands],
            "planned": [dataclasses.asdict(span) for span in taken.planned],
            "time_ns": taken.time_ns.tolist(),
            "event": taken.event.tolist(),
        }
        columns: dict[str, npt.NDArray[Any]] = {name: getattr(taken, name) for name in _COLUMNS}
        columns["op"] = np.where(taken.op < 0, MISSING, taken.op)
        return Columns(fields, columns)


def _facts(taken: Timeline) -> dict[str, Any]:
    return {
        "step": taken.step,
        "phase": taken.phase,
        "device": taken.device,
        "wall_time": taken.wall_time,
        "mode": taken.mode,
        "in_use_bytes": taken.in_use_bytes,
        "allocations": len(taken),
        "moments": len(taken.time_ns),
        "peak": taken.peak,
        "events": taken.events,
        "duration_ns": taken.duration_ns,
        "not_available": list(taken.not_available),
    }
