"""A small training with the requests of its steps, made by running a program on the simulator of
the allocator."""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
from reading_cases import DEVICE, MIB, START, make_layer, make_samples

from tb_memplugin.allocator import PoolRules, Simulator
from tb_memplugin.schema import (
    MISSING,
    Category,
    ChunkOwner,
    LayerTable,
    LedgerRow,
    MemoryMap,
    Oom,
    Snapshot,
    StepRequests,
    rounding_total,
    split_rounding,
)
from tb_memplugin.storage.write import RunWriter

CAPACITY = 256 * MIB
BATCH = 4
LAYERS = (
    ("net/conv1", False, 90_000, 1_500_000),
    ("net/conv2", True, 500_000, 900_000),
    ("net/head", True, 40_000, 400),
)
"""Path, whether it is trained, weights, and bytes of its output for one example."""
LARGE = (
    *((f"net/dense{number}", True, 2_000_000, 400) for number in range(4)),
    ("net/head", True, 1_000, 400),
)
"""Such layers, whose weights and slots take most of the memory, so that gradients tell."""
TRACED = (0, 1, 3)
"""Steps whose requests are recorded; the first one makes Adam's slots."""


CHUNK = ("address", "allocated", "requested", "birth")
HandMade = tuple[tuple[str | None, Category, str, int, int, int], ...]
"""Layer, category, op, bytes, birth and death of each chunk of a step."""


THREE_LAYERS: HandMade = (  # layer, category, op, bytes, birth, death
    ("net/a", "activations", "net/a/Conv2D", 1024, 0, 9),
    ("net/b", "activations", "net/b/Relu", 2048, 1, 7),
    ("net/head", "activations", "net/head/MatMul", 8192, 2, 4),
    ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", 256, 3, 6),
    ("net/b", "activation_gradients", "gradient_tape/net/b/ReluGrad", 2048, 5, 10),
    ("net/a", "activation_gradients", "gradient_tape/net/a/Conv2D", 1024, 8, 11),
)
"""A step of three layers, of which the last one is not recomputed."""


def hand_made_requests(chunks: HandMade) -> StepRequests:
    """A traced step in graph mode, written chunk by chunk; every event is the birth or the death of
    one."""
    layers, categories, ops, sizes, births, deaths = zip(*chunks, strict=True)
    none, rows = np.zeros(0, np.int64), np.arange(len(chunks))
    return StepRequests(
        step=3,
        phase="train",
        device="CPU:0",
        wall_time=0.0,
        mode="graph",
        first=False,
        batch_size=4,
        capacity_bytes=None,
        events=2 * len(chunks),
        batch_power=np.ones(len(chunks), np.int64),
        address=np.cumsum([0, *sizes[:-1]]),
        allocated=np.asarray(sizes),
        requested=np.asarray(sizes),
        birth=np.asarray(births),
        death=np.asarray(deaths),
        owner=rows,
        op=rows,
        ops=ops,
        owners=tuple(ChunkOwner(*one, None) for one in zip(layers, categories, strict=True)),
        region_address=none,
        region_bytes=none,
        added_address=none,
        added_bytes=none,
    )


@dataclasses.dataclass
class _Chunk:
    address: int
    allocated: int
    requested: int
    owner: ChunkOwner
    birth: int
    death: int
    power: int = 0
    op: str | None = None


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced step: its requests, its snapshot, and its bytes in use when it ended."""

    requests: StepRequests
    snapshot: Snapshot
    in_use_bytes: int


class Program:
    """A training of some layers with Adam.

    Args:
        capacity: The allocator's limit.
        batch: Examples in a batch.
        grows: Whether the pool grows. Otherwise it is one region from the start.
        layers: Like `LAYERS`.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        batch: int = BATCH,
        *,
        grows: bool = True,
        layers: Sequence[tuple[str, bool, int, int]] = LAYERS,
    ) -> None:
        self._capacity, self._batch, self._layers = capacity, batch, layers
        self._simulator = Simulator(empty_pool(capacity), PoolRules(capacity, grows))
        self._alive: list[_Chunk] = []
        self._events = 0
        for path, trainable, parameters, _ in layers:
            self._request(4 * parameters, ChunkOwner(path, "weights", trainable))

    def step(self, step: int, *, first: bool = False, explored: int = 0) -> Traced:
        """Run a step, in which each forward op may first try an algorithm with so much scratch
        space."""
        started = self._simulator.map(empty_pool(self._capacity))
        for chunk in self._alive:
            chunk.birth, chunk.op = -1, None
        self._events = 0
        chunks = list(self._alive)
        temporary: list[_Chunk] = []
        trained: dict[str | None, bool] = {layer[0]: layer[1] for layer in self._layers}
        peak, at_peak = 0, list(chunks)

        def add(size: int, path: str | None, category: Category, power: int, op: str) -> _Chunk:
            nonlocal peak, at_peak
            trainable = trained.get(path)
            chunk = self._request(size, ChunkOwner(path, category, trainable), power, op)
            chunks.append(chunk)
            temporary.append(chunk)
            if self._simulator.in_use_bytes > peak:
                peak, at_peak = self._simulator.in_use_bytes, list(self._alive)
            return chunk

        if first:
            for path, trainable, parameters, _ in self._layers:
                for slot in ("m", "v") if trainable else ():
                    temporary.remove(
                        add(4 * parameters, path, "optimizer_state", 0, f"adam/{path}/{slot}")
                    )
        add(12_288 * self._batch, None, "inputs", 1, "input")
        for path, trainable, _, output in self._layers:
            if explored:
                scratch = add(explored, path, "workspace", 1, f"{path}/forward")
                other = add(1000, path, "workspace", 0, f"{path}/forward")
                self._free(scratch)
                self._free(other)
            add(
                output * self._batch,
                path,
                "activations" if trainable else "workspace",
                1,
                f"{path}/forward",
            )
        for path, _, parameters, output in [layer for layer in self._layers if layer[1]][::-1]:
            add(output * self._batch, path, "activation_gradients", 1, f"gradients/{path}/inputs")
            self._free(add(65_536 + 1000, path, "workspace", 0, f"gradients/{path}/scratch"))
            add(4 * parameters, path, "weight_gradients", 0, f"gradients/{path}/weights")
        for chunk in temporary:
            if chunk in self._alive:
                self._free(chunk)
        requests = self._requests(step, first, chunks, started, self._simulator.map(started))
        return Traced(requests, self._snapshot(step, peak, at_peak), self._simulator.in_use_bytes)

    def _request(
        self, size: int, owner: ChunkOwner, power: int = 0, op: str | None = None
    ) -> _Chunk:
        address = self._simulator.request(size)
        assert address is not None, "the program does not fit"
        allocated = {place: given for place, given, _ in self._simulator.chunks()}[address]
        chunk = _Chunk(address, allocated, size, owner, self._events, MISSING, power, op)
        self._events += 1
        self._alive.append(chunk)
        return chunk

    def _free(self, chunk: _Chunk) -> None:
        self._simulator.free(chunk.address)
        chunk.death = self._events
        self._events += 1
        self._alive.remove(chunk)

    def _requests(
        self, step: int, first: bool, chunks: list[_Chunk], started: MemoryMap, ended: MemoryMap
    ) -> StepRequests:
        owners = tuple(dict.fromkeys(chunk.owner for chunk in chunks))
        ops = tuple(sorted({chunk.op for chunk in chunks if chunk.op is not None}))
        added = ~np.isin(ended.region_address, started.region_address)

        def column(values: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
            return np.asarray(values, np.int64)

        return StepRequests(
            step=step,
            phase="train",
            device=DEVICE,
            wall_time=START + step / 2,
            mode="graph",
            first=first,
            batch_size=self._batch,
            capacity_bytes=self._capacity,
            events=self._events,
            **{name: column([getattr(chunk, name) for chunk in chunks]) for name in CHUNK},
            death=column(
                [self._events if chunk.death == MISSING else chunk.death for chunk in chunks]
            ),
            batch_power=column([chunk.power for chunk in chunks]),
            owner=column([owners.index(chunk.owner) for chunk in chunks]),
            op=column([-1 if chunk.op is None else ops.index(chunk.op) for chunk in chunks]),
            owners=owners,
            ops=ops,
            region_address=started.region_address,
            region_bytes=started.region_bytes,
            added_address=ended.region_address[added],
            added_bytes=ended.region_bytes[added],
        )

    def _snapshot(self, step: int, peak: int, at_peak: list[_Chunk]) -> Snapshot:
        rows = [
            LedgerRow(
                owner.layer,
                owner.category,
                owner.trainable,
                chunk.allocated,
                chunk.allocated - chunk.requested,
            )
            for chunk in at_peak
            for owner in [chunk.owner]
        ]
        ledger = split_rounding(sorted(rows, key=lambda row: -row.bytes))
        return Snapshot(
            step=step,
            phase="train",
            device=DEVICE,
            wall_time=START + step / 2,
            mode="graph",
            in_use_bytes=peak,
            pool_bytes=None,
            largest_free_bytes=None,
            capacity_bytes=self._capacity,
            fragmentation=None,
            rounding_bytes=rounding_total(ledger),
            ledger=ledger,
            saved_for_backward=(),
            not_available=(),
            batch_size=self._batch,
        )


def program_fits(
    batch: int,
    capacity: int,
    steps: int = 12,
    layers: Sequence[tuple[str, bool, int, int]] = LAYERS,
) -> bool:
    """Whether the program itself runs for some steps."""
    try:
        program = Program(capacity, batch, layers=layers)
        for step in range(steps):
            program.step(step, first=not step)
    except AssertionError:
        return False
    return True


def make_table(
    layers: Sequence[tuple[str, bool, int, int]] = LAYERS, units: bool = False
) -> LayerTable:
    """The layer table of the training; with `units`, a cut point follows each layer."""
    made = tuple(
        make_layer(
            path,
            trainable,
            parameters,
            8 * parameters * trainable,
            "Dense",
            (-1, output // 4),
            output * BATCH,
            number if units else None,
        )
        for number, (path, trainable, parameters, output) in enumerate(layers)
    )
    return LayerTable(0, START, "recording began", made, "Adam", 12, 16)


def make_traced(
    capacity: int = CAPACITY,
    layers: Sequence[tuple[str, bool, int, int]] = LAYERS,
    kind: type[Program] = Program,
) -> dict[int, Traced]:
    """The traced steps of a training."""
    program = kind(capacity, layers=layers)
    return {step: program.step(step, first=step == TRACED[0]) for step in TRACED}


def write_run(
    directory: str | os.PathLike[str],
    steps: int = 20,
    capacity: int = CAPACITY,
    oom: Oom | None = None,
    layers: Sequence[tuple[str, bool, int, int]] = LAYERS,
    units: bool = False,
    kind: type[Program] = Program,
) -> None:
    """A run of the training, with the requests of its traced steps, and perhaps a failure."""
    traced = make_traced(capacity, layers, kind)
    last = traced[TRACED[-1]]
    writer = RunWriter(directory, versions={"tensorflow": "2.21.0"})
    writer.layer_table(make_table(layers, units))
    shown = [traced.get(step, last) for step in range(steps)]
    samples = make_samples(
        range(steps),
        [one.snapshot.in_use_bytes for one in shown],
        in_use=[one.in_use_bytes for one in shown],
    )
    for figures in samples.devices.values():
        figures.capacity_bytes[:] = capacity
    writer.samples(samples)
    for one in traced.values():
        writer.traced(one.snapshot)
        writer.traced(one.requests)
    if oom is not None:
        writer.oom(oom)
    writer.close()


def empty_pool(capacity: int) -> MemoryMap:
    """The map of a pool that has no memory yet."""
    nothing = np.empty(0, np.int64)
    columns = ("address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region")
    return MemoryMap(
        step=0,
        phase="train",
        device=DEVICE,
        wall_time=START,
        **dict.fromkeys(columns, nothing),
        owners=(),
        region_address=nothing,
        region_bytes=nothing,
        in_use_bytes=0,
        pool_bytes=0,
        capacity_bytes=capacity,
        complete=True,
        not_available=(),
    )
