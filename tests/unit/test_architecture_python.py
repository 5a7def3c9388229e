"""The direction of imports: what a module may import is listed here, everything else is refused."""

import ast
import pathlib

import pytest

import tb_memplugin

PACKAGE = pathlib.Path(tb_memplugin.__file__).parent
BASE = {"codec", "errors", "model"}

ALLOWED: dict[str, set[str]] = {
    # The base: no TensorBoard, no TensorFlow.
    "version": set(),
    "errors": set(),
    "model": set(),
    "units": set(),
    "codec": {"errors"},
    "trace": {"model"},
    # The hinge between writers and readers.
    "metadata": set(),
    "streams": {"metadata"},
    "record_fields": {"codec", "errors", "metadata"},
    "records": {*BASE, "record_fields"},
    "map_records": {*BASE, "record_fields", "records"},
    "timeline_records": {*BASE, "map_records", "record_fields"},
    # Writing.
    "live_files": set(),
    "run_writer": {
        *BASE,
        "live_files",
        "map_records",
        "metadata",
        "records",
        "streams",
        "timeline_records",
        "version",
    },
    "summary": {*BASE, "metadata", "record_fields", "records", "run_writer", "streams", "version"},
    "recorder.*": {*BASE, "analysis.*", "importers.*", "metadata", "recorder.*", "run_writer", "trace", "version"},
    "importers.*": {"codec", "errors", "importers.*", "model", "trace"},
    # Reading: the store knows no analysis, the analysis knows no store.
    "store.source": {"errors"},
    "store.cache": set(),
    "store.crc32c": set(),
    "store.tfrecord": {"store.crc32c"},
    "store.columns": {"codec", "model"},
    "store.activation_rows": {"codec", "model"},
    "store.frames": {*BASE, "map_records", "metadata", "records", "store.source", "timeline_records"},
    "store.merge": {"codec", "model", "store.columns"},
    "store.provider_source": {"metadata", "store.source"},
    "store.file_source": {"codec", "errors", "metadata", "store.source", "store.tfrecord"},
    "store.reader": {
        *BASE,
        "metadata",
        "store.activation_rows",
        "store.cache",
        "store.frames",
        "store.merge",
        "store.source",
    },
    "analysis.*": {"analysis.*", "codec", "model", "trace", "units"},
    # Serving: only handlers know data, only responses know HTTP.
    "server.requests": {"errors", "model"},
    "server.responses": {"codec", "server.columns"},
    "server.static_files": {"errors"},
    "server.columns": set(),
    "server.lookup": {"errors", "model"},
    "server.allocator_handlers": {
        *BASE,
        "analysis.*",
        "server.columns",
        "server.lookup",
        "store.reader",
        "store.source",
    },
    "server.pool_columns": {"analysis.*", "server.columns"},
    "server.timeline_handlers": {"codec", "model", "server.columns", "server.lookup", "store.reader", "store.source"},
    "server.handlers": {
        *BASE,
        "analysis.*",
        "server.allocator_handlers",
        "server.columns",
        "server.lookup",
        "server.pool_columns",
        "server.timeline_handlers",
        "store.merge",
        "store.reader",
        "store.source",
        "version",
    },
    "server.routes": {
        "server.allocator_handlers",
        "server.columns",
        "errors",
        "server.handlers",
        "server.requests",
        "server.responses",
        "server.static_files",
        "store.provider_source",
        "store.reader",
        "store.source",
    },
    "plugin": {"metadata", "server.routes"},
    "plugin_loader": {"plugin"},
    # A file in place of the server: its routes, asked for the directory's own files.
    "report.*": {"errors", "metadata", "model", "report.*", "server.*", "store.*", "version"},
    # For the terminal and for Python.
    "loading": {"analysis.growth", "model", "store.file_source", "store.reader"},
    "import_files": {*BASE, "analysis.*", "importers.*", "run_writer", "trace"},
    "inspect_oom": {"model", "units"},
    "inspect_pool": {"analysis.*", "model", "units"},
    "inspect_table": {"inspect_oom", "inspect_pool", "analysis.*", "model", "units"},
    "cli": {"*"},
    "__main__": {"cli"},
    "": {"loading", "recorder.*", "summary", "version"},
}
"""Module or ``package.*`` -> what of this package it may import. The most exact entry counts."""

FOREIGN: dict[str, set[str]] = {
    "tensorflow": {"recorder.*", "summary"},
    "keras": {"recorder.*"},
    "pynvml": {"recorder.host"},
    "tensorboard": {
        "metadata",
        "run_writer",
        "plugin",
        "plugin_loader",
        "store.provider_source",
        "store.file_source",
        "server.responses",
        "server.routes",
    },
    "werkzeug": {"plugin", "server.responses", "server.routes"},
    "google": {"store.file_source", "importers.*"},
    "xprof": set(),
}
"""Foreign package -> modules that may import it; those that are in nobody's way (numpy) are not listed."""

ANYWHERE = {"numpy"}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""Every module by its name below the package; a package by its own name, the top one by the empty name."""


def imported(path: pathlib.Path) -> list[str]:
    """Full names of everything that a module imports, anywhere in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.extend(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                # `from package import module` means the module.
                full = f"{node.module}.{name.name}"
                below = full.removeprefix("tb_memplugin").removeprefix(".")
                found.append(full if below in MODULES and full.startswith("tb_memplugin") else str(node.module))
    return found


def matches(name: str, patterns: set[str]) -> bool:
    return any(
        name == pattern or pattern == "*" or (pattern.endswith(".*") and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


def allowed_for(module: str) -> set[str] | None:
    if module in ALLOWED:
        return ALLOWED[module]
    return ALLOWED.get(module.rpartition(".")[0] + ".*")


@pytest.mark.parametrize("module", sorted(MODULES), ids=lambda module: module or "tb_memplugin")
def test_a_module_imports_only_what_its_place_allows(module: str) -> None:
    if MODULES[module].name == "__init__.py" and module:
        assert imported(MODULES[module]) == [], "packages only group modules"
        return
    allowed = allowed_for(module)
    assert allowed is not None, f"say in ALLOWED what {module} may import"
    for name in imported(MODULES[module]):
        top = name.partition(".")[0]
        if top == "tb_memplugin":
            below = name.removeprefix("tb_memplugin").removeprefix(".")
            assert matches(below, allowed) or below == module, f"{module} may not import {below}"
        elif top in FOREIGN:
            assert matches(module, FOREIGN[top]), f"{module} may not import {top}"


def test_every_rule_is_about_something_that_exists() -> None:
    for pattern in {*ALLOWED, *set().union(*FOREIGN.values()), *set().union(*ALLOWED.values())}:
        assert any(matches(module, {pattern}) for module in MODULES), f"{pattern} names no module"


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
    assert not any(name.startswith(("tb_memplugin.s", "tb_memplugin.a", "numpy")) for name in at_top)


def test_the_summary_api_imports_tensorflow_lazily() -> None:
    tree = ast.parse(MODULES["summary"].read_text(encoding="utf-8"))
    at_top = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("tensorflow" in line for line in at_top)
