"""The Memory tab as a TensorBoard plugin. The server is imported with the first request, to keep
startup fast."""

import threading
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from tb_memplugin.version import PLUGIN_NAME

if TYPE_CHECKING:
    from tb_memplugin.server import Server

ROUTES = (
    *("runs", "answers", "overview", "pool", "host_memory", "snapshots", "snapshot"),
    *("ledger_totals", "layers", "activations"),
    *("timelines", "timeline", "what_if", "curve", "batch_limit", "plan"),
    *("devices", "maps", "map", "oom", "fixes", "device_memory", "demand"),
    *("index.js", "static/*"),
)


class MemoryPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # tensorboard has no types
    """The plugin. Any field of `context` may be None; without data provider and log directory there
    are no runs."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._context = context
        self._server: Server | None = None
        self._lock = threading.Lock()

    def get_plugin_apps(self) -> dict[str, Any]:
        """The WSGI applications by route."""
        return {f"/{route}": self._application(route) for route in ROUTES}

    def is_active(self) -> bool:
        """False: TensorBoard activates the tab itself once a run has data of this plugin."""
        return False

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """The page's module and the tab's name."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Memory")

    def _application(self, route: str) -> Any:
        @Request.application
        def application(request: Request) -> Response:
            with self._lock:
                if self._server is None:
                    from tb_memplugin.server import Server

                    self._server = Server(self._context)
            return self._server.respond(route, request)

        return application
