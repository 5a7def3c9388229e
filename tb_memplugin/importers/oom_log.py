"""Reads the log of TensorFlow's allocator after a failed allocation, in the formats of TensorFlow
1.x to 2.21.

A log may lack lines, contain unrelated ones, and interleave the dumps of several threads or
devices. Often only its end was kept. Whatever the lines do not prove is unknown, and a note says
so."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.keras_calls import KerasCall, keras_calls
from tb_memplugin.importers.log_dump import (
    PRINTED_SIZE,
    LogDump,
    is_of_dump,
    log_integer,
    printed_bytes,
)
from tb_memplugin.importers.xplane import device_name
from tb_memplugin.schema import DTYPE_BYTES, MAX_BYTES, MemoryMap, format_bytes, is_pinned

MAX_LOG_BYTES = 1 << 30
MAX_LINE_CHARACTERS = 20_000
"""Of a longer line only the beginning is read; TensorFlow's lines are much shorter."""
MAX_PROTO_LINES = 200

_TYPE_BYTES = {**DTYPE_BYTES, "float": 4, "double": 8, "half": 2}
"""TensorFlow's name of an element type (DataTypeString) to the bytes of an element."""

_PREFIX = re.compile(
    r"^.{0,120}?(?<![^\s>|:])"
    r"(?:[IWEF]\d{4} \d\d:\d\d:[\d.:]+\s+(?P<thread>\d+)|[IWEF]) \S+\.\w+:\d+\] ?"
)
"""``I0000 00:00:1795171370.207 15514 x.cc:1105]``, ``2020-09-23 13:19:36.310831: I x.cc:905]`` or
``I x.cc:905]``, and what a job's launcher puts before it."""
_FAILED = re.compile(
    r"Allocator \((?P<name>[^()]{0,200})\) ran out of memory trying to allocate "
    rf"(?P<size>{PRINTED_SIZE})"
    r"(?:\s*\(rounded to (?P<rounded>\d+)\))?(?:\s*requested by op (?P<op>\S*))?"
)
_TOLERATED = "The caller indicates that this is not a failure"
_DUMP = re.compile(r"BFCAllocator dump for (?P<name>\S+)")
_BIN = re.compile(r"Bin \(\d+\):\s*Total Chunks")
_ENDED = re.compile(
    rf"\bRan out of memory trying to allocate (?P<size>{PRINTED_SIZE})\.  See logs for memory "
    r"state"
)
"""TensorFlow 1.0 and 1.1 write the dump first, without the allocator's name, and then this line."""
_TENSOR = re.compile(
    r"OOM when allocating tensor (?:with|of) shape ?"
    r"(?:(?P<shape>\[[\d,]*\])|(?P<dims>(?:\s?dim \{ size: \d+ \})+))(?: and type (?P<type>\w+))?"
    r"(?: on (?P<device>\S+))?(?: by allocator (?P<allocator>\S+))?"
)
_NODE = re.compile(
    r"\[\[(?:\{\{function_node [^}]*\}\})*(?:(?:\{\{)?node |Node: )(?P<node>[^\s}\]]+)"
)
_NODE_TYPE = re.compile(r"[\[, ](?P<name>\w{1,20})=DT_(?P<type>[A-Z0-9_]+)")
_OF_RESULT = (
    *("DstT", "Tout", "dtype", "output_type", "out_type", "Tcomplex"),
    *("Tparams", "tensor_type", "T"),
)
"""A node's attributes with the type of its result, the first that it has: `T` may be that of an
input."""
_COMPARING = re.compile(r" = (?:Not)?(?:Equal|Less|Greater|Logical|Is)\w*\[")
"""Ops with a boolean result and the type of their inputs as `T`."""
_COPY = "Dst tensor is not initialized"
"""TensorFlow's message if a copy to a device finds no memory there."""
_COPIED = re.compile(
    r" to \S*/(?:device:)?(?P<kind>[a-zA-Z]+):(?P<number>\d{1,4}) in order to run (?P<op>\w+)"
)
_UNSIZED = "failed to allocate memory"
_PROTO = "Cannot parse tensor from proto"
"""TensorFlow's message if there is no memory for a constant or an initial value, among other
reasons."""
_OF_PROTO = re.compile(r"tensor_shape|dim|size:|dtype:|DT_\w+|[{}]|-?\d+")
_DETECTED = re.compile(r"Detected at node (\S+)")
_EAGER = re.compile(r"\[Op:(?!__)(\w+)\]")
_EAGER_DEVICE = re.compile(
    r"__wrapped__(?P<op>\w{1,200})_device_\S{0,200}?/device:(?P<kind>[a-zA-Z]+):(?P<number>\d{1,4})"
)
"""Function names of eager ops: ``__wrapped__Mul_device_/job:localhost/…/device:GPU:0``."""
_NODE_DEVICE = re.compile(
    r'[\[ ]_device="[^"\s]*/(?:device:)?(?P<kind>[a-zA-Z]+):(?P<number>\d{1,4})"'
)
_PROTO_TENSOR = re.compile(
    r"dtype: DT_(?P<type>\w+)\s+tensor_shape \{(?P<dimensions>(?:\s*dim \{\s*size: \d+\s*\})*)\s*\}"
)
_MEMORY = re.compile(
    r"\bOOM when allocating\b|\bout of memory\b|\bfailed to allocate\b", re.IGNORECASE
)
"""What a ResourceExhaustedError says if memory is what ran out; files and quotas run out as
well."""
_FILE_ERROR = re.compile(
    r"Too many open files|No space left on device|Disk quota exceeded",
    re.IGNORECASE,
)
_PIPELINE = re.compile(
    r"Error in user-defined function passed to|\bIterator::Root\b|\bIteratorGetNext\b"
)
_XLA_BYTES = re.compile(
    r"(?:[Oo]ut of memory (?:(?:while )?trying to allocate|allocating) "
    rf"|Failed to allocate request for {PRINTED_SIZE} \()"
    rf"(?:(?P<bytes>\d+)(?: bytes|B\) on device ordinal)|(?P<size>{PRINTED_SIZE})\b)"
)


_COPY_NOTE = (
    f"A tensor was to be copied to the device: TensorFlow says {_COPY!r} if there is no memory "
    "for it."
)


@dataclasses.dataclass(frozen=True)
class Request:
    """A failed allocation according to an error message; None for what the message does not say.

    Attributes:
        op: Name of the graph's node, in eager mode the op's type.
        shape: Shape and type, e.g. ``[16,224,224,64] float``.
        allocator: The allocator's name.
        uncertain_bytes: By how much the request may be larger or smaller, as the message rounds it.
        compiled: Whether an XLA module made the request.
        trials: Whether algorithms were tried and none got the memory that it asked for, each of
            another size.
        copy: Whether a tensor was to be copied to the device.
        eager, pipeline: Whether Python ran the op, not a function, and whether it is one of an
            input pipeline.
        layer: The layer whose call failed; in Keras 3 its type.
        library: The library that requested memory for itself, outside of the allocator; None if
            TensorFlow requested it."""

    requested_bytes: int | None = None
    op: str | None = None
    shape: str | None = None
    device: str | None = None
    allocator: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False
    trials: bool = False
    copy: bool = False
    eager: bool = False
    pipeline: bool = False
    layer: str | None = None
    library: str | None = None


def read_message(message: str) -> Request | None:
    """The request in the message of a ResourceExhaustedError; None if the message is not about
    memory."""
    tensor, size = _TENSOR.search(message), _XLA_BYTES.search(message)
    if tensor is not None:
        request = _request_of(message, tensor.end())
        shape = tensor["shape"] or _shape_of(re.findall("[0-9]+", tensor["dims"]))
        device, allocator = tensor["device"], tensor["allocator"]
        if allocator is not None and is_pinned(allocator):  # the message says CPU:0
            device = allocator
        device = device.rsplit("device:", 1)[-1] if device else request.device
        request = dataclasses.replace(request, device=device, allocator=allocator)
        return _with_tensor(request, shape, tensor["type"])
    if size is not None:
        # exact bytes, or in newer versions a rounded size such as ``145.20MiB``
        exact, op = size["bytes"], _op_of(message)
        requested, uncertain = (log_integer(exact), 0) if exact else printed_bytes(size["size"])
        return Request(requested, op, uncertain_bytes=uncertain, compiled=True)
    about_memory = _MEMORY.search(message) is not None and _FILE_ERROR.search(message) is None
    return _request_of(message) if about_memory else None


def read_proto_message(message: str) -> Request:
    """The request of a kernel that found no memory for its constant, whose message has dtype and
    shape of it."""
    return _with_proto_tensor(_request_of(message), message)


def _with_proto_tensor(request: Request, text: str) -> Request:
    proto = _PROTO_TENSOR.search(text)
    if proto is None:
        return request
    shape = _shape_of(re.findall(r"[0-9]+", proto["dimensions"]))
    return _with_tensor(request, shape, proto["type"].lower())


def _shape_of(sizes: Iterable[str]) -> str:
    return f"[{','.join(sizes)}]"


def _with_tensor(request: Request, shape: str, type_name: str | None) -> Request:
    size = _tensor_bytes(shape, (type_name or "").removesuffix("_ref"))
    return dataclasses.replace(
        request, requested_bytes=size, shape=f"{shape} {type_name}" if type_name else shape
    )


def _request_of(message: str, after: int = 0) -> Request:
    return Request(
        op=_op_of(message, after),
        device=_device(_EAGER_DEVICE.search(message)),
        eager=_EAGER.search(message) is not None,
        pipeline=_PIPELINE.search(message) is not None,
    )


def _op_of(message: str, after: int = 0) -> str | None:
    node = _NODE.search(message, after) or _NODE.search(message)
    return node["node"] if node else _other_name(message)


def _other_name(message: str) -> str | None:
    node = _DETECTED.search(message)
    if node is not None:
        return node[1].strip("'\"")
    eager = _EAGER.search(message) or _EAGER_DEVICE.search(message)
    return eager[1] if eager else None


def _tensor_bytes(shape: str, element: str | int) -> int | None:
    """Bytes of a tensor whose elements have a type, or so many bytes."""
    size = _TYPE_BYTES.get(element) if isinstance(element, str) else element
    if size is None:
        return None
    for dimension in shape.strip("[]").split(","):
        size *= log_integer(dimension) if dimension else 1
        if size > MAX_BYTES:  # it cannot be right, and no run can store it
            return None
    return size


@dataclasses.dataclass(frozen=True)
class LoggedFailure:
    """One failed allocation in a log: its chunks, the request, and what is unknown."""

    map: MemoryMap | None
    request: Request
    device: str
    notes: tuple[str, ...]
    in_use_bytes: int | None = None
    capacity_bytes: int | None = None


def read_log(text: str, wall_time: float, required: bool = True) -> list[LoggedFailure]:
    """The failed allocations in a log, in order, without those that TensorFlow tolerated; a
    `FormatError` without any if they are `required`, or if there may have been one."""
    reader = _LogReader()
    thread: str | None = None  # a line without a prefix belongs to the thread of the previous one
    for line in text.splitlines():
        line = line[:MAX_LINE_CHARACTERS]
        prefix = _PREFIX.match(line)
        if prefix is not None:
            thread, line = prefix["thread"], line[prefix.end() :]
        reader.take(thread, line)
    failures = reader.finish(wall_time)
    if not failures and (required or reader.hint()):
        tolerated = f" but {reader.tolerated} that TensorFlow tolerated" if reader.tolerated else ""
        raise FormatError(
            f"the log of {len(text)} characters has no failed "
            f"allocation{tolerated}{reader.hint()}: expected lines such as 'Allocator (GPU_0_bfc) "
            "ran out of memory trying to allocate …' or 'OOM when allocating tensor …'"
        )
    calls = tuple(keras_calls(text))
    return [_in_call(one, calls) for one in failures]


def _in_call(failure: LoggedFailure, calls: Sequence[KerasCall]) -> LoggedFailure:
    """The failure with its layer, if it is the only one whose call failed at such an op, and with
    the size if that follows from the call's arguments."""
    request, notes = failure.request, failure.notes
    op = request.op
    found = [one for one in calls if op is not None and _op_of(one.message) == op]
    if op is None or not found or any(one[1:] != found[0][1:] for one in found):
        return failure
    call, result = found[0], found[0].result_of(op)
    request = dataclasses.replace(request, layer=call.layer)
    if not call.named:
        notes += (f"The name of the layer of type {call.layer} is unknown: Keras logs its type.",)
    if result is not None and request.requested_bytes is None:
        request = _with_tensor(request, *result.split())
        notes += (
            f"The size is inferred: the result of {op} in layer {call.layer} has the shape of the "
            "layer's inputs.",
        )
    return dataclasses.replace(failure, request=request, notes=notes)


class _LogReader:
    """Collects failures, by thread if the log names threads."""

    def __init__(self) -> None:
        self.tolerated = 0
        self._dumps: list[LogDump] = []
        self._open: dict[str | None, LogDump] = {}
        self._messages: list[tuple[Request, LogDump | None]] = []
        self._proto: list[str] = []  # lines of the last tensor that was not parsed
        self._in_proto = False

    def take(self, thread: str | None, line: str) -> None:
        failed = _FAILED.search(line)
        if failed is not None and _TOLERATED in line:
            self.tolerated += 1
            return
        if failed is not None:
            rounded = log_integer(failed["rounded"]) if failed["rounded"] else None
            begun = self._begin(thread, LogDump(failed["name"], rounded, failed["op"] or None))
            begun.printed = printed_bytes(failed["size"])
            return
        if self._takes_proto(line):
            return
        dump = self._open.get(thread)
        headless = dump is None or (not dump.name and dump.begins_another(line))
        begins = _BIN.search(line) is not None and (dump is None or dump.ended)
        if begins or (headless and is_of_dump(line)):
            dump = self._begin(thread, LogDump())
        ended, named = _ENDED.search(line), _DUMP.search(line)
        if ended is not None:
            if dump is None or dump.name:
                dump = self._begin(thread, LogDump())
            dump.printed, dump.ended = printed_bytes(ended["size"]), True
            return
        if named is not None and (dump is None or dump.has_chunks or dump.name != named["name"]):
            dump = self._begin(thread, LogDump(named["name"]))
        request = _request_in(line)
        if request is not None:
            self._add_message(request)
        elif dump is not None:
            dump.take(line)
        self._name_node(line)

    def _name_node(self, line: str) -> None:
        """The node of the last message, which may be in a line behind it."""
        node = _NODE.search(line)
        if node is None or not self._messages:
            return
        request, dump = self._messages[-1]
        if request.op in (None, node["node"]):
            device = request.device or _device(_NODE_DEVICE.search(line))
            request = dataclasses.replace(request, op=node["node"], device=device)
            typed = _with_type(request, line)
            fits = dump is None or dump.fits(_possible_sizes(typed), None)
            self._messages[-1] = (typed if fits else request, dump)

    def _takes_proto(self, line: str) -> bool:
        if _PROTO in line:
            self._in_proto = self._tensor_of_proto().shape is None
            if self._in_proto:  # of several, the first one
                self._proto = [line.partition(_PROTO)[2].removeprefix(":")]
            return True
        self._in_proto = self._in_proto and all(_OF_PROTO.fullmatch(word) for word in line.split())
        if self._in_proto and len(self._proto) < MAX_PROTO_LINES:
            self._proto.append(line)
        return self._in_proto

    def _tensor_of_proto(self) -> Request:
        return _with_proto_tensor(Request(), " ".join(self._proto))

    def hint(self) -> str:
        """What may have been a failed allocation, in words that continue a sentence; empty without
        any."""
        if not self._proto:
            return ""
        tensor, needed = self._tensor_of_proto(), ""
        if tensor.requested_bytes is not None:
            needed = f", here {format_bytes(tensor.requested_bytes)} for {tensor.shape}"
        return (
            f", but {_PROTO!r}: there may have been no memory for a constant or an initial "
            f"value{needed}"
        )

    def _begin(self, thread: str | None, dump: LogDump) -> LogDump:
        before = self._open.get(thread)
        if before is not None and not before.ended and before.has_chunks:
            # From here on, the lines of two allocators cannot be told apart.
            dump.mixed = before.name != dump.name
            before.mixed = before.mixed or dump.mixed
        self._open[thread] = dump
        self._dumps.append(dump)
        return dump

    def _add_message(self, request: Request) -> None:
        """Assign the request of a message to the last dump of that allocator with the same
        request."""
        for at, (known, dump) in enumerate(self._messages):
            if self._same(request, known):
                op, device = known.op or request.op, known.device or request.device
                self._messages[at] = dataclasses.replace(known, op=op, device=device), dump
                return
        fitting = [
            dump for dump in self._dumps if dump.fits(_possible_sizes(request), request.allocator)
        ]
        assigned = {id(dump) for _, dump in self._messages}
        dump = next((dump for dump in reversed(fitting) if id(dump) not in assigned), None)
        self._messages.append((request, dump))

    @staticmethod
    def _same(request: Request, known: Request) -> bool:
        """Whether a message repeats another: TensorFlow logs one several times, at last with the
        node's name."""
        stated = [
            (one.device, one.op, _shape(one), one.requested_bytes) for one in (request, known)
        ]
        both_or_none = (request.shape is None) == (known.shape is None)
        return both_or_none and all(
            one == other or None in (one, other) for one, other in zip(*stated, strict=True)
        )

    def finish(self, wall_time: float) -> list[LoggedFailure]:
        tensor = self._tensor_of_proto()
        if tensor.shape is not None and self._dumps and not self._messages:
            self._add_message(tensor)
            self._messages = [one for one in self._messages if one[1] is not None]
        requests = {id(dump): request for request, dump in self._messages if dump is not None}
        failures = []
        for dump in self._dumps:
            request = requests.get(id(dump))
            if request is None and not dump.proves_failure:
                continue
            device = (request.device if request else None) or device_name(dump.name)
            memory_map, notes = dump.map(device, wall_time)
            if request is None or request.requested_bytes is None:
                request = _sized(request or Request(allocator=dump.name), dump, notes)
            request = dataclasses.replace(request, op=request.op or dump.op)
            figures = dump.in_use_bytes, dump.capacity_bytes
            failures.append(LoggedFailure(memory_map, request, device, tuple(notes), *figures))
        for request, its_dump in self._messages:
            if its_dump is None:
                device = request.device or device_name(request.allocator or "")
                note = "The chunks are unknown: the log lacks the dump of this failure."
                failures.append(LoggedFailure(None, request, device, (note,)))
        return [
            dataclasses.replace(one, notes=(*one.notes, _COPY_NOTE)) if one.request.copy else one
            for one in failures
        ]


def _sized(request: Request, dump: LogDump, notes: list[str]) -> Request:
    """A request whose message lacks the size, with the size that the allocator logged. It is exact
    if only one size of an element makes a tensor of the message's shape that large; otherwise, a
    note says that it is rounded."""
    exact = (
        [size for size in _possible_sizes(request) if dump.fits([size], None)]
        if dump.has_size
        else []
    )
    if len(exact) == 1:
        return dataclasses.replace(request, requested_bytes=exact[0])
    if dump.rounded_bytes is not None:
        notes.append("The exact size of the request is unknown: the log rounds it up to 256 bytes.")
        return dataclasses.replace(request, requested_bytes=dump.rounded_bytes)
    about, uncertain = dump.printed or (None, request.uncertain_bytes)
    return dataclasses.replace(request, requested_bytes=about, uncertain_bytes=uncertain)


def _possible_sizes(request: Request) -> list[int]:
    """Bytes that the tensor of a message may have; none if the message lacks its shape."""
    if request.requested_bytes is not None:
        return [request.requested_bytes]
    if request.shape is None or " " in request.shape:
        return []
    sizes = (_tensor_bytes(request.shape, element) for element in sorted(set(_TYPE_BYTES.values())))
    return [size for size in sizes if size is not None]


def _request_in(line: str) -> Request | None:
    if _TENSOR.search(line) or (_XLA_BYTES.search(line) and not _FAILED.search(line)):
        return read_message(line)
    if _COPY in line:
        copied = _COPIED.search(line)
        return Request(op=copied["op"] if copied else None, device=_device(copied), copy=True)
    if _UNSIZED in line:
        return Request(op=_other_name(line), device=_device(_EAGER_DEVICE.search(line)))
    return None


def _with_type(request: Request, line: str) -> Request:
    """The request with type and size of its tensor, by the attributes of the node that a line
    names."""
    found = {
        match["name"]: match["type"].lower().removesuffix("_ref")
        for match in _NODE_TYPE.finditer(line)
    }
    name = next((found[one] for one in _OF_RESULT if one in found), None)
    if _COMPARING.search(line):
        name = "bool"
    if request.shape is None or " " in request.shape or name is None:
        return request
    return _with_tensor(request, request.shape, name)


def _shape(request: Request) -> str | None:
    """The shape without the type, which TensorFlow's early messages lack."""
    return None if request.shape is None else request.shape.partition(" ")[0]


def _device(match: "re.Match[str] | None") -> str | None:
    return f"{match['kind'].upper()}:{match['number']}" if match else None
