"""Small faults in Python and TypeScript sources: a sign, a bound, a condition, a dropped branch.

A fault replaces one piece of text. Python's are found in the syntax tree, TypeScript's by patterns
outside of comments and strings. The same seed draws the same faults from the same sources.
"""

import ast
import dataclasses
import itertools
import pathlib
import random
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]

SIGNS: dict[type[ast.AST], tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
BOUNDS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
JOINS: dict[type[ast.AST], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
TYPESCRIPT = {
    " + ": " - ",
    " - ": " + ",
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " === ": " !== ",
    " !== ": " === ",
    " && ": " || ",
    " || ": " && ",
}
_QUIET = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL
)
"""Comments and strings of TypeScript."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A piece of a file and what replaces it.

    Attributes:
        room: Folder of the package (`recorder/base`) or of the page's sources (`frontend/charts`).
        path: File, relative to the repository.
        begin, end: Place in the file's text, in characters.
        text: Replacement.
    """

    room: str
    path: str
    begin: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        return source[: self.begin] + self.text + source[self.end :]

    def describe(self, source: str) -> str:
        line = source.count("\n", 0, self.begin) + 1
        old = " ".join(source[self.begin : self.end].split())
        return f"{self.path}:{line}: `{old[:60]}` becomes `{self.text.strip()}`"


def sources() -> dict[str, list[pathlib.Path]]:
    """Source files by room."""
    rooms: dict[str, list[pathlib.Path]] = {}
    for base, patterns, before in (
        (ROOT / "tb_memplugin", ("*.py",), ""),
        (ROOT / "frontend" / "src", ("*.ts", "*.tsx"), "frontend/"),
    ):
        for path in sorted(found for pattern in patterns for found in base.rglob(pattern)):
            if path.name.endswith((".d.ts", ".test.ts", ".test.tsx")):
                continue
            folder = path.parent.relative_to(base).as_posix()
            rooms.setdefault(before + ("" if folder == "." else folder), []).append(path)
    return rooms


def drawn(seed: int, count: int) -> list[Fault]:
    """Faults of all rooms: each room has one before any has two."""
    chooser = random.Random(seed)
    candidates = {
        room: faults for room, paths in sources().items() if (faults := _faults(room, paths))
    }
    faults: list[Fault] = []
    for turn in itertools.count():
        rooms = sorted(room for room, left in candidates.items() if len(left) > turn)
        chooser.shuffle(rooms)
        for room in rooms:
            # A file first: long files have no more faults than short ones.
            path = chooser.choice(sorted({one.path for one in candidates[room]}))
            fault = chooser.choice([one for one in candidates[room] if one.path == path])
            if fault not in faults:
                faults.append(fault)
            if len(faults) == count:
                return faults
    raise AssertionError


def _faults(room: str, paths: list[pathlib.Path]) -> list[Fault]:
    found: list[Fault] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        pieces = _in_python(source) if path.suffix == ".py" else _in_typescript(source)
        found += [Fault(room, path.relative_to(ROOT).as_posix(), *piece) for piece in pieces]
    return found


Piece = tuple[int, int, str]


def _in_python(source: str) -> Iterator[Piece]:
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    lines = source.splitlines(keepends=True)

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    def between(left: ast.expr, right: ast.expr, change: tuple[str, str]) -> Iterator[Piece]:
        begin, end = span(left)[1], span(right)[0]
        # Comments and brackets stand between, too.
        matches = list(
            re.finditer(rf"(?<![\w<>=!+-]){re.escape(change[0])}(?![\w<>=+-])", source[begin:end])
        )
        if len(matches) == 1:
            yield begin + matches[0].start(), begin + matches[0].end(), change[1]

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            yield from between(node.left, node.right, SIGNS[type(node.op)])
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BOUNDS:
            yield from between(node.left, node.comparators[0], BOUNDS[type(node.ops[0])])
        elif isinstance(node, ast.BoolOp):
            # All of them: one alone would change how the others group.
            if len(node.values) == 2:
                yield from between(node.values[0], node.values[1], JOINS[type(node.op)])
        elif isinstance(node, ast.If | ast.IfExp) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield *span(node.test), "False"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield *span(node), f"bool({ast.get_source_segment(source, node.operand)})"


def _in_typescript(source: str) -> Iterator[Piece]:
    quiet = [match.span() for match in _QUIET.finditer(source)]

    def is_code(at: int) -> bool:
        return not any(begin <= at < end for begin, end in quiet)

    for match in re.finditer("|".join(re.escape(text) for text in TYPESCRIPT), source):
        line = source[source.rfind("\n", 0, match.start()) + 1 : match.start()].lstrip()
        if is_code(match.start() + 1) and not line.startswith(("import ", "type ", "export type ")):
            yield *match.span(), TYPESCRIPT[match[0]]
    for match in re.finditer(r"\bif \(", source):
        depth, at = 1, match.end()
        while depth and at < len(source):
            depth += (source[at] == "(") - (source[at] == ")") if is_code(at) else 0
            at += 1
        if is_code(match.start()):
            yield match.end(), at - 1, "false"
