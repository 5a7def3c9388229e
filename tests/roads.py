"""How far an idea is spread over the code: the files on the roads of three quantities, and those that declare one fact.

A **road** leads from the recorder, or from the simulation, to the component of the page that shows the quantity. On it
are the Python and TypeScript files of its rooms that *name* the quantity in code (identifiers and strings, no
comments), and those that only *pass it on*: that are connected with at least two files of the road, where one of two
calls a function of the other whose parameters or result are a carrier. A carrier is a record with a field that is named
so, or with a field whose type is a carrier; a whole `Run` or session and their like are none, for everything takes
them. A method is taken for called where its name is, unless more than `MOST_NAMESAKES` files define that name: `read`
says nothing.

A **declaration** of `Snapshot.largest_free_bytes` is a file in which a statement about snapshots spells the name as a
field, as a string, as a keyword with a text, or, in TypeScript, before a type or a check; and the page http_api.md, if
a section on snapshots does outside of its generated parts.

On neither are the generated `schema.ts` and a room's face, which only imports: neither is written for a quantity.

Run as ``python tests/roads.py [DIRECTORY]``; the directory is another checkout to compare with, by default this one.
"""

import ast
import collections
import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterator

ROADS = {
    "a layer's saved bytes": (
        r"saved_for_backward|SavedForBackward|graph_saved|saved_chunks|is_saved\b|savedForBackward|saved_bytes|SavedRow",
        "recorder attribution schema storage analysis server frontend",
    ),
    "host RSS": (
        r"host_resident|hostResident|resident_bytes|ResidentMemory|Host(Samples|Parts|Memory|State|Steps)|host_memory",
        "recorder schema storage analysis server frontend",
    ),
    "a predicted peak": (
        r"WhatIf|what_if\b|whatIf|Predictor|predicted_peak|\bPrediction\b",
        "allocator fit schema analysis server frontend",
    ),
}
"""Quantity to how the code spells it and the rooms between its source and the page."""
WHOLES = (
    "Run LoadedRun MergedRun ReadSession FoundDevice RunFacts Handlers Reader RunWriter Session Recording App Store"
)
CONTAINERS = frozenset(WHOLES.split())
FACT = "largest_free_bytes"
MOST_NAMESAKES = 3
GENERATED = "frontend/src/schema"
NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclasses.dataclass
class File:
    """What a file of either language names, takes and imports."""

    words: set[str]  # identifiers, and strings that are identifiers
    records: dict[str, tuple[set[str], set[str]]]  # to the names of the fields and of their types
    typed: dict[str, set[str]]  # function or class to the types in its signature and its fields
    calls: set[str]  # names of functions and methods
    imports: dict[str, set[str]]  # file to the names taken from it


def named(node: ast.AST | None) -> set[str]:
    """Names in an annotation, also in one that is a string."""
    found: set[str] = set()
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.Name | ast.Attribute):
            found.add(one.id if isinstance(one, ast.Name) else one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            found.update(re.findall(r"\w+", one.value))
    return found


def words_of(tree: ast.Module) -> set[str]:
    words: set[str] = set()
    for node in ast.walk(tree):
        names = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
        names += [node.value] if isinstance(node, ast.Constant) and re.fullmatch(r"[\w/]+", str(node.value)) else []
        words.update(name for name in names if isinstance(name, str))
    return words


def python_file(tree: ast.Module) -> File:
    file = File(words_of(tree), {}, collections.defaultdict(set), set(), collections.defaultdict(set))
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.FunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                types = set().union(named(node.returns), *(named(one.annotation) for one in given))
                file.typed[node.name] |= types
                file.typed[getattr(top, "name", node.name)] |= types
            elif isinstance(node, ast.ClassDef):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                types = set().union(*(named(one.annotation) for one in fields))
                file.records[node.name] = {getattr(one.target, "id", "") for one in fields}, types
                file.typed[node.name] |= types
            elif isinstance(node, ast.Call):
                file.calls.add(getattr(node.func, "attr", getattr(node.func, "id", "")))
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("tb_memplugin"):
                file.imports[str(node.module).replace(".", "/")].update(name.name for name in node.names)
    return file


def page_file(path: pathlib.Path, root: pathlib.Path) -> File:
    text = NOT_CODE.sub("", path.read_text(encoding="utf-8"))
    calls = set(re.findall(r"(?:\.|<)(\w+)\b", text))  # of methods, and elements of a component
    file = File(set(re.findall(r"\w+", text)), {}, {}, calls, collections.defaultdict(set))
    for part in re.split(r"\n(?=export |interface |type |function |const |class )", text):
        found = re.match(r"(?:export )?(?:default )?(interface|type|function|const|class) (\w+)", part)
        if found is None:
            continue
        types = set(re.findall(r"[:<|&,(]\s*(?:readonly )?([A-Z]\w+)", part))
        file.typed[found[2]] = types
        if found[1] in ("interface", "type"):
            file.records[found[2]] = set(re.findall(r"(\w+)\??:", part)), types
    for names, place in re.findall(r'import\s+(?:type\s+)?\{([^}]*)\}\s+from\s+"(\.[^"]+)"', text, re.DOTALL):
        target = (path.parent / place).resolve().relative_to(root).as_posix()
        file.imports[re.sub(r"\.[jt]sx?$", "", target)].update(re.findall(r"(?:type\s+)?(\w+)(?:\s+as \w+)?,?", names))
    return file


def files_of(root: pathlib.Path) -> dict[str, File]:
    """Every file of the package and of the page by its path without a suffix."""
    found = {}
    for path in sorted((root / "tb_memplugin").rglob("*.py")):
        name = path.relative_to(root).with_suffix("").as_posix().removesuffix("/__init__")
        found[name] = python_file(ast.parse(path.read_text(encoding="utf-8")))
    for path in sorted((root / "frontend/src").rglob("*.ts*")):
        found[path.relative_to(root).as_posix().rpartition(".")[0]] = page_file(path, root)
    faces = {name: file for name, file in found.items() if file.imports and not file.records and not file.typed}
    for file in found.values():
        for face in file.imports.keys() & faces.keys():
            for word in file.imports.pop(face):
                made = [module for module, words in faces[face].imports.items() if word in words]
                file.imports[made[0] if made else face].add(word)
    return found


def road(pattern: str, rooms: str, files: dict[str, File]) -> dict[str, bool]:
    """The files on a road, and whether they name the quantity."""
    inside = {name: file for name, file in files.items() if {*name.split("/")[:2]} & {*rooms.split()}}
    names = {name for name, file in inside.items() if any(re.search(pattern, word) for word in file.words)}
    records = {kind: of for file in inside.values() for kind, of in file.records.items() if kind not in CONTAINERS}
    carriers = {kind for kind, (fields, _) in records.items() if any(re.search(pattern, field) for field in fields)}
    while more := {kind for kind, (_, types) in records.items() if types & carriers} - carriers:
        carriers |= more
    defined = collections.Counter(function for file in files.values() for function in file.typed)
    makers = collections.defaultdict(set)
    for name, file in inside.items():
        for function, types in file.typed.items():
            if types & carriers and function not in carriers:
                makers[function].add(name)
    handed: dict[str, set[str]] = {name: set() for name in inside}
    for name, file in inside.items():
        called = {to for word in file.calls if defined[word] <= MOST_NAMESAKES for to in makers.get(word, ())}
        called |= {to for to, taken in file.imports.items() if any(to in makers.get(word, ()) for word in taken)}
        for to in called - {name}:
            handed[name].add(to)
            handed[to].add(name)
    found = set(names)
    while more := {name for name, others in handed.items() if len(others & found) > 1} - found:
        found |= more
    return {name: name in names for name in sorted(found) if files[name].typed and name != GENERATED}


def statements(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The statements of a module and of its classes, with the classes' names."""
    for top in tree.body:
        yield from ((top.name, one) for one in top.body) if isinstance(top, ast.ClassDef) else [("", top)]


def declarations(root: pathlib.Path) -> Iterator[str]:
    """The files that declare the fact, see above."""
    for path in sorted((root / "tb_memplugin").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name, top in statements(ast.parse(text)) if FACT in text else ():
            about = "napshot" in name + (ast.get_source_segment(text, top) or "")
            spelt = any(
                (isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == FACT)
                or (isinstance(node, ast.Constant) and node.value == FACT)
                or (isinstance(node, ast.keyword) and node.arg == FACT and isinstance(node.value, ast.Constant))
                for node in ast.walk(top)
            )
            if about and spelt:
                yield path.relative_to(root).as_posix()
                break
    for path in sorted((root / "frontend/src").rglob("*.ts*")):
        parts = re.split(r"\n(?=\S)", NOT_CODE.sub("", path.read_text(encoding="utf-8")))
        spelt = re.compile(rf"\b{FACT}\??: (?:number|maybe|integer|bytes)")
        if path.stem != "schema" and any("napshot" in part and spelt.search(part) for part in parts):
            yield path.relative_to(root).as_posix()
    page = root / "tb_memplugin/server/http_api.md"
    text = re.sub("<!-- generated.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    sections = text.split("\n## ")
    if any("snapshot" in section.partition("\n")[0] and FACT in section for section in sections):
        yield page.relative_to(root).as_posix()


def main(root: pathlib.Path) -> None:
    """Print the figures of a checkout."""
    files = files_of(root)
    for name, (pattern, rooms) in ROADS.items():
        found = road(pattern, rooms, files)
        print(f"{len(found):5} files on the road of {name}, {sum(found.values())} of which name it:")
        print("      " + " ".join(f"{one}{'' if names else '*'}" for one, names in found.items()))
    declared = list(declarations(root))
    print(f"{len(declared):5} declarations of Snapshot.{FACT}: {' '.join(declared)}")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parents[1]
    main(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here)
