"""Reads the live arrays of a JAX device memory profile (`jax.profiler.save_device_memory_profile`),
a gzipped pprof. It knows who made an array, and nothing of shapes or layers."""

import functools
import zlib
from typing import Any, NamedTuple

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import wire
from tb_memplugin.importers.hlo_instructions import source_line

MAX_PPROF_BYTES = 64 << 20  # uncompressed
# Of pprof's profile.proto.
_MESSAGES = {
    "Label": "key 1 int64, str 2 int64",
    "Sample": "location_id 1 uint64[], value 2 int64[], label 3 Label[]",
    "Line": "function_id 1 uint64, line 2 int64",
    "Location": "id 1 uint64, line 4 Line[]",
    "Function": "id 1 uint64, name 2 int64, filename 4 int64",
    "Profile": "sample 2 Sample[], location 4 Location[], function 5 Function[], "
    "string_table 6 bytes[]",
}


class LiveArrays(NamedTuple):
    """Arrays that one call stack made: the function that asked JAX for them, and the program's line
    (None if all of the stack is of installed packages)."""

    device: str
    function: str
    line: str | None
    arrays: int
    bytes: int


@functools.cache
def _profile_class() -> Any:
    return wire.message_classes("pprof", _MESSAGES)["Profile"]


def read_live_arrays(data: bytes) -> list[LiveArrays]:
    """The arrays, the largest first; a FormatError for other files."""
    unzip = zlib.decompressobj(wbits=31)
    profile = _profile_class()()
    try:
        profile.ParseFromString(unzip.decompress(data, MAX_PPROF_BYTES))
        if unzip.unconsumed_tail or not unzip.eof:
            raise ValueError
        found = list(filter(None, map(_Stacks(profile).arrays, profile.sample)))
    except Exception:  # zlib's, protobuf's, and those of a table that misses entries
        raise FormatError(
            "not a device memory profile of JAX (jax.profiler.save_device_memory_profile), damaged,"
            f" or of more than {MAX_PPROF_BYTES} bytes"
        ) from None
    return sorted(found, key=lambda one: -one.bytes)


class _Stacks:
    def __init__(self, profile: Any) -> None:
        self._texts = profile.string_table
        self._locations = {one.id: one for one in profile.location}
        self._functions = {one.id: one for one in profile.function}

    def arrays(self, sample: Any) -> LiveArrays | None:
        """The arrays of a sample; None if it is of compiled programs, whose size JAX leaves out."""
        labels = {self._text(one.key): self._text(one.str) for one in sample.label}
        if labels.get("kind") != "buffer":
            return None
        frames = [
            (self._functions[line.function_id], line.line)
            for number in sample.location_id
            for line in self._locations[number].line
        ]
        callers = [one for one, _ in frames if b"jax/_src/" not in self._texts[one.filename]]
        lines = (source_line(self._texts[one.filename], line) for one, line in frames)
        count, size = sample.value
        device = labels.get("device", "").upper()
        return LiveArrays(
            device,
            self._text(callers[0].name) if callers else "",
            next(filter(None, lines), None),
            count,
            size,
        )

    def _text(self, number: int) -> str:
        return str(self._texts[number].decode("utf-8", "replace"))
