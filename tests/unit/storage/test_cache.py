"""The cache: limited in bytes, least recently used values are dropped first, stale marks miss."""

import gc
import pathlib
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import make_activations, write_small_run
from worker_runs import MIB, write_workers

from tb_memplugin.server import Handlers, Stretch
from tb_memplugin.storage import Reader
from tb_memplugin.storage.cache import ByteCache
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.read import ALL
from tb_memplugin.storage.write import RunWriter


def test_a_value_is_found_under_its_mark_until_it_is_the_least_recently_used() -> None:
    cache = ByteCache(100)
    cache.put("a", 1, "old", 10)
    assert (cache.get("a", 1), cache.get("a", 2)) == ("old", None)
    cache.put("a", 2, "new", 50)
    assert (cache.get("a", 1), cache.get("a", 2), cache.size) == (None, "new", 50)
    for key in "bc":
        cache.put(key, 0, key, 50)
        assert cache.get("a", 2) == "new"
    assert [cache.get(key, 0) for key in "bc"] == [None, "c"]
    # AND what is larger than the budget is not kept, and displaces only what it replaces
    cache.put("huge", 0, "huge", 1000)
    assert (cache.get("huge", 0), cache.get("a", 2)) == (None, "new")
    cache.put("a", 3, "huge", 1000)
    assert cache.get("a", 2) is None and cache.size == 50
    # AND all is let go at once
    cache.clear()
    assert (cache.size, cache.get("c", 0)) == (0, None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60))))
def test_the_size_is_the_sum_of_the_values_and_within_the_limit(puts: list[tuple[int, int]]) -> None:
    cache = ByteCache(100)
    for key, size in puts:
        cache.put(key, 0, size, size)
        held = [value for value in (cache.get(other, 0) for other in range(6)) if value is not None]
        assert cache.size == sum(held) <= 100 and cache.get(key, 0) == size


def test_all_that_a_server_keeps_is_within_the_budget_as_the_allocator_measures_it(tmp_path: pathlib.Path) -> None:
    # GIVEN runs whose samples, activations and records take several times the budget
    budget = 4 * MIB
    for name in "abc":
        write_workers(tmp_path / name, 2, 2, 4000)
    random = np.random.default_rng(1)
    for name in "de":
        writer = RunWriter(tmp_path / name)
        for first in range(0, 4000, 200):
            values = random.integers(0, 2**31, (200, 100))
            writer.activations(
                make_activations(range(first, first + 200), [f"layer_{at}" for at in range(100)], values)
            )
        writer.close()
    write_small_run(tmp_path / "f", allocator=True)
    source, reader = FileSource(tmp_path), Reader(cache_bytes=budget)
    handlers = Handlers(reader)
    handlers.runs(source)  # what is imported and indexed at first is none of the reader's
    reader.cache.clear()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = []
        for name in "abcdef":
            handlers.activations(source, name, (None, None), 100)
            handlers.devices(source, name, "train")
            handlers.maps(source, name, None)
            reader.run(source, name, ALL)
            if name in "abc":
                handlers.overview(source, name, Stretch("worker_1/GPU:0", "train", None, None, 100))
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0] - before)
            # THEN what is kept is within the budget after each request, and the budget is used
            assert reader.cache.size <= budget
        assert max(kept) <= 1.1 * budget and kept[-1] > budget / 4, kept
    finally:
        tracemalloc.stop()
