"""The figures of a pool."""

import pytest

from tb_memplugin.model import Pool, is_cpu, is_gpu, pool_of


@pytest.mark.parametrize(
    ("pool", "in_use", "largest", "free", "other", "fragmentation"),
    [
        (1000, 600, 300, 400, 100, 0.25),
        (1000, 600, 400, 400, 0, 0.0),
        (1000, 600, 0, 400, 400, 1.0),
        (1000, 1000, 0, 0, 0, None),
        (1000, 600, None, 400, None, None),
    ],
)
def test_the_free_bytes_and_their_fragmentation(
    pool: int, in_use: int, largest: int | None, free: int, other: int | None, fragmentation: float | None
) -> None:
    measured = Pool(pool, in_use, largest)
    assert (measured.free_bytes, measured.other_free_bytes) == (free, other)
    assert measured.fragmentation == fragmentation
    assert pool_of(pool, in_use, largest) == measured


@pytest.mark.parametrize(("pool", "in_use"), [(None, 5), (5, None), (5, 6)])
def test_a_pool_of_less_than_its_chunks_is_unknown(pool: int | None, in_use: int | None) -> None:
    assert pool_of(pool, in_use, 0) is None


def test_a_free_chunk_that_does_not_fit_into_the_free_bytes_is_unknown() -> None:
    assert pool_of(1000, 600, 401) == Pool(1000, 600, None)


@pytest.mark.parametrize("prefix", ["", "worker_1/", "/device:", "/job:localhost/replica:0/task:0/device:"])
def test_the_kind_of_a_device_does_not_depend_on_how_its_name_is_spelled(prefix: str) -> None:
    assert is_gpu(f"{prefix}GPU:1") and not is_cpu(f"{prefix}GPU:1")
    assert is_cpu(f"{prefix}CPU:0") and not is_gpu(f"{prefix}CPU:0")
