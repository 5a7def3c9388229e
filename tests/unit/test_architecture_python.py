"""The direction of imports: what a room may import is listed here, everything else is refused; there are no cycles."""

import ast

import pytest
from import_graph import DOCUMENT, MODULES, cycle, drawn, imported, imports, page_rooms, python_rooms, reduced, room_of

ROOMS: dict[str, set[str]] = {
    # The base: plain data. No TensorBoard, no TensorFlow, no files.
    "version": set(),
    "errors": set(),
    "model": set(),
    # BFC's rules and simulator know nothing of layers.
    "allocator": {"model"},
    # What TensorFlow writes, read without TensorFlow.
    "importers.profile": {"errors", "model"},
    "importers.allocator": {"allocator", "errors", "importers.profile", "model"},
    # From a trace and what is known of the program to a ledger.
    "attribution": {"allocator", "model"},
    # From recorded steps to what they would need under other conditions.
    "prediction": {"allocator", "model"},
    # The stored format.
    "events": {"errors", "model", "version"},
    # Recording: the only rooms that import TensorFlow.
    "recorder.base": {"errors", "model"},
    "recorder.sampling": {"errors", "model"},
    "recorder.native": {"importers.allocator", "model", "recorder.sampling"},
    "recorder.observe": {"attribution", "model", "recorder.base"},
    "recorder.oom": {
        "allocator",
        "attribution",
        "importers.allocator",
        "importers.profile",
        "model",
        "prediction",
        "recorder.base",
        "recorder.native",
        "recorder.observe",
        "recorder.sampling",
    },
    "recorder.tracing": {
        "allocator",
        "attribution",
        "importers.allocator",
        "importers.profile",
        "model",
        "recorder.base",
        "recorder.native",
        "recorder.observe",
        "recorder.oom",
        "recorder.sampling",
    },
    "recorder": {
        "allocator",
        "errors",
        "events",
        "importers.allocator",
        "model",
        "recorder.base",
        "recorder.native",
        "recorder.observe",
        "recorder.oom",
        "recorder.sampling",
        "recorder.tracing",
        "version",
    },
    "summary": {"errors", "events", "model", "recorder"},
    # Reading: the reader knows no analysis, the analysis knows no files.
    "reader": {"errors", "events", "model"},
    "analysis": {"errors", "model", "prediction"},
    "server": {"allocator", "analysis", "errors", "model", "prediction", "reader", "version"},
    "plugin": {"events", "server"},
    "plugin_loader": {"plugin"},
    # The server behind another document than TensorBoard's.
    "commands.view": {"errors", "events", "plugin_loader", "reader"},
    # A file in place of the server: its routes, asked for the directory's own files.
    "commands.report": {"errors", "events", "model", "reader", "server", "version"},
    "commands": {
        "analysis",
        "attribution",
        "errors",
        "events",
        "importers.allocator",
        "importers.profile",
        "model",
        "reader",
    },
    # Records, loads what it recorded and predicts from it, so it comes after these.
    "recorder.probing": {
        "analysis",
        "commands",
        "errors",
        "model",
        "prediction",
        "recorder",
        "recorder.base",
        "recorder.native",
        "recorder.oom",
        "recorder.sampling",
    },
    "cli": {"analysis", "commands", "commands.report", "commands.view", "errors", "model", "version"},
    "__main__": {"cli"},
    "pytest_plugin": {"errors", "recorder"},
    "": {"analysis", "commands", "errors", "model", "recorder", "recorder.probing", "summary", "version"},
}
"""Room (a package, or a module of the top) -> the rooms that it may import, each of them above it in this list."""

FOREIGN: dict[str, set[str]] = {
    "tensorflow": {"recorder.*", "summary"},
    "keras": {"recorder.*"},
    "pynvml": {"recorder.sampling.host"},
    "tensorboard": {
        "commands.view.server",
        "events.metadata",
        "events.run_writer",
        "plugin",
        "plugin_loader",
        "reader.event_file",
        "reader.files",
        "reader.provider_source",
        "server.responses",
        "server.routes",
        "server.sources",
    },
    "pytest": {"pytest_plugin"},
    "werkzeug": {"plugin", "server.responses", "server.routes", "server.sources"},
    "google": {"reader.event_file", "importers.*"},
    "xprof": set(),
}
"""Foreign package -> modules that may import it; those that are in nobody's way (numpy) are not listed."""


def matches(name: str, patterns: set[str]) -> bool:
    return any(
        name == pattern or pattern == "*" or (pattern.endswith(".*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


@pytest.mark.parametrize("module", sorted(MODULES), ids=lambda module: module or "tb_memplugin")
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    room = room_of(module)
    assert room in ROOMS or room == "importers", f"say in ROOMS what {room} may import"
    for name in imported(MODULES[module]):
        top = name.partition(".")[0]
        if top == "tb_memplugin":
            target = room_of(name.removeprefix("tb_memplugin").removeprefix("."))
            assert target == room or target in ROOMS[room], f"{module} may not import {name}"
        elif top in FOREIGN:
            assert matches(module, FOREIGN[top]), f"{module} may not import {top}"


def test_arrows_between_rooms_go_one_way() -> None:
    order = list(ROOMS)
    for room, allowed in ROOMS.items():
        assert all(order.index(target) < order.index(room) for target in allowed), f"{room} imports upward"


def test_no_modules_import_each_other() -> None:
    assert cycle(imports()) == []


def test_every_rule_is_about_something_that_exists() -> None:
    used = python_rooms()
    for room, allowed in ROOMS.items():
        assert allowed == used[room], f"{room} does not import {allowed - used[room]}"
    for pattern in {*FOREIGN, *set().union(*FOREIGN.values())} - set(FOREIGN):
        assert any(matches(module, {pattern}) for module in MODULES), f"{pattern} names no module"


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c"]),
        ({"a": {"a"}}, ["a"]),
    ],
)
def test_a_cycle_would_be_found(edges: dict[str, set[str]], expected: list[str]) -> None:
    assert cycle(edges) == expected


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_folders_of_the_page_do_not_import_each_other() -> None:
    assert cycle(page_rooms()) == []


def test_the_drawn_graphs_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert drawn(text) == text, "run python tests/import_graph.py and commit docs/architecture.md"
    for room in python_rooms():
        assert f"**`{room or 'tb_memplugin'}`**" in text, f"docs/architecture.md says nothing of {room}"


def test_the_entry_point_imports_nothing_that_can_fail() -> None:
    # GIVEN the module that TensorBoard imports unguarded at every start
    tree = ast.parse(MODULES["plugin_loader"].read_text(encoding="utf-8"))
    at_top = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    # THEN at its top it imports nothing but TensorBoard's base class
    assert at_top == {"typing", "tensorboard.plugins"}


def test_what_answers_requests_is_not_imported_at_the_start() -> None:
    # GIVEN the modules that TensorBoard's start imports
    tree = ast.parse(MODULES["plugin"].read_text(encoding="utf-8"))
    at_top = {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    # THEN none of them is the store's, the analysis' or the server's
    assert not any(
        name.startswith(("tb_memplugin.reader", "tb_memplugin.analysis", "tb_memplugin.server", "numpy"))
        for name in at_top
    )


def test_the_summary_api_imports_tensorflow_lazily() -> None:
    tree = ast.parse(MODULES["summary"].read_text(encoding="utf-8"))
    at_top = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("tensorflow" in line for line in at_top)
