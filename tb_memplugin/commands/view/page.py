"""The document around the page, as the assets of a TensorBoard that shows nothing else."""

import io
import zipfile
from typing import IO

from tb_memplugin.events.metadata import PLUGIN_NAME

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


def assets() -> IO[bytes]:
    """A zip archive with the document and the module that starts the page, in place of TensorBoard's frontend."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("index.html", _DOCUMENT)
        file.writestr("start.js", _START)
    archive.seek(0)
    return archive
