"""``tb-memplugin report``: the tab's page and its data in one standalone HTML file."""

import argparse
import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tb_memplugin.cli.command_parser import EXIT_CODES, Commands
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.schema import clean, format_bytes
from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin.cli.report_contents import Contents

FORMAT = 1
DATA_ID = "tb-memplugin-report"
"""Id of the element with the data; if present, the page does not query a server."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_ENDS = re.compile(r"<(?=/script|!--)", re.IGNORECASE | re.ASCII)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tb_memplugin {version}">
<title>{title}</title>
<link rel="icon" href="data:,">
<script type="application/json" id="{data_id}">{data}</script>
</head>
<body>
<noscript>This report needs a browser with JavaScript enabled.</noscript>
<script type="module">{script}</script>
</body>
</html>
"""


def add_command(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        help="write a standalone HTML page",
        description="Writes the Memory tab with the data of the selected runs into one HTML file that opens without "
        "TensorBoard or network.",
        examples=(
            "tb-memplugin report runs -o memory.html",
            "tb-memplugin report runs -o memory.html --run frozen --run all_trainable",
        ),
        exit_codes=EXIT_CODES,
    )
    report.add_logdir()
    report.add_argument(
        "-o", "--output", metavar="FILE.html", required=True, help="output file; overwritten if it exists"
    )
    report.add_argument(
        "--run", metavar="R", action="append", default=[], help="run to include, up to 8 times (default: newest eight)"
    )
    report.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    contents, size = write_report(options.logdir, options.output, options.run)
    print(f"{clean(options.output)}: {format_bytes(size)}, with {clean(', '.join(contents.runs))}")
    for sentence in contents.absent:
        print(clean(sentence))
    return 0


def write_report(logdir: str, path: str, names: Sequence[str] = ()) -> "tuple[Contents, int]":
    """Write a report; return its contents and its size in bytes. Errors are those of `collect` and of the file."""
    # Other commands do not need the server, which is slow to import.
    from tb_memplugin.cli.report_contents import collect
    from tb_memplugin.server import StaticFiles

    _check_output(path)
    contents = collect(logdir, names)
    script, _ = StaticFiles().read("index.js")
    page = render(contents, script.decode("utf-8")).encode("utf-8", "replace")
    unfinished = f"{path}.unfinished"
    try:
        _check_output(unfinished)
        # Not through a link that appears after the check.
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINKS, 0o666), "wb") as file:
            file.write(page)
        os.replace(unfinished, path)
    except OSError as error:
        raise NotFoundError(f"the report cannot be written to {path}: {error.strerror}") from None
    return contents, len(page)


def _check_output(path: str) -> None:
    """Refuse what is no regular file: a report would replace a device or a link, not write to it."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise RequestError(
            f"the report cannot be written to {path}: it is a link, a device or a directory; pass the name of a file"
        )


def render(contents: "Contents", script: str) -> str:
    """The page, with `script` as its only code and `contents` as data."""
    code = escape_script(script)
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=html.escape(policy, quote=True).replace("&#x27;", "'"),
        version=html.escape(__version__),
        title=html.escape(f"Memory of {', '.join(contents.runs)}"),
        data_id=DATA_ID,
        data=escape_json(report_data(contents)),
        script=code,
    )


def escape_script(script: str) -> str:
    """Escape JavaScript for a script element: no end tags and no comment starts.

    Both occur only in strings, templates and regular expressions, where ``\\x3C`` is the same character.
    """
    return _ENDS.sub(r"\\x3C", script)


def escape_json(data: Any) -> str:
    """JSON without ``<``, so that it contains no markup."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def report_data(contents: "Contents") -> dict[str, Any]:
    """The data in the page of a report, as `frontend/src/api/embedded.ts` reads it."""
    return {
        "format": FORMAT,
        "absent": contents.absent,
        "answers": [
            {**answer.question._asdict(), "status": answer.status, "data": answer.packed} for answer in contents.answers
        ],
        "refusals": [{**question._asdict(), "why": sentence} for question, sentence in contents.refusals],
    }
