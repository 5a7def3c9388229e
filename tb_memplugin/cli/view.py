"""``tb-memplugin view``: the page of the Memory tab without TensorBoard's frame, served by
TensorBoard's own server.

The routes, the reading of the log directory and its reloading are those of `tensorboard --logdir`;
only the frontend and the other plugins are left out."""

import argparse
import contextlib
import io
import mimetypes
import socket
import sys
import time
import types
import zipfile
from typing import IO

from tb_memplugin.cli.parser import CommandParser
from tb_memplugin.errors import RequestError
from tb_memplugin.schema import clean
from tb_memplugin.storage.files import FileSource
from tb_memplugin.version import PLUGIN_NAME

# The page's addresses are relative to its module, as in TensorBoard's frame.
_DOCUMENT = f"""<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Memory</title>
<base href="data/plugin/{PLUGIN_NAME}/">
<link rel="icon" href="data:,">
</head>
<body>
<noscript>This page needs a browser with JavaScript enabled.</noscript>
<script type="module" src="../../../start.js"></script>
</body>
</html>
"""
# A file of its own: TensorBoard's content security policy forbids scripts inside the document.
_START = f'import {{ render }} from "./data/plugin/{PLUGIN_NAME}/index.js";\nrender();\n'


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Serves the page of the Memory tab alone; press Ctrl+C to stop. It reads the log "
        "directory as TensorBoard does, and shows new data as it arrives.",
        examples=(
            "tb-memplugin view runs --open",
            "tb-memplugin view runs --port 0 --host 0.0.0.0",
        ),
    )
    parser.add_logdir()
    port = "port; 0 takes a free one (default: 6007)"
    parser.add_argument("--port", metavar="P", type=_port, default=6007, help=port)
    parser.add_argument(
        "--host", metavar="H", default="localhost", help="host to listen on (default: localhost)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    parser.set_defaults(command=_view)


def _view(options: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        address = start(options.logdir, options.host, options.port)
        print(
            f"Memory tab of {clean(options.logdir)} (press Ctrl+C to stop):\n{address}", flush=True
        )
        if options.open:
            import webbrowser

            webbrowser.open(address)
        while True:
            # Ctrl+C may reach a thread of the server, which would not wake this one from a longer
            # wait.
            time.sleep(0.5)
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(
            f"port must be an integer from 0 to 65535. Received: {text!r}"
        )
    return int(text)


def assets() -> IO[bytes]:
    """A zip archive with the document and the module that starts the page, in place of
    TensorBoard's frontend."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("index.html", _DOCUMENT)
        file.writestr("start.js", _START)
    archive.seek(0)
    return archive


def start(logdir: str, host: str, port: int) -> str:
    """Start the server in a daemon thread and return the page's address."""
    # Slow to import.
    from tensorboard import program
    from tensorboard.plugins.core.core_plugin import CorePluginLoader

    from tb_memplugin.plugin_loader import MemoryLoader

    FileSource(logdir)  # checks the directory
    try:
        # Bind and release the address: the server itself would print a message and end the process.
        with socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
        ) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise _unusable(host, port, (error.strerror or str(error)).lower()) from None
    # TensorBoard's own switch for reading without TensorFlow, which takes seconds to import.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    # Windows may know another type of this ending, with which browsers refuse modules.
    mimetypes.add_type("text/javascript", ".js")
    server = program.TensorBoard(
        plugins=[CorePluginLoader(), MemoryLoader()], assets_zip_provider=assets
    )
    server.configure(logdir=logdir, host=host, port=port)
    try:
        # TensorBoard's note on its data server names options that this command does not have.
        with contextlib.redirect_stderr(io.StringIO()):
            return str(server.launch())
    except program.TensorBoardServerException as error:
        raise _unusable(host, port, error.msg) from None
    except SystemExit:  # another program took the address after the check
        raise _unusable(host, port, "the server did not start") from None


def _unusable(host: str, port: int, reason: str) -> RequestError:
    advice = "pass another --port (0 takes a free one) or --host"
    return RequestError(f"cannot listen on host {host}, port {port}: {reason}; {advice}")
