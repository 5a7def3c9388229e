"""What the records say of themselves: sums, pools, layers, shapes, and rows of samples."""

import dataclasses
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reading_cases import DEVICE, make_samples

from tb_memplugin.schema import (
    CATEGORIES,
    DTYPE_BYTES,
    MISSING,
    DeviceSamples,
    Layer,
    LedgerRow,
    Pool,
    TensorShape,
    dimensions,
    extreme_rows,
    former_name,
    is_cpu,
    is_gpu,
    live_sums,
    matches,
    measured_pools,
    one_row_a_step,
    pool_of,
    replaced_optimizer,
    rounding_total,
    split_rounding,
    stack_order,
    tensor_shape,
    unfreezing_bytes,
    unused,
)


def test_live_sums_are_those_counted_moment_by_moment() -> None:
    random = np.random.default_rng(3)
    start = random.integers(0, 20, 50)
    end = np.minimum(start + random.integers(1, 10, 50), 20)
    amount = random.integers(0, 1000, 50)
    expected = [int(amount[(start <= moment) & (moment < end)].sum()) for moment in range(20)]
    assert live_sums(start, end, amount, 20).tolist() == expected


def test_frozen_groups_are_below_trainable_ones_of_their_category() -> None:
    groups = [
        ("rounding", None),
        ("weights", None),
        ("weights", True),
        ("optimizer_state", None),
        ("weights", False),
    ]
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
    pool: int,
    in_use: int,
    largest: int | None,
    free: int,
    other: int | None,
    fragmentation: float | None,
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


@pytest.mark.parametrize(
    "prefix", ["", "worker_1/", "/device:", "/job:localhost/replica:0/task:0/device:"]
)
def test_the_kind_of_a_device_does_not_depend_on_how_its_name_is_spelled(prefix: str) -> None:
    assert is_gpu(f"{prefix}GPU:1") and not is_cpu(f"{prefix}GPU:1")
    assert is_cpu(f"{prefix}CPU:0") and not is_gpu(f"{prefix}CPU:0")


@pytest.mark.parametrize("channels", [1, 2, 64])
@pytest.mark.parametrize(("variables", "trainable"), [(2, 0), (3, 0), (4, 0), (4, 1)])
def test_neither_mean_and_variance_nor_what_is_trained_already_is_unfrozen(
    channels: int, variables: int, trainable: int
) -> None:
    size = 4 * channels
    sizes = (variables * channels, variables * size, trainable * size, 0)
    made = Layer("net/bn", "BatchNormalization", False, *sizes, (-1, 8, channels), "float32", None)
    assert unfreezing_bytes(made) == (variables - 2 - trainable) * size


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"), [("Dense", (-1, 3), "float32"), ("BatchNormalization", None, None)]
)
def test_another_layer_has_no_statistics(
    kind: str, shape: tuple[int, ...] | None, dtype: str | None
) -> None:
    assert unfreezing_bytes(Layer("net/d", kind, False, 12, 48, 0, 0, shape, dtype, None)) == 48


@pytest.mark.parametrize("name", [replaced_optimizer("Adam", 72), unused("resnet50")])
def test_a_path_that_begins_with_a_former_name_gives_that_name(name: str) -> None:
    assert former_name(name) == former_name(f"{name}/net/dense") == name


def figures(peaks: list[int], **others: list[int]) -> DeviceSamples:
    made = make_samples(range(len(peaks)), peaks).devices[DEVICE]
    columns = {name: np.asarray(values, np.int64) for name, values in others.items()}
    return dataclasses.replace(made, peak_bytes=np.asarray(peaks, np.int64), **columns)


@pytest.mark.parametrize(
    ("steps", "peaks", "rows"),
    [
        ([0, 1, 2], [5, 6, 7], [0, 1, 2]),
        ([0, 1, 1], [5, 6, 7], [0, 2]),  # of a repeated step, that of the higher peak
        ([0, 1, 1], [5, 9, 7], [0, 1]),
        ([2, 0, 1], [5, 6, 7], [1, 2, 0]),
        ([4, 4, 4], [5, 9, 7], [1]),
    ],
)
def test_each_step_has_the_row_of_its_highest_peak(
    steps: list[int], peaks: list[int], rows: list[int]
) -> None:
    chosen = one_row_a_step(np.asarray(steps), figures(peaks), np.ones(len(steps), np.bool_))
    assert chosen.tolist() == rows


def test_a_pool_is_measured_if_it_holds_what_is_said_of_it() -> None:
    of = figures(
        [9] * 6,
        in_use_bytes=[4, 4, 4, MISSING, 4, 4],
        largest_free_bytes=[6, 6, 6, 6, MISSING, 6],
        pool_bytes=[10, 11, 9, 10, 10, MISSING],
    )
    assert measured_pools(of).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("sizes", "dtype", "requested", "expected"),
    [
        ((2, 3), "float32", 24, TensorShape((2, 3), "float32")),
        ((2, 3), "float32", 25, None),
        ((), "int64", 8, TensorShape((), "int64")),
        ((0, 3), "float32", 0, TensorShape((0, 3), "float32")),
        ((-1, 3), "float32", 12, None),
        (None, "float32", 4, None),
        ((1,), None, 4, None),
        ((1,), "string", 8, None),
    ],
)
def test_a_shape_is_known_if_it_takes_exactly_the_requested_bytes(
    sizes: tuple[int, ...] | None, dtype: str | None, requested: int, expected: TensorShape | None
) -> None:
    assert tensor_shape(sizes, dtype, requested) == expected


@pytest.mark.parametrize(
    "name", sorted(set(DTYPE_BYTES) & {"bool", "float16", "float64", "int8", "uint16", "int32"})
)
def test_elements_have_the_bytes_of_numpys_types(name: str) -> None:
    assert DTYPE_BYTES[name] == np.dtype(name).itemsize


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[16,224,224,64]", (16, 224, 224, 64)),
        ("[7] float32", (7,)),
        ("[?,3]", None),
        ("[]", None),
        ("", None),
    ],
)
def test_dimensions_are_read_as_tensorflow_writes_them(
    written: str, expected: tuple[int, ...] | None
) -> None:
    assert dimensions(written) == expected
    assert dimensions(None) is None


def test_an_open_dimension_matches_any_size_and_a_rank_only_itself() -> None:
    assert matches((-1, 3), (7, 3)) and matches((), ())
    assert not matches((-1, 3), (7, 4)) and not matches((2, 3), (7, 3))
    assert not matches((-1,), (7, 3)) and not matches((7, 3), (7,))


ROWS = st.lists(
    st.builds(
        LedgerRow,
        layer=st.sampled_from(["a", "b", None]),
        category=st.sampled_from(CATEGORIES),
        trainable=st.sampled_from([True, False, None]),
        bytes=st.integers(0, 2**40),
        rounding_bytes=st.none() | st.integers(0, 2**40),
    ),
    max_size=30,
)


@given(ROWS)
def test_the_split_keeps_every_byte_with_its_layer_and_leaves_no_row_partly_rounding(
    rows: list[LedgerRow],
) -> None:
    split = split_rounding(rows)
    for layer in ("a", "b", None):
        for trainable in (True, False, None):
            before, after = (
                sum(row.bytes for row in some if (row.layer, row.trainable) == (layer, trainable))
                for some in (rows, split)
            )
            assert before == after
    owners = [(row.layer, row.category, row.trainable) for row in split]
    assert len(set(owners)) == len(owners) and all(row.bytes > 0 for row in split)
    for row in split:
        assert (
            row.rounding_bytes == row.bytes
            if row.category == "rounding"
            else row.rounding_bytes in (0, None)
        )
    known = sum(
        row.bytes if row.category == "rounding" else min(row.rounding_bytes or 0, row.bytes)
        for row in rows
    )
    assert rounding_total(split) == known == sum(row.rounding_bytes or 0 for row in split)
    assert split_rounding(split) == split


sizes = st.integers(0, 2**53 - 1) | st.just(MISSING)
columns = st.integers(1, 400).flatmap(
    lambda rows: st.lists(hnp.arrays(np.int64, rows, elements=sizes), min_size=1, max_size=3)
)


@given(columns, st.integers(10, 100), st.data())
def test_extremes_ends_and_wanted_rows_are_kept_in_order(
    given_columns: list[npt.NDArray[np.int64]], limit: int, data: st.DataObject
) -> None:
    # GIVEN columns and rows that must stay
    count = len(given_columns[0])
    always = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    # WHEN they are reduced
    rows = extreme_rows(given_columns, limit, always)
    # THEN rows are real, in order, each once, not many more than requested
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < count
    assert len(rows) <= limit + 2 + len(always) + 2 * len(given_columns)
    # AND ends and wanted rows are there, and the highest and lowest known value of every column
    assert {0, count - 1, *always} <= set(rows.tolist())
    for column in given_columns:
        assert column[rows].max() == column.max()
        known = column[column != MISSING]
        if len(known):
            kept = column[rows]
            assert kept[kept != MISSING].min() == known.min()


def test_every_one_of_200_lone_peaks_survives_100_000_steps() -> None:
    # GIVEN a flat series with 200 one-step peaks of different heights, at random places
    random = np.random.default_rng(7)
    series = np.full(100_000, 1_000)
    places = random.choice(100_000, 200, replace=False)
    series[places] += random.permutation(np.arange(1, 201))
    # WHEN it is reduced to one row in ten
    rows = extreme_rows([series], 10_000)
    # THEN every bucket of 20 steps keeps its highest peak
    buckets = np.linspace(0, 100_000, 5_001).astype(int)
    expected = {max(range(begin, end), key=series.__getitem__) for begin, end in pairwise(buckets)}
    assert expected & set(places.tolist()) <= set(rows.tolist())
