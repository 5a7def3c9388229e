"""Backward ops that TensorFlow's graph optimizer made independent of gradients. Pure.

The optimizer regroups products: it computes ``gradient * (3 * x ** 2)`` instead of ``(gradient * 3) * x ** 2``, and
``3 * x ** 2`` then runs in the forward pass under the name of ``gradient * 3``. Such an op runs before ops that
it needs in the traced graph.
"""

from collections.abc import Iterator

import numpy as np

from tb_memplugin.attribution.op_names import OpNames
from tb_memplugin.model import Integers
from tb_memplugin.model.distinct import distinct
from tb_memplugin.model.trace import AllocationTrace

Span = tuple[int, int]
"""Times in picoseconds at which an op's first and last execution began."""


def reordered_ops(trace: AllocationTrace, names: OpNames) -> set[str]:
    """Names of the backward ops that began before all ops that they depend on in the traced graph.

    All, because the optimizer moves casts behind ops that depend on them. Both the first and the last executions count,
    as a trace may begin or end within a step.
    """
    began = _began(trace, names)
    reordered: set[str] = set()
    earliest: dict[str, Span | None] = {}  # an op's own span, or that of an op that it depends on
    pending = list(began)
    while pending:
        name = pending[-1]
        inputs = [source for source in names.gradient_inputs(name) if _depends_on_gradients(names, source)]
        unknown = [source for source in inputs if source not in earliest] if name not in earliest else []
        earliest.setdefault(name, None)  # ends a cycle of ops
        if unknown:
            pending += unknown
            continue
        pending.pop()
        spans = [span for span in (earliest[source] for source in inputs) if span is not None]
        own = began.get(name)
        if own is not None and spans and _before(own, _earliest(spans)):
            reordered.add(name)
        elif own is not None:
            spans.append(own)
        earliest[name] = _earliest(spans) if spans else None
    return reordered


def _earliest(spans: list[Span]) -> Span:
    return min(first for first, _ in spans), min(last for _, last in spans)


def _before(one: Span, other: Span) -> bool:
    return one[0] < other[0] and one[1] < other[1]


def _depends_on_gradients(names: OpNames, name: str) -> bool:
    fact = names.fact(name)
    return fact is not None and fact.pass_name == "backward" and not fact.early


def _began(trace: AllocationTrace, names: OpNames) -> dict[str, Span]:
    """Backward op that depends on gradients to when it began; on accelerators, where that is not seen, it allocated."""
    born = (trace.kind == 1) & (trace.op >= 0)
    executed = {names.executed[index]: span for index, span in _spans(trace.ops.name, trace.ops.start_ps)}
    allocated = {trace.strings[index]: span for index, span in _spans(trace.op[born], trace.time_ps[born])}
    found = [
        {name: span for name, span in spans.items() if _depends_on_gradients(names, name)}
        for spans in (executed, allocated)
    ]
    return found[0] or found[1]


def _spans(keys: Integers, times: Integers) -> Iterator[tuple[int, Span]]:
    """Each key with its first and last time."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    for key in distinct(keys).tolist():
        begin, end = np.searchsorted(keys, key), np.searchsorted(keys, key, side="right")
        yield key, (int(times[begin]), int(times[end - 1]))
