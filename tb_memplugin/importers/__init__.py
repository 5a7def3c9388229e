"""FACE."""

from tb_memplugin.importers.memory_dump import MAX_DUMP_BYTES, looks_like_dump, read_dump, summarize_dump
from tb_memplugin.importers.oom_log import (
    MAX_LOG_BYTES,
    LoggedFailure,
    Request,
    read_log,
    read_message,
    read_proto_message,
)
from tb_memplugin.importers.xplane import MAX_PROFILE_BYTES, device_name, read_traces
