"""What is said of the pool between traced steps, against the same steps when they are traced, and TensorFlow's dump."""

import dataclasses
import glob
import itertools
import pathlib

import numpy as np
import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.analysis.overview import overview
from tb_memplugin.analysis.pool_growth import pool_growths, pool_snapshots
from tb_memplugin.analysis.pool_steps import INFERRED, THERE, pool_steps
from tb_memplugin.importers.bfc_dump import read_dump
from tb_memplugin.model import AllocatorMap, Run

LIMIT_MIB = 256
STEPS = 24

# The pool grows in some of the steps, and each of them is traced; at the end the allocator says what it consists of.
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
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, AllocatorMap]:
    """The run, every step of which was traced, and the allocator's own account at its end."""
    directory = tmp_path_factory.mktemp("pool")
    limit = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB), "CUDA_VISIBLE_DEVICES": ""}
    run_child(CODE, str(directory), environment=limit)
    dump = sorted(glob.glob(f"{directory}/dump_*"))[-1]
    taken = read_dump(pathlib.Path(dump).read_bytes(), 0.0, LIMIT_MIB << 20)
    return tb_memplugin.load(directory)["run"], taken


def measured(run: Run) -> dict[int, int]:
    """Step to the pool, of the traced steps whose events prove it: not of those in which it grew."""
    return {taken.step: taken.pool_bytes for taken in run.snapshots if taken.pool_bytes is not None}


def test_most_steps_were_measured_and_the_pool_grew(recorded: tuple[Run, AllocatorMap]) -> None:
    run, truth = recorded
    pools = measured(run)
    assert len(run.snapshots) == STEPS and len(pools) >= STEPS / 2
    assert len(set(pools.values())) >= 3
    assert max(pools.items())[1] == truth.pool_bytes


def test_regions_are_those_of_the_allocator(recorded: tuple[Run, AllocatorMap]) -> None:
    run, truth = recorded
    (snapshots,) = pool_snapshots(run, "CPU:0")
    growths = pool_growths(snapshots)
    regions = [size for growth in growths if growth.regions for size in growth.regions]
    assert sorted(regions) == sorted(truth.region_bytes.tolist()) and len(regions) >= 4


@pytest.mark.parametrize("traced", [(5, STEPS - 1), (5, 12), (12,), (5, 10, 12, 15), (12, 15), (15, 22)])
def test_what_is_inferred_is_what_was_measured(recorded: tuple[Run, AllocatorMap], traced: tuple[int, ...]) -> None:
    # GIVEN a run of which some steps were traced only
    run, _ = recorded
    truth = measured(run)
    few = dataclasses.replace(run, snapshots=tuple(taken for taken in run.snapshots if taken.step in traced))
    # WHEN the pool of all steps is told
    view = overview(few, "CPU:0", "train", None, None, 1000)
    pool = pool_steps(few, "CPU:0", view)
    # THEN the measured pool lies between the bounds, and is what is said to be known
    assert view.step.tolist() == list(range(STEPS))
    for step in truth:
        assert pool.low_bytes[step] <= truth[step] <= pool.high_bytes[step]
    known = pool.source >= INFERRED
    assert known[list(traced)].all() and known.sum() > len(traced)
    assert (pool.low_bytes[known] == pool.high_bytes[known]).all()
    # AND bands that are there make up no more than the pool, and all of it where it is known
    sizes = np.asarray([band.bytes for band in pool.bands])
    there = (pool.there == THERE) @ sizes
    assert all(there[step] <= truth[step] for step in truth)
    assert (there[known] == pool.low_bytes[known]).all()


def test_nothing_is_said_of_more_than_was_seen(recorded: tuple[Run, AllocatorMap]) -> None:
    run, _ = recorded
    truth = measured(run)
    grew = [later for earlier, later in itertools.pairwise(sorted(truth)) if truth[later] != truth[earlier]]
    # GIVEN the steps around a growth, none of which is traced
    few = dataclasses.replace(run, snapshots=tuple(taken for taken in run.snapshots if taken.step < grew[-1]))
    view = overview(few, "CPU:0", "train", None, None, 1000)
    pool = pool_steps(few, "CPU:0", view)
    assert pool.high_bytes[grew[-1]] == LIMIT_MIB << 20 and pool.low_bytes[grew[-1]] <= truth[grew[-1]]


def test_a_map_hardly_ever_has_a_region_across_two_of_the_allocators(recorded: tuple[Run, AllocatorMap]) -> None:
    # Where the end of one region and the begin of the next were never seen, nothing tells them from one.
    run, truth = recorded
    whole = list(zip(truth.region_address.tolist(), truth.region_bytes.tolist(), strict=True))
    inside = [
        any(start <= address and address + size <= start + length for start, length in whole)
        for taken in run.maps
        for address, size in zip(taken.region_address.tolist(), taken.region_bytes.tolist(), strict=True)
    ]
    assert len(run.maps) == STEPS and sum(inside) >= 0.9 * len(inside)
    assert max(len(taken.region_bytes) for taken in run.maps) <= 2 * len(whole)
