"""A traced step as a profile for pprof: gzip-compressed ``profile.proto``.

A sample is the allocations of one op for one layer. Its stack is the op, at the line of the program, and the layer with
the layers around it; its labels are the category and the shape of the tensor.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from tb_memplugin.export.steps import layer_names, split_row_rounding
from tb_memplugin.model import Timeline

SAMPLE_TYPES = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)
"""Values of a sample: allocated in the step, and allocated at its peak; the names are those of Go's heap profiles."""

_Frame: TypeAlias = tuple[str, str, int]
"""Name, file and line."""
_Labels: TypeAlias = tuple[tuple[str, str], ...]


def pprof(run: str, timeline: Timeline) -> bytes:
    """The file's content."""
    message = _Profile()
    for kind, unit in SAMPLE_TYPES:
        message.add(1, _integer(1, message.text(kind)) + _integer(2, message.text(unit)))
    for (frames, labels), values in _samples(timeline).items():
        locations = [message.location(frame) for frame in frames]
        sample = _packed(1, locations) + _packed(2, values)
        for key, value in labels:
            sample += _bytes(3, _integer(1, message.text(key)) + _integer(2, message.text(value)))
        message.add(2, sample)
    about = f"tb_memplugin: run {run}, step {timeline.step}, phase {timeline.phase}, device {timeline.device}"
    return message.finished(about, round(timeline.wall_time * 1e9), timeline.duration_ns)


def _samples(timeline: Timeline) -> dict[tuple[tuple[_Frame, ...], _Labels], list[int]]:
    """Stack and labels to their values; allocations with the same ones are added."""
    requested, rounding = (values.tolist() for values in split_row_rounding(timeline))
    samples: dict[tuple[tuple[_Frame, ...], _Labels], list[int]] = defaultdict(lambda: [0] * len(SAMPLE_TYPES))
    for row in range(len(timeline)):
        owner = timeline.owners[timeline.owner[row]]
        frames = (_op_frame(timeline, row), *((name, "", 0) for name in layer_names(owner.layer)))
        start, end, count = int(timeline.start[row]), int(timeline.end[row]), int(timeline.count[row])
        at_peak = start <= timeline.peak < end
        for category, size, number in ((owner.category, requested[row], count), ("rounding", rounding[row], 0)):
            if size or number:
                values = samples[frames, (("category", category), *_shape_label(timeline, row))]
                allocated = (number * (start > 0), size * (start > 0), number * at_peak, size * at_peak)
                values[:] = [old + new for old, new in zip(values, allocated, strict=True)]
    return {key: values for key, values in samples.items() if any(values)}


def _op_frame(timeline: Timeline, row: int) -> _Frame:
    op, line = int(timeline.op[row]), int(timeline.line[row])
    if op < 0:
        return "allocated before the step" if timeline.start[row] == 0 else "op unknown", "", 0
    file, _, number = timeline.lines[line].rpartition(":") if line >= 0 else ("", "", "")
    return timeline.ops[op], file, int(number) if number.isdecimal() else 0


def _shape_label(timeline: Timeline, row: int) -> _Labels:
    shape = int(timeline.shape[row])
    if shape < 0:
        return ()
    tensor = timeline.shapes[shape]
    return (("shape", f"[{','.join(map(str, tensor.shape))}] {tensor.dtype}"),)


class _Profile:
    """Builds the message ``perftools.profiles.Profile``."""

    def __init__(self) -> None:
        self._fields: list[bytes] = []
        self._texts: dict[str, int] = {"": 0}
        self._locations: dict[_Frame, int] = {}

    def add(self, number: int, content: bytes) -> None:
        """Append a message field."""
        self._fields.append(_bytes(number, content))

    def text(self, text: str) -> int:
        """Index of a text in the table of strings."""
        return self._texts.setdefault(text, len(self._texts))

    def location(self, frame: _Frame) -> int:
        """Identifier of a frame's location, whose function has the same one."""
        identifier = self._locations.get(frame)
        if identifier is None:
            identifier = self._locations[frame] = len(self._locations) + 1
            name, file, line = frame
            self.add(4, _integer(1, identifier) + _bytes(4, _integer(1, identifier) + _integer(2, line)))
            named = _integer(2, self.text(name)) + _integer(3, self.text(name)) + _integer(4, self.text(file))
            self.add(5, _integer(1, identifier) + named)
        return identifier

    def finished(self, comment: str, time_ns: int, duration_ns: int) -> bytes:
        """The compressed message."""
        last = _integer(9, time_ns) + _integer(10, duration_ns)
        last += _integer(13, self.text(comment)) + _integer(14, self.text(SAMPLE_TYPES[-1][0]))
        texts = (_bytes(6, text.encode("utf-8", "replace")) for text in self._texts)
        return gzip.compress(b"".join([*self._fields, last, *texts]), mtime=0)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers have ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _packed(number: int, values: Iterable[int]) -> bytes:
    return _bytes(number, b"".join(map(_varint, values)))
