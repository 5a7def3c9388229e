"""A run as the JSON object of ``tb-memplugin inspect --format json``. Pure."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.analysis import (
    describe_answers,
    describe_devices,
    describe_host,
    device_facts,
    host_summaries,
    main_phase,
    pool_history,
    step_range,
    table_at,
)
from tb_memplugin.fit import describe_demand, peak_demand
from tb_memplugin.schema import (
    LISTS,
    MISSING,
    LayerActivations,
    Oom,
    Phase,
    Run,
    Snapshot,
    as_json,
    values_of,
    with_layers_of,
)

FORMAT = 1
"""Version of the object, raised when the meaning of a field changes."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """A filter by step, device and phase; None selects all."""

    step: int | None = None
    device: str | None = None
    phase: Phase | None = None

    def includes(self, record: Snapshot | Oom) -> bool:
        return (
            self.step in (None, record.step)
            and self.device in (None, record.device)
            and self.phase in (None, record.phase)
        )


EVERYTHING = Selection()


def describe_run(
    run: Run, selection: Selection = EVERYTHING, by_worker: Mapping[str, Run] | None = None
) -> dict[str, Any]:
    """The run as an object. A selected step selects its snapshots and the layer table valid at it.

    Args:
        by_worker: Worker name to the run of that worker, with devices under their own names; None for a run of one
            process.
    """
    steps = step_range(run)
    devices = [facts.device for facts in device_facts(run) if selection.device in (None, facts.device)]
    table = table_at(with_layers_of(run, by_worker or {}, selection.device).layer_tables, selection.step)
    return {
        "sessions": len(run.sessions),
        "steps": steps.steps,
        "first_step": steps.first_step,
        "last_step": steps.last_step,
        "devices": {
            facts.device: values_of(facts, "capacity_bytes", "peak_bytes", "peak_step")
            for facts in device_facts(run)
            if facts.device in devices
        },
        "compared": describe_devices(by_worker or {"": run}, selection.phase or main_phase(run))
        if selection.device is None
        else None,
        "layers": as_json(table.layers if table is not None else ()),
        "activations": describe_activations(run.activations),
        "snapshots": [describe_snapshot(snapshot) for snapshot in run.snapshots if selection.includes(snapshot)],
        "oom": [{**describe_oom(oom), "fixes": as_json(oom.fixes)} for oom in run.ooms if selection.includes(oom)],
        "pool": {device: as_json(pool_history(run, device)) for device in devices},
        "demand": {device: describe_demand(peak_demand(run, device)) for device in devices},
        "answers": {device: describe_answers(run, device, selection.phase, by_worker) for device in devices},
        "host_memory": {
            worker: describe_host(summary) for worker, summary in host_summaries(by_worker or {"": run}).items()
        },
        "findings": list(run.findings),
        "notes": list(run.notes),
        "damage": list(run.damage),
    }


def describe_activations(activations: LayerActivations) -> list[dict[str, Any]]:
    described = []
    for column, path in enumerate(activations.layers):
        values = activations.bytes[:, column]
        known = np.flatnonzero(values != MISSING)
        if not len(known):
            continue
        highest = int(known[np.argmax(values[known])])
        described.append(
            {
                "layer": path,
                "steps": len(np.unique(activations.step[known])),
                "max_bytes": int(values[highest]),
                "max_step": int(activations.step[highest]),
                "last_bytes": int(values[known[-1]]),
            }
        )
    return described


def describe_snapshot(snapshot: Snapshot, ledger: bool = True) -> dict[str, Any]:
    """All fields of a snapshot; without its `LISTS` if `ledger` is false."""
    described: dict[str, Any] = as_json(snapshot, () if ledger else LISTS)
    return described


def describe_oom(oom: Oom) -> dict[str, Any]:
    """All fields of a failed allocation except its chunks and the fixes, which take seconds to simulate."""
    return {**as_json(oom, ("identifier", "fixes", "map")), "chunks": None if oom.map is None else len(oom.map)}
