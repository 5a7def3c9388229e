"""The direction of imports: what a room may import is listed here, everything else is refused; there are no cycles."""

import ast

import pytest
from import_graph import (
    DOCUMENT,
    HOLDERS,
    MODULES,
    ROOT,
    cycle,
    drawn,
    imported,
    imports,
    page_rooms,
    python_rooms,
    reduced,
    room_of,
)

ROOMS: dict[str, set[str]] = {
    room: set(may.split())
    for room, may in {
        # The base: plain data. No TensorBoard, no TensorFlow, no files.
        "version": "",
        "errors": "",
        "environment": "",
        "progress": "",
        "schema": "",
        # BFC's rules and simulator know nothing of layers.
        "allocator": "schema",
        # What TensorFlow writes, read without TensorFlow.
        "importers.profile": "errors schema",
        "importers.allocator": "allocator errors importers.profile schema",
        # From a trace and what is known of the program to a ledger.
        # A traced window: its chunks, the names of its ops, XLA's buffer assignment.
        "attribution.trace": "allocator schema",
        # The owner of each chunk.
        "attribution.owners": "allocator attribution.trace schema",
        # Ledger, timeline, memory map and requests of a step.
        "attribution.results": "allocator attribution.owners attribution.trace schema",
        # The post-mortem of a failed allocation.
        "attribution.oom": "allocator attribution.owners attribution.results schema",
        # From recorded steps to what they would need under other conditions.
        "prediction": "allocator schema",
        # Questions on runs, each in a room of its own.
        "analysis.steps": "schema",
        "analysis.growth": "analysis.steps schema",
        "analysis.answers": "analysis.growth analysis.steps schema",
        "analysis.devices": "analysis.answers analysis.growth analysis.steps schema",
        "analysis.fit": "analysis.growth analysis.steps errors prediction schema",
        "analysis": ("analysis.answers analysis.devices analysis.fit analysis.growth analysis.steps prediction schema"),
        # The stored format: frames of bytes, the records in them, and who writes them.
        "storage.frames": "errors schema",
        "storage.write": "errors schema storage.frames version",
        # Training with recomputed segments: on Keras and TensorFlow, beside the recorder.
        "recomputation": "errors schema",
        # Recording: the only rooms that import TensorFlow.
        "recorder.base": "environment errors schema",
        "recorder.sampling": "environment errors recorder.base schema",
        "recorder.native": "importers.allocator recorder.sampling schema",
        # What the program is, from the bottom up: graphs, models, calls, what Python holds.
        "recorder.observe.graph": "recomputation schema",
        "recorder.observe.model": "errors recomputation recorder.base recorder.observe.graph schema",
        "recorder.observe.calls": (
            "attribution.owners recorder.base recorder.observe.graph recorder.observe.model schema"
        ),
        "recorder.observe.heap": "recorder.observe.calls recorder.observe.graph recorder.observe.model schema",
        "recorder.observe": (
            "attribution.trace recorder.base recorder.observe.calls recorder.observe.graph "
            "recorder.observe.heap recorder.observe.model schema"
        ),
        "recorder.oom": (
            "allocator attribution.oom attribution.owners importers.allocator importers.profile prediction "
            "recorder.base recorder.native recorder.observe recorder.observe.calls recorder.observe.graph "
            "recorder.sampling schema"
        ),
        "recorder.tracing": (
            "allocator attribution.owners attribution.results importers.allocator importers.profile "
            "recorder.base recorder.native recorder.observe recorder.observe.calls recorder.oom "
            "recorder.sampling schema"
        ),
        "recorder": (
            "allocator analysis.devices environment errors importers.allocator recorder.base recorder.native "
            "recorder.observe recorder.observe.calls recorder.observe.graph recorder.observe.heap "
            "recorder.observe.model recorder.oom recorder.sampling recorder.tracing schema storage.frames "
            "storage.write version"
        ),
        # Wraps what trains, and gives it the recorder.
        "recorder.automatic": (
            "environment recorder recorder.base recorder.observe.calls recorder.observe.graph recorder.oom schema"
        ),
        "summary": "environment errors recorder schema storage.write",
        # Where frames lie, and what they say.
        "storage.files": "environment errors storage.frames storage.write",
        "storage.read": "errors schema storage.files storage.frames",
        # Reading: the reader knows no analysis, the analysis knows no files.
        "storage": "errors schema storage.files storage.frames storage.read storage.write",
        "server": (
            "allocator analysis analysis.answers analysis.devices analysis.fit analysis.growth analysis.steps "
            "errors prediction schema storage storage.files storage.read version"
        ),
        # Tables for other engines, and traced steps for other viewers.
        "export": "analysis.steps errors schema storage storage.files storage.frames storage.read storage.write",
        # The tables as a transform of Apache Beam.
        "beam": "export",
        "plugin": "server storage.frames",
        "plugin_loader": "plugin",
        "commands": (
            "analysis analysis.answers analysis.devices analysis.fit analysis.growth analysis.steps "
            "attribution.oom attribution.owners attribution.results attribution.trace environment errors export "
            "importers.allocator importers.profile plugin_loader prediction progress recorder.automatic schema "
            "server storage storage.files storage.frames storage.read storage.write version"
        ),
        # Records, loads what it recorded and predicts from it, so it comes after these.
        "recorder.probing": (
            "analysis.fit commands environment errors prediction progress recorder recorder.base "
            "recorder.native recorder.oom recorder.sampling schema"
        ),
        # Records, and compares the run with what Keras counts.
        "recorder.doctor": "commands environment recorder recorder.native recorder.sampling schema",
        "commands.doctor": "commands recorder.doctor schema",
        "cli": "commands commands.doctor errors schema version",
        "__main__": "cli commands",
        "notebook": "commands environment recorder.automatic",
        "": (
            "analysis.fit commands environment errors export notebook recomputation recorder recorder.probing "
            "schema summary version"
        ),
    }.items()
}
"""Room (a package, or a module of the top) -> the rooms that it may import, each of them above it in this list."""

FOREIGN: dict[str, set[str]] = {
    "tensorflow": {"recomputation.*", "recorder.*", "summary"},
    "keras": {"recomputation.*", "recorder.*"},
    "pandas": {"commands.loading"},
    "apache_beam": {"beam"},
    "pyarrow": {"export.parquet", "export.schema"},
    "pynvml": {"recorder.sampling.host"},
    "tensorboard": {
        "commands.view",
        "storage.frames.metadata",
        "storage.write.run_writer",
        "plugin",
        "plugin_loader",
        "storage.files.event_file",
        "storage.files.provider_source",
        "server.requests",
        "server.responses",
        "server.routes",
    },
    "werkzeug": {"plugin", "server.requests", "server.responses", "server.routes"},
    "google": {"storage.files.event_file", "importers.*"},
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
    assert room in ROOMS or room in HOLDERS, f"say in ROOMS what {room} may import"
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
    assert drawn(text) == text, "run python tests/import_graph.py and commit docs/development/architecture.md"
    for room in python_rooms():
        assert f"**`{room or 'tb_memplugin'}`**" in text, f"docs/development/architecture.md says nothing of {room}"


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
        name.startswith(("tb_memplugin.storage.files", "tb_memplugin.analysis", "tb_memplugin.server", "numpy"))
        for name in at_top
    )


def test_the_summary_api_imports_tensorflow_lazily() -> None:
    tree = ast.parse(MODULES["summary"].read_text(encoding="utf-8"))
    at_top = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("tensorflow" in line for line in at_top)


WHOLE_ROOMS = {
    "test_architecture_python": "the imports of all rooms, and where tests lie",
    "test_public_names": "the package's public names and what importing them costs",
    "test_github_action": "the repository as a GitHub Action",
    "test_workflows": "the forge's workflows",
    "analysis/test_evaluators": "answers, findings and texts of a run with a trainer and an evaluator",
    "analysis/test_inference_runs": "answers, findings and texts of a run without training steps",
    "attribution/test_gpu_recordings": "the room's result on steps recorded on a GPU",
    "attribution/test_ledger_on_accelerators": "the ledger without op executions, through four modules",
    "commands/test_inspected_runs": "the whole output of a command on stored runs",
    "demo/test_scenario_page": "a page of demo/, which is no part of the package",
    "server/test_stored_answers": "the answers of all routes on runs that are written the same way every time",
    "export/test_recipes": "the recipes of docs/export.md, on exported tables",
    "prediction/test_fits": "the one rule of fitting that three modules ask",
    "prediction/test_real_trainings": "the whole room against recorded trainings",
    "storage/test_damage": "damaged files, through the whole reader",
    "storage/test_large_runs": "the reader's limits of memory, through the whole reader",
    "storage/test_live_files": "directories that change, through the whole reader",
    "storage/test_refused_names": "impossible steps and names in every kind of record",
    "server/test_workers": "responses of all handlers on a run of several workers",
}
"""Test files under tests/unit that are not about one module, and what they are about."""


def test_every_unit_test_lies_where_its_module_does() -> None:
    tests = ROOT / "tests" / "unit"
    places = {path.relative_to(tests).with_suffix("").as_posix() for path in tests.rglob("test_*.py")}
    modules = {name.replace(".", "/") for name in MODULES}
    strays = {place for place in places - WHOLE_ROOMS.keys() if place.replace("test_", "", 1) not in modules}
    assert not strays, "name each test_<module>.py, in the folder of its module, or say in WHOLE_ROOMS what it tests"
    assert WHOLE_ROOMS.keys() <= places


def test_unit_tests_of_one_name_are_told_apart_by_their_packages() -> None:
    tests = ROOT / "tests" / "unit"
    folders = {path.parent for path in tests.rglob("test_*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()], "add an empty __init__.py"


def test_no_inner_function_calls_itself() -> None:
    """Such a function is in a reference cycle: what it refers to, such as a model, stays until a collection."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{name}: {inner.name}"
        for name, path in MODULES.items()
        for outer in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
        if isinstance(inner, functions) and inner is not outer
        if any(isinstance(one, ast.Name) and one.id == inner.name for one in ast.walk(inner))
    ]
    assert found == []
