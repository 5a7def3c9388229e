"""The pool at traced steps and the regions of maps, against TensorFlow's own dump."""

import glob
import itertools
import pathlib

import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.importers import read_dump
from tb_memplugin.schema import MemoryMap, Run

pytestmark = pytest.mark.long

LIMIT_MIB = 256
STEPS = 24

# The pool grows in some of the steps, and each of them is traced; at the end the allocator says
# what it consists of.
CODE = """
import os, random
os.environ["TF_BFC_MEMORY_DUMP"] = sys.argv[1] + "/dump"
import tensorflow as tf, tb_memplugin
dice = random.Random(5)
held = []
with tb_memplugin.MemoryRecorder(sys.argv[1] + "/run", trace_steps=range(24)) as recorder:
    for step in range(24):
        with recorder.step(step):
            held += [tf.zeros([dice.randrange(1, 900_000)], tf.uint8) for _ in range(4 + step // 2)]
            if step == 14:
                held.append(tf.zeros([20 << 20], tf.uint8))
            del held[:: 5]
        recorder.flush()
    try:
        tf.zeros([1 << 33], tf.uint8)
    except tf.errors.ResourceExhaustedError:
        answer({})
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, MemoryMap]:
    """The run, every step of which was traced, and the allocator's own account at its end."""
    directory = tmp_path_factory.mktemp("pool")
    limit = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB)}
    run_child(CODE, str(directory), environment=limit)
    dump = sorted(glob.glob(f"{directory}/dump_*"))[-1]
    memory_map = read_dump(pathlib.Path(dump).read_bytes(), 0.0, LIMIT_MIB << 20)
    return tb_memplugin.load(directory)["run"], memory_map


def traced_pools(run: Run) -> dict[int, int]:
    """Step to the pool at its peak."""
    return {
        snapshot.step: snapshot.pool_bytes
        for snapshot in run.snapshots
        if snapshot.pool_bytes is not None
    }


def test_every_traced_step_knows_the_pool_and_it_grew(recorded: tuple[Run, MemoryMap]) -> None:
    run, truth = recorded
    pools = traced_pools(run)
    assert sorted(pools) == list(range(STEPS))
    assert len(set(pools.values())) >= 3
    assert pools[STEPS - 1] == truth.pool_bytes
    assert all(before <= after for before, after in itertools.pairwise(pools.values()))


def test_the_pool_is_measured_at_the_end_of_every_traced_step(
    recorded: tuple[Run, MemoryMap],
) -> None:
    run, truth = recorded
    figures, pools = run.samples.devices["CPU:0"], traced_pools(run)
    assert run.samples.step.tolist() == list(range(STEPS))
    measured = figures.pool_bytes.tolist()
    # A pool on the CPU never shrinks: at the end of a step it is what it was at the peak, or has
    # grown since.
    for step, size in enumerate(measured):
        assert pools[step] <= size <= pools.get(step + 1, truth.pool_bytes)
    assert measured[-1] == truth.pool_bytes
    assert (figures.in_use_bytes + figures.largest_free_bytes <= figures.pool_bytes).all()


def test_the_regions_of_every_map_are_the_allocators(recorded: tuple[Run, MemoryMap]) -> None:
    run, truth = recorded
    whole = set(zip(truth.region_address.tolist(), truth.region_bytes.tolist(), strict=True))
    assert len(run.maps) == STEPS
    for memory_map in run.maps:
        assert (
            set(
                zip(
                    memory_map.region_address.tolist(),
                    memory_map.region_bytes.tolist(),
                    strict=True,
                )
            )
            <= whole
        )
    assert len(run.maps[-1].region_bytes) == len(whole)
