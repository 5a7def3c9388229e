"""``tb-memplugin report``: the tab's own page and the answers that it asks for, in one file that needs nothing else."""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from tb_memplugin.errors import NotFoundError
from tb_memplugin.report.contents import MAX_DATA_BYTES, Contents, collect
from tb_memplugin.server.static_files import StaticFiles
from tb_memplugin.version import __version__

FORMAT = 1
DATA_ID = "tb-memplugin-report"
"""The element whose presence makes the page show what is in it instead of asking a server."""
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
<noscript>This report is drawn by the script in it; it needs a browser that runs scripts.</noscript>
<script type="module">{script}</script>
</body>
</html>
"""


def write_report(
    logdir: str, path: str, names: Sequence[str] = (), max_data_bytes: int = MAX_DATA_BYTES
) -> tuple[Contents, int]:
    """Writes the report and says what is in it and how many bytes it has.

    Raises:
        NotFoundError: No such directory or run, or the file cannot be written.
        RequestError: More runs than a report holds.
    """
    contents = collect(logdir, names, max_data_bytes)
    script, _ = StaticFiles().read("index.js")
    page = render(contents, script.decode("utf-8")).encode("utf-8", "replace")
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            file.write(page)
        os.replace(unfinished, path)
    except OSError as error:
        raise NotFoundError(f"the report cannot be written to {path}: {error.strerror}") from None
    return contents, len(page)


def render(contents: Contents, script: str) -> str:
    """The page: `script` as its only code, `contents` as data."""
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
        data=escape_json(_data(contents)),
        script=code,
    )


def escape_script(script: str) -> str:
    """JavaScript that the HTML parser leaves alone: no end tag, and no comment in which one would not count.

    Both can only be inside of strings, templates and regular expressions, where ``\\x3C`` is the same character.
    """
    return _ENDS.sub(r"\\x3C", script)


def escape_json(data: Any) -> str:
    """JSON without any ``<``, so that no text in it can be markup."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _data(contents: Contents) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "absent": contents.absent,
        "answers": [
            {
                "route": answer.question.route,
                "parameters": answer.question.parameters,
                "status": answer.status,
                "data": answer.packed,
            }
            for answer in contents.answers
        ],
        "refusals": [
            {"route": question.route, "parameters": question.parameters, "why": sentence}
            for question, sentence in contents.refusals
        ],
    }
