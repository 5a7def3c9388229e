"""A run as the plain object that ``tb-memplugin inspect --format json`` prints. Pure."""

import dataclasses
from typing import Any

import numpy as np

from tb_memplugin.analysis.changes import table_at
from tb_memplugin.analysis.facts import device_facts, step_range
from tb_memplugin.analysis.pool_steps import PoolHistory, pool_history
from tb_memplugin.codec import MISSING
from tb_memplugin.model import Layer, LayerActivations, Oom, Run, Snapshot

FORMAT = 1
"""Version of the object; a field that changes its meaning changes it."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What to narrow the description to; None is everything."""

    step: int | None = None
    device: str | None = None
    phase: str | None = None


EVERYTHING = Selection()


def describe_run(run: Run, selection: Selection = EVERYTHING) -> dict[str, Any]:
    """The run's facts. A step narrows the snapshots to that step and the layers to the table valid then."""
    steps = step_range(run)
    table = table_at(run.layer_tables, selection.step)
    return {
        "sessions": len(run.sessions),
        "steps": steps.steps,
        "first_step": steps.first_step,
        "last_step": steps.last_step,
        "devices": {
            facts.device: {
                "capacity_bytes": facts.capacity_bytes,
                "peak_bytes": facts.peak_bytes,
                "peak_step": facts.peak_step,
            }
            for facts in device_facts(run)
            if selection.device in (None, facts.device)
        },
        "layers": [describe_layer(layer) for layer in (table.layers if table is not None else ())],
        "activations": describe_activations(run.activations),
        "snapshots": [describe_snapshot(taken) for taken in run.snapshots if _is_selected(taken, selection)],
        "oom": [
            describe_oom(oom)
            for oom in run.ooms
            if selection.step in (None, oom.step)
            and selection.device in (None, oom.device)
            and selection.phase in (None, oom.phase)
        ],
        "pool": {
            facts.device: _describe_pool(pool_history(run, facts.device))
            for facts in device_facts(run)
            if selection.device in (None, facts.device)
        },
        "findings": list(run.findings),
        "notes": list(run.notes),
        "damage": list(run.damage),
    }


def _describe_pool(history: PoolHistory) -> dict[str, Any]:
    """The pool over the training steps: spans of steps with the same knowledge of it, and how it grew."""
    return {"spans": [dataclasses.asdict(span) for span in history.spans], "sentences": list(history.sentences)}


def describe_layer(layer: Layer) -> dict[str, Any]:
    """One layer, every field."""
    described = dataclasses.asdict(layer)
    described["output_shape"] = None if layer.output_shape is None else list(layer.output_shape)
    return described


def describe_activations(activations: LayerActivations) -> list[dict[str, Any]]:
    """Every layer's recorded activation bytes over steps, in the order of recording."""
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
    """One snapshot, every field; `ledger` says whether with its ledger and what is held for the backward pass."""
    described: dict[str, Any] = {
        field.name: getattr(snapshot, field.name)
        for field in dataclasses.fields(snapshot)
        if field.name not in ("ledger", "held_for_backward", "not_available")
    }
    described["not_available"] = list(snapshot.not_available)
    if ledger:
        described["ledger"] = [dataclasses.asdict(row) for row in snapshot.ledger]
        described["held_for_backward"] = [dataclasses.asdict(row) for row in snapshot.held_for_backward]
    return described


def describe_oom(oom: Oom) -> dict[str, Any]:
    """One post-mortem, every field but its chunks."""
    described: dict[str, Any] = {
        field.name: getattr(oom, field.name)
        for field in dataclasses.fields(oom)
        if field.name not in ("identifier", "ledger", "remedies", "map", "not_available")
    }
    described["chunks"] = None if oom.map is None else len(oom.map)
    described["ledger"] = [dataclasses.asdict(row) for row in oom.ledger]
    described["remedies"] = [dataclasses.asdict(remedy) for remedy in oom.remedies]
    described["not_available"] = list(oom.not_available)
    return described


def _is_selected(snapshot: Snapshot, selection: Selection) -> bool:
    return (
        selection.step in (None, snapshot.step)
        and selection.device in (None, snapshot.device)
        and selection.phase in (None, snapshot.phase)
    )
