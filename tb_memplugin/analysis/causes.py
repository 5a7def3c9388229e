"""What makes memory grow: counters of the program that grew over the same steps, if their numbers
explain it. Pure.

Counters with bytes explain a growth of about these bytes. Traces and compilations have no bytes of
their own: they are a cause if they went on steadily, no bytes explain the growth, and each of them
added a size that a function may have.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.analysis.trend import Trend
from tb_memplugin.schema import (
    MISSING,
    NO_COUNTERS,
    CounterKind,
    Counters,
    Integers,
    Run,
    counted,
    format_bytes,
)

_PARTS = 3


class CounterGrowth(NamedTuple):
    """The change of one counter over a span of steps; the bytes are those at the end. It is steady
    if it grew in each third of the span by at least half as much as on average. `steps` are those
    at whose end it grew, None if fewer rises are recorded than half of `added`."""

    kind: CounterKind
    name: str | None
    added: int
    added_bytes: int | None
    bytes: int | None
    steady: bool
    steps: Integers | None


def counters_of(run: Run, device: str) -> tuple[Counters, str]:
    """The counters of the last session that recorded a device, and the device's name in them."""
    worker, _, own = device.rpartition("/")
    found = [counters for counters in run.counters if counters.worker == worker]
    return [NO_COUNTERS, *found][-1], own


def rows_by_counter(counters: Counters) -> dict[tuple[CounterKind, str | None], list[int]]:
    rows: dict[tuple[CounterKind, str | None], list[int]] = {}
    for at, key in enumerate(zip(counters.kind, counters.name, strict=True)):
        rows.setdefault(key, []).append(at)
    return rows


def _growths(counters: Counters, first_step: int, last_step: int) -> Iterator[CounterGrowth]:
    """The change of every counter from the end of `first_step` to that of `last_step`."""
    edges = np.linspace(first_step, last_step, _PARTS + 1)
    for (kind, name), of_key in rows_by_counter(counters).items():
        rows = np.asarray(of_key)[np.argsort(counters.step[of_key], kind="stable")]
        steps, every = counters.step[rows], counters.count[rows]
        upto = np.searchsorted(steps, edges, side="right")  # rows before the edges: 0 is none
        counts, sizes = np.append(0, every)[upto], np.append(0, counters.bytes[rows])[upto]
        added, last_bytes = int(counts[-1] - counts[0]), int(sizes[-1])
        inside = (steps > first_step) & (steps <= last_step)
        rises = steps[inside & (np.diff(every, prepend=0) > 0)]
        yield CounterGrowth(
            kind=kind,
            name=name,
            added=added,
            added_bytes=None if (sizes == MISSING).any() else last_bytes - int(sizes[0]),
            bytes=None if last_bytes == MISSING else last_bytes,
            steady=bool(added > 0 and (2 * _PARTS * np.diff(counts) >= added).all()),
            steps=rises if 2 * len(rises) >= added else None,
        )


CauseKind: TypeAlias = Literal[
    "models_alive",
    "models_unreachable",
    "models_gone",
    "optimizers_replaced",
    "dataset_cache",
    "kept_arrays",
    "kept_iterators",
    "kept_tensors",
    "compilation",
    "retracing",
]

_HOST = "CPU:0"
FUNCTION_KINDS: tuple[CounterKind, ...] = ("compiled_shapes", "traces")
EXPLAINED = (0.6, 1.5)  # least and largest ratio of a cause's bytes to the growth
MIN_ITERATORS = 3  # fewer kept iterators are no cause
# fewer traces or compilations in the steps of a trend, or per step, are no cause
MIN_COUNT, MIN_STEP_SHARE = 10, 0.02
# least and largest growth for each trace or compilation of a function
FUNCTION_BYTES = (4 << 10, 64 << 20)


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why memory grows: a text to follow "Cause: ", a short one, and how many models, datasets,
    compilations or traces of how many bytes were added; None if unknown."""

    kind: CauseKind
    text: str
    short: str
    count: int
    bytes: int | None


def cause_of(run: Run, device: str, trend: Trend, functions: bool) -> Cause | None:
    """The cause of a trend of a device's memory, with `functions` also these; None if the counters
    do not tell it."""
    counters, own = counters_of(run, device)
    found = list(_growths(counters, trend.since_step, trend.last_step))
    cause = _models(counters, found, own, trend.added_bytes, trend.to_bytes)
    if own == _HOST:
        cause = cause or _cached(found, trend) or _kept_iterators(counters)
    cause = cause or _kept_tensors(counters, trend)
    return cause or (_functions(found, trend) if functions else None)


def host_cause_of(run: Run, trend: Trend, steps: Integers, resident: Integers) -> Cause | None:
    """The cause of a trend of a worker's host RSS (`resident`, bytes at `steps`) beyond the memory
    in use on ``CPU:0``; None if unknown."""
    counters = [NO_COUNTERS, *run.counters][-1]
    found = list(_growths(counters, trend.since_step, trend.last_step))
    cause = _kept_arrays(counters, trend)
    # What its variables and batches take on a recorded CPU is no part of this trend.
    if not any(device.rpartition("/")[2] == _HOST for device in run.samples.devices):
        cause = cause or _models(counters, found, _HOST, trend.added_bytes)
        cause = cause or _cached(found, trend) or _kept_iterators(counters)
    if cause is not None:
        return cause
    rises = np.diff(resident, prepend=resident[:1])
    inside = (steps > trend.since_step) & (steps <= trend.last_step)
    # Host RSS rises in the steps in which the counter grew, rather than in the others.
    coinciding = [
        one
        for one in found
        if one.steps is None
        or 2 * rises[inside & np.isin(steps, one.steps)].sum() >= rises[inside].sum()
    ]
    return _functions(coinciding, trend)


def cause_of_models(counters: Counters, device: str, left_bytes: float, until: int) -> Cause | None:
    """The models that earlier sessions of the process, the last of which was told at the step
    `until`, left in memory; None if most of it is something else."""
    found = list(_growths(counters, -1, until))
    return _models(counters, found, device, left_bytes, left_bytes)


def _kept_arrays(counters: Counters, trend: Trend) -> Cause | None:
    for name, since, steps, count, added in _by_holder(counters, "kept_arrays"):
        if steps > 0 and count > 0 and _explains(added / steps, trend.bytes_per_step):
            arrays = f"{counted(count, 'NumPy array')} ({format_bytes(added)})"
            text = f"{name} keeps {arrays} more than at step {since}"
            return Cause("kept_arrays", text, f"NumPy arrays in {name}", count, added)
    return None


def _kept_tensors(counters: Counters, trend: Trend) -> Cause | None:
    for name, since, steps, count, added in _by_holder(counters, "kept_tensors"):
        if steps > 0 and added > 0 and _explains(added / steps, trend.bytes_per_step):
            text = f"{name} keeps {format_bytes(added)} of tensors more than at step {since}"
            return Cause("kept_tensors", text, f"tensors in {name}", count, added)
    return None


def _kept_iterators(counters: Counters) -> Cause | None:
    """The holder of more and more iterators over data sets, each of which has buffers."""
    for name, since, _, count, _ in _by_holder(counters, "kept_iterators"):
        if count >= MIN_ITERATORS:
            text = f"{name} keeps {count} iterators over data sets more than at step {since}"
            text += ", each with its buffers"
            return Cause("kept_iterators", text, f"iterators in {name}", count, None)
    return None


def _by_holder(counters: Counters, kind: CounterKind) -> Iterator[tuple[str, int, int, int, int]]:
    """Holders, the first step at which each was among those of the most; and the steps, the count
    and the bytes that were added until it had most."""
    columns = (counters.step, counters.count, counters.bytes)
    for (one, name), of_name in rows_by_counter(counters).items():
        rows = [at for at in of_name if counters.count[at] > 0] if one == kind else []
        if name is not None and rows:
            most = max(rows, key=lambda at: (counters.bytes[at], counters.count[at]))
            steps, count, added = (int(column[most] - column[rows[0]]) for column in columns)
            yield name, int(counters.step[rows[0]]), steps, count, added


def _explains(size: float, whole: float) -> bool:
    least, most = EXPLAINED
    return least * whole <= size <= most * whole


def what_collecting_frees(size: int, in_use_bytes: float) -> str:
    """A clause on the bytes that Python's garbage collector would free. On the CPU, a weight may
    lie in the memory of a NumPy array, which the allocator does not know: no more than what is in
    use is freed there."""
    most = "" if size <= in_use_bytes else "up to "
    return f"`gc.collect()` frees {most}{format_bytes(int(min(size, in_use_bytes)))}"


def _models(
    counters: Counters,
    found: Sequence[CounterGrowth],
    device: str,
    whole: float,
    in_use_bytes: float = math.inf,
) -> Cause | None:
    """Models that exist, that wait for Python's garbage collector, or that left their variables
    behind."""
    here = {one.kind: one for one in found if one.name == device}
    replaced = here.get("optimizers_replaced")
    if replaced is not None and _explains(replaced.added_bytes or 0, whole):
        return _optimizers(replaced, _most_often(found, "traces"))
    kinds: tuple[CauseKind, ...] = ("models_unreachable", "models_gone", "models_alive")
    models = {kind: here[kind] for kind in kinds if kind in here}
    size = sum(one.added_bytes or 0 for one in models.values())
    if not _explains(size, whole):
        return None
    for kind, one in models.items():
        own = one.added_bytes or 0
        if one.added <= 0 if kind == "models_alive" else 2 * own <= size:
            continue
        short, text = "not freed", "that were built and not freed"
        if kind == "models_unreachable":
            short, frees = (
                "wait for Python's garbage collector",
                what_collecting_frees(own, in_use_bytes),
            )
            text = f"that can no longer be reached but {short}; {frees}"
        elif kind == "models_gone":
            text = "that no longer exist but whose variables were not freed"
            slots = here.get("slots_without_model")
            if slots is not None and slots.added > 0:
                text += f"; {counted(slots.added, 'optimizer')} of them still exist"
        elif (holder := _holder_of_models(counters, own)) is not None:
            return holder
        name = counted(one.added, "model")
        text = f"{name} ({format_bytes(own)}) {text}"
        return Cause(kind, text, f"{name} {short}", one.added, one.added_bytes)
    return None


def _holder_of_models(counters: Counters, whole: int) -> Cause | None:
    """What keeps most of the models that were added; None if that is unknown."""
    rows = [at for at, kind in enumerate(counters.kind) if kind == "kept_models"]
    most = max(rows, key=lambda at: int(counters.bytes[at]), default=None)
    if most is None or 2 * counters.bytes[most] < whole:
        return None
    holder, count, size = counters.name[most], int(counters.count[most]), int(counters.bytes[most])
    name = counted(count, "earlier model")
    text = f"{name} ({format_bytes(size)}) kept alive by {holder}"
    if " of History " in f"{holder} ":
        text += ". Keep `history.history` instead of the History, which refers to its model"
    return Cause("models_alive", text, f"{name} in {holder}", count, size)


def _optimizers(replaced: CounterGrowth, traces: CounterGrowth | None) -> Cause:
    """Optimizers that were replaced for the same model, and the function that was traced most
    often."""
    name = counted(replaced.added, "replaced optimizer")
    text = f"slots of {name} ({format_bytes(replaced.added_bytes or 0)}), which TensorFlow keeps "
    text += "with each `tf.function` that it traced for one"
    if traces is not None and 2 * traces.added >= replaced.added:
        text += f": `{traces.name}` was traced {traces.added:,} times"
    text += ". Make the function and its optimizer once (in Keras: compile once), and assign its "
    text += "`learning_rate`"
    return Cause(
        "optimizers_replaced", text, f"slots of {name}", replaced.added, replaced.added_bytes
    )


def _cached(found: Iterable[CounterGrowth], trend: Trend) -> Cause | None:
    """A dataset that is cached in memory while its elements are read."""
    size = next((one.bytes for one in found if one.kind == "dataset_caches"), None)
    if not size or not _explains(size, trend.bytes_per_step):
        return None
    text = f"the dataset is cached in memory, {format_bytes(size)} for each batch"
    return Cause("dataset_cache", text, "dataset cache", 1, size)


def _functions(found: Sequence[CounterGrowth], trend: Trend) -> Cause | None:
    """The function that was compiled most often, or else the one that was traced most often."""
    least, most = FUNCTION_BYTES
    few = max(MIN_COUNT, MIN_STEP_SHARE * (trend.last_step - trend.since_step))
    for kind in FUNCTION_KINDS:
        one = _most_often(found, kind)
        if one is None or not one.steady or one.added < few:
            continue
        if not least * one.added <= trend.added_bytes <= most * one.added:
            continue
        times = f"{one.added:,} times since step {trend.since_step}"
        name: CauseKind = "compilation"
        text = f"XLA compiled `{one.name}` {times}, for different arguments"
        if kind == "traces":
            name, text = "retracing", f"`{one.name}` was traced {times}"
        return Cause(name, text, f"{name} of {one.name}", one.added, None)
    return None


def _most_often(found: Iterable[CounterGrowth], kind: CounterKind) -> CounterGrowth | None:
    return max((one for one in found if one.kind == kind), key=lambda one: one.added, default=None)


def retracing_of(run: Run, device: str) -> str | None:
    """A sentence on the function that was traced most often where a device was recorded; None for
    once or never."""
    counters, _ = counters_of(run, device)
    if not len(counters):
        return None
    most = _most_often(_growths(counters, -1, int(counters.step.max())), "traces")
    if most is None or most.added < 2:
        return None
    return f"`{most.name}` was traced {most.added:,} times."
