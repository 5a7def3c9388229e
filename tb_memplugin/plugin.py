"""The Memory tab as a TensorBoard plugin: routes to handlers, errors to HTTP, once."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tensorboard import errors as tensorboard_errors
from tensorboard import plugin_util
from tensorboard.plugins import base_plugin
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.metadata import PLUGIN_NAME
from tb_memplugin.server import requests, responses
from tb_memplugin.server.handlers import Columns, Handlers
from tb_memplugin.server.static_files import StaticFiles
from tb_memplugin.store.provider_source import ProviderSource
from tb_memplugin.store.reader import Reader
from tb_memplugin.store.source import SourceError

_log = logging.getLogger(__name__)

MAX_EXPERIMENTS = 16
"""Experiments whose data is held at once; a local server has one."""

Answer = Callable[[Handlers, ProviderSource, Mapping[str, str]], "dict[str, Any] | Columns"]


class MemoryPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # tensorboard has no types
    """The plugin. Any field of `context` may be None; then there are no runs."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._provider = getattr(context, "data_provider", None)
        self._static = StaticFiles()
        self._handlers: dict[str, Handlers] = {}
        self._lock = threading.Lock()

    def get_plugin_apps(self) -> dict[str, Any]:
        """The WSGI applications by route."""
        apps = {f"/{name}": self._application(*route) for name, route in _ROUTES.items()}
        apps["/index.js"] = self._file_application("/index.js")
        apps["/static/*"] = self._file_application("/static/")
        return apps

    def is_active(self) -> bool:
        """False: TensorBoard itself shows the tab as soon as there is data of this plugin."""
        return False

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """How the page is loaded."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Memory")

    def _application(self, accepted: tuple[str, ...], answer: Answer) -> Any:
        def respond(request: Request) -> Response:
            values = requests.parse(request.args, accepted)
            if self._provider is None:
                raise NotFoundError("this TensorBoard has no data provider")
            experiment = plugin_util.experiment_id(request.environ)
            source = ProviderSource(self._provider, plugin_util.context(request.environ), experiment)
            payload = answer(self._handlers_of(experiment), source, values)
            if isinstance(payload, Columns):
                return responses.columns_response(request, payload.fields, payload.columns)
            return responses.json_response(request, payload)

        return _wsgi(respond)

    def _file_application(self, prefix: str) -> Any:
        def respond(request: Request) -> Response:
            # The route may lie below a path prefix; what follows its last occurrence is the name.
            name = "index.js" if prefix == "/index.js" else request.path.rpartition(prefix)[2]
            content, content_type = self._static.read(name)
            return responses.file_response(request, content, content_type)

        return _wsgi(respond)

    def _handlers_of(self, experiment: str) -> Handlers:
        with self._lock:
            if experiment not in self._handlers:
                while len(self._handlers) >= MAX_EXPERIMENTS:
                    del self._handlers[next(iter(self._handlers))]
                self._handlers[experiment] = Handlers(Reader())
            return self._handlers[experiment]


def _wsgi(respond: Callable[[Request], Response]) -> Any:
    """A WSGI application that maps the errors meant for the user to HTTP; anything else is a bug and stays one."""

    @Request.application
    def application(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return responses.error_response(request, 405, f"method {request.method:.20} is not accepted here; use GET")
        try:
            return respond(request)
        except RequestError as error:
            return responses.error_response(request, 400, str(error))
        except NotFoundError as error:
            return responses.error_response(request, 404, str(error))
        except (SourceError, FormatError) as error:
            _log.warning("tb_memplugin: %s", error)
            return responses.error_response(request, 503, str(error))
        except tensorboard_errors.PublicError as error:
            return responses.error_response(request, error.http_code, str(error))
        except HTTPException as error:
            return responses.error_response(request, error.code or 400, error.description or error.name)

    return application


def _overview(handlers: Handlers, source: ProviderSource, values: Mapping[str, str]) -> Columns:
    first_step, last_step = requests.step_range(values)
    return handlers.overview(
        source,
        requests.text(values, "run"),
        requests.text(values, "device"),
        requests.phase(values),
        first_step,
        last_step,
        requests.points(values),
    )


def _snapshot(handlers: Handlers, source: ProviderSource, values: Mapping[str, str]) -> dict[str, Any]:
    return handlers.snapshot(
        source,
        requests.text(values, "run"),
        requests.text(values, "device"),
        requests.step(values, "step"),
        requests.phase(values),
    )


_ROUTES: dict[str, tuple[tuple[str, ...], Answer]] = {
    "runs": ((), lambda handlers, source, values: handlers.runs(source)),
    "overview": (("run", "device", "phase", "first_step", "last_step", "points"), _overview),
    "snapshots": (
        ("run", "device"),
        lambda handlers, source, values: handlers.snapshots(
            source, requests.text(values, "run"), requests.optional_text(values, "device")
        ),
    ),
    "snapshot": (("run", "device", "step", "phase"), _snapshot),
    "layers": (
        ("run", "step"),
        lambda handlers, source, values: handlers.layers(
            source, requests.text(values, "run"), requests.optional_step(values, "step")
        ),
    ),
    "activations": (
        ("run", "points"),
        lambda handlers, source, values: handlers.activations(
            source, requests.text(values, "run"), requests.points(values)
        ),
    ),
}
"""Route -> accepted parameters, and the handler."""
