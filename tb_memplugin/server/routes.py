"""Routes to handlers, and errors to HTTP. Imported with the first request, to keep TensorBoard's startup fast."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tensorboard import errors as tensorboard_errors
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.schema import clean
from tb_memplugin.server import requests, responses
from tb_memplugin.server.allocator_handlers import MapPlace
from tb_memplugin.server.handlers import Handlers, Stretch
from tb_memplugin.server.requests import Sources
from tb_memplugin.server.responses import Columns, StaticFiles
from tb_memplugin.storage import Reader, given_back
from tb_memplugin.storage.files import Source, SourceError

_log = logging.getLogger(__name__)

MAX_EXPERIMENTS = 16
"""Most experiments with cached data; a local server has one."""
PATIENCE_SECONDS = 1.0
"""Time that the list of runs waits for a run that takes longer to read than the others."""

Answer: TypeAlias = Callable[[Handlers, Source, Mapping[str, str]], "dict[str, Any] | Columns"]


class Server:
    """Responds to all requests of the plugin, given TensorBoard's `TBContext`. Thread-safe."""

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
            content, content_type = responses.data_body(answer(self._handlers_of(name), source, values))
            return responses.respond(request, content, content_type)

    def _file(self, route: str, request: Request) -> Response:
        # There may be a path prefix: the name follows the last "/static/".
        name = route if route == "index.js" else request.path.rpartition("/static/")[2]
        return responses.respond(request, *self._static.read(name))

    def _handlers_of(self, source: str) -> Handlers:
        with self._lock:
            if source not in self._handlers:
                while len(self._handlers) >= MAX_EXPERIMENTS:
                    del self._handlers[next(iter(self._handlers))]
                self._handlers[source] = Handlers(Reader(), PATIENCE_SECONDS)
            return self._handlers[source]


def _stretch(values: Mapping[str, str]) -> Stretch:
    return Stretch(
        requests.text_of(values, "device"),
        requests.phase(values),
        *requests.step_limits(values),
        requests.points(values),
        requests.optional_text_of(values, "session"),
    )


def _place(values: Mapping[str, str]) -> MapPlace:
    if "oom" not in values:
        return MapPlace(None, requests.text_of(values, "device"), requests.step(values, "step"), requests.phase(values))
    if values.keys() & {"device", "step", "phase"}:
        raise RequestError("parameter 'oom' excludes 'device', 'step' and 'phase'; pass either one or the others")
    return MapPlace(requests.step(values, "oom"))


class _Parameter(NamedTuple):
    """An argument of a handler: the request's parameters that it is read from, and how."""

    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Any]


def _named(read: Callable[[Mapping[str, str], str], Any], name: str) -> _Parameter:
    return _Parameter((name,), lambda values: read(values, name))


def _route(
    handler: Callable[[Handlers], Callable[..., dict[str, Any] | Columns]], *parameters: _Parameter
) -> tuple[tuple[str, ...], Answer]:
    def answer(handlers: Handlers, source: Source, values: Mapping[str, str]) -> dict[str, Any] | Columns:
        return handler(handlers)(source, *(parameter.read(values) for parameter in parameters))

    return tuple(name for parameter in parameters for name in parameter.names), answer


_RUN, _DEVICE = (_named(requests.text_of, name) for name in ("run", "device"))
_ANY_DEVICE, _LAYER, _SESSION, _BUDGET = (
    _named(requests.optional_text_of, name) for name in ("device", "layer", "session", "budget")
)
_STEP, _OOM = (_named(requests.step, name) for name in ("step", "oom"))
_ANY_STEP = _named(requests.optional_step, "step")
_PHASE, _POINTS = _Parameter(("phase",), requests.phase), _Parameter(("points",), requests.points)
_STEPS = _Parameter(("first_step", "last_step"), requests.step_limits)
_STRETCH = _Parameter(("device", "phase", "first_step", "last_step", "points", "session"), _stretch)
_PLACE = _Parameter(("device", "step", "phase", "oom"), _place)
_CONDITIONS = _Parameter(
    ("batch_size", "capacity", "freeze", "unfreeze", "optimizer", "precision"), lambda values: values
)
_FILES = ("index.js", "static/*")
DATA_ROUTES: dict[str, tuple[tuple[str, ...], Answer]] = {
    "runs": _route(lambda of: of.runs),
    "answers": _route(lambda of: of.answers, _RUN, _ANY_DEVICE, _PHASE),
    "devices": _route(lambda of: of.comparing.devices, _RUN, _PHASE),
    "overview": _route(lambda of: of.overview, _RUN, _STRETCH),
    "pool": _route(lambda of: of.pool, _RUN, _STRETCH),
    "host_memory": _route(lambda of: of.host_memory, _RUN, _STRETCH),
    "snapshots": _route(lambda of: of.snapshots, _RUN, _ANY_DEVICE),
    "snapshot": _route(lambda of: of.snapshot, _RUN, _DEVICE, _STEP, _PHASE),
    "ledger_totals": _route(lambda of: of.ledger_totals, _RUN, _DEVICE, _PHASE, _LAYER, _SESSION),
    "layers": _route(lambda of: of.layers, _RUN, _ANY_DEVICE, _ANY_STEP),
    "activations": _route(lambda of: of.activations, _RUN, _STEPS, _POINTS),
    "timelines": _route(lambda of: of.allocator.timelines, _RUN, _ANY_DEVICE),
    "timeline": _route(lambda of: of.allocator.timeline, _RUN, _DEVICE, _STEP, _PHASE),
    "maps": _route(lambda of: of.allocator.maps, _RUN, _ANY_DEVICE),
    "map": _route(lambda of: of.allocator.map, _RUN, _PLACE),
    "oom": _route(lambda of: of.allocator.oom, _RUN),
    "fixes": _route(lambda of: of.questions.fixes, _RUN, _OOM),
    "device_memory": _route(lambda of: of.allocator.device_memory, _RUN, _DEVICE, _ANY_STEP),
    "demand": _route(lambda of: of.questions.demand, _RUN, _ANY_DEVICE),
    "plan": _route(lambda of: of.questions.plan, _RUN, _ANY_DEVICE, _BUDGET),
    "what_if": _route(lambda of: of.questions.what_if, _RUN, _ANY_DEVICE, _CONDITIONS),
}
"""Route to accepted parameters and handler."""
