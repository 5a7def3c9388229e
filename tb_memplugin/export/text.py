"""A run as the JSON object of ``tb-memplugin inspect --format json``, as its whole text, and in
twenty lines. Pure."""

import dataclasses
import itertools
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis import (
    PART_NAMES,
    QUESTIONS,
    Answer,
    DeviceFacts,
    HostSummary,
    PoolHistory,
    PoolSpan,
    answers,
    comparable,
    describe_devices,
    device_facts,
    device_phase,
    failure_of,
    growth_findings,
    host_findings,
    host_summaries,
    largest_layer,
    layer_totals,
    main_phase,
    most_loaded,
    pool_history,
    request_contents,
    run_status,
    step_name,
    step_range,
    table_at,
    with_ranks,
    worst,
)
from tb_memplugin.fit import peak_demand
from tb_memplugin.schema import (
    MISSING,
    UNKNOWN,
    Group,
    HeldTensorGroup,
    Layer,
    LayerActivations,
    LayerTable,
    LedgerRow,
    Oom,
    Phase,
    Run,
    RunStatus,
    Snapshot,
    as_json,
    clean,
    format_bytes,
    format_figure,
    format_table,
    group_sums,
    is_pinned,
    stack_order,
    sums_by,
    unit_for,
    unrecorded_devices,
    values_of,
    with_layers_of,
)

MAX_ROWS = 15  # printed rows of a long table; the others are summed in one row
MAX_NAME_CHARACTERS = 60
MAX_MODELS = 3  # most models of different workers whose layers are listed
MAX_DEVICES = 8  # most columns of the breakdown: the devices with the highest peaks
MAX_WORKERS = 20  # most rows of workers: those that stopped early, then the first ones
MAX_LINES = 12  # printed spans and sentences of the pool: the last ones
SUMMARY_LINES, SUMMARY_LAYERS = 20, 5  # most lines of a summary, and layers in it
_IN_BANNER = ("growth", "session_growth")  # what the answer on growth says already
MAX_OWNERS = 12  # listed owners of memory at a failure; the others are summed in one line
_WHEN = {
    "measured": "measured at step end",
    "traced": "traced, at the peak",
    "failed": "at the failed allocation",
}
_FRAGMENTATION = " (free bytes outside the largest free chunk)"
_MARKS = {"ok": "", "fact": "", "warning": "warning", "failed": "failed", "unknown": "unknown"}


@dataclasses.dataclass(frozen=True)
class Selection:
    """A filter by step, device and phase; None selects all."""

    step: int | None = None
    device: str | None = None
    phase: Phase | None = None

    def includes(self, record: Snapshot | Oom) -> bool:
        return all(wanted in (None, getattr(record, name)) for name, wanted in vars(self).items())


EVERYTHING = Selection()


def describe_run(
    run: Run, selection: Selection = EVERYTHING, by_worker: Mapping[str, Run] | None = None
) -> dict[str, Any]:
    """The run as an object. A selected step selects its snapshots and the layer table valid at it.

    Args:
        by_worker: Worker name to the run of that worker, with devices under their own names; None
            for a run of one process."""
    steps, workers = step_range(run), by_worker or {"": run}
    facts = {one.device: one for one in device_facts(run) if selection.device in (None, one.device)}
    layer_tables = with_layers_of(run, by_worker or {}, selection.device).layer_tables
    table = table_at(layer_tables, selection.step)
    phase, figures = selection.phase, ("capacity_bytes", "peak_bytes", "peak_step")
    return {
        "sessions": len(run.sessions),
        **values_of(steps, "steps", "first_step", "last_step"),
        "devices": {device: values_of(one, *figures) for device, one in facts.items()},
        "compared": describe_devices(workers, phase or main_phase(run))
        if selection.device is None
        else None,
        "layers": as_json(table.layers if table is not None else ()),
        "activations": describe_activations(run.activations),
        "snapshots": [as_json(one) for one in run.snapshots if selection.includes(one)],
        "oom": [
            {**describe_oom(oom), "fixes": as_json(oom.fixes)}
            for oom in run.ooms
            if selection.includes(oom)
        ],
        "pool": {device: as_json(pool_history(run, device)) for device in facts},
        "demand": {device: as_json(peak_demand(run, device)) for device in facts},
        "answers": {device: as_json(answers(run, device, phase, by_worker)) for device in facts},
        "largest_layer": {
            device: as_json(largest_layer(run, device, phase or device_phase(run, device)))
            for device in facts
        },
        "host_memory": {
            worker: as_json(summary) for worker, summary in host_summaries(workers).items()
        },
        "findings": as_json(run.findings),
        **values_of(run, "notes", "damage"),
    }


def describe_activations(activations: LayerActivations) -> list[dict[str, Any]]:
    described = []
    for path, values in zip(activations.layers, activations.bytes.T, strict=True):
        known = values != MISSING
        steps, sizes = activations.step[known], values[known]
        if len(sizes):
            most = {"max_bytes": int(sizes.max()), "max_step": int(steps[np.argmax(sizes)])}
            count = len(np.unique(steps))
            described.append({"layer": path, "steps": count, **most, "last_bytes": int(sizes[-1])})
    return described


def describe_oom(oom: Oom) -> dict[str, Any]:
    """All fields of a failed allocation except chunks, requests and the fixes, which take seconds
    to simulate."""
    chunks, request = None if oom.map is None else len(oom.map), as_json(request_contents(oom))
    hidden = ("identifier", "fixes", "map", "requests", "request_tensors")
    return {**as_json(oom, hidden), "chunks": chunks, "request": request}


def format_run(
    run: Run, selection: Selection = EVERYTHING, by_worker: Mapping[str, Run] | None = None
) -> str:
    """The run as text, with all that is known of it; `by_worker` is as in `describe_run`."""
    workers, phase = by_worker or {"": run}, selection.phase
    # Why there are no devices comes first: nothing below is complete without them.
    absent = [] if device_facts(run) else unrecorded_devices(run.notes)
    parts = [*map(clean, absent), _title(run)]
    devices = [facts for facts in device_facts(run) if selection.device in (None, facts.device)]
    parts += [
        _cleaned(answer_lines(one.device, answers(run, one.device, phase, by_worker)))
        for one in devices
    ]
    if devices:
        parts.append(format_table(*device_table(run, devices)))
    if selection.device is None:
        parts += device_lines(describe_devices(workers, phase or main_phase(run)))
    for facts in devices:
        parts += _on_device(run, facts.device, selection)
    if selection == EVERYTHING:
        parts += [
            _cleaned(host_lines(worker, summary))
            for worker, summary in host_summaries(workers).items()
        ]
    parts += _layers_of_workers(run, selection, by_worker or {})
    if len(run.activations):
        parts.append(_activations(run))
    parts += [_cleaned(oom_lines(oom)) for oom in run.ooms if selection.includes(oom)]
    said = {
        "finding": [one.sentence for one in run.findings],
        "note": run.notes,
        "not read": run.damage,
    }
    parts += [
        f"{what}: {clean(one)}"
        for what, sentences in said.items()
        for one in sentences
        if one not in absent
    ]
    return "\n\n".join(parts)


def _title(run: Run) -> str:
    steps = step_range(run)
    span = (
        (f"{steps.steps:,} steps ({steps.first_step} to {steps.last_step})")
        if steps.steps
        else "no steps"
    )
    counts = ((len(run.sessions), "sessions"), (len(run.workers), "workers"))
    return clean(f"{run.name}: {span}") + "".join(
        f", {count} {name}" for count, name in counts if count > 1
    )


def _cleaned(lines: Iterable[str]) -> str:
    return "\n".join(map(clean, lines))


def _on_device(run: Run, device: str, selection: Selection) -> Iterator[str]:
    """The selected breakdown with the highest peak, the pool over the steps, and the demand of the
    peak."""
    snapshots = [one for one in run.snapshots if one.device == device and selection.includes(one)]
    if snapshots:
        yield _snapshot_text(max(snapshots, key=lambda snapshot: snapshot.in_use_bytes))
    elif selection.step is not None:
        yield _without_breakdown(run, device, selection, selection.step)
    if selection.step is not None:
        return
    phase = device_phase(run, device)
    if selection.phase in (None, phase) and (
        lines := pool_lines(shown_name(device), pool_history(run, device), phase)
    ):
        yield "\n".join(lines)
    if selection.phase is None and (demand := peak_demand(run, device)) is not None:
        yield "\n".join([f"{shown_name(device)}, demand of the peak:", *_wrapped(demand.sentences)])


def device_table(run: Run, devices: Sequence[DeviceFacts]) -> tuple[list[str], list[list[str]]]:
    failed = {oom.device for oom in run.ooms}
    unit = unit_for(
        [size for facts in devices for size in (facts.peak_bytes, facts.capacity_bytes)]
    )
    rows = []
    for facts in devices:
        peak, capacity, free, share = facts.peak_bytes, facts.capacity_bytes, None, UNKNOWN
        if peak is not None and capacity is not None:
            free = None if facts.device in failed else capacity - peak
            share = f"{100 * peak / capacity:.0f} %" if capacity else UNKNOWN
        step = UNKNOWN if facts.peak_step is None else str(facts.peak_step)
        figures = [format_figure(size, unit) for size in (peak, capacity, free)]
        rows.append([shown_name(facts.device), *figures, share, step, str(facts.snapshots)])
    head = [
        "device",
        f"peak {unit}",
        f"capacity {unit}",
        f"headroom {unit}",
        "used",
        "peak at step",
        "snapshots",
    ]
    return head, rows


def _without_breakdown(run: Run, device: str, selection: Selection, step: int) -> str:
    why = "not traced" if step in run.samples.step else "not recorded"
    every = dataclasses.replace(selection, step=None)
    others = [one.step for one in run.snapshots if one.device == device and every.includes(one)]
    nearest = min(others, key=lambda other: (abs(other - step), other), default=None)
    phase = "" if selection.phase is None else f" of phase {selection.phase}"
    found = (
        f"No step{phase} has one."
        if nearest is None
        else (f"The nearest{phase} is that of step {nearest}.")
    )
    return f"{shown_name(device)}: step {step} has no breakdown, it was {why}. {found}"


def _snapshot_text(snapshot: Snapshot) -> str:
    batch = None if snapshot.batch_size is None else f"batch size {snapshot.batch_size}"
    step = f"{snapshot.step} ({', '.join(filter(None, (snapshot.phase, snapshot.mode, batch)))})"
    which, when = ("failed", "failed allocation") if snapshot.at_failure else ("traced", "peak")
    size = snapshot.in_use_bytes
    lines = [
        f"{shown_name(snapshot.device)}, {which} step {step}: {format_bytes(size)} in use at the "
        f"{when}"
    ]
    lines += _pool_text(snapshot)
    if (replay := snapshot.replay) is not None:
        addresses = f"{replay.addresses:,} of {replay.of_addresses:,} addresses"
        lines.append(f"  replay: {addresses}, {replay.chunks:,} of {replay.of_chunks:,} chunks")
    categories = [
        ((category_name(*group),), of_group)
        for group, of_group in reversed(group_sums(snapshot.ledger).items())  # from the stack's top
    ]
    owners: Counter[tuple[str, str]] = Counter()
    for row in snapshot.ledger:
        layer = shown_name(row.layer) if row.layer is not None else "not tied to a layer"
        owners[layer, row.category.replace("_", " ")] += row.bytes
    parts = [
        "\n".join(lines),
        _shares("by category", categories, size),
        _shares("by layer and category", owners.most_common(), size),
        _held_tensors(snapshot.held_tensors),
        *(f"  {clean(sentence)}" for sentence in snapshot.not_available),
    ]
    return "\n\n".join(filter(None, parts))


def _pool_text(snapshot: Snapshot) -> Iterator[str]:
    pool = snapshot.pool
    if pool is not None and pool.pool_bytes:
        free, largest, other = pool.free_bytes, pool.largest_free_bytes, pool.other_free_bytes
        share = f"{100 * pool.in_use_bytes / pool.pool_bytes:.0f} %"
        chunks = ""
        if largest is not None and other is not None and free:
            chunks = f": largest chunk {format_bytes(largest)}, other chunks {format_bytes(other)}"
        yield (
            f"  pool {format_bytes(pool.pool_bytes)}, {share} in use, {format_bytes(free)} "
            f"free{chunks}"
        )
        known = (
            UNKNOWN
            if snapshot.fragmentation is None
            else f"{100 * snapshot.fragmentation:.0f} %{_FRAGMENTATION}"
        )
        yield f"  fragmentation {known if free else 'undefined: the pool is full'}"
    if snapshot.rounding_bytes is not None:
        yield f"  rounding {format_bytes(snapshot.rounding_bytes)} (allocated − requested)"


def _held_tensors(groups: Sequence[HeldTensorGroup]) -> str:
    """Tensors with a holder, largest groups first, and what is known of their origin and
    holders."""
    if not groups:
        return ""
    unit, shown = unit_for([groups[0].bytes]), groups[:MAX_ROWS]
    lines = any(group.line is not None for group in shown)
    table = listed(
        ["tensors", "held by", *["made at"] * lines, "count", unit],
        groups,
        lambda one: [_tensor_name(one), _known_name(one.held_by), *[_known_name(one.line)] * lines],
        lambda some: [f"{sum(one.count for one in some):,}", _sum(some, "bytes", unit)],
    )
    paths = [
        (_tensor_name(one), one.retaining_path) for one in shown if one.retaining_path is not None
    ]
    return "\n".join(
        [table, *(f"  retaining path of {name}: {clean(path)}" for name, path in paths)]
    )


def _tensor_name(group: HeldTensorGroup) -> str:
    return f"{clean(group.dtype)} [{', '.join(map(str, group.shape))}]"[:MAX_NAME_CHARACTERS]


def _shares(
    title: str, sizes: Sequence[tuple[tuple[str, ...], int]], total: int, most: int = MAX_ROWS
) -> str:
    """The sizes with their share of `total`, the first `most` of them one by one; empty ones are
    left out."""
    known = [entry for entry in sizes if entry[1]]
    if not known:
        return ""
    unit = unit_for([max(size for _, size in known)])

    def figures(some: Sequence[tuple[tuple[str, ...], int]]) -> list[str]:
        size = sum(size for _, size in some)
        return [format_figure(size, unit), f"{100 * size / total:.1f} %" if total else UNKNOWN]

    head = [title, *[""] * (len(known[0][0]) - 1), unit, "share"]
    return listed(head, known, lambda entry: entry[0], figures, most)


def listed(
    head: Sequence[str],
    items: Sequence[Any],
    names: Callable[[Any], Sequence[str]],
    figures: Callable[[Sequence[Any]], Sequence[str]] | None = None,
    most: int = MAX_ROWS,
) -> str:
    """A table with a row for each of the first items, and one for the others together, with their
    `figures`."""
    of = figures or (lambda _: [])
    rows = [[*names(item), *of([item])] for item in items[:most]]
    left = len(names(items[0])) if figures else 1
    if others := items[most:]:
        last = of(others)
        rows.append([f"{len(others)} more", *[""] * (len(head) - len(last) - 1), *last])
    return format_table(head, rows, left=left)


def _sum(records: Sequence[Any], field: str, unit: str) -> str:
    return format_figure(sum(getattr(one, field) for one in records), unit)


def _layers_of_workers(
    run: Run, selection: Selection, by_worker: Mapping[str, Run]
) -> Iterator[str]:
    """The layers of the selected device's worker, or of all workers, each model once."""
    workers = {"": with_layers_of(run, by_worker, selection.device)}
    if selection.device is None and len(by_worker) > 1:
        workers = dict(by_worker)
    models: dict[tuple[Layer, ...], tuple[LayerTable, list[str]]] = {}
    for worker, own in workers.items():
        table = table_at(own.layer_tables, selection.step)
        if table is not None:
            models.setdefault(table.layers, (table, []))[1].append(worker)
    for table, (first, *others) in list(models.values())[:MAX_MODELS]:
        more = f" and {len(others)} more" if others else ""
        yield (f"{shown_name(first)}{more}: " if len(models) > 1 else "") + _layers(table)
    if len(models) > MAX_MODELS:
        yield f"{len(models) - MAX_MODELS} more models: choose a worker's device with --device"


def _layers(table: LayerTable) -> str:
    totals = layer_totals(table)
    title = (
        f"layers from step {table.step} on: "
        f"{totals.trainable_layers} trainable with {format_bytes(totals.trainable_weight_bytes)}, "
        f"{totals.frozen_layers} frozen with {format_bytes(totals.frozen_weight_bytes)}"
    )
    if table.optimizer:
        title += f", optimizer {clean(table.optimizer)} with {format_bytes(totals.optimizer_bytes)}"
    heavy = sorted(
        (layer for layer in table.layers if layer.weight_bytes),
        key=lambda layer: -layer.weight_bytes,
    )
    if not heavy:
        return title
    unit = unit_for([heavy[0].weight_bytes])
    shown = listed(
        ["layer", "type", "", "parameters", f"weights {unit}", f"optimizer {unit}"],
        heavy,
        lambda one: [
            shown_name(one.path),
            clean(one.type)[:30],
            "trainable" if one.trainable else "frozen",
        ],
        lambda some: [
            f"{sum(one.parameters for one in some):,}",
            *(_sum(some, field, unit) for field in ("weight_bytes", "optimizer_bytes")),
        ],
    )
    return f"{title}\n\n{shown}"


def _activations(run: Run) -> str:
    described = sorted(
        describe_activations(run.activations), key=lambda entry: -int(entry["max_bytes"])
    )
    unit = unit_for([entry["max_bytes"] for entry in described])

    def cells(entry: Mapping[str, Any]) -> list[str]:
        most, last = (format_figure(entry[name], unit) for name in ("max_bytes", "last_bytes"))
        return [
            shown_name(entry["layer"]),
            most,
            str(entry["max_step"]),
            last,
            f"{entry['steps']:,}",
        ]

    head = ["recorded activations", f"highest {unit}", "at step", f"last {unit}", "steps"]
    return listed(head, described, cells)


def _known_name(text: str | None) -> str:
    return UNKNOWN if text is None else shown_name(text)


def shown_name(text: str) -> str:
    """A name that fits its column; a long path is cut at the front."""
    text = clean(text)
    return text if len(text) <= MAX_NAME_CHARACTERS else "…" + text[1 - MAX_NAME_CHARACTERS :]


# All devices and workers side by side.


def device_lines(compared: Mapping[str, Any]) -> list[str]:
    """Paragraphs on all devices together, from the object of `describe_devices`; none for a single
    device."""
    devices, workers = compared["devices"], compared["workers"]
    parts = [_worker_table(workers)] if len(workers) > 1 else []
    return parts + (
        list(filter(None, [_breakdown(devices), _together(compared)])) if len(devices) > 1 else []
    )


def _worker_table(workers: Sequence[Mapping[str, Any]]) -> str:
    def cells(worker: Mapping[str, Any]) -> list[str]:
        clock = worker["clock_offset_seconds"]
        steps = [worker[name] for name in ("first_step", "last_step")]
        return [
            clean(worker["worker"]) or UNKNOWN,
            str(worker["sessions"]),
            *(UNKNOWN if step is None else str(step) for step in steps),
            "yes" if worker["ended"] else "no",
            UNKNOWN if clock is None else f"{clock:+.3f}",
        ]

    head = ["worker", "sessions", "first step", "last step", "ended", "clock s"]
    stopped = [one for one in workers if one["stopped_early"]]
    first = sorted(workers, key=lambda one: one["stopped_early"] is None)
    table = listed(head, first, cells, most=MAX_WORKERS)
    return "\n".join([table, *(f"  {clean(one['stopped_early'])}." for one in stopped)])


def _breakdown(devices: Sequence[Mapping[str, Any]]) -> str:
    traced = [device for device in devices if device["breakdown"] is not None]
    if len(traced) < 2:
        return ""
    largest = sorted(traced, key=lambda device: -device["peak_bytes"])[:MAX_DEVICES]
    shown = [device for device in traced if device in largest]
    peaks = [device["breakdown"]["peak_bytes"] for device in shown]
    steps = [device["breakdown"]["step"] for device in shown]
    sizes: dict[Group, list[int]] = defaultdict(lambda: [0] * len(shown))
    for at, device in enumerate(shown):
        for part in device["breakdown"]["parts"]:
            sizes[part["category"], part["trainable"]][at] = part["bytes"]
    unit = unit_for(peaks)
    rows = [
        [category_name(*group), *(format_figure(size, unit) for size in sizes[group])]
        for group in sorted(sizes, key=lambda group: stack_order(*group), reverse=True)
        if any(sizes[group])
    ]
    rows.append(["total", *(format_figure(size, unit) for size in peaks)])
    at_steps = f"step {steps[0]}"
    if len(set(steps)) > 1:
        rows.append(["traced step", *map(str, steps)])
        at_steps = "their traced steps"
    left_out = ""
    if len(traced) > len(shown):
        left_out = f"; the {len(shown)} of {len(traced)} with the highest peaks"
    table = format_table(["", *(clean(device["device"]) for device in shown)], rows)
    return f"devices at {at_steps}, {unit} at the peak{left_out}:\n{table}"


def category_name(category: str, trainable: bool | None) -> str:
    unknown = ", frozen or trainable" if category == "weights" else ""
    return (
        category.replace("_", " ")
        + {True: ", trainable", False: ", frozen", None: unknown}[trainable]
    )


def _together(compared: Mapping[str, Any]) -> str:
    """Imbalance and sum of the devices that are compared; nothing on a single accelerator beside a
    CPU."""
    if compared["imbalance"] is None:
        return ""
    names = [device["device"] for device in compared["devices"]]
    whose = "the" if len(comparable(names)) == len(names) else "the accelerators'"
    size = format_bytes(compared["sum_peak_bytes"])
    sentences = [
        f"imbalance: {clean(compared['imbalance']['sentence'])}",
        f"sum of {whose} peaks: {size}, an upper bound of the sum at any step",
    ]
    return "\n".join(
        line for sentence in sentences for line in textwrap.wrap(sentence, 120, initial_indent="  ")
    )


# Sections: answers, pool, host memory and failed allocations. Texts of the run are not cleaned yet.


def pool_lines(device: str, history: PoolHistory, phase: Phase = "train") -> list[str]:
    """The pool of a device in spans of steps, and its growth; no lines if it is unknown."""
    if not history.spans:
        return []
    lines = [f"{device}, pool over {step_name(phase)}s:"]
    sentences = [_span_line(span) for span in history.spans] + list(history.sentences)
    left_out = len(sentences) - MAX_LINES
    if left_out > 0:
        lines.append(f"  {left_out} earlier lines are not shown")
    return lines + _wrapped(sentences[-MAX_LINES:])


def _wrapped(
    sentences: Iterable[str], first: str = "  ", following: str = "    ", **limits: Any
) -> list[str]:
    """The lines of sentences, with the indents of the first line of each and of the others;
    `limits` of a wrapper."""
    wrapper = textwrap.TextWrapper(120, first, following, break_long_words=False, **limits)
    return [line for sentence in sentences for line in wrapper.wrap(sentence)]


def _span_line(span: PoolSpan) -> str:
    steps, count = f"step {span.first_step}", ""
    if span.first_step != span.last_step:
        steps, count = f"steps {span.first_step} to {span.last_step}", f"{span.known_steps} "
    least, most = format_bytes(span.least_free_bytes), format_bytes(span.most_free_bytes)
    parts = [
        f"pool {format_bytes(span.pool_bytes)}",
        f"free {least if least == most else f'{least} to {most}'}",
    ]
    if span.least_largest_free_bytes is not None:
        parts.append(f"largest free chunk at least {format_bytes(span.least_largest_free_bytes)}")
    if span.most_fragmentation is not None:
        parts.append(f"fragmentation up to {100 * span.most_fragmentation:.0f} %")
    return f"{steps} ({count}{_WHEN[span.source]}): {', '.join(parts)}"


def host_lines(worker: str, summary: HostSummary) -> list[str]:
    resident, peak = format_bytes(summary.resident_bytes), format_bytes(summary.peak_bytes)
    sentences = [f"RSS {resident} at the last step, at most {peak} at step {summary.peak_step}"]
    if (state := summary.state) is not None:
        parts = " + ".join(
            f"{PART_NAMES[name]} {format_bytes(size)}"
            for name, size in state.parts.items()
            if size or name == "other_bytes"
        )
        sentences.append(f"step {state.step}: RSS {format_bytes(state.resident_bytes)} = {parts}")
    sentences.append(summary.sentence)
    return [f"{worker}, host memory:" if worker else "host memory:", *_wrapped(sentences)]


def oom_lines(oom: Oom) -> list[str]:
    size = format_bytes(oom.requested_bytes)
    head = f"{f'{oom.device}, ran out of memory {oom.place}'.rstrip()}: {size} requested"
    layer = oom.layer and f"layer {oom.layer}"
    requester = ", ".join(filter(None, (oom.op, oom.shape, layer, oom.line)))
    lines = [f"{head} by {requester}" if requester else head]
    lines += [f"  {oom.outcome}"] if oom.outcome else []
    lines.append(f"  verdict: {oom.verdict or UNKNOWN}. {oom.reason}".rstrip())
    figures = {
        "in use": oom.in_use_bytes,
        "free": oom.free_bytes,
        "largest free chunk": oom.largest_free_bytes,
        "pool": oom.pool_bytes,
        "capacity": oom.capacity_bytes,
    }
    lines.append(f"  {', '.join(f'{name} {format_bytes(one)}' for name, one in figures.items())}")
    inside = request_contents(oom)
    lines += [f"  {inside.sentence}"] if inside else []
    for title, ledger in (
        ("inside the request", oom.request_ledger),
        ("memory at failure", oom.ledger),
    ):
        lines += [f"  {title}, by layer and category:"] if ledger else []
        for row in ledger[:MAX_OWNERS]:
            owner = ", ".join(filter(None, (row.layer, row.category.replace("_", " "))))
            lines.append(f"    {format_bytes(row.bytes):>10}  {owner}")
        if others := ledger[MAX_OWNERS:]:
            size = format_bytes(sum(row.bytes for row in others))
            lines.append(f"    {size:>10}  {len(others)} more")
    if oom.fixes:
        lines.append("  possible fixes:")
    for fix in oom.fixes:
        word = {True: "fits", False: "fails", None: "estimate"}[fix.enough]
        lines.append(f"    {word:>10}  {fix.sentence}")
        lines += [f"                {line}" for line in (fix.code or "").splitlines()]
    lines.extend(f"  {sentence}" for sentence in oom.not_available)
    return lines


def answer_lines(device: str, answers: Sequence[Answer]) -> list[str]:
    width = max(map(len, QUESTIONS.values()))
    lines = [f"{device}:"]
    for answer in answers:
        marks = [_MARKS[answer.status], "inferred" if answer.source == "inferred" else ""]
        suffix = ", ".join(filter(None, marks))
        text = f"{answer.question:<{width}}  {answer.sentence}" + (f" ({suffix})" if suffix else "")
        indent = " " * (width + 4)
        lines += _wrapped([text], following="      ") + _wrapped(answer.details, indent, indent)
    return lines


# The summary: no terms of the allocator, and at most `SUMMARY_LINES` lines.


def summarize_run(
    run: Run,
    selection: Selection = EVERYTHING,
    by_worker: Mapping[str, Run] | None = None,
    after: Sequence[str] = (),
) -> str:
    """The device with the last failure, or else with the highest load, in few lines, of which
    `after` are the last."""
    devices, device = device_facts(run), shown_device(run, selection.device)
    absent = [] if devices else unrecorded_devices(run.notes)
    failed, lines = failure_of(run, device), [*absent, _title(run)]
    cause = [] if failed is None or not selection.includes(failed) else [_cause(failed)]
    every = () if device is None else answers(run, device, selection.phase, by_worker)
    growing = () if cause else (one.details for one in every if one.name == "growing")
    banner = " ".join(itertools.chain(*growing))
    found = [*cause, *(f"not read: {one}" for one in run.damage)]
    for one in run.findings:
        if not (banner and one.kind in _IN_BANNER and one.device == device):
            found.append(f"finding: {one.sentence}")
    if device is not None:
        lines[-1] += f", {device}" + (f" of {len(devices)} devices" if len(devices) > 1 else "")
        lines += _wrapped([clean(banner)], "", "  ")
        said = [dataclasses.replace(one, details=()) for one in every]
        if cause:  # which says what was free
            said = [one for one in said if one.name != "fragmented" and one.status != "unknown"]
        lines += [
            *answer_lines(device, said)[1:],
            "",
            *_largest_layers(run, device, selection, by_worker or {}),
        ]
        inside = None if failed is None else request_contents(failed)
        largest = inside or largest_layer(run, device, selection.phase or device_phase(run, device))
        place = _largest_place(run, device, selection)
        sums = () if place is None else _layer_sums(place).most_common(1)
        # Of a layer only if no other memory takes more than it.
        is_most = inside is not None or any(path is not None for path, _ in sums)
        if largest is not None and largest.tensors and selection.step is None and is_most:
            found.append(f"{largest.sentence.removesuffix('.')}.")
        compared = describe_devices(by_worker or {"": run}, selection.phase or main_phase(run))
        found += [f"{one['stopped_early']}." for one in compared["workers"] if one["stopped_early"]]
        found += [compared["imbalance"]["sentence"]] if compared["imbalance"] else []
    found += [f"note: {one}" for one in run.notes if one not in absent]
    for at, sentence in enumerate(found):
        room = SUMMARY_LINES - len(after) - len(lines) - (at + 1 < len(found))
        if room < 1:
            lines.append(f"{len(found) - at} more with --verbose")
            break
        lines += _wrapped([clean(sentence)], "", "  ", max_lines=room, placeholder=" …")
    return _cleaned([*lines, *after])


def shown_device(run: Run, wanted: str | None = None) -> str | None:
    """The wanted device, or that of a failure after which nothing was recorded, or the one with the
    highest load."""
    devices = {one.device: (one.peak_bytes, one.capacity_bytes) for one in device_facts(run)}
    failed = next(
        (oom.device for oom in reversed(run.ooms) if failure_of(run, oom.device) is not None), None
    )
    return wanted or failed or most_loaded(devices) or next(iter(devices), None)


def _cause(oom: Oom) -> str:
    op = (oom.op or "").rpartition("/")[-1]
    requester = ", ".join(
        filter(None, (oom.layer and f"layer {oom.layer}", op, oom.shape, oom.line))
    )
    size = "An unknown size" if oom.requested_bytes is None else format_bytes(oom.requested_bytes)
    kind = " of pinned host memory" if is_pinned(oom.device) else ""
    requested = f"{size}{kind} requested" + (f" by {requester}" if requester else "")
    free, largest = format_bytes(oom.free_bytes), format_bytes(oom.largest_free_bytes)
    beside = (oom.capacity_bytes or 0) - (oom.pool_bytes or oom.capacity_bytes or 0)
    pieces = f"{free}, at most {largest} in one" + (
        f", and {format_bytes(beside)} outside the pool" if beside else ""
    )
    causes = {
        "capacity": f"Not enough free memory: {free}.",
        "fragmentation": f"Free memory is in pieces: {pieces}.",
    }
    return f"{requested}. {causes.get(oom.verdict or '', oom.reason)}".rstrip()


def _largest_place(run: Run, device: str, selection: Selection) -> Oom | Snapshot | None:
    """The failure, or else the traced step with the highest peak; None without a breakdown."""
    failed = failure_of(run, device)
    if failed is not None and failed.ledger and selection.includes(failed):
        return failed
    own = (one for one in run.snapshots if one.device == device and selection.includes(one))
    return max(own, key=lambda one: one.in_use_bytes, default=None)


def _rows_of(place: Oom | Snapshot) -> tuple[LedgerRow, ...]:
    """The rows of a breakdown, with those inside the failed request."""
    return (*place.ledger, *(place.request_ledger if isinstance(place, Oom) else ()))


def _layer_sums(place: Oom | Snapshot) -> Counter[str | None]:
    return sums_by(_rows_of(place), lambda row: row.layer)


def _largest_layers(
    run: Run, device: str, selection: Selection, by_worker: Mapping[str, Run]
) -> list[str]:
    """The layers that hold most at the failure, or else in the traced step with the highest
    peak."""
    place = _largest_place(run, device, selection)
    if place is None:
        step = selection.step
        return [
            "No step has a breakdown."
            if step is None
            else _without_breakdown(run, device, selection, step)
        ]
    table = table_at(with_layers_of(run, by_worker, device).layer_tables, place.step)
    sums, categories = _layer_sums(place), Counter[str]()
    for row in _rows_of(place):
        categories[row.category.replace("_", " ")] += row.bytes if row.layer is None else 0
    mostly = max(categories, key=categories.__getitem__, default=UNKNOWN)
    layers = () if table is None else table.layers
    entries = [
        (
            (f"not tied to a layer, mostly {mostly}", "")
            if path is None
            else (shown_name(path), _trained(path, layers)),
            size,
        )
        for path, size in sums.most_common()
    ]
    most = SUMMARY_LAYERS + any(path is None for path, _ in sums.most_common(SUMMARY_LAYERS))
    is_failure = isinstance(place, Oom) or place.at_failure
    peak = "highest traced peak" if selection.step is None else "peak"
    title = f"memory at the {'failure' if is_failure else peak}"
    title += " with the request" if isinstance(place, Oom) and place.request_ledger else ""
    title += "" if place.step is None else f", step {place.step}"
    return _shares(title, entries, sum(sums.values()), most).split("\n")


def _trained(path: str, layers: Sequence[Layer]) -> str:
    """Whether the weights of a layer and of the layers inside it are trained."""
    flags = {
        one.trainable for one in layers if one.parameters and f"{one.path}/".startswith(f"{path}/")
    }
    if len(flags) > 1:
        return "partly frozen"
    return "".join("trainable" if flag else "frozen" for flag in flags)


def runs_table(
    runs: Mapping[str, Run], by_worker: Mapping[str, Mapping[str, Run]]
) -> tuple[str, str]:
    """A line for each run, and the name of the run to look at first, as in the list of the tab."""
    entries = []
    for name, run in runs.items():
        workers = by_worker[name]
        device = shown_device(run)
        facts = [one for one in device_facts(run) if one.device == device]
        sizes = [(one.peak_bytes, one.capacity_bytes) for one in facts] or [(None, None)]
        steps = f"{step_range(run).steps:,}"
        statuses = [_status(worker, own) for worker, own in workers.items()]
        entries.append(
            {
                "run": name,
                "status": worst(statuses, bool(run.damage)),
                "devices": device,
                "ended": run.ended is not False,
                "started": max(run.session_starts, default=0),
                "recorded_until": max(run.samples.wall_time, default=0),
                "cells": [device or UNKNOWN, steps, *map(format_bytes, sizes[0])],
            }
        )
    ranked = with_ranks(entries, time.time())
    rows = [[shown_name(one["run"]), one["status"], *one["cells"]] for one in ranked]
    table = format_table(["run", "status", "device", "steps", "peak", "capacity"], rows, left=3)
    return table, min(ranked, key=lambda one: int(one["rank"]))["run"]


def _status(worker: str, run: Run) -> RunStatus:
    return run_status(run, bool(growth_findings(worker, run) or host_findings(run)))
