"""The server of the page: routes, their handlers, and the page's files, described by
``http_api.md``.

In come HTTP requests of TensorBoard, or a source and parameters without HTTP; out go JSON and
binary columns of what the analysis and predictions say of the runs read from there. The plugin,
``view`` and reports call it."""

from tb_memplugin.server.lookup import Lookup
from tb_memplugin.server.messages import COLUMNS_TYPE, StaticFiles, Stretch, data_body
from tb_memplugin.server.routes import DATA_ROUTES, Server
from tb_memplugin.server.run_list import RunList
