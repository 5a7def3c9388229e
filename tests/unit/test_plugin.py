"""The plugin as TensorBoard uses it: its routes, its tab, and one server for all of them."""

import pathlib
import types

from reading_cases import write_small_run
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from tb_memplugin.plugin import MemoryPlugin
from tb_memplugin.server import DATA_ROUTES


def test_each_route_of_the_server_is_an_application() -> None:
    routes = set(MemoryPlugin(base_plugin.TBContext()).get_plugin_apps())
    assert routes == {f"/{route}" for route in (*DATA_ROUTES, "index.js", "static/*")}


def test_the_tab_is_called_memory_and_activates_with_data() -> None:
    plugin = MemoryPlugin(base_plugin.TBContext())
    assert not plugin.is_active()
    assert plugin.frontend_metadata().tab_name == "Memory"
    assert plugin.frontend_metadata().es_module_path == "/index.js"


def test_all_routes_share_what_was_read(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    plugin = MemoryPlugin(
        types.SimpleNamespace(logdir=str(tmp_path), data_provider=None, flags=None)
    )
    apps = plugin.get_plugin_apps()
    assert Client(apps["/runs"]).get("/runs").status_code == 200
    server = plugin._server
    assert server is not None
    assert Client(apps["/oom"]).get("/oom?run=exp").json["ooms"] == []
    assert plugin._server is server
