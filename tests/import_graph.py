"""Which room of the code imports which: Python packages and folders of the page.

Run as ``python tests/import_graph.py`` to draw the graph into ``docs/development/architecture.md``.
"""

import ast
import functools
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tb_memplugin"
PAGE = ROOT / "frontend" / "src"
DOCUMENT = ROOT / "docs" / "development" / "architecture.md"
MARKED = re.compile(r"(<!-- (\w+) graph -->\n).*?(<!-- end -->)", re.DOTALL)

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""Every Python module by its name below the package; a package by its own name, the top one by the empty name."""


def imported(path: pathlib.Path) -> list[str]:
    """Full names of everything that a Python module imports, deferred imports included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.extend(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                # `from package import module` imports the module.
                full = f"{node.module}.{name.name}"
                found.append(full if below(full) in MODULES else str(node.module))
    return found


def below(name: str) -> str | None:
    """A module's name below the package, None for modules of other packages."""
    if name != "tb_memplugin" and not name.startswith("tb_memplugin."):
        return None
    return name.removeprefix("tb_memplugin").removeprefix(".")


def room_of(module: str) -> str:
    """The package of a module; a package is its own room, a module at the top is a room of its own."""
    if module == "" or MODULES[module].name == "__init__.py":
        return module
    return module.rpartition(".")[0] or module


HOLDERS = {
    module
    for module, path in MODULES.items()
    if module and path.name == "__init__.py" and not any(room_of(one) == module for one in MODULES if one != module)
}
"""Packages that only hold other packages."""


@functools.cache
def imports() -> dict[str, set[str]]:
    """Every module of the package with the modules of the package that it imports."""
    return {
        module: {name for full in imported(path) if (name := below(full)) is not None}
        for module, path in MODULES.items()
    }


def python_rooms() -> dict[str, set[str]]:
    """Every room with the rooms that it imports; packages that only hold other packages are no rooms."""
    rooms: dict[str, set[str]] = {}
    for module, names in imports().items():
        room = rooms.setdefault(room_of(module), set())
        room |= {room_of(name) for name in names} - {room_of(module)}
    return {room: targets for room, targets in rooms.items() if room not in HOLDERS}


def page_rooms() -> dict[str, set[str]]:
    """The same of the page: folders of its sources."""
    rooms: dict[str, set[str]] = {}
    for path in sorted(PAGE.rglob("*.ts*")):
        if path.name.endswith(".d.ts"):
            continue
        room = rooms.setdefault(_folder(path), set())
        for target in re.findall(r'(?:from|import)\s+"(\.[^"]+)"', path.read_text(encoding="utf-8")):
            room.add(_folder(pathlib.Path(os.path.normpath(path.parent / target))))
        room.discard(_folder(path))
    return rooms


def _folder(path: pathlib.Path) -> str:
    return "/".join(path.relative_to(PAGE).parts[:-1]) or path.stem


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Nodes of one cycle, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for target in sorted(edges.get(node, ())):
            if found := visit(target, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := visit(node, []))), [])


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without edges that follow from others; it must have no cycle."""

    @functools.cache
    def reached(node: str) -> frozenset[str]:
        targets = edges.get(node, set())
        return frozenset(targets).union(*(reached(target) for target in targets))

    return {
        node: {target for target in targets if not any(target in reached(other) for other in targets)}
        for node, targets in edges.items()
    }


def mermaid(edges: dict[str, set[str]]) -> str:
    """A flow chart in Mermaid's language."""
    numbers = {room: f"r{number}" for number, room in enumerate(sorted(edges))}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'  {number}["{room or "tb_memplugin"}"]' for room, number in numbers.items()]
    for room, targets in sorted(reduced(edges).items()):
        lines += [f"  {numbers[room]} --> {numbers[target]}" for target in sorted(targets)]
    return "\n".join([*lines, "```", ""])


def drawn(text: str) -> str:
    """The document with both graphs as the code is now."""
    graphs = {"python": mermaid(python_rooms()), "page": mermaid(page_rooms())}
    return MARKED.sub(lambda match: match[1] + graphs[match[2]] + match[3], text)


if __name__ == "__main__":
    DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT} is drawn\n")
