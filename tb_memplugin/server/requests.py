"""What a request asks for: its parameters, of which unknown, repeated and malformed ones are errors, and its source.

TensorBoard's readers stop at the first damaged record of a file and say nothing, and convert tensors before anyone can
refuse them; a request to an object store that fails for good ends their reading. So the log directory is read as
`tb-memplugin inspect` reads it, and the tab shows the same. Anything else (``--logdir_spec``, other data providers,
stores whose client is not installed) is only known to the data provider.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from tensorboard import plugin_util
from werkzeug.wrappers import Request

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.schema import MAX_STEP, PHASES, Phase
from tb_memplugin.storage.files import FileSource, ProviderSource, Source
from tb_memplugin.storage.files import file_systems as files

MAX_TEXT_CHARACTERS = 4096
"""Longest accepted name of a run or a device."""
MAX_BATCH_SIZE = 1 << 24
DEFAULT_POINTS = 1500
MIN_POINTS = 10
MAX_POINTS = 10_000
"""Numbers of points that fit on the screen."""


class Arguments(Protocol):
    """Query arguments with repetitions; werkzeug's `Request.args` is one."""

    def __iter__(self) -> Iterator[str]: ...

    def getlist(self, name: str) -> Sequence[str]: ...


# Each of these raises RequestError for a value that it does not accept.


def parse(arguments: Arguments, accepted: Sequence[str]) -> dict[str, str]:
    """The parameters of a request; each must be in `accepted` and given once."""
    values = {}
    for name in arguments:
        if name not in accepted:
            raise RequestError(f"unknown parameter {name!r:.80}; accepted: {', '.join(accepted) or 'none'}")
        given = arguments.getlist(name)
        if len(given) != 1:
            raise RequestError(f"parameter {name!r} is given {len(given)} times; pass it once")
        values[name] = given[0]
    return values


def text_of(values: Mapping[str, str], name: str) -> str:
    value = values.get(name, "")
    if not value:
        raise RequestError(f"parameter {name!r} is missing; pass the name of a {name}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise RequestError(
            f"parameter {name!r} has {len(value)} characters; at most {MAX_TEXT_CHARACTERS} are accepted"
        )
    return value


def optional_text_of(values: Mapping[str, str], name: str) -> str | None:
    return text_of(values, name) if name in values else None


def step(values: Mapping[str, str], name: str) -> int:
    if name not in values:
        raise RequestError(f"parameter {name!r} is missing; pass a step, an integer >= 0")
    return _integer(name, values[name], 0, MAX_STEP)


def optional_step(values: Mapping[str, str], name: str) -> int | None:
    return step(values, name) if name in values else None


def step_limits(values: Mapping[str, str]) -> tuple[int | None, int | None]:
    """`first_step` and `last_step`, in order, each None if not given."""
    first, last = optional_step(values, "first_step"), optional_step(values, "last_step")
    if first is not None and last is not None and first > last:
        raise RequestError(f"first_step {first} is after last_step {last}; pass them in order")
    return first, last


def points(values: Mapping[str, str]) -> int:
    return _integer("points", values.get("points", str(DEFAULT_POINTS)), MIN_POINTS, MAX_POINTS)


def batch_size_of(values: Mapping[str, str]) -> int | None:
    return _integer("batch_size", values["batch_size"], 1, MAX_BATCH_SIZE) if "batch_size" in values else None


def phase(values: Mapping[str, str]) -> Phase:
    value = values.get("phase", "train")
    if value not in PHASES:
        raise RequestError(f"parameter 'phase' is {value!r:.80}; accepted: {', '.join(PHASES)}")
    return value


def _integer(name: str, value: str, least: int, most: int) -> int:
    # int() also accepts blanks, signs, underscores and digits of other scripts.
    if not (value.isascii() and value.isdigit() and len(value) <= 16) or not least <= int(value) <= most:
        raise RequestError(f"parameter {name!r} is {value!r:.80}; accepted: an integer from {least} to {most}", name)
    return int(value)


class Sources:
    """Chooses the source of each request, given TensorBoard's `TBContext`, whose fields may be None. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._provider = getattr(context, "data_provider", None)
        self._logdir = _directory(context)
        self._files: FileSource | None = None
        self._lock = threading.Lock()

    def of(self, request: Request) -> tuple[str, Source]:
        """A name of the source, equal for requests to the same data, and the source.

        Raises NotFoundError without one, and SourceError if the log directory cannot be read now.
        """
        of_directory = self._of_directory()
        if of_directory is not None:
            # A TensorBoard with a log directory ignores the experiment.
            return "files", of_directory
        if self._provider is None:
            raise NotFoundError("this TensorBoard has no data provider")
        experiment = plugin_util.experiment_id(request.environ)
        source = ProviderSource(self._provider, plugin_util.context(request.environ), experiment)
        return f"experiment {experiment}", source

    def _of_directory(self) -> FileSource | None:
        if not self._logdir:
            return None
        with self._lock:
            if self._files is None:
                try:
                    self._files = FileSource(self._logdir, live=True)
                except NotFoundError:  # it may be created later
                    return None
            return self._files


def _directory(context: Any) -> str:
    """The log directory if the data provider reads it too and it can be read here, else an empty string."""
    logdir = getattr(context, "logdir", None)
    if not isinstance(logdir, str) or not files.is_readable(logdir):
        return ""
    if getattr(getattr(context, "flags", None), "grpc_data_provider", ""):
        return ""
    return os.path.expanduser(logdir)
