"""HTTP messages: what a request asks for, and its response.

Unknown, repeated and malformed parameters are errors. A response is JSON, binary columns, an error
as plain text, or a file of the built page.

TensorBoard's readers stop at the first damaged record of a file and say nothing, and convert
tensors before anyone can refuse them; a request to an object store that fails for good ends their
reading. So the log directory is read as `tb-memplugin inspect` reads it, and the tab shows the
same. Anything else (``--logdir_spec``, other data providers, stores whose client is not installed)
is only known to the data provider."""

import contextlib
import dataclasses
import gzip
import json
import os
import pathlib
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tensorboard import plugin_util
from tensorboard.backend import http_util
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.schema import MAX_STEP, MISSING, PHASES, Phase, optional_values
from tb_memplugin.storage.files import FileSource, ProviderSource, Source
from tb_memplugin.storage.files import file_systems as files

MAX_TEXT_CHARACTERS = 4096  # longest accepted name of a run or a device
MAX_BATCH_SIZE = 1 << 24
MIN_POINTS, DEFAULT_POINTS, MAX_POINTS = 10, 1500, 10_000  # that fit on the screen


def parse(arguments: "MultiDict[str, str]", accepted: Sequence[str]) -> dict[str, str]:
    """The parameters of a request; each must be in `accepted` and given once, else RequestError."""
    values = {}
    for name in arguments:
        if name not in accepted:
            raise RequestError(
                f"unknown parameter {name!r:.80}; accepted: {', '.join(accepted) or 'none'}"
            )
        given = arguments.getlist(name)
        if len(given) != 1:
            raise RequestError(f"parameter {name!r} is given {len(given)} times; pass it once")
        values[name] = given[0]
    return values


class Parameter(NamedTuple):
    """An argument of a handler: the request's parameters that it is read from, and how;
    RequestError for values that it does not accept."""

    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Any]


def _text(name: str) -> Parameter:
    def read(values: Mapping[str, str]) -> str:
        value = values.get(name, "")
        if not value:
            raise RequestError(f"parameter {name!r} is missing; pass the name of a {name}")
        if len(value) > MAX_TEXT_CHARACTERS:
            limit = f"at most {MAX_TEXT_CHARACTERS} are accepted"
            raise RequestError(f"parameter {name!r} has {len(value)} characters; {limit}")
        return value

    return Parameter((name,), read)


def _integer(name: str, least: int, most: int, default: int | None = None) -> Parameter:
    def read(values: Mapping[str, str]) -> int:
        if name not in values and default is None:
            raise RequestError(f"parameter {name!r} is missing; pass a step, an integer >= 0")
        value = values.get(name, str(default))
        # int() also accepts blanks, signs, underscores and digits of other scripts.
        if (
            not (value.isascii() and value.isdigit() and len(value) <= 16)
            or not least <= int(value) <= most
        ):
            accepted = f"an integer from {least} to {most}"
            raise RequestError(f"parameter {name!r} is {value!r:.80}; accepted: {accepted}", name)
        return int(value)

    return Parameter((name,), read)


def _maybe(parameter: Parameter) -> Parameter:
    """None if it is not given."""
    (name,) = parameter.names
    return Parameter((name,), lambda values: parameter.read(values) if name in values else None)


def _phase(values: Mapping[str, str]) -> Phase:
    value = values.get("phase", "train")
    if value not in PHASES:
        raise RequestError(f"parameter 'phase' is {value!r:.80}; accepted: {', '.join(PHASES)}")
    return value


def _step_limits(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """`first_step` and `last_step`, in order, each None if not given."""
    first, last = (
        _maybe(_integer(name, 0, MAX_STEP)).read(values) for name in ("first_step", "last_step")
    )
    if first is not None and last is not None and first > last:
        raise RequestError(f"first_step {first} is after last_step {last}; pass them in order")
    return first, last


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A range of steps of a device in a phase, of one session or of all. A response has at most
    about twice as many rows as `points`, which include the extremes."""

    device: str
    phase: Phase
    first_step: int | None
    last_step: int | None
    points: int
    session: str | None = None

    @property
    def limits(self) -> tuple[int | None, int | None, int]:
        return self.first_step, self.last_step, 2 * self.points


class MapPlace(NamedTuple):
    """A map's place: a failed allocation (its index in ``oom``), or a device, step and phase."""

    oom: int | None = None
    device: str | None = None
    step: int | None = None
    phase: Phase = "train"


def _place(values: Mapping[str, str]) -> MapPlace:
    if "oom" not in values:
        return MapPlace(None, *(parameter.read(values) for parameter in (DEVICE, STEP, PHASE)))
    if values.keys() & {"device", "step", "phase"}:
        raise RequestError(
            "parameter 'oom' excludes 'device', 'step' and 'phase'; pass either one or the others"
        )
    return MapPlace(OOM.read(values))


def _stretch(values: Mapping[str, str]) -> Stretch:
    steps = _step_limits(values)
    return Stretch(
        DEVICE.read(values), PHASE.read(values), *steps, POINTS.read(values), SESSION.read(values)
    )


RUN, DEVICE, STEP = _text("run"), _text("device"), _integer("step", 0, MAX_STEP)
ANY_DEVICE, ANY_STEP = _maybe(DEVICE), _maybe(STEP)
LAYER, SESSION, BUDGET = (_maybe(_text(name)) for name in ("layer", "session", "budget"))
OOM, BATCH_SIZE = _integer("oom", 0, MAX_STEP), _maybe(_integer("batch_size", 1, MAX_BATCH_SIZE))
PHASE, POINTS = (
    Parameter(("phase",), _phase),
    _integer("points", MIN_POINTS, MAX_POINTS, DEFAULT_POINTS),
)
STEPS = Parameter(("first_step", "last_step"), _step_limits)
STRETCH = Parameter(("device", "phase", "first_step", "last_step", "points", "session"), _stretch)
PLACE = Parameter(("device", "step", "phase", "oom"), _place)
ANY_BATCH_SIZE = Parameter(("capacity", "freeze", "unfreeze", "optimizer", "precision"), dict)
CONDITIONS = Parameter(("batch_size", *ANY_BATCH_SIZE.names), dict)


class Route:
    """The way to an answer: its type (of columns that of their fields), and the handler, which is
    given a `Lookup` and the values of the parameters."""

    def __init__(self, kind: type, handler: Callable[..., Any], *parameters: Parameter) -> None:
        self.kind, self.handler, self._parameters = kind, handler, parameters
        self.accepted = [name for parameter in parameters for name in parameter.names]

    def answer(self, lookup: Any, values: Mapping[str, str]) -> Any:
        return self.handler(lookup, *(parameter.read(values) for parameter in self._parameters))


class Sources:
    """Chooses the source of each request, given TensorBoard's `TBContext`, whose fields may be
    None. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._provider = getattr(context, "data_provider", None)
        self._logdir = _directory(context)
        self._files: FileSource | None = None
        self._lock = threading.Lock()

    def of(self, request: Request) -> tuple[str, Source]:
        """A name of the source, equal for requests to the same data, and the source.

        Raises NotFoundError without one, and SourceError if the log directory cannot be read
        now."""
        with self._lock:
            if self._files is None and self._logdir:
                with contextlib.suppress(NotFoundError):  # it may be created later
                    self._files = FileSource(self._logdir, live=True)
            if self._files is not None:
                # A TensorBoard with a log directory ignores the experiment.
                return "files", self._files
        if self._provider is None:
            raise NotFoundError("this TensorBoard has no data provider")
        experiment = plugin_util.experiment_id(request.environ)
        source = ProviderSource(self._provider, plugin_util.context(request.environ), experiment)
        return f"experiment {experiment}", source


def _directory(context: Any) -> str:
    """The log directory if the data provider reads it too and it can be read here, else an empty
    string."""
    logdir = getattr(context, "logdir", None)
    is_remote = getattr(getattr(context, "flags", None), "grpc_data_provider", "")
    is_read = isinstance(logdir, str) and files.is_readable(logdir) and not is_remote
    return os.path.expanduser(str(logdir)) if is_read else ""


COLUMNS_TYPE = "application/x-tb-memplugin-columns"
PARAMETER_HEADER = "X-Parameter"
_GZIP_FROM = 1 << 10  # shorter responses are not compressed
STATIC_DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "static"
_TYPES = {
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "wasm": "application/wasm",
    "woff2": "font/woff2",
}
"""Content types by extension; the system's registry may map JavaScript to plain text."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """A response of a record and columns of equal length."""

    fields: object
    columns: Mapping[str, npt.NDArray[Any]]


def data_body(payload: Any) -> tuple[bytes, str]:
    """Content and content type of a record, of columns, or of a JSON object that is encoded; a
    number in JSON that is not finite raises ValueError."""
    if isinstance(payload, Columns):
        return pack_columns(vars(payload.fields), payload.columns), COLUMNS_TYPE
    return payload if isinstance(payload, bytes) else encoded(payload), "application/json"


def error_response(
    request: Request, status: int, sentence: str, parameter: str | None = None
) -> Response:
    response = respond(
        request, sentence.encode("utf-8", "replace"), "text/plain; charset=utf-8", status
    )
    if parameter is not None:
        response.headers[PARAMETER_HEADER] = parameter
    return response


def respond(request: Request, content: bytes, content_type: str, status: int = 200) -> Response:
    # TensorBoard's `Respond` sets nosniff and no-cache, but compresses only text, and slowly.
    encoding = None
    if len(content) >= _GZIP_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
        content, encoding = gzip.compress(content, 1, mtime=0), "gzip"
    response: Response = http_util.Respond(
        request, content, content_type, code=status, content_encoding=encoding
    )
    return response


def pack_columns(fields: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Pack columns of equal length in binary form; `MISSING` in integer columns becomes NaN."""
    rows = {len(column) for column in columns.values()}
    if len(rows) > 1:
        raise ValueError(f"columns of different lengths: {sorted(rows)}")
    head = encoded({"rows": rows.pop() if rows else 0, "columns": list(columns), **fields})
    padding = -(4 + len(head)) % 8
    parts = [struct.pack("<I", len(head)), head, bytes(padding)]
    for column in columns.values():
        unknown = (column == MISSING) if column.dtype == np.int64 else False
        parts.append(np.where(unknown, np.nan, column).astype("<f8").tobytes())
    return b"".join(parts)


def encoded(payload: Any) -> bytes:
    """JSON of a record, or of an object with records in it."""
    separators = ",", ":"
    text = json.dumps(payload, separators=separators, allow_nan=False, default=_plain)
    return text.encode()


def _plain(value: Any) -> Any:
    return optional_values(value) if isinstance(value, np.ndarray) else vars(value)


class StaticFiles:
    """The files of the built page. Only names found at startup are served."""

    def __init__(self, directory: pathlib.Path = STATIC_DIRECTORY) -> None:
        entries = directory.iterdir() if directory.is_dir() else iter(())
        self._files = {
            entry.name: entry
            for entry in entries
            if entry.is_file() and _ending(entry.name) in _TYPES
        }

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def read(self, name: str) -> tuple[bytes, str]:
        """Content and content type of a file; `NotFoundError` without it."""
        file = self._files.get(name)
        if file is None:
            raise NotFoundError(f"the page has no file {name!r:.80}")
        return file.read_bytes(), _TYPES[_ending(name)]


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()
