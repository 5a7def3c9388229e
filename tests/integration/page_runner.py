"""Runs the code blocks of a page of the documentation, in order and in one process.

usage: python page_runner.py FILE

FILE is a JSON list of ``[kind, code, shown]``. Python blocks share a module's names; shell blocks
run in bash. Each line of `shown` must be in what the block prints, apart from numbers and the
widths of columns.
"""

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys

NUMBER = re.compile(r"\d[\d,.]*( (?:B|KiB|MiB|GiB)\b)?")


def shape(text: str) -> list[str]:
    """The lines of an output, without its numbers and the widths of its columns."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


def run(kind: str, code: str, name: str, names: dict[str, object]) -> str:
    """What a block prints."""
    if kind != "python":
        command = ["bash", "-euo", "pipefail", "-c", code]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    # AutoGraph and source lines read the file
    pathlib.Path(name).write_text(code, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for number, (kind, code, shown) in enumerate(
        json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    ):
        printed = run(kind, code, f"block_{number}.py", names)
        missing = [line for line in shape(shown) if line not in shape(printed)]
        assert not missing, f"not printed by\n{code}\n{missing}\nbut\n{printed}"


if __name__ == "__main__":
    main()
