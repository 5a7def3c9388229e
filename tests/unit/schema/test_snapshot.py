"""The order of the categories: the same in Python and on the page, persistent memory below."""

import pathlib
import re

import pytest

from tb_memplugin.schema import CATEGORIES, PERSISTENT, Pool, is_cpu, is_gpu, pool_of, stack_order

SOURCES = pathlib.Path(__file__).parents[3] / "frontend/src"
PAGE = "".join((SOURCES / name).read_text() for name in ("schema.ts", "model/categories.ts"))


def names_in_page(constant: str) -> tuple[str, ...]:
    found = re.search(rf"export const {constant}\b[^=]*= \[(.*?)\]", PAGE, re.DOTALL)
    assert found is not None
    return tuple(re.findall(r'"(\w+)"', found[1]))


def test_the_page_has_the_same_categories_in_the_same_order() -> None:
    assert names_in_page("CATEGORIES") == CATEGORIES
    assert names_in_page("PERSISTENT") == PERSISTENT


def test_persistent_memory_is_below_transient_memory() -> None:
    assert CATEGORIES[: len(PERSISTENT)] == PERSISTENT
    assert CATEGORIES[len(PERSISTENT) :] == (
        "inputs",
        "activations",
        "weight_gradients",
        "activation_gradients",
        "workspace",
        "rounding",
        "unattributed",
    )


def test_frozen_groups_are_below_trainable_ones_of_their_category() -> None:
    groups = [("rounding", None), ("weights", None), ("weights", True), ("optimizer_state", None), ("weights", False)]
    assert sorted(groups, key=lambda group: stack_order(*group)) == [
        ("weights", False),
        ("weights", True),
        ("weights", None),
        ("optimizer_state", None),
        ("rounding", None),
    ]


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
    # AND so is a free chunk that does not fit into the free bytes
    assert pool_of(1000, 600, 401) == Pool(1000, 600, None)


@pytest.mark.parametrize("prefix", ["", "worker_1/", "/device:", "/job:localhost/replica:0/task:0/device:"])
def test_the_kind_of_a_device_does_not_depend_on_how_its_name_is_spelled(prefix: str) -> None:
    assert is_gpu(f"{prefix}GPU:1") and not is_cpu(f"{prefix}GPU:1")
    assert is_cpu(f"{prefix}CPU:0") and not is_gpu(f"{prefix}CPU:0")
