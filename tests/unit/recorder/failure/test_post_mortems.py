"""When a post-mortem is written, and what it says: dumps are files as TensorFlow writes them,
errors are its own."""

import dataclasses
import functools
import pathlib
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dump_cases import CHUNKS, make_dump
from map_cases import memory_map
from reading_cases import MIB, make_layer, make_map, make_table
from requests_cases import make_traced
from trace_cases import graph

from tb_memplugin.attribution import OomEvent, StepChunks
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.devices import Device, statistics
from tb_memplugin.recorder.failure import (
    FailureMaps,
    OomWatch,
    Place,
    RaisedError,
    dump_files,
    memory_request,
)
from tb_memplugin.recorder.helper import OwnedMap, StepAnalysis
from tb_memplugin.recorder.helper.recent_steps import RecentSteps
from tb_memplugin.recorder.watch import batch_notes, call_notes
from tb_memplugin.schema import (
    MISSING,
    BatchFacts,
    ChunkOwner,
    FailedDuring,
    MemoryMap,
    Oom,
    OpFact,
    Phase,
    TensorFact,
    TraceFacts,
    VariableFact,
)

OP = "model/head/MatMul"
MESSAGE = (
    "OOM when allocating tensor with shape[16,8,8,4] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t [[{{node "
    "model/head/MatMul}}]]"
)
COMPILED = (
    "Out of memory while trying to allocate 145.20MiB.\n\t [[{{node StatefulPartitionedCall}}]]"
)
EAGER = "OOM when allocating tensor with shape[1024] and type float on GPU:0 by allocator GPU_0_bfc"
FACTS = TraceFacts(
    graphs=graph(model__head__MatMul=OpFact("model/head", "backward", line="train.py:7"))
)
"""The op's name is that of `MESSAGE`."""


class Watch:
    """The watched model."""

    facts: Any = FACTS
    paths: Any = None
    batch_size: int | None = 4
    replicas: int = 1
    table = make_table(0, unfrozen=True)

    def look(self, device: str, building: bool = False) -> Any:
        if self.facts is None:
            raise RuntimeError("a variable was deleted")
        return self.facts, self.paths or {}


class Watched:
    """An `OomWatch` and what it wrote."""

    def __init__(self, directory: pathlib.Path, *devices: str, capacity: int = 1 << 20) -> None:
        self.directory = directory
        self.written: list[tuple[Oom, bool]] = []
        self.watch = Watch()
        readable: Any = SimpleNamespace(
            available=lambda device: True, read=lambda device: make_dump()
        )
        self.maps = FailureMaps([Device(name, capacity, None) for name in devices], readable)
        self.analysis: Any = StepAnalysis(dict.fromkeys(devices, capacity), {}, Faults())
        watch: Any = self.watch
        self.oom = OomWatch(
            watch, self.maps, self.analysis, lambda oom, waits: self.written.append((oom, waits))
        )
        self.oom._idle_since = 1000.0

    def dump(
        self, wall_time: float, allocator: str = "GPU_0_bfc", data: bytes | None = None
    ) -> None:
        """Write a dump as TensorFlow does when an allocation fails."""
        path = self.directory / f"dump_{allocator}.{round(wall_time * 1e6)}"
        path.write_bytes(make_dump(allocator.encode()) if data is None else data)

    def fails(
        self,
        error: BaseException,
        step: int | None = 7,
        phase: Phase | None = "train",
        replay: Any = None,
        during: FailedDuring = "step",
        **given: Any,
    ) -> None:
        """Fail as an error says that was just raised."""
        request = memory_request(error, dump_files.since(1000.0))
        assert request is not None
        raised = RaisedError(request, weakref.ref(error), str(error), (), None, None, False)
        self.oom.on_error(dataclasses.replace(raised, **given), Place(step, phase, during), replay)

    @property
    def last(self) -> Oom:
        return self.written[-1][0]


def error_of(message: str = MESSAGE, kind: Any = tf.errors.ResourceExhaustedError) -> Any:
    return kind(None, None, message)


@pytest.fixture
def watched(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    # The user's own prefix: nothing deletes these dumps.
    monkeypatch.setenv("TF_BFC_MEMORY_DUMP", str(tmp_path / "dump"))
    monkeypatch.setattr(batch_notes, "failed", None)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return Watched(tmp_path, "GPU:0", "GPU:1")


def test_a_failure_is_written_with_its_request_its_op_and_its_chunks(watched: Watched) -> None:
    watched.dump(1001)
    watched.fails(error_of(), 7)
    ((oom, waits),) = watched.written
    assert waits
    assert (oom.identifier, oom.status, oom.device, oom.step, oom.phase) == (
        "1",
        "failed",
        "GPU:0",
        7,
        "train",
    )
    assert oom.requested_bytes == 16 * 8 * 8 * 4 * 4
    assert (oom.op, oom.layer, oom.line, oom.shape) == (
        OP,
        "model/head",
        "train.py:7",
        "[16,8,8,4] float",
    )
    # AND the figures are the dump's
    assert (oom.in_use_bytes, oom.pool_bytes, oom.capacity_bytes, oom.wall_time) == (
        1536,
        5888,
        1 << 20,
        1001.0,
    )
    assert (oom.batch_size, oom.not_available) == (16, ())


def test_dumps_of_other_moments_failures_and_allocators_are_not_the_failures(
    watched: Watched,
) -> None:
    watched.dump(999)  # of an earlier step
    watched.dump(1002, "GPU_1_bfc")
    before = time.time()
    watched.fails(error_of(), 7)
    assert watched.last.map is None and before <= watched.last.wall_time <= time.time()
    assert watched.last.not_available == (
        "Chunks are unknown: no memory map or dump was taken while the request waited for memory.",
    )
    # AND a dump that explained one failure does not count for the next step
    watched.oom._idle_since = 1000.0
    watched.dump(1003)
    watched.fails(error_of(), 8)
    watched.fails(error_of(), 9)
    assert [oom.map is None for oom, _ in watched.written[1:]] == [False, True]


@pytest.mark.parametrize(
    ("sizes", "size"), [((12_288, 512), 4), ((12_288, 24_576, 512), 4), ((12_288, 384), None)]
)
def test_a_compiled_steps_batch_is_that_of_its_inputs_in_memory(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], size: int | None
) -> None:
    # GIVEN a data set of images and labels that does not say how many examples a batch has, and a
    # variable between them
    components = (((-1, 16, 16, 3), "float32"), ((-1, 16), "int64"))
    monkeypatch.setattr(batch_notes, "failed", BatchFacts(None, components))
    weights = VariableFact("w", "weights", "model/head", True, 1024, "GPU:0", None, 7 * MIB)
    monkeypatch.setattr(watched.watch, "facts", dataclasses.replace(FACTS, variables=(weights,)))
    listed = [(number * MIB, one, one, True) for number, one in enumerate(sizes)]
    watched.dump(1001, data=make_dump(listed=[*listed, (7 * MIB, 1024, 1024, True)]))
    watched.fails(error_of(COMPILED))
    assert watched.last.batch_size == size


NO_ROOM = "Dst tensor is not initialized."


@pytest.mark.parametrize(
    ("message", "dumped", "preliminary", "devices", "device"),
    [
        (
            MESSAGE.replace("GPU:0", "GPU:1").replace("GPU_0", "GPU_1"),
            "GPU_0_bfc",
            False,
            2,
            "GPU:1",
        ),
        (NO_ROOM, "GPU_1_bfc", False, 2, "GPU:1"),
        (NO_ROOM, None, True, 2, "GPU:1"),
        (NO_ROOM, None, False, 2, "GPU:0"),
        (NO_ROOM, None, False, 0, "unknown"),
    ],
)
def test_the_device_is_that_of_the_message_then_of_the_dump_then_of_the_waiting_step_then_the_first(
    watched: Watched, message: str, dumped: str | None, preliminary: bool, devices: int, device: str
) -> None:
    case = Watched(watched.directory, *("GPU:0", "GPU:1")[:devices])
    if preliminary:
        case.dump(1001, "GPU_1_bfc")
        case.oom.tick(7, "train")
        (path,) = case.directory.iterdir()
        path.unlink()
    if dumped:
        case.dump(1002, dumped)
    case.fails(
        error_of(
            message,
            tf.errors.InternalError if message == NO_ROOM else tf.errors.ResourceExhaustedError,
        )
    )
    assert case.last.device == device


FREED, HALF, FULL = (1,), (3,), (0, 1, 2, 3)
"""Numbers of the chunks in use; the request fits only where all of them are free."""


@pytest.mark.parametrize(
    ("written", "read", "requested", "expected"),
    [
        # TensorFlow's own dump, of the moment when it gave up, comes first ...
        (HALF, [FULL], 3000, HALF),
        (HALF, [FULL], None, HALF),
        # ... unless the request fits in it: the dump is of a later moment then.
        (FREED, [FULL, HALF, FREED], 3000, HALF),
        (FREED, [FREED], 3000, FREED),
        # Without a dump: the newest map in which the request does not fit, or the fullest for an
        # unknown size.
        (None, [FULL, HALF, FREED], 3000, HALF),
        (None, [FULL, HALF, FREED], None, FULL),
        (None, [FREED], 3000, None),
    ],
)
def test_a_map_with_room_for_a_request_of_known_size_is_not_that_of_its_failure(
    watched, monkeypatch, written, read, requested, expected
) -> None:
    def in_use(used: tuple[int, ...]) -> int:
        return sum(CHUNKS[at][1] for at in used)

    def dump(used: tuple[int, ...]) -> bytes:
        return make_dump(
            in_use=in_use(used),
            listed=[(*chunk[:3], at in used) for at, chunk in enumerate(CHUNKS)],
        )

    # GIVEN maps that were read while the request waited for memory, each once the bytes in use did
    # not change
    readable: Any = SimpleNamespace(available=lambda device: True, read=lambda device: dump(now))
    maps = FailureMaps([Device("GPU:0", 5888, None)], readable)
    for now in read:
        monkeypatch.setattr(statistics, "memory_info", lambda device, now=now: (in_use(now), 0))
        for _ in range(2):
            maps.poll()
    if written is not None:
        watched.dump(1001, data=dump(written))
    found = maps.at_failure("GPU:0", requested, maps.dumps(0.0))
    assert (None if found is None else found.in_use_bytes) == (
        None if expected is None else in_use(expected)
    )


def test_the_size_of_an_ops_output_stands_in_for_one_that_is_not_reported(
    watched, monkeypatch
) -> None:
    @tf.function
    def step(values: Any) -> Any:
        return tf.matmul(values, tf.ones((8, 32)), name="product")

    traced = step.get_concrete_function(tf.TensorSpec((None, 8), tf.float32))
    monkeypatch.setitem(call_notes.graphs, traced.graph, None)
    message = "failed to allocate memory\n\t [[{{node product}}]]"
    found = []
    for owned in (None, OwnedMap(make_map(7), 6), OwnedMap(make_map(7), None)):
        replay: Any = functools.partial(lambda found, *arguments: found, owned)
        watched.fails(error_of(message), 7, replay=replay)
        found.append(watched.last.requested_bytes)
    # THEN with an open batch it follows from that of the traced step, or else of the recorded ones
    assert found == [None, 6 * 32 * 4, 4 * 32 * 4]


def test_a_compiled_request_has_no_layer_and_its_rounded_size_is_made_exact_by_the_traced_steps(
    watched,
) -> None:
    watched.watch.facts = TraceFacts(
        graphs=graph(StatefulPartitionedCall=OpFact("model/head", "forward", line="train.py:7"))
    )
    for uncertain in (0, 3):
        watched.fails(error_of(COMPILED), 7)
        assert (watched.last.layer, watched.last.line) == (None, None)
        assert watched.last.requested_bytes == round(145.20 * MIB) + uncertain
        watched.analysis.add(
            "GPU:0", made((0, round(145.20 * MIB) + 3, 1, 20, INPUTS)), TraceFacts()
        )


@pytest.mark.parametrize(("mode", "line"), [("eager", "eager.py:3"), ("graph", None)])
def test_in_eager_mode_the_layer_and_the_line_are_those_that_were_running(
    watched, mode, line
) -> None:
    layer = object()
    watched.watch.facts = TraceFacts(mode=mode)  # type: ignore[arg-type]
    watched.watch.paths = {id(layer): "model/head"}
    message = (
        "OOM when allocating tensor with shape[4] and type float on CPU:0\n\t [[{{node MatMul}}]]"
    )
    given = {"layers": (1, id(layer)), "layer_name": "inner", "line": "eager.py:3"}
    watched.fails(error_of(message), **given)
    assert (watched.last.layer, watched.last.line) == ("model/head", line)
    # AND a layer without a path has its name
    watched.watch.paths = {}
    watched.fails(error_of(message), **given)
    assert watched.last.layer == "inner"
    # AND a graph's op has the layer and line that its graph knows
    watched.watch.facts = dataclasses.replace(FACTS, mode=mode)
    watched.fails(error_of(), **given)
    assert (watched.last.layer, watched.last.line) == ("model/head", "train.py:7")


@pytest.mark.parametrize(
    ("step", "during", "place"),
    [
        (7, "between_steps", "between steps, after step 7"),
        (None, "between_steps", "between steps, before the first one"),
        (None, "building", "building the model"),
        (7, "building", "building the model after step 7"),
    ],
)
def test_a_failure_outside_of_steps_says_where_and_has_no_batch(
    watched, step, during, place
) -> None:
    watched.dump(1001)
    watched.fails(error_of(f"{EAGER} [Op:MatMul]"), step, None, during=during, line="train.py:9")
    last = watched.last
    assert (last.step, last.phase, last.during, last.place) == (step, None, during, place)
    assert (last.batch_size, last.line, last.op) == (None, "train.py:9", "MatMul")
    assert (last.requested_bytes, last.in_use_bytes) == (1024 * 4, 1536)


@pytest.mark.parametrize(
    ("ended", "survived"),
    [
        (None, True),
        ("itself", False),
        ("raised from it", False),
        ("another", True),
        ("quoted", False),
        ("again", True),
    ],
)
def test_the_end_of_the_session_says_whether_the_program_caught_the_error(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, ended: str | None, survived: bool
) -> None:
    error = error_of()
    watched.dump(1001)
    watched.fails(error)
    later = ValueError()
    later.__cause__ = error if ended == "raised from it" else None
    # An input pipeline's error quotes its generator's; an equal one is that of another attempt.
    others = {
        "quoted": error_of(f"ResourceExhaustedError: {error}\n [[PyFunc]]"),
        "again": error_of(error.message),
    }
    last = {None: None, "itself": error, **others}.get(ended, later)
    if ended == "quoted":
        del error  # a generator's error is gone by then
    monkeypatch.setattr("sys.last_value", last, raising=False)
    watched.oom.say_survived()
    watched.oom.say_survived()  # once
    assert [oom.status for oom, _ in watched.written] == ["failed", *["survived"] * survived]
    assert {oom.identifier for oom, _ in watched.written} == {"1"}


def test_a_program_that_cannot_be_looked_at_has_the_facts_of_the_last_traced_step(
    watched: Watched,
) -> None:
    watched.analysis.add("GPU:0", made((0, 512, 1, 20, INPUTS)), FACTS)
    watched.watch.facts = None
    watched.fails(error_of(), 7)
    assert watched.last.layer == "model/head"
    assert (
        "Addresses of variables are unknown: reading them raised RuntimeError."
    ) in watched.last.not_available


@pytest.mark.parametrize(("own", "batch"), [(6, 6), (None, 4)])
def test_a_traced_step_has_the_owners_of_its_own_trace(
    watched: Watched, own: int | None, batch: int
) -> None:
    watched.dump(1001)
    asked: list[Any] = []

    def replay(
        device: str, memory_map: MemoryMap | None, request: Request, facts: TraceFacts, batch: Any
    ) -> OwnedMap:
        asked.append(
            (device, None if memory_map is None else memory_map.in_use_bytes, request.op, facts)
        )
        return OwnedMap(make_map(7), own)

    watched.fails(error_of(), 7, replay=replay)
    assert asked == [("GPU:0", 1536, OP, FACTS)]
    assert (watched.last.in_use_bytes, watched.last.batch_size) == (8 * MIB, batch)
    # AND where no map was read, that of the trace is enough
    watched.fails(error_of(), 7, replay=replay)
    assert asked[1][:2] == ("GPU:0", None)
    assert watched.last.wall_time == make_map(7).wall_time and watched.last.not_available == ()
    # AND a replay that finds none leaves the map as it was read
    watched.oom._idle_since = 1000.0
    watched.fails(error_of(), 7, replay=lambda *arguments: None)
    assert watched.last.in_use_bytes == 1536


def test_the_batch_that_the_failed_step_was_given_is_used_once(watched: Watched) -> None:
    batch_notes.failed = BatchFacts(48)
    watched.fails(error_of(), 7)
    assert watched.last.batch_size == 48 and batch_notes.failed is None
    watched.fails(error_of(), 8)
    assert watched.last.batch_size == 16
    # AND without a layer table the failed tensor could have any shape
    watched.watch.table = None  # type: ignore[assignment]
    watched.fails(error_of(), 9)
    assert watched.last.batch_size is None


def test_a_step_that_waits_is_written_before_it_ends_and_replaced_if_it_fails(
    watched: Watched,
) -> None:
    watched.oom.tick(7, "train")
    assert watched.written == [] and not watched.oom.waits
    # GIVEN a dump that is not written yet, THEN it is read at a later tick
    watched.dump(1001, data=b"")
    watched.oom.tick(7, "train")
    assert watched.written == []
    watched.dump(1001)
    watched.oom.tick(7, "train")
    watched.oom.tick(7, "train")
    ((oom, waits),) = watched.written
    assert (oom.identifier, oom.status, oom.device, oom.step, oom.phase) == (
        "1",
        "failing",
        "GPU:0",
        7,
        "train",
    )
    assert oom.in_use_bytes == 1536 and not waits and watched.oom.waits
    watched.fails(error_of(), 7)
    assert [(oom.identifier, oom.status) for oom, _ in watched.written] == [
        ("1", "failing"),
        ("1", "failed"),
    ]
    assert not watched.oom.waits


def test_a_failure_that_is_tolerated_is_withdrawn(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.dump(1001)
    watched.oom.tick(7, "train")
    watched.oom.step_ended()
    assert [(oom.identifier, oom.status) for oom, _ in watched.written] == [
        ("1", "failing"),
        ("1", "tolerated"),
    ]
    assert (watched.last.step, watched.last.phase, watched.last.map) == (7, "train", None)
    assert not watched.oom.waits
    # AND of two dumps the newest one is the waiting step's
    watched.dump(1003, "GPU_1_bfc")
    watched.dump(1004, "GPU_0_bfc")
    watched.oom._idle_since = 1002.0
    watched.oom.tick(7, "train")
    assert (watched.last.device, watched.last.wall_time) == ("GPU:0", 1004.0)
    watched.oom.step_ended()
    watched.written[2:] = []
    # AND its dump does not count for the next step, nor do maps that were read
    monkeypatch.setattr(statistics, "memory_info", lambda device: (1536, 0))
    watched.maps.poll()
    watched.maps.poll()
    assert watched.maps.at_failure("GPU:0", None, []) is not None
    watched.oom.tick(8, "train")
    watched.oom.step_ended()
    assert len(watched.written) == 2 and watched.maps.at_failure("GPU:0", None, []) is None
    assert len(list(watched.directory.iterdir())) == 3  # files at the user's own prefix stay


@pytest.mark.parametrize(
    ("step", "began", "ended", "count"),
    [(7, 1000.5, 0.0, 1), (7, 1001.5, 0.0, 0), (7, 0.0, 1001.5, 0), (None, 0.0, 0.0, 0)],
)
def test_a_dump_from_before_the_step_or_between_steps_is_not_its_own(
    watched, step, began, ended, count
) -> None:
    watched.dump(1001)
    watched.oom.steps_ended(ended)
    watched.oom.steps_ended(1000.5)  # which is not earlier
    watched.oom.tick(step, "train", began)
    assert len(watched.written) == count


def test_owners_of_a_waiting_step_are_those_that_have_not_moved(watched: Watched) -> None:
    weights = [
        VariableFact(name, "weights", "model/head", True, 300, "GPU:0", address, address)
        for name, address in (("stays", 0x1000), ("moved", 0x9000))
    ]
    held = TensorFact("held_tensors", 1000, 0x9000)
    watched.analysis.add(
        "GPU:0",
        made((1 << 40, 512, 1, 20, INPUTS)),
        TraceFacts(variables=tuple(weights), tensors=(held,)),
    )
    watched.dump(1001)
    watched.oom.tick(7, "train")
    categories = [None if owner is None else owner.category for owner in owners_of(watched.last)]
    assert watched.last.map is not None and watched.last.map.address.tolist() == [
        0x1000,
        0x1200,
        0x9000,
        0x9400,
    ]
    assert categories == ["weights", None, "held_tensors", None]


GPU = "GPU:0"
INPUTS = ChunkOwner(None, "inputs", None)
ACTIVATIONS = ChunkOwner("net/conv", "activations", True)
GRADIENTS = ChunkOwner("net/conv", "weight_gradients", True)


def made(
    *chunks: tuple[int, int, int, int, ChunkOwner],
    step: int = 1,
    phase: Phase = "train",
    **ops: tuple[int, ...],
) -> StepChunks:
    """A step with chunks (address, bytes, birth, death, owner)."""
    address, size, birth, death = np.asarray([chunk[:4] for chunk in chunks], np.int64).T
    owners = tuple(dict.fromkeys(owner for *_, owner in chunks))
    owner = np.asarray([owners.index(chunk[4]) for chunk in chunks])
    return StepChunks(step, phase, address, size, size, birth, death, owner, owners, 20, ops)


def recent_of(*steps: StepChunks, other: StepChunks | None = None) -> RecentSteps:
    """The recent steps of the device, and one of another."""
    recent = RecentSteps()
    for step in steps:
        recent.add(GPU, step, TraceFacts())
    if other is not None:
        recent.add("GPU:1", other, TraceFacts())
    return recent


def in_use(*chunks: tuple[int, int]) -> MemoryMap:
    """A map with chunks in use (address, bytes)."""
    return memory_map([(address, size, size) for address, size in chunks], [(0, 1 << 40)])


def failed(
    requested: int | None, op: str | None = "conv", phase: Phase = "train", **fields: object
) -> OomEvent:
    return OomEvent("1", "failed", GPU, 0.0, 9, phase, requested, op, **fields)  # type: ignore[arg-type]


def owners_of(oom: Oom) -> list[ChunkOwner | None]:
    assert oom.map is not None
    return [oom.map.owners[number] if number >= 0 else None for number in oom.map.owner.tolist()]


@pytest.mark.parametrize(
    ("about", "uncertain", "exact"),
    [
        (None, 100, (None, 0)),
        (1000, 0, (1000, 0)),
        (2000, 100, (2100, 0)),  # the only size within the uncertainty
        (2201, 100, (2201, 100)),  # none is within it
        (3050, 100, (3050, 100)),  # two are
        (4000, 100, (4000, 100)),  # that of a chunk from before the step is not counted
        (5000, 100, (5000, 100)),  # nor that of another device
    ],
)
def test_a_rounded_size_is_exact_if_traced_chunks_have_one_size_near_it(
    about, uncertain, exact
) -> None:
    chunks = [
        (0, 2100, 0, 9, INPUTS),
        (1, 3000, 1, 9, INPUTS),
        (2, 3100, 2, 9, INPUTS),
        (3, 4000, -1, 9, INPUTS),
    ]
    recent = recent_of(made(*chunks), made(chunks[0]), other=made((0, 5000, 1, 9, INPUTS)))
    assert (
        recent.exact_bytes(Request(requested_bytes=about, uncertain_bytes=uncertain), GPU) == exact
    )


def test_the_newest_step_of_the_failures_phase_comes_before_newer_ones_of_others() -> None:
    recent = recent_of(
        *(made((0, MIB, -1, 20, owner)) for owner in (INPUTS, ACTIVATIONS)),
        made((0, MIB, -1, 20, INPUTS), phase="validation"),
        other=made((0, MIB, -1, 20, GRADIENTS)),
    )
    assert owners_of(
        recent.post_mortem(failed(8 * MIB), in_use((0, MIB)), TraceFacts(), (), None)
    ) == [ACTIVATIONS]


@pytest.mark.parametrize(("pass_name", "owner"), [("forward", None), ("backward", GRADIENTS)])
def test_no_chunk_is_a_gradient_while_a_forward_op_fails(
    pass_name: str, owner: ChunkOwner | None
) -> None:
    recent = recent_of(
        made((0, MIB, 3, 20, GRADIENTS), (MIB, 8 * MIB, 5, 20, ACTIVATIONS), conv=(5,))
    )
    facts = TraceFacts(graphs=graph(conv=OpFact("net/conv", pass_name)))  # type: ignore[arg-type]
    assert owners_of(recent.post_mortem(failed(8 * MIB), in_use((0, MIB)), facts, (), None)) == [
        owner
    ]


def test_variables_come_before_earlier_steps_and_tensors_where_their_mode_puts_them() -> None:
    recent = recent_of(made((0, MIB, -1, 20, INPUTS), (MIB, MIB, -1, 20, ACTIVATIONS)))
    variable = VariableFact("kernel", "weights", "net/conv", True, MIB, GPU, 0, 0)
    tensor = TensorFact("held_tensors", MIB, MIB)
    held = ChunkOwner(None, "held_tensors", None)
    for mode, second in (("graph", held), ("eager", ACTIVATIONS)):
        facts = TraceFacts(mode=mode, variables=(variable,), tensors=(tensor,))  # type: ignore[arg-type]
        oom = recent.post_mortem(failed(8 * MIB), in_use((0, MIB), (MIB, MIB)), facts, (), None)
        assert owners_of(oom) == [ChunkOwner("net/conv", "weights", True), second]


def test_results_of_layers_in_validation_are_known_by_their_size() -> None:
    layer, event = make_layer("net/conv", True, 64), failed(MIB, phase="validation")
    found = RecentSteps().post_mortem(
        event, in_use((0, 16 * 8 * 8 * 4 * 4)), TraceFacts(), (layer,), None, 16
    )
    assert owners_of(found) == [ChunkOwner("net/conv", "workspace", True)]


@pytest.mark.parametrize(
    ("batch", "verdict"), [(4, "fragmentation"), (64, "capacity"), (None, "fragmentation")]
)
def test_a_step_that_does_not_fit_in_one_piece_fails_for_want_of_memory(
    batch: int | None, verdict: str
) -> None:
    # GIVEN a failure beside enough free memory in pieces, and a traced step of batch 4 that needs
    # 15.5 MiB at least
    requests = make_traced()[3].requests
    fields = {"step": 9, "phase": requests.phase, "requested_bytes": 6 * MIB}
    event = OomEvent("1", "failed", requests.device, 5.0, **fields)  # type: ignore[arg-type]
    pieces = memory_map(
        [(0, 4 * MIB, MISSING), (4 * MIB, 56 * MIB, 56 * MIB), (60 * MIB, 4 * MIB, MISSING)],
        [(0, 64 * MIB)],
        64 * MIB,
    )
    recent = RecentSteps()
    recent.keep_requests(dataclasses.replace(requests, first=True))
    # the first step makes variables, and tries algorithms
    assert recent.needed_bytes(event, 4) is None
    recent.keep_requests(requests)
    needed = recent.needed_bytes(event, batch)
    oom = recent.post_mortem(event, pieces, TraceFacts(), (), 4, batch)
    # THEN the verdict is that of the whole step
    assert (needed is None) == (batch is None) and oom.verdict == verdict
    assert ("Even with free memory in one piece, the step needs" in oom.reason) == (
        verdict == "capacity"
    )
