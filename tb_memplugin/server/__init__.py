"""FACE."""

from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.responses import COLUMNS_TYPE, StaticFiles, data_body
from tb_memplugin.server.routes import DATA_ROUTES, Server
