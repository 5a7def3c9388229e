"""Shapes as TensorFlow writes them, and the shapes that a request can have."""

import numpy as np
import pytest

from tb_memplugin.schema import DTYPE_BYTES, TensorShape, dimensions, matches, tensor_shape


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


@pytest.mark.parametrize("name", sorted(set(DTYPE_BYTES) & {"bool", "float16", "float64", "int8", "uint16", "int32"}))
def test_elements_have_the_bytes_of_numpys_types(name: str) -> None:
    assert DTYPE_BYTES[name] == np.dtype(name).itemsize


@pytest.mark.parametrize(
    ("written", "expected"),
    [("[16,224,224,64]", (16, 224, 224, 64)), ("[7] float32", (7,)), ("[?,3]", None), ("[]", None), ("", None)],
)
def test_dimensions_are_read_as_tensorflow_writes_them(written: str, expected: tuple[int, ...] | None) -> None:
    assert dimensions(written) == expected
    assert dimensions(None) is None


def test_an_open_dimension_matches_any_size_and_a_rank_only_itself() -> None:
    assert matches((-1, 3), (7, 3)) and matches((), ())
    assert not matches((-1, 3), (7, 4)) and not matches((2, 3), (7, 3))
    assert not matches((-1,), (7, 3)) and not matches((7, 3), (7,))
