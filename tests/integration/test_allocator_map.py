"""Maps and "would it fit?" against the allocator itself: its own dump of the same moment, and real
allocations."""

import concurrent.futures
import glob
import pathlib
from typing import Any

import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.allocator import would_fit
from tb_memplugin.importers import read_dump
from tb_memplugin.schema import FREE, MemoryMap

MIB = 1 << 20
LIMIT_MIB = 64

START = """
import os, threading, time
os.environ["TF_BFC_MEMORY_DUMP"] = sys.argv[1] + "/dump"
import tensorflow as tf, tb_memplugin
MIB = 1 << 20
def take(size): return tf.zeros([size], tf.uint8)
def in_use(): return tf.config.experimental.get_memory_info("CPU:0")["current"]
def fails(size):
    try:
        take(size)
    except tf.errors.ResourceExhaustedError:
        return True
    return False
"""

# The step's peak is the moment of the dump: what follows it allocates nothing.
MAP = """
old = [take(MIB) for _ in range(4)] + [take(300)]
with tb_memplugin.MemoryRecorder(sys.argv[1] + "/run", trace_steps=[0, 1]) as recorder:
    with recorder.step(0):
        more = [take(100_000 * n) for n in range(1, 8)]
    with recorder.step(1):
        held = [take(MIB // 2 + 1000 * n) for n in range(12)]
        del held[2::3]; del more[1]
        held.append(take(9 * MIB)); held.append(take(700_000))
        assert fails(1 << 33)
answer({})
"""

# While one request waits for memory in vain, the trials find the pool of its dump. Those that fail
# wait beside it.
TRIALS = """
import glob
from tb_memplugin.importers import read_dump
limit = int(sys.argv[2]) << 20
def started(size, results):
    thread = threading.Thread(target=lambda: results.update({size: not fails(size)}))
    thread.start()
    return thread
def dumped():
    started(1 << 33, {})
    while not (paths := sorted(glob.glob(sys.argv[1] + "/dump_*"))): time.sleep(0.01)
    in_use()  # waits for the allocator's lock, under which it writes the dump
    return paths[0], read_dump(open(paths[0], "rb").read(), 0.0)
def trials(sizes_that_pass, sizes_that_fail):
    results = {size: not fails(size) for size in sizes_that_pass}
    threads = [started(size, results) for size in sizes_that_fail]
    [thread.join() for thread in threads]
    return [list(one) for one in results.items()]
held = [take(MIB) for _ in range(5)] + [take(10) for _ in range(20)]
del held[-1:-20:-2]
"""

# A pool below its limit: what it may still grow by, to the byte.
GROWING = """
path, taken = dumped()
left = limit - taken.pool_bytes
answer({"told": [path, trials([left], [left + 1, left + 4096])]})
"""

# A full pool with holes: the largest hole, to the byte.
FULL = """
while limit - in_use() > 2 * MIB: held.append(take(MIB))
for place in (1, 2, 26, 30, 31, 32): held[place] = None
path, taken = dumped()
largest = int(taken.bytes[taken.state == 0].max())
answer({"told": [path, trials([largest, largest - 255, largest // 2, largest // 2 + 256, 300, 1],
                              [largest + 1, largest + 256, 2 * largest])]})
"""
CHILDREN = {"map": START + MAP, "growing": START + TRIALS + GROWING, "full": START + TRIALS + FULL}


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The children's answers and directories; they wait side by side."""
    limit = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB), "TF_ENABLE_ONEDNN_OPTS": "0"}
    directories = {name: tmp_path_factory.mktemp(name) for name in CHILDREN}
    with concurrent.futures.ThreadPoolExecutor(len(CHILDREN)) as pool:
        answers = {
            name: pool.submit(
                run_child, code, str(directories[name]), str(LIMIT_MIB), environment=limit
            )
            for name, code in CHILDREN.items()
        }
        return {name: (answer.result(), directories[name]) for name, answer in answers.items()}


def last_dump(directory: pathlib.Path) -> MemoryMap:
    path = sorted(glob.glob(f"{directory}/dump_*"))[-1]
    return read_dump(pathlib.Path(path).read_bytes(), 0.0, LIMIT_MIB * MIB)


def test_the_map_has_the_chunks_and_holes_of_the_allocators_own_dump(children: dict) -> None:
    # GIVEN a traced step at whose peak the allocator dumped its chunks
    _, directory = children["map"]
    truth = last_dump(directory)
    # WHEN the step's map is read
    run = tb_memplugin.load(directory)["run"]
    memory_map = next(memory_map for memory_map in run.maps if memory_map.step == 1)
    # The request that made the allocator dump its chunks failed, and the program went on.
    assert run.damage == () and [(oom.status, oom.requested_bytes) for oom in run.ooms] == [
        ("survived", 8 << 30)
    ]
    # THEN it is the same to the byte: chunks from before the recording, holes and regions, too
    assert len(memory_map) >= 25 and (memory_map.state == FREE).sum() >= 4
    for column in ("address", "bytes", "state", "region_address", "region_bytes"):
        assert getattr(memory_map, column).tolist() == getattr(truth, column).tolist(), column
    # One of the smallest chunks holds the shape of the tensor that fails, and another scalar when
    # the peak is reached.
    large = truth.bytes > 256
    assert memory_map.requested_bytes[large].tolist() == truth.requested_bytes[large].tolist()
    assert (memory_map.in_use_bytes, memory_map.pool_bytes) == (
        truth.in_use_bytes,
        truth.pool_bytes,
    )
    assert memory_map.complete and memory_map.not_available == ()
    (snapshot,) = (snapshot for snapshot in run.snapshots if snapshot.step == 1)
    assert snapshot.pool_bytes == truth.pool_bytes <= run.samples.devices["CPU:0"].pool_bytes[1]


@pytest.mark.parametrize("name", ["growing", "full"])
def test_requests_succeed_and_fail_as_predicted(children: dict, name: str) -> None:
    path, trials = children[name][0]["told"]
    memory_map = read_dump(pathlib.Path(path).read_bytes(), 0.0, LIMIT_MIB * MIB)
    predicted = [[size, would_fit(memory_map, size)] for size, _ in trials]
    assert predicted == trials
    assert {fits for _, fits in trials} == {True, False}
