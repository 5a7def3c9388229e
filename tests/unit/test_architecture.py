"""The rooms of the package: their order, their faces and their budgets."""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tb_memplugin"
BUDGETS = {
    "schema": 12_779,
    "allocator": 5_088,
    "importers": 18_300,
    "attribution": 37_500,
    "storage": 35_293,
    "analysis": 32_469,
    "fit": 38_900,
    "export": 15_100,
    "recorder": 91_400,
    "training": 14_800,
    "server": 15_442,
    "cli": 15_650,
}
"""Room to its tokens when its budget was last set. A room imports only from rooms above it."""
TOP = 3_703
"""The same of the modules beside the rooms."""
SLACK = 1.05  # by which a room may grow before its budget is raised, in a commit of its own
MAX_CLASS_LINES, MAX_METHODS = 250, 25
READ = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}


def tokens(*files: pathlib.Path) -> int:
    """What there is to read in the code: names, operators, numbers and strings, without docstrings
    and comments."""
    count = 0
    for file in files:
        before = tokenize.NEWLINE
        for token in tokenize.generate_tokens(
            io.StringIO(file.read_text(encoding="utf-8")).readline
        ):
            starts = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            count += token.type in READ and not (token.type == tokenize.STRING and starts)
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.type
    return count


def imported(file: pathlib.Path) -> list[tuple[str, str]]:
    """Module and name of each import of the package's own names, also inside functions."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.partition(".")[0] == "tb_memplugin"
        for alias in node.names
    ]


def face(package: str) -> set[str]:
    """Names that the package offers: what its ``__init__`` imports."""
    file = ROOT.joinpath(*package.split("."), "__init__.py")
    return {name for _, name in imported(file)}


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_keeps_its_budget(room: str) -> None:
    assert tokens(*(PACKAGE / room).rglob("*.py")) <= BUDGETS[room] * SLACK


def test_what_is_beside_the_rooms_is_small() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == BUDGETS.keys()
    assert tokens(*PACKAGE.glob("*.py")) <= TOP * SLACK


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_rooms_import_each_other_through_faces_and_downwards(file: pathlib.Path) -> None:
    order = list(BUDGETS)
    own = ".".join(file.parent.relative_to(ROOT).parts)
    room = own.split(".")[1] if "." in own else None
    for module, name in imported(file):
        target = (
            module
            if ROOT.joinpath(*module.split("."), "__init__.py").exists()
            else module.rpartition(".")[0]
        )
        if target in (own, "tb_memplugin") or (
            file.name == "__init__.py" and target.startswith(own)
        ):
            continue
        assert module == target, f"import {name} from {target}, the face, not from {module}"
        assert name in face(target), f"{target}/__init__.py does not offer {name}"
        if room is not None:
            other = target.split(".")[1]
            assert order.index(other) <= order.index(room), (
                f"{room} may not import {other}, which comes after it"
            )


@pytest.mark.parametrize("room", BUDGETS)
def test_a_face_says_what_the_room_does(room: str) -> None:
    text = (
        ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8")))
        or ""
    )
    assert len(text.split()) >= 20


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_exist(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(
        r"\b(?:tb_memplugin|tests|demo|docs|frontend)/[\w./-]+\.(?:py|md|ts|tsx|json)\b", text
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+)`", text) if page.name == "CONTRIBUTING.md" else []
    assert set(named) <= tests


def test_the_entry_point_imports_nothing_that_can_fail() -> None:
    # GIVEN the module that TensorBoard imports unguarded at every start
    tree = ast.parse((PACKAGE / "plugin_loader.py").read_text(encoding="utf-8"))
    at_top = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    # THEN at its top it imports nothing but TensorBoard's base class
    assert at_top == {"typing", "tensorboard.plugins"}


def test_no_class_is_too_large_to_read() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes = [
        (path.name, node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    lines = {(name, node.name): node.end_lineno - node.lineno + 1 for name, node in classes}
    methods = {
        (name, node.name): sum(isinstance(one, functions) for one in node.body)
        for name, node in classes
    }
    assert {one: count for one, count in lines.items() if count > MAX_CLASS_LINES} == {}
    assert {one: count for one, count in methods.items() if count > MAX_METHODS} == {}


def test_no_inner_function_calls_itself() -> None:
    """Such a function is in a reference cycle: what it refers to, such as a model, stays until a
    collection."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{path}: {inner.name}"
        for path in FILES
        for outer in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
        if isinstance(inner, functions) and inner is not outer
        if any(isinstance(one, ast.Name) and one.id == inner.name for one in ast.walk(inner))
    ]
    assert found == []
