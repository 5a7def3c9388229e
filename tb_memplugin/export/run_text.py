"""A run as text for the terminal. Pure."""

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tb_memplugin.analysis import (
    PART_NAMES,
    QUESTIONS,
    Answer,
    DeviceFacts,
    HostSummary,
    PoolHistory,
    PoolSpan,
    answers,
    describe_devices,
    device_facts,
    device_phase,
    host_summaries,
    layer_totals,
    main_phase,
    of_one_kind,
    pool_history,
    step_name,
    step_range,
    table_at,
)
from tb_memplugin.export.describe import EVERYTHING, Selection, describe_activations
from tb_memplugin.fit import demand_sentences, peak_demand
from tb_memplugin.schema import (
    UNKNOWN,
    HeldTensorGroup,
    Layer,
    LayerTable,
    Oom,
    Phase,
    Run,
    Snapshot,
    clean,
    format_bytes,
    format_figure,
    format_table,
    group_sums,
    stack_order,
    unit_for,
    unrecorded_devices,
    with_layers_of,
)

MAX_ROWS = 15
"""Printed rows of a long table; the others are summed in one row."""
MAX_NAME_CHARACTERS = 60
MAX_MODELS = 3
"""Most models of different workers whose layers are listed."""
MAX_DEVICES = 8
"""Most columns of the breakdown: the devices with the highest peaks."""
MAX_WORKERS = 20
"""Most rows of workers: those that stopped early, then the first ones."""
MAX_LINES = 12
"""Printed spans and sentences of the pool: the last ones."""
MAX_OWNERS = 12
"""Listed owners of memory at a failure; the others are summed in one line."""
_WEIGHTS = {False: "weights, frozen", True: "weights, trainable", None: "weights, frozen or trainable"}
_WHEN = {"measured": "measured at step end", "traced": "traced, at the peak", "failed": "at the failed allocation"}
_FRAGMENTATION = " (free bytes outside the largest free chunk)"
_MARKS = {"ok": "", "warning": "warning", "failed": "failed", "unknown": "unknown"}
_Item = TypeVar("_Item")


def format_run(run: Run, selection: Selection = EVERYTHING, by_worker: Mapping[str, Run] | None = None) -> str:
    """Answers, devices, breakdowns, pool, layers, failures, findings, gaps; `by_worker` is as in `describe_run`."""
    steps = step_range(run)
    span = f"{steps.steps:,} steps ({steps.first_step} to {steps.last_step})" if steps.steps else "no steps"
    sessions = f", {len(run.sessions)} sessions" if len(run.sessions) > 1 else ""
    workers = f", {len(run.workers)} workers" if len(run.workers) > 1 else ""
    # Why there are no devices comes first: nothing below is complete without them.
    absent = [] if device_facts(run) else unrecorded_devices(run.notes)
    parts = [*map(clean, absent), f"{clean(run.name)}: {span}{sessions}{workers}"]
    devices = [facts for facts in device_facts(run) if selection.device in (None, facts.device)]
    for facts in devices:
        lines = answer_lines(facts.device, answers(run, facts.device, selection.phase, by_worker))
        parts.append("\n".join(clean(line) for line in lines))
    if devices:
        parts.append(format_table(*device_table(run, devices)))
    if selection.device is None:
        parts.extend(device_lines(describe_devices(by_worker or {"": run}, selection.phase or main_phase(run))))
    for facts in devices:
        snapshots = _snapshots(run, facts.device, selection)
        if snapshots:
            # The selected one with the highest peak.
            parts.append(_snapshot_text(max(snapshots, key=lambda snapshot: snapshot.in_use_bytes)))
        elif selection.step is not None:
            parts.append(_without_breakdown(run, facts.device, selection, selection.step))
        phase = device_phase(run, facts.device)
        if selection.step is None and selection.phase in (None, phase):
            lines = pool_lines(_name(facts.device), pool_history(run, facts.device), phase)
            parts.extend(["\n".join(lines)] if lines else [])
        demand = peak_demand(run, facts.device) if selection.step is None and selection.phase is None else None
        if demand is not None:
            parts.append(
                "\n".join([f"{_name(facts.device)}, demand of the peak:", *_wrapped(demand_sentences(demand))])
            )
    if selection == EVERYTHING:
        for worker, summary in host_summaries(by_worker or {"": run}).items():
            parts.append("\n".join(clean(line) for line in host_lines(worker, summary)))
    parts.extend(_layers_of_workers(run, selection, by_worker or {}))
    if len(run.activations):
        parts.append(_activations(run))
    for oom in run.ooms:
        if selection.includes(oom):
            parts.append("\n".join(clean(line) for line in oom_lines(oom)))
    parts.extend(f"finding: {clean(sentence)}" for sentence in run.findings)
    parts.extend(f"note: {clean(note)}" for note in run.notes if note not in absent)
    parts.extend(f"damaged data: {clean(sentence)}" for sentence in run.damage)
    return "\n\n".join(parts)


def device_table(run: Run, devices: Sequence[DeviceFacts]) -> tuple[list[str], list[list[str]]]:
    failed = {oom.device for oom in run.ooms}
    unit = unit_for([size for facts in devices for size in (facts.peak_bytes, facts.capacity_bytes)])
    rows = []
    for facts in devices:
        peak, capacity, free, share = facts.peak_bytes, facts.capacity_bytes, None, UNKNOWN
        if peak is not None and capacity is not None:
            free = None if facts.device in failed else capacity - peak
            share = f"{100 * peak / capacity:.0f} %" if capacity else UNKNOWN
        step = UNKNOWN if facts.peak_step is None else str(facts.peak_step)
        figures = [format_figure(size, unit) for size in (peak, capacity, free)]
        rows.append([_name(facts.device), *figures, share, step, str(facts.snapshots)])
    head = ["device", f"peak {unit}", f"capacity {unit}", f"headroom {unit}", "used", "peak at step", "snapshots"]
    return head, rows


def _snapshots(run: Run, device: str, selection: Selection) -> list[Snapshot]:
    return [one for one in run.snapshots if one.device == device and selection.includes(one)]


def _without_breakdown(run: Run, device: str, selection: Selection, step: int) -> str:
    why = "not traced" if step in run.samples.step else "not recorded"
    others = [one.step for one in _snapshots(run, device, dataclasses.replace(selection, step=None))]
    nearest = min(others, key=lambda other: (abs(other - step), other), default=None)
    phase = "" if selection.phase is None else f" of phase {selection.phase}"
    found = f"No step{phase} has one." if nearest is None else f"The nearest{phase} is that of step {nearest}."
    return f"{_name(device)}: step {step} has no breakdown, it was {why}. {found}"


def _snapshot_text(snapshot: Snapshot) -> str:
    batch = None if snapshot.batch_size is None else f"batch size {snapshot.batch_size}"
    step = f"{snapshot.step} ({', '.join(filter(None, (snapshot.phase, snapshot.mode, batch)))})"
    if snapshot.at_failure:
        which, when = f"failed step {step}", "failed allocation"
    else:
        which, when = f"traced step {step}", "peak"
    title = f"{_name(snapshot.device)}, {which}: {format_bytes(snapshot.in_use_bytes)} in use at the {when}"
    owners: dict[tuple[str, str], int] = {}
    for row in snapshot.ledger:
        key = (_name(row.layer) if row.layer is not None else "not tied to a layer", row.category.replace("_", " "))
        owners[key] = owners.get(key, 0) + row.bytes
    replay, lines = snapshot.replay, [title, *_pool_text(snapshot)]
    if replay is not None:
        addresses = f"{replay.addresses:,} of {replay.of_addresses:,} addresses"
        lines.append(f"  replay: {addresses}, {replay.chunks:,} of {replay.of_chunks:,} chunks")
    categories = [
        ((_WEIGHTS[trainable] if category == "weights" else category.replace("_", " "),), size)
        for (category, trainable), size in reversed(group_sums(snapshot.ledger).items())  # from the top of the stack
    ]
    parts = [
        "\n".join(lines),
        _shares("by category", categories, snapshot.in_use_bytes),
        _shares("by layer and category", sorted(owners.items(), key=lambda entry: -entry[1]), snapshot.in_use_bytes),
        _held_tensors(snapshot.held_tensors),
    ]
    parts.extend(f"  {clean(sentence)}" for sentence in snapshot.not_available)
    return "\n\n".join(part for part in parts if part)


def _held_tensors(groups: Sequence[HeldTensorGroup]) -> str:
    """Tensors with a holder, largest groups first, and what is known of their origin and holders."""
    if not groups:
        return ""
    unit = unit_for([groups[0].bytes])
    has_lines = any(group.line is not None for group in groups[:MAX_ROWS])
    rows = _with_others(
        groups,
        lambda one: [_tensor_name(one), _known_name(one.held_by), *([_known_name(one.line)] if has_lines else [])],
        lambda some: [f"{sum(one.count for one in some):,}", format_figure(sum(one.bytes for one in some), unit)],
    )
    head = ["tensors", "held by", *(["made at"] if has_lines else []), "count", unit]
    paths = [
        f"  retaining path of {_tensor_name(group)}: {clean(group.retaining_path)}"
        for group in groups[:MAX_ROWS]
        if group.retaining_path is not None
    ]
    return "\n".join([format_table(head, rows, left=len(head) - 2), *paths])


def _tensor_name(group: HeldTensorGroup) -> str:
    return f"{clean(group.dtype)} [{', '.join(map(str, group.shape))}]"[:MAX_NAME_CHARACTERS]


def _pool_text(snapshot: Snapshot) -> list[str]:
    pool, rounding = snapshot.pool, snapshot.rounding_bytes
    lines = []
    if pool is not None and pool.pool_bytes:
        free, largest, other = pool.free_bytes, pool.largest_free_bytes, pool.other_free_bytes
        share = f"{100 * pool.in_use_bytes / pool.pool_bytes:.0f} %"
        lines.append(f"  pool {format_bytes(pool.pool_bytes)}, {share} in use, {format_bytes(free)} free")
        if largest is not None and other is not None and free:
            lines[-1] += f": largest chunk {format_bytes(largest)}, other chunks {format_bytes(other)}"
        known = UNKNOWN if snapshot.fragmentation is None else f"{100 * snapshot.fragmentation:.0f} %{_FRAGMENTATION}"
        lines.append(f"  fragmentation {known if free else 'undefined: the pool is full'}")
    if rounding is not None:
        lines.append(f"  rounding {format_bytes(rounding)} (allocated − requested)")
    return lines


def _shares(title: str, sizes: Sequence[tuple[tuple[str, ...], int]], total: int) -> str:
    """The first of `sizes` with their share of `total`, the others in one row; empty ones are left out."""
    ordered = [entry for entry in sizes if entry[1]]
    if not ordered:
        return ""
    width, unit = len(ordered[0][0]), unit_for([max(size for _, size in ordered)])

    def figures(some: Sequence[tuple[tuple[str, ...], int]]) -> list[str]:
        size = sum(size for _, size in some)
        return [format_figure(size, unit), f"{100 * size / total:.1f} %" if total else UNKNOWN]

    rows = _with_others(ordered, lambda entry: entry[0], figures)
    return format_table([title, *[""] * (width - 1), unit, "share"], rows, left=width)


def _with_others(
    items: Sequence[_Item], names: Callable[[_Item], Sequence[str]], figures: Callable[[Sequence[_Item]], Sequence[str]]
) -> list[list[str]]:
    """A row for each of the first items, and one for the others together."""
    rows = [[*names(item), *figures([item])] for item in items[:MAX_ROWS]]
    others = items[MAX_ROWS:]
    if others:
        last = figures(others)
        rows.append([f"{len(others)} more", *[""] * (len(rows[0]) - len(last) - 1), *last])
    return rows


def _layers_of_workers(run: Run, selection: Selection, by_worker: Mapping[str, Run]) -> Iterator[str]:
    """The layers of the selected device's worker, or of all workers, each model once."""
    tables = {"": table_at(with_layers_of(run, by_worker, selection.device).layer_tables, selection.step)}
    if selection.device is None and len(by_worker) > 1:
        tables = {worker: table_at(own.layer_tables, selection.step) for worker, own in by_worker.items()}
    workers: dict[tuple[Layer, ...], list[str]] = {}
    for worker, table in tables.items():
        if table is not None:
            workers.setdefault(table.layers, []).append(worker)
    for names in list(workers.values())[:MAX_MODELS]:
        (first, *_), table = names, tables[names[0]]
        if table is not None:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield (f"{_name(first)}{others}: " if len(workers) > 1 else "") + _layers(table)
    if len(workers) > MAX_MODELS:
        yield f"{len(workers) - MAX_MODELS} more models: choose a worker's device with --device"


def _layers(table: LayerTable) -> str:
    totals = layer_totals(table)
    title = (
        f"layers from step {table.step} on: "
        f"{totals.trainable_layers} trainable with {format_bytes(totals.trainable_weight_bytes)}, "
        f"{totals.frozen_layers} frozen with {format_bytes(totals.frozen_weight_bytes)}, "
        f"optimizer {clean(table.optimizer) if table.optimizer else 'none'} with {format_bytes(totals.optimizer_bytes)}"
    )
    heavy = sorted((layer for layer in table.layers if layer.weight_bytes), key=lambda layer: -layer.weight_bytes)
    if not heavy:
        return title
    unit = unit_for([heavy[0].weight_bytes])
    rows = _with_others(
        heavy,
        lambda one: [_name(one.path), clean(one.type)[:30], "trainable" if one.trainable else "frozen"],
        lambda some: [
            f"{sum(one.parameters for one in some):,}",
            format_figure(sum(one.weight_bytes for one in some), unit),
            format_figure(sum(one.optimizer_bytes for one in some), unit),
        ],
    )
    head = ["layer", "type", "", "parameters", f"weights {unit}", f"optimizer {unit}"]
    return f"{title}\n\n{format_table(head, rows, left=3)}"


def _activations(run: Run) -> str:
    described = sorted(describe_activations(run.activations), key=lambda entry: -int(entry["max_bytes"]))
    unit = unit_for([entry["max_bytes"] for entry in described])
    rows = _with_others(
        described,
        lambda entry: [
            _name(entry["layer"]),
            format_figure(entry["max_bytes"], unit),
            str(entry["max_step"]),
            format_figure(entry["last_bytes"], unit),
            f"{entry['steps']:,}",
        ],
        lambda _: [],
    )
    return format_table(["recorded activations", f"highest {unit}", "at step", f"last {unit}", "steps"], rows)


def _known_name(text: str | None) -> str:
    return UNKNOWN if text is None else _name(text)


def _name(text: str) -> str:
    """A name that fits its column; a long path is cut at the front."""
    text = clean(text)
    return text if len(text) <= MAX_NAME_CHARACTERS else "…" + text[1 - MAX_NAME_CHARACTERS :]


# All devices and workers side by side.


def device_lines(compared: Mapping[str, Any]) -> list[str]:
    """Paragraphs on all devices together, from the object of `describe_devices`; none for a single device."""
    devices, workers = compared["devices"], compared["workers"]
    parts = []
    if len(workers) > 1:
        parts.append(_worker_table(workers))
    if len(devices) > 1:
        parts.extend(filter(None, [_breakdown(devices), _together(compared)]))
    return parts


def _worker_table(workers: Sequence[Mapping[str, Any]]) -> str:
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
    suffixes = {True: ", trainable", False: ", frozen", None: ""}
    rows = [
        [group[0].replace("_", " ") + suffixes[group[1]], *(format_figure(one.get(group, 0), unit) for one in columns)]
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


def _wrapped(sentences: Iterable[str], first: str = "  ", following: str = "    ") -> list[str]:
    """The lines of sentences, with the indents of the first line of each and of the others."""
    wrapper = textwrap.TextWrapper(120, initial_indent=first, subsequent_indent=following, break_long_words=False)
    return [line for sentence in sentences for line in wrapper.wrap(sentence)]


def _span_line(span: PoolSpan) -> str:
    steps, count = f"step {span.first_step}", ""
    if span.first_step != span.last_step:
        steps, count = f"steps {span.first_step} to {span.last_step}", f"{span.known_steps} "
    least, most = format_bytes(span.least_free_bytes), format_bytes(span.most_free_bytes)
    parts = [f"pool {format_bytes(span.pool_bytes)}", f"free {least if least == most else f'{least} to {most}'}"]
    if span.least_largest_free_bytes is not None:
        parts.append(f"largest free chunk at least {format_bytes(span.least_largest_free_bytes)}")
    if span.most_fragmentation is not None:
        parts.append(f"fragmentation up to {100 * span.most_fragmentation:.0f} %")
    return f"{steps} ({count}{_WHEN[span.source]}): {', '.join(parts)}"


def host_lines(worker: str, summary: HostSummary) -> list[str]:
    resident, peak, state = format_bytes(summary.resident_bytes), format_bytes(summary.peak_bytes), summary.state
    sentences = [f"RSS {resident} at the last step, at most {peak} at step {summary.peak_step}"]
    if state is not None:
        sizes = {name: size for name, size in state.parts.items() if size or name == "other_bytes"}
        parts = " + ".join(f"{PART_NAMES[name]} {format_bytes(size)}" for name, size in sizes.items())
        sentences.append(f"step {state.step}: RSS {format_bytes(state.resident_bytes)} = {parts}")
    sentences.append(summary.sentence())
    return [f"{worker}, host memory:" if worker else "host memory:", *_wrapped(sentences)]


def oom_lines(oom: Oom) -> list[str]:
    where = f" {oom.place}".rstrip()
    head = f"{oom.device}, ran out of memory{where}: {format_bytes(oom.requested_bytes)} requested"
    requester = ", ".join(text for text in (oom.op, oom.shape, oom.layer and f"layer {oom.layer}", oom.line) if text)
    lines = [f"{head} by {requester}" if requester else head]
    if oom.outcome:
        lines.append(f"  {oom.outcome}")
    lines.append(f"  verdict: {oom.verdict or UNKNOWN}. {oom.reason}".rstrip())
    figures = (
        ("in use", oom.in_use_bytes),
        ("free", oom.free_bytes),
        ("largest free chunk", oom.largest_free_bytes),
        ("pool", oom.pool_bytes),
        ("capacity", oom.capacity_bytes),
    )
    lines.append("  " + ", ".join(f"{name} {format_bytes(size)}" for name, size in figures))
    if oom.ledger:
        lines.append("  memory at failure, by layer and category:")
    for row in oom.ledger[:MAX_OWNERS]:
        owner = ", ".join(filter(None, (row.layer, row.category.replace("_", " "))))
        lines.append(f"    {format_bytes(row.bytes):>10}  {owner}")
    others = oom.ledger[MAX_OWNERS:]
    if others:
        lines.append(f"    {format_bytes(sum(row.bytes for row in others)):>10}  {len(others)} more")
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
