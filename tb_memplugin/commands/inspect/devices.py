"""The devices and workers of a run side by side as text for the terminal. Pure."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tb_memplugin.analysis.steps.facts import of_one_kind
from tb_memplugin.model import stack_order
from tb_memplugin.model.text import clean, format_table
from tb_memplugin.model.units import UNKNOWN, format_bytes, format_figure, unit_for

MAX_DEVICES = 8
"""Most columns of the breakdown: the devices with the highest peaks."""
MAX_WORKERS = 20
"""Most rows of workers: those that stopped early, then the first ones."""


def device_lines(compared: Mapping[str, Any]) -> list[str]:
    """Paragraphs on all devices together, from the object of `describe_devices`; none for a single device."""
    devices, workers = compared["devices"], compared["workers"]
    parts = []
    if len(workers) > 1:
        parts.append(_workers(workers))
    if len(devices) > 1:
        parts.extend(filter(None, [_breakdown(devices), _together(compared)]))
    return parts


def _workers(workers: Sequence[Mapping[str, Any]]) -> str:
    ordered = sorted(workers, key=lambda worker: worker["stopped_early"] is None)[:MAX_WORKERS]
    rows = [
        [
            clean(worker["worker"]) or UNKNOWN,
            str(worker["sessions"]),
            *(UNKNOWN if worker[name] is None else str(worker[name]) for name in ("first_step", "last_step")),
            "yes" if worker["ended"] else "no",
            UNKNOWN if worker["clock_offset_seconds"] is None else f"{worker['clock_offset_seconds']:+.3f}",
        ]
        for worker in ordered
    ]
    if len(workers) > MAX_WORKERS:
        rows.append([f"{len(workers) - MAX_WORKERS} more", "", "", "", "", ""])
    table = format_table(["worker", "sessions", "first step", "last step", "ended", "clock s"], rows)
    stopped = [f"  {clean(worker['stopped_early'])}." for worker in workers if worker["stopped_early"]]
    return "\n".join([table, *stopped])


def _breakdown(devices: Sequence[Mapping[str, Any]]) -> str:
    """Categories of the devices' traced steps, one column each."""
    traced = [device for device in devices if device["breakdown"] is not None]
    if len(traced) < 2:
        return ""
    largest = sorted(traced, key=lambda device: -device["peak_bytes"])[:MAX_DEVICES]
    shown = [device for device in traced if device in largest]
    columns = [
        {(part["category"], part["trainable"]): part["bytes"] for part in device["breakdown"]["parts"]}
        for device in shown
    ]
    groups = sorted({group for column in columns for group in column}, key=lambda group: stack_order(*group))
    unit = unit_for([device["breakdown"]["peak_bytes"] for device in shown])
    rows = [
        [_group(*group), *(format_figure(column.get(group, 0), unit) for column in columns)]
        for group in reversed(groups)
        if any(column.get(group) for column in columns)
    ]
    rows.append(["total", *(format_figure(device["breakdown"]["peak_bytes"], unit) for device in shown)])
    steps = {device["breakdown"]["step"] for device in shown}
    if len(steps) > 1:
        rows.append(["traced step", *(str(device["breakdown"]["step"]) for device in shown)])
    at = f"step {steps.pop()}" if len(steps) == 1 else "their traced steps"
    left_out = f"; the {len(shown)} of {len(traced)} with the highest peaks" if len(traced) > len(shown) else ""
    title = f"devices at {at}, {unit} at the peak{left_out}:"
    return f"{title}\n{format_table(['', *(clean(device['device']) for device in shown)], rows)}"


def _group(category: str, trainable: bool | None) -> str:
    suffix = {True: ", trainable", False: ", frozen", None: ""}[trainable]
    return category.replace("_", " ") + suffix


def _together(compared: Mapping[str, Any]) -> str:
    """Imbalance and sum of the devices that are compared; nothing on a single accelerator beside a CPU."""
    if compared["imbalance"] is None:
        return ""
    names = [device["device"] for device in compared["devices"]]
    whose = "the" if len(of_one_kind(names)) == len(names) else "the accelerators'"
    size = format_bytes(compared["sum_peak_bytes"])
    sentences = [
        f"imbalance: {clean(compared['imbalance']['sentence'])}",
        f"sum of {whose} peaks: {size}, an upper bound of the sum at any step",
    ]
    return "\n".join(line for sentence in sentences for line in textwrap.wrap(sentence, 120, initial_indent="  "))
