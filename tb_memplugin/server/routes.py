"""Routes to handlers, and errors to HTTP. Imported with the first request, to keep TensorBoard's startup fast."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tensorboard import errors as tensorboard_errors
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.model.text import clean
from tb_memplugin.reader.cache import given_back
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source, SourceError
from tb_memplugin.server import requests, responses
from tb_memplugin.server.allocator_handlers import Place
from tb_memplugin.server.columns import Columns
from tb_memplugin.server.handlers import Handlers, Stretch
from tb_memplugin.server.sources import Sources
from tb_memplugin.server.static_files import StaticFiles

_log = logging.getLogger(__name__)

MAX_EXPERIMENTS = 16
"""Most experiments with cached data; a local server has one."""
PATIENCE_SECONDS = 1.0
"""Time that the list of runs waits for a run that takes longer to read than the others."""

Answer: TypeAlias = Callable[[Handlers, Source, Mapping[str, str]], "dict[str, Any] | Columns"]


class Server:
    """Responds to all requests of the plugin. Thread-safe.

    Args:
        context: TensorBoard's `TBContext`; its fields may be None.
    """

    def __init__(self, context: Any) -> None:
        self._sources = Sources(context)
        self._static = StaticFiles()
        self._handlers: dict[str, Handlers] = {}
        self._lock = threading.Lock()

    def respond(self, route: str, request: Request) -> Response:
        """Respond to a request. User errors become HTTP errors; other exceptions are bugs and propagate."""
        if request.method not in ("GET", "HEAD"):
            return responses.error_response(request, 405, f"method {request.method:.20} is not allowed; use GET")
        try:
            return self._file(route, request) if route in _FILES else self._data(route, request)
        except RequestError as error:
            return responses.error_response(request, 400, str(error), error.parameter)
        except NotFoundError as error:
            return responses.error_response(request, 404, str(error))
        except (SourceError, FormatError) as error:
            _log.warning("tb_memplugin: %s", clean(str(error)))
            return responses.error_response(request, 503, str(error))
        except tensorboard_errors.PublicError as error:
            return responses.error_response(request, error.http_code, str(error))
        except HTTPException as error:
            return responses.error_response(request, error.code or 400, error.description or error.name)

    def _data(self, route: str, request: Request) -> Response:
        accepted, answer = DATA_ROUTES[route]
        values = requests.parse(request.args, accepted)
        name, source = self._sources.of(request)
        with given_back():
            return responses.data_response(request, answer(self._handlers_of(name), source, values))

    def _file(self, route: str, request: Request) -> Response:
        # There may be a path prefix: the name follows the last "/static/".
        name = route if route == "index.js" else request.path.rpartition("/static/")[2]
        content, content_type = self._static.read(name)
        return responses.file_response(request, content, content_type)

    def _handlers_of(self, source: str) -> Handlers:
        with self._lock:
            if source not in self._handlers:
                while len(self._handlers) >= MAX_EXPERIMENTS:
                    del self._handlers[next(iter(self._handlers))]
                self._handlers[source] = Handlers(Reader(), PATIENCE_SECONDS)
            return self._handlers[source]


def _run_and_stretch(values: Mapping[str, str]) -> tuple[str, Stretch]:
    first_step, last_step = requests.step_range(values)
    return requests.text(values, "run"), Stretch(
        requests.text(values, "device"),
        requests.phase(values),
        first_step,
        last_step,
        requests.points(values),
        requests.optional_text(values, "session"),
    )


def _snapshot(handlers: Handlers, source: Source, values: Mapping[str, str]) -> dict[str, Any]:
    return handlers.snapshot(
        source,
        requests.text(values, "run"),
        requests.text(values, "device"),
        requests.step(values, "step"),
        requests.phase(values),
    )


def _timeline(handlers: Handlers, source: Source, values: Mapping[str, str]) -> Columns:
    return handlers.timelines.timeline(
        source,
        requests.text(values, "run"),
        requests.text(values, "device"),
        requests.step(values, "step"),
        requests.phase(values),
    )


def _place(values: Mapping[str, str]) -> Place:
    """The requested map: of a failed allocation, or of a device at a step."""
    if "oom" not in values:
        return Place(None, requests.text(values, "device"), requests.step(values, "step"), requests.phase(values))
    if values.keys() & {"device", "step", "phase"}:
        raise RequestError("parameter 'oom' excludes 'device', 'step' and 'phase'; pass either one or the others")
    return Place(requests.step(values, "oom"))


_FILES = ("index.js", "static/*")
_OVER_STEPS = ("run", "device", "phase", "first_step", "last_step", "points", "session")
DATA_ROUTES: dict[str, tuple[tuple[str, ...], Answer]] = {
    "runs": ((), lambda handlers, source, values: handlers.runs(source)),
    "answers": (
        ("run", "device", "phase"),
        lambda handlers, source, values: handlers.answering.answers(
            source,
            requests.text(values, "run"),
            requests.optional_text(values, "device"),
            requests.phase(values),
        ),
    ),
    "devices": (
        ("run", "phase"),
        lambda handlers, source, values: handlers.comparing.devices(
            source, requests.text(values, "run"), requests.phase(values)
        ),
    ),
    "overview": (
        _OVER_STEPS,
        lambda handlers, source, values: handlers.overview(source, *_run_and_stretch(values)),
    ),
    "pool": (
        _OVER_STEPS,
        lambda handlers, source, values: handlers.pool(source, *_run_and_stretch(values)),
    ),
    "host_memory": (
        _OVER_STEPS,
        lambda handlers, source, values: handlers.host_memory(source, *_run_and_stretch(values)),
    ),
    "snapshots": (
        ("run", "device"),
        lambda handlers, source, values: handlers.snapshots(
            source, requests.text(values, "run"), requests.optional_text(values, "device")
        ),
    ),
    "snapshot": (("run", "device", "step", "phase"), _snapshot),
    "ledger_totals": (
        ("run", "device", "phase", "layer", "session"),
        lambda handlers, source, values: handlers.ledger_totals(
            source,
            requests.text(values, "run"),
            requests.text(values, "device"),
            requests.phase(values),
            requests.optional_text(values, "layer"),
            requests.optional_text(values, "session"),
        ),
    ),
    "layers": (
        ("run", "step"),
        lambda handlers, source, values: handlers.layers(
            source, requests.text(values, "run"), requests.optional_step(values, "step")
        ),
    ),
    "activations": (
        ("run", "first_step", "last_step", "points"),
        lambda handlers, source, values: handlers.activations(
            source, requests.text(values, "run"), *requests.step_range(values), requests.points(values)
        ),
    ),
    "timelines": (
        ("run", "device"),
        lambda handlers, source, values: handlers.timelines.timelines(
            source, requests.text(values, "run"), requests.optional_text(values, "device")
        ),
    ),
    "timeline": (("run", "device", "step", "phase"), _timeline),
    "maps": (
        ("run", "device"),
        lambda handlers, source, values: handlers.allocator.maps(
            source, requests.text(values, "run"), requests.optional_text(values, "device")
        ),
    ),
    "map": (
        ("run", "device", "step", "phase", "oom"),
        lambda handlers, source, values: handlers.allocator.map(source, requests.text(values, "run"), _place(values)),
    ),
    "oom": (
        ("run",),
        lambda handlers, source, values: handlers.allocator.oom(source, requests.text(values, "run")),
    ),
    "fixes": (
        ("run", "oom"),
        lambda handlers, source, values: handlers.fixing.fixes(
            source, requests.text(values, "run"), requests.step(values, "oom")
        ),
    ),
    "device_memory": (
        ("run", "device", "step"),
        lambda handlers, source, values: handlers.allocator.device_memory(
            source,
            requests.text(values, "run"),
            requests.text(values, "device"),
            requests.optional_step(values, "step"),
        ),
    ),
    "demand": (
        ("run", "device"),
        lambda handlers, source, values: handlers.demanding.demand(
            source, requests.text(values, "run"), requests.optional_text(values, "device")
        ),
    ),
    "plan": (
        ("run", "device", "budget"),
        lambda handlers, source, values: handlers.planning.plan(
            source,
            requests.text(values, "run"),
            requests.optional_text(values, "device"),
            requests.optional_text(values, "budget"),
        ),
    ),
    "what_if": (
        ("run", "device", "batch_size", "capacity", "freeze", "unfreeze", "optimizer", "precision"),
        lambda handlers, source, values: handlers.questions.what_if(
            source, requests.text(values, "run"), requests.optional_text(values, "device"), values
        ),
    ),
}
"""Route to accepted parameters and handler."""
