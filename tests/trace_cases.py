"""Traces of small steps made by hand, and what was known of their program."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tb_memplugin.attribution import AttributedStep
from tb_memplugin.schema import AllocationTrace, GraphFacts, Intervals, OpFact, Snapshot, TraceFacts

ACTIONS = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 100_000)), min_size=1, max_size=60)
"""Slots and sizes for `any_step`."""
LIMIT = 1 << 30


class Recorder:
    """Writes down what an allocator and an executor would have done, one event a microsecond."""

    def __init__(self, start: int = 0) -> None:
        self.start, self.in_use, self.time = start, start, 0
        self.strings: dict[str, int] = {}
        self.rows: list[tuple[int, ...]] = []
        self.executions: list[tuple[int, int, int, int]] = []

    def _text(self, text: str | None) -> int:
        return -1 if text is None else self.strings.setdefault(text, len(self.strings))

    def run(
        self,
        op: str,
        allocate: Any = (),
        free: Any = (),
        region: str | None = "output",
        asker: str | None = None,
    ) -> None:
        """One op: allocates (address, bytes) while it runs, as itself or as `asker`, and drops
        inputs right after."""
        self.time += 1
        begin = self.time
        for address, size in allocate:
            self.event(1, address, size, asker or op, region)
        self.executions.append((0, begin, self.time, self._text(f"{op}:Type")))
        self.time += 1
        for address, size in free:
            self.event(-1, address, size)

    def runs(self, text: str) -> "Recorder":
        """Ops in order, such as ``a +1000:4096, da +2000:512 -1000``: each allocates at addresses
        (hexadecimal) so many bytes, and frees what it allocated there, or so many bytes from before
        the step."""
        for one in text.split(", "):
            op, *changes = one.split()
            made: dict[str, list[tuple[int, int]]] = {"+": [], "-": []}
            for change in changes:
                place, _, size = change[1:].partition(":")
                address = int(place, 16)
                known = next((row[4] for row in reversed(self.rows) if row[1:3] == (1, address)), 0)
                own = next((size for at, size in made["+"] if at == address), known)
                made[change[0]].append((address, int(size) if size else own))
            self.run(op, made["+"], made["-"])
        return self

    def overlapping(self, op: str, allocate: Any, lasts: int) -> None:
        """One op that allocates on a thread of its own and ends long after the next ones began."""
        self.time += 1
        self.executions.append((1, self.time, self.time + lasts, self._text(f"{op}:Type")))
        for address, size in allocate:
            self.event(1, address, size, op, "output")

    def event(
        self,
        kind: int,
        address: int,
        size: int,
        op: str | None = None,
        region: str | None = None,
        allocated: int | None = None,
    ) -> None:
        """One event; the chunk is the rounded request unless `allocated` is given."""
        self.time += 1
        allocated = -(-size // 256) * 256 if allocated is None else allocated
        self.in_use += kind * allocated
        available = LIMIT - self.in_use
        row = (
            self.time,
            kind,
            address,
            allocated,
            size,
            self._text(op),
            self._text(region),
            self.in_use,
            available,
        )
        self.rows.append(row)

    def trace(self, missed: int = 0) -> AllocationTrace:
        columns = np.asarray(self.rows, np.int64).T
        none = np.full(len(self.rows), -1)
        empty = Intervals(*(np.zeros(0, np.int64) for _ in range(4)))
        names = (
            "time_ps",
            "kind",
            "address",
            "allocated",
            "requested",
            "op",
            "region",
            "in_use",
            "available",
        )
        return AllocationTrace(
            **dict(zip(names, columns, strict=True)),
            device="GPU:0",
            allocator="GPU_0_bfc",
            shape=none,
            dtype=none,
            fragmentation=np.full(len(self.rows), math.nan),
            thread=np.zeros(len(self.rows), np.int64),
            strings=tuple(self.strings),
            ops=Intervals(*np.asarray(self.executions, np.int64).T) if self.executions else empty,
            calls=empty,
            layers=empty,
            threads=("executor",),
            start_in_use=self.start,
            missed=missed,
        )


def attributed(trace: AllocationTrace, facts: TraceFacts) -> AttributedStep:
    return AttributedStep(trace, facts, step=0, phase="train", wall_time=0.0)


def ledger_of(trace: AllocationTrace, facts: TraceFacts) -> Snapshot:
    return attributed(trace, facts).snapshot


def rows(snapshot: Snapshot) -> dict[tuple[str | None, str], int]:
    return {(row.layer, row.category): row.bytes for row in snapshot.ledger}


def graph(**ops: OpFact) -> tuple[GraphFacts, ...]:
    return (
        GraphFacts(
            "train", {name.replace("__", "/"): fact for name, fact in ops.items()}, {}, True
        ),
    )


FORWARD_A = OpFact("m/a", "forward", saved_for_backward=True)
FORWARD_B = OpFact("m/b", "forward")
BACKWARD = OpFact("m/a", "backward")
GRADIENT = OpFact("m/a", "backward", is_gradient=True, gradient_of="m/a")
FACTS = TraceFacts(
    trainable={"m": True, "m/a": True, "m/b": False},
    graphs=graph(a=FORWARD_A, b=FORWARD_B, da=BACKWARD, dw=GRADIENT),
)


def one_step(start: int = 0) -> Recorder:
    # The result of b dies before the backward pass.
    return Recorder(start).runs(
        "a +1000:4096, b +9000:8192, a -9000, da +20000:16384, dw +30000:1000 -1000 -20000 -30000"
    )


def any_step(actions: list[tuple[int, int]], start: int) -> Recorder:
    """A step of any ops: each action allocates in its slot, or frees what lies there."""
    step = Recorder(start)
    live: dict[int, int] = {}
    for slot, size in actions:
        address = 0x1000000 * (slot + 1)
        if address in live:
            step.run("b", [], [(address, live.pop(address))])
        else:
            step.run(("a", "b", "da", "dw", "unknown")[slot % 5], [(address, size)])
            live[address] = size
    return step


FLOAT, INT64, STRING = 1, 9, 7


def with_shapes(trace: AllocationTrace, shapes: Mapping[int, tuple[str, int]]) -> AllocationTrace:
    strings, shape, dtype = list(trace.strings), trace.shape.copy(), np.zeros(len(trace), np.int64)
    for event, (text, number) in shapes.items():
        shape[event], dtype[event] = len(strings), number
        strings.append(text)
    return dataclasses.replace(trace, strings=tuple(strings), shape=shape, dtype=dtype)
