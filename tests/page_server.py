"""Serves the page of the Memory tab without TensorBoard's frame, in which it loads ten times as
fast; routes, reading and reloading are those of ``tensorboard --logdir``. Prints its address.

usage: python tests/page_server.py LOGDIR
"""

import io
import sys
import threading
import types
import zipfile
from typing import IO

from tensorboard import program
from tensorboard.plugins.core.core_plugin import CorePluginLoader

from tb_memplugin.plugin_loader import MemoryLoader
from tb_memplugin.version import PLUGIN_NAME

# The page's addresses are relative to its module, as in TensorBoard's frame.
DOCUMENT = f"""<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Memory</title>
<base href="data/plugin/{PLUGIN_NAME}/">
<link rel="icon" href="data:,">
</head>
<body>
<script type="module" src="../../../start.js"></script>
</body>
</html>
"""
# A file of its own: TensorBoard's content security policy forbids scripts inside the document.
START = f'import {{ render }} from "./data/plugin/{PLUGIN_NAME}/index.js";\nrender();\n'


def assets() -> IO[bytes]:
    """A zip archive with the document and the module that starts the page, in place of
    TensorBoard's frontend."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("index.html", DOCUMENT)
        file.writestr("start.js", START)
    archive.seek(0)
    return archive


def main() -> None:
    # TensorBoard's own switch for reading without TensorFlow, which takes seconds to import.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    server = program.TensorBoard(
        plugins=[CorePluginLoader(), MemoryLoader()], assets_zip_provider=assets
    )
    server.configure(logdir=sys.argv[1], host="127.0.0.1", port=0)
    print(server.launch(), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
