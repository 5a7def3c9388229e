"""Docstrings for Sphinx: they are in Google's style with Markdown's fences, and Sphinx reads
reStructuredText.

Fences become `code-block` directives. `Attributes` of dataclasses become a list with the types of
the fields, because one entry may name several fields. `Returns` never begin with a type here, even
if they contain a colon.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from typing import Annotated, Any, get_args, get_origin

from sphinx.application import Sphinx

from tb_memplugin.schema import Integers, fields

FENCE = re.compile(r"(\s*)```(\w*)")
ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")
ALIASES = {
    name: "Integers" if get_args(alias)[0] == Integers else get_args(alias)[0].__name__
    for name, alias in vars(fields).items()
    if get_origin(alias) is Annotated
}
"""Types with bounds, such as `Size`, by what they are: `int`."""


def without_fences(lines: list[str]) -> list[str]:
    """The lines with every fenced block as a directive."""
    result: list[str] = []
    inside = False
    for line in lines:
        fence = FENCE.fullmatch(line)
        if fence is None:
            result.append(f"   {line}" if inside and line else line)
        elif inside:
            inside = False
            result.append("")
        else:
            inside = True
            result += ["", f"{fence[1]}.. code-block:: {fence[2] or 'text'}", ""]
    return result


def section(lines: list[str], heading: str) -> tuple[list[str], list[str], list[str]]:
    """The lines before a section, the section's own without their indentation, and those after
    it."""
    if heading not in lines:
        return lines, [], []
    start = lines.index(heading)
    rest = lines[start + 1 :]
    count = next(
        (at for at, line in enumerate(rest) if line and not line.startswith(" ")), len(rest)
    )
    inside = textwrap.dedent("\n".join(rest[:count])).strip().splitlines()
    return lines[:start], inside, rest[count:]


class _Plain(ast.NodeTransformer):
    """A type without what its annotations say of bounds and storage."""

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "Annotated"
            and isinstance(node.slice, ast.Tuple)
        ):
            return self.visit(node.slice.elts[0])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(ALIASES.get(node.id, node.id))


def field_list(value: type, attributes: list[str]) -> list[str]:
    """A bullet for each entry of `Attributes` with the types of its fields, and for each field
    without an entry."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(definition, ast.ClassDef)
    types = {
        line.target.id: ast.unparse(_Plain().visit(line.annotation))
        for line in definition.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    entries: list[tuple[list[str], list[str]]] = []
    for line in attributes:
        entry = None if line.startswith(" ") else ENTRY.fullmatch(line)
        if entry:
            entries.append((entry[1].split(", "), [entry[2]]))
        else:
            entries[-1][1].append(line.strip())
    named = {name for names, _ in entries for name in names}
    entries += [([name], []) for name in types if name not in named]
    result = [""]
    for names, text in entries:
        kinds = dict.fromkeys(types[name] for name in names)  # one if all have the same
        head = (
            f"{', '.join(f'**{name}**' for name in names)} "
            f"({', '.join(f'``{kind}``' for kind in kinds)})"
        )
        result.append(f"* {head}: {' '.join(text)}" if text else f"* {head}")
    return [*result, ""]


def convert(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Converts a docstring in place."""
    before, returned, after = section(without_fences(lines), "Returns:")
    text = [*before, f":returns: {' '.join(returned)}", "", *after] if returned else before
    if inspect.isclass(value) and dataclasses.is_dataclass(value):
        before, attributes, after = section(text, "Attributes:")
        text = [*before, *field_list(value, attributes), *after]
    lines[:] = text


def signature(
    app: Sphinx, what: str, name: str, value: object, *_: object
) -> tuple[str, None] | None:
    """None for dataclasses: users read them, and the list of fields names the types."""
    return ("", None) if inspect.isclass(value) and dataclasses.is_dataclass(value) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", convert, priority=100)  # before napoleon's
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
