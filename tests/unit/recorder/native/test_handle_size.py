"""The size of a variable's handle, as the allocator's maps before and after some new handles show it."""

from types import SimpleNamespace
from typing import Any

import pytest
from dump_cases import CHUNKS, Chunk, make_dump

from tb_memplugin.recorder.native import handle_size

HANDLES: list[Chunk] = [(0x20000 + 256 * place, 256, 40, True) for place in range(handle_size._PROBES)]


def size_between(before: list[Chunk] | None, after: list[Chunk] | None) -> int | None:
    dumps = iter(None if listed is None else make_dump(b"CPU", 0, listed) for listed in (before, after))
    maps: Any = SimpleNamespace(read=lambda device: next(dumps))
    return handle_size.resource_handle_bytes(maps, "CPU:0")


def test_it_is_what_as_many_chunks_as_handles_have_more() -> None:
    assert size_between(CHUNKS, [*CHUNKS, *HANDLES]) == 40
    # ALSO beside another thread's new chunks
    others: list[Chunk] = [(0x90000, 512, 500, True), (0x90200, 512, 500, True)]
    assert size_between(CHUNKS, [*CHUNKS, *HANDLES, *others]) == 40


@pytest.mark.parametrize("after", [CHUNKS, None, [*CHUNKS, *HANDLES[1:]]])
def test_it_is_unknown_if_the_maps_do_not_show_each_handle(after: list[Chunk] | None) -> None:
    assert size_between(CHUNKS, after) is None
