"""How far an idea is spread over the code: modules, lines, and the files on the roads of three quantities.

Run as ``python tests/roads.py [DIRECTORY]``; the directory is another checkout to compare with, by default this one.
"""

import ast
import collections
import importlib.util
import pathlib
import re
import sys
from types import ModuleType

ROADS = {
    "a layer's saved bytes": (
        r"saved_for_backward|SavedForBackward|graph_saved|saved_chunks|is_saved\b|savedForBackward|saved_bytes",
        ("recorder", "attribution", "model", "events", "reader", "analysis", "server"),
    ),
    "host memory": (
        r"HostSamples|HostParts|HostMemory|ResidentMemory|Host(State|Steps)|host_(parts|steps|memory|records|columns)|\bHOST_",
        ("recorder", "model", "events", "reader", "analysis", "server"),
    ),
}
"""Quantity that is recorded -> how the code spells it, and the rooms from the recorder to the page."""
COMPUTED = {"a predicted peak": ("analysis.fit.what_if", ("prediction", "allocator"))}
"""Quantity that is computed for an answer -> the module that answers, and the rooms that compute it."""
SHORT = 60
"""A module under this many lines rarely is an idea of its own."""


def graph_of(root: pathlib.Path) -> ModuleType:
    """`import_graph` of a checkout."""
    spec = importlib.util.spec_from_file_location("graph_of_checkout", root / "tests" / "import_graph.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def importers(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Every module with the modules that import it."""
    found: dict[str, set[str]] = {module: set() for module in imports}
    for module, targets in imports.items():
        for target in targets - {module}:
            found[target].add(module)
    return found


def duplicates(trees: dict[str, ast.Module]) -> list[str]:
    """Public functions and classes of one name in several modules."""
    places: dict[str, set[str]] = collections.defaultdict(set)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(module)
    return sorted(name for name, modules in places.items() if len(modules) > 1)


def road(pattern: str, rooms: tuple[str, ...], trees: dict[str, ast.Module]) -> list[str]:
    """The modules of these rooms whose code (not its comments) names the quantity."""
    return [
        module
        for module, tree in trees.items()
        if module.partition(".")[0] in rooms and any(re.search(pattern, word) for word in _words(tree))
    ]


def reached(start: str, rooms: tuple[str, ...], imports: dict[str, set[str]]) -> list[str]:
    """The module, and the modules of these rooms that it imports, directly or through others of the package."""
    found, todo = {start}, [start]
    while todo:
        new = imports[todo.pop()] - found
        found |= new
        todo += new
    callers = {module for module in found if any(target.startswith(rooms[0]) for target in imports[module])}
    return sorted(module for module in found if module in callers | {start} or module.startswith(rooms))


def _words(tree: ast.Module) -> set[str]:
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str(word)):
                words.add(word)
            case ast.FunctionDef(name=word) | ast.ClassDef(name=word) | ast.alias(name=word):
                words.add(word)
            case ast.Constant(value=str(word)) if word.isidentifier():
                words.add(word)
    return words


def main(root: pathlib.Path) -> None:
    """Print the figures of a checkout."""
    graph = graph_of(root)
    texts = {module: path.read_text(encoding="utf-8") for module, path in graph.MODULES.items()}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    lines = {module: text.count("\n") for module, text in texts.items()}
    modules = [module for module, path in graph.MODULES.items() if path.name != "__init__.py"]
    users = importers(graph.imports())
    by_room: collections.Counter[str] = collections.Counter()
    for module, count in lines.items():
        by_room[graph.room_of(module) or "tb_memplugin"] += count
    page = sum(path.read_text(encoding="utf-8").count("\n") for path in graph.PAGE.rglob("*.ts*"))
    tests = sum(path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py"))
    longest = max(
        (node.end_lineno - node.lineno + 1, f"{module}.{node.name}")
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    )
    sys.stdout.write("".join(f"{count:7,} lines  {room}\n" for room, count in sorted(by_room.items())))
    sys.stdout.write(f"{sum(lines.values()):7,} lines of Python, {page:,} of the page, {tests:,} of tests\n")
    sys.stdout.write(f"{len(modules):7,} modules\n")
    sys.stdout.write(f"{sum(lines[module] < SHORT for module in modules):7,} modules under {SHORT} lines\n")
    sys.stdout.write(f"{sum(len(users[module]) == 1 for module in modules):7,} modules with one importer\n")
    repeated = duplicates(trees)
    sys.stdout.write(f"{len(repeated):7,} names twice: {', '.join(repeated)}\n")
    sys.stdout.write(f"{longest[0]:7,} lines in the longest function, {longest[1]}\n")
    roads = {name: road(pattern, rooms, trees) for name, (pattern, rooms) in ROADS.items()}
    roads |= {name: reached(start, rooms, graph.imports()) for name, (start, rooms) in COMPUTED.items()}
    for name, files in roads.items():
        sys.stdout.write(f"{len(files):7,} files on the road of {name}: {' '.join(files)}\n")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parents[1]
    main(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here)
