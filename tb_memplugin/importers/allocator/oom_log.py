"""Reads the log of TensorFlow's allocator after a failed allocation, in the formats of TensorFlow 1.x to 2.21.

A log may lack lines, contain unrelated ones, and interleave the dumps of several threads or devices. Whatever the lines
do not prove is unknown, and a note says so.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.allocator.log_dump import LogDump
from tb_memplugin.importers.allocator.log_numbers import log_integer
from tb_memplugin.importers.profile.xplane import device_name
from tb_memplugin.model import MemoryMap

MAX_LOG_BYTES = 1 << 30
"""Largest supported log."""
MAX_LINE_CHARACTERS = 20_000
"""Of a longer line only the beginning is read; TensorFlow's lines are much shorter."""
MAX_REQUEST_BYTES = 2**53 - 1
"""A larger request is unknown: it cannot be right, and no run can store it."""

DTYPE_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "float8_e5m2": 1,
    "float8_e4m3fn": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
}
"""TensorFlow's name of an element type (DataTypeString) to the bytes of an element."""

_PREFIX = re.compile(
    r"^(?:[IWEF]\d{4} \d\d:\d\d:[\d.:]+\s+(?P<thread>\d+) \S+:\d+\] ?"  # I0000 00:00:1795171370.207 15514 x.cc:1105]
    r"|(?:\S+ )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*: [IWEF] \S+:\d+\] ?"  # 2020-09-23 13:19:36.310831: I x.cc:905]
    r"|[IWEF] \S+:\d+\] ?)"
)
_FAILED = re.compile(
    r"Allocator \((?P<name>[^()]{0,200})\) ran out of memory trying to allocate (?P<size>[\d.]+ ?[KMGTP]?i?B)"
    r"(?:\s*\(rounded to (?P<rounded>\d+)\))?(?:\s*requested by op (?P<op>\S*))?"
)
_TOLERATED = "The caller indicates that this is not a failure"
_DUMP = re.compile(r"BFCAllocator dump for (?P<name>\S+)")
_TENSOR = re.compile(
    r"OOM when allocating tensor with shape ?(?P<shape>\[[\d,]*\])(?: and type (?P<type>\w+))?"
    r"(?: on (?P<device>\S+))?(?: by allocator (?P<allocator>\S+))?"
)
_NODE = re.compile(r"\[\[(?:\{\{)?node (?P<node>[^\s}\]]+)")
_XLA_BYTES = re.compile(
    r"[Oo]ut of memory (?:while )?trying to allocate (?:(?P<bytes>\d+) bytes|(?P<size>\d+(?:\.(?P<digits>\d+))?) ?"
    r"(?P<unit>[KMGTP]i)?B\b)"
)
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


@dataclasses.dataclass(frozen=True)
class Request:
    """A failed allocation according to an error message; None for what the message does not say.

    Attributes:
        requested_bytes: Size of the request.
        op: Name of the graph's node, in eager mode the op's type.
        shape: Shape and type, e.g. ``[16,224,224,64] float``.
        device: ``GPU:0``.
        allocator: The allocator's name.
        uncertain_bytes: By how much the request may be larger or smaller, as the message rounds it.
        compiled: Whether an XLA module made the request.
    """

    requested_bytes: int | None = None
    op: str | None = None
    shape: str | None = None
    device: str | None = None
    allocator: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False


def read_message(message: str) -> Request | None:
    """The request in the message of a ResourceExhaustedError; None if the message is not about memory."""
    tensor = _TENSOR.search(message)
    node = _NODE.search(message, tensor.end() if tensor else 0) or _NODE.search(message)
    op = node["node"] if node else _other_name(message)
    if tensor is None:
        size = _XLA_BYTES.search(message)
        if size is None and "out of memory" not in message.lower() and "OOM" not in message:
            return None
        return Request(op=op) if size is None else _compiled(size, op)
    return Request(
        requested_bytes=_tensor_bytes(tensor["shape"], tensor["type"]),
        op=op,
        shape=f"{tensor['shape']} {tensor['type']}" if tensor["type"] else tensor["shape"],
        device=tensor["device"].rsplit("device:", 1)[-1] if tensor["device"] else None,
        allocator=tensor["allocator"],
    )


def _compiled(size: "re.Match[str]", op: str | None) -> Request:
    """The request in an XLA message: exact bytes, or in newer versions a rounded size such as ``145.20MiB``."""
    if size["bytes"]:
        return Request(requested_bytes=log_integer(size["bytes"]), op=op, compiled=True)
    unit = 1 << (10 * _UNITS.index(size["unit"] or ""))
    uncertain = round(unit / 10 ** len(size["digits"] or "") / 2) if unit > 1 else 0
    return Request(requested_bytes=round(float(size["size"]) * unit), op=op, uncertain_bytes=uncertain, compiled=True)


def _other_name(message: str) -> str | None:
    """The graph node that a message names elsewhere; for an eager op, its type."""
    node = re.search(r"Detected at node (\S+)", message)
    if node:
        return node[1].strip("'\"")
    eager = re.search(r"\[Op:(?!__)(\w+)\]", message)
    return eager[1] if eager else None


def _tensor_bytes(shape: str, dtype: str | None) -> int | None:
    element = DTYPE_BYTES.get((dtype or "").removesuffix("_ref"))
    if element is None:
        return None
    size = element
    for dimension in shape.strip("[]").split(","):
        size *= log_integer(dimension) if dimension else 1
        if size > MAX_REQUEST_BYTES:
            return None
    return size


@dataclasses.dataclass(frozen=True)
class LoggedFailure:
    """One failed allocation in a log.

    Attributes:
        map: The chunks that the log lists; None without any.
        request: The failed request.
        rounded_bytes: The request as the allocator rounded it, None if unknown.
        notes: Sentences on what is unknown.
    """

    map: MemoryMap | None
    request: Request
    rounded_bytes: int | None
    device: str
    notes: tuple[str, ...]


def read_log(text: str, wall_time: float) -> list[LoggedFailure]:
    """The failed allocations in a log, in order, without those that TensorFlow tolerated.

    Raises:
        FormatError: The log has none.
    """
    reader = _LogReader()
    for thread, line in _lines(text.splitlines()):
        reader.take(thread, line)
    failures = reader.finish(wall_time)
    if not failures:
        tolerated = f" but {reader.tolerated} that TensorFlow tolerated" if reader.tolerated else ""
        raise FormatError(
            f"the log of {len(text)} characters has no failed allocation{tolerated}: expected lines such as "
            "'Allocator (GPU_0_bfc) ran out of memory trying to allocate …' or 'OOM when allocating tensor …'"
        )
    return failures


def _lines(lines: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """(thread, text without its prefix); a line without a prefix belongs to the thread of the previous one."""
    thread: str | None = None
    for line in lines:
        line = line[:MAX_LINE_CHARACTERS]
        match = _PREFIX.match(line)
        if match is not None:
            thread = match["thread"]
            line = line[match.end() :]
        yield thread, line


class _LogReader:
    """Collects failures, separately for each thread if the log names threads."""

    def __init__(self) -> None:
        self.tolerated = 0
        self._dumps: list[LogDump] = []
        self._open: dict[str | None, LogDump] = {}
        self._messages: list[tuple[Request, LogDump | None]] = []

    def take(self, thread: str | None, line: str) -> None:
        """Read one line."""
        failed = _FAILED.search(line)
        if failed is not None:
            if _TOLERATED in line:
                self.tolerated += 1
                return
            self._begin(thread, failed["name"], failed["rounded"], failed["op"])
            return
        dump = self._open.get(thread)
        named = _DUMP.search(line)
        if named is not None and (dump is None or dump.has_chunks or dump.name != named["name"]):
            dump = self._begin(thread, named["name"], None, None)
        message = _TENSOR.search(line)
        if message is not None:
            self._add_message(line)
        elif dump is not None:
            dump.take(line)
        node = _NODE.search(line)
        if node is not None and self._messages and self._messages[-1][0].op is None:
            request, its_dump = self._messages[-1]
            self._messages[-1] = (dataclasses.replace(request, op=node["node"]), its_dump)

    def _begin(self, thread: str | None, name: str, rounded: str | None, op: str | None) -> LogDump:
        before = self._open.get(thread)
        dump = LogDump(name, log_integer(rounded) if rounded else None, op or None)
        if before is not None and not before.ended and before.has_chunks and before.name != name:
            # From here on, the lines of the two allocators cannot be told apart.
            before.mixed = dump.mixed = True
        self._open[thread] = dump
        self._dumps.append(dump)
        return dump

    def _add_message(self, line: str) -> None:
        """Assign a message with shape and type to the last dump of that allocator with the same request."""
        request = read_message(line)
        if request is None or any(self._same(request, known) for known, _ in self._messages):
            return
        fitting = [dump for dump in self._dumps if dump.fits(request.requested_bytes, request.allocator)]
        assigned = {id(dump) for _, dump in self._messages}
        dump = next((dump for dump in reversed(fitting) if id(dump) not in assigned), None)
        self._messages.append((request, dump))

    @staticmethod
    def _same(request: Request, known: Request) -> bool:
        """Whether a message repeats another: TensorFlow logs one several times, at last with the node's name."""
        return (request.shape, request.device) == (known.shape, known.device) and (
            request.op is None or known.op is None or request.op == known.op
        )

    def finish(self, wall_time: float) -> list[LoggedFailure]:
        """The collected failures."""
        failures = []
        requests = {id(dump): request for request, dump in self._messages if dump is not None}
        for dump in self._dumps:
            request = requests.get(id(dump))
            device = (request.device if request else None) or device_name(dump.name)
            memory_map, notes = dump.map(device, wall_time)
            if request is None or request.requested_bytes is None:
                if dump.rounded_bytes is not None:
                    notes.append("The exact size of the request is unknown: the log rounds it up to 256 bytes.")
                request = request or Request(allocator=dump.name)
                request = dataclasses.replace(request, requested_bytes=dump.rounded_bytes)
            request = dataclasses.replace(request, op=request.op or dump.op)
            failures.append(LoggedFailure(memory_map, request, dump.rounded_bytes, device, tuple(notes)))
        for request, its_dump in self._messages:
            if its_dump is None:
                device = request.device or device_name(request.allocator or "")
                note = "The chunks are unknown: the log lacks the dump of this failure."
                failures.append(LoggedFailure(None, request, None, device, (note,)))
        return failures
