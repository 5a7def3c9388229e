"""What the routes about the allocator answer: maps, "would it fit?", post-mortems, where the card's memory is."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis import bfc
from tb_memplugin.analysis.card import card
from tb_memplugin.analysis.describe import describe_oom
from tb_memplugin.codec import MISSING
from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import OWNER_SOURCES, AllocatorMap, Phase
from tb_memplugin.server.columns import Columns
from tb_memplugin.server.lookup import at_step, some
from tb_memplugin.store.reader import Reader
from tb_memplugin.store.source import Source

_STATES = ("free", "in_use", "unknown")
_COLUMNS = ("address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region")


@dataclasses.dataclass(frozen=True)
class Place:
    """Which map: that of a failure (its number in ``oom``), or that of a device, step and phase."""

    oom: int | None = None
    device: str | None = None
    step: int | None = None
    phase: Phase = "train"


class AllocatorHandlers:
    """Answers from what one `Reader` holds; raises as `Handlers` does."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def maps(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        """``GET maps``: the list of them."""
        loaded = self._reader.run(source, run, maps=True)
        chosen = [taken for taken in loaded.run.maps if device in (None, taken.device)]
        return {
            "run": run,
            "maps": [{**_facts(taken), "regions": taken.region_bytes.tolist()} for taken in chosen],
        }

    def map(self, source: Source, run: str, place: Place) -> Columns:
        """``GET map``: one, whole."""
        taken = self._map(source, run, place)
        fields = {
            "run": run,
            **_facts(taken),
            "states": list(_STATES),
            "sources": list(OWNER_SOURCES),
            "owners": [dataclasses.asdict(owner) for owner in taken.owners],
            "regions": [
                {"address": address, "bytes": size}
                for address, size in zip(taken.region_address.tolist(), taken.region_bytes.tolist(), strict=True)
            ],
            "summary": bfc.summary(taken),
        }
        columns: dict[str, npt.NDArray[Any]] = {name: getattr(taken, name) for name in _COLUMNS}
        columns["owner"] = np.where(taken.owner < 0, MISSING, taken.owner)
        return Columns(fields, columns)

    def fits(self, source: Source, run: str, place: Place, requested: int) -> dict[str, Any]:
        """``GET fits``: whether a request would be served."""
        taken = self._map(source, run, place)
        return {"run": run, **dataclasses.asdict(bfc.would_fit(taken, requested))}

    def oom(self, source: Source, run: str) -> dict[str, Any]:
        """``GET oom``: the post-mortems."""
        return {"run": run, "ooms": [describe_oom(oom) for oom in self._reader.run(source, run).run.ooms]}

    def card(self, source: Source, run: str, device: str, step: int | None) -> dict[str, Any]:
        """``GET card``: where the card's memory is."""
        loaded = self._reader.run(source, run)
        found = card(loaded.run, device, step)
        if found is None:
            names = sorted({taken.device for taken in loaded.run.snapshots})
            raise NotFoundError(f"run {run} has no snapshot of device {device!r:.200}; it has some of: {some(names)}")
        described = dataclasses.asdict(found)
        del described["snapshot"]
        return {
            "run": run,
            "device": device,
            "step": found.snapshot.step,
            "phase": found.snapshot.phase,
            "in_use_bytes": found.snapshot.in_use_bytes,
            "pool_bytes": found.snapshot.pool_bytes,
            "capacity_bytes": found.snapshot.capacity_bytes,
            **described,
            "segments": [dataclasses.asdict(segment) for segment in found.segments],
            "notes": list(found.notes),
        }

    def _map(self, source: Source, run: str, place: Place) -> AllocatorMap:
        if place.oom is not None:
            ooms = self._reader.run(source, run).run.ooms
            taken = ooms[place.oom].map if place.oom < len(ooms) else None
            if taken is None:
                raise NotFoundError(
                    f"run {run} has no chunks of failure {place.oom}; it has {len(ooms)} failures, from 0"
                )
            return taken
        maps = self._reader.run(source, run, maps=True).run.maps
        missing = f"no allocator map of step {place.step} in phase {place.phase} on {place.device!r:.200}"
        return at_step(maps, place.device, place.step, place.phase, missing)[-1]


def _facts(taken: AllocatorMap) -> dict[str, Any]:
    return {
        "step": taken.step,
        "phase": taken.phase,
        "device": taken.device,
        "wall_time": taken.wall_time,
        "chunks": len(taken),
        "in_use_bytes": taken.in_use_bytes,
        "pool_bytes": taken.pool_bytes,
        "capacity_bytes": taken.capacity_bytes,
        "complete": taken.complete,
        "not_available": list(taken.not_available),
    }
