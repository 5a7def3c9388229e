"""XLA's modules and JAX's profiles of live arrays, also damaged ones."""

import contextlib
import gzip
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import read_dumped_module, read_live_arrays

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "xla"
MODULE = gzip.decompress((FIXTURES / "keras_cnn.hlo.pb.gz").read_bytes())
PROFILE = (FIXTURES / "keras_cnn.prof").read_bytes()


def test_arguments_have_names_readers_and_aliases() -> None:
    arguments = {one.name: one for one in read_dumped_module(MODULE).arguments}
    kernel, images = arguments["state[0][0]"], arguments["data[0]"]
    assert kernel.shape is not None and kernel.shape.shape == (3, 3, 32, 32)
    assert kernel.returned and not images.returned  # the state is donated
    # a kernel that is only read by a fusion or as a copy has the reader inside
    assert all("conv" in name for name in kernel.readers if "jvp" in name)


def test_live_arrays_have_the_line_of_the_program() -> None:
    arrays = read_live_arrays(PROFILE)
    assert {one.device for one in arrays} == {"CPU:0"}
    assert sum(one.bytes for one in arrays if one.function == "iterator_step") == 119_568
    assert all(one.line is None or one.line.startswith("make.py:") for one in arrays)


@pytest.mark.parametrize("read", [read_dumped_module, read_live_arrays])
@pytest.mark.parametrize("data", [b"", b"\xff" * 100, MODULE[: len(MODULE) // 2], PROFILE[:900]])
def test_what_is_damaged_is_refused(read, data) -> None:
    with pytest.raises(FormatError, match="damaged"):
        read(data)


def test_a_bomb_is_refused() -> None:
    with pytest.raises(FormatError, match="of more than"):
        read_live_arrays(gzip.compress(b"\0" * (65 << 20)))
    with pytest.raises(FormatError, match="larger than the limit"):
        read_dumped_module(bytes((64 << 20) + 1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(MODULE) - 1), st.integers(0, 255)), max_size=20))
def test_a_changed_module_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(MODULE)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(FormatError):
        read_dumped_module(bytes(data))
