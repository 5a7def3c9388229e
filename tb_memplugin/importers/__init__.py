"""Reads what TensorFlow writes: profiles (XSpace) with HLO modules, memory dumps, logs and error
messages; XLA's modules, and JAX's profiles of live arrays.

In come bytes or text, also damaged or hostile ones; out come records: `AllocationTrace`, `Module`,
`MemoryMap`, `LoggedFailure`, `Request`, `LiveArrays`. Whatever does not parse is a
`FormatError`. The recorder and the import of files call it; TensorFlow is not needed."""

from tb_memplugin.importers.hlo import read_dumped_module, read_module
from tb_memplugin.importers.hlo_instructions import hlo_class
from tb_memplugin.importers.hlo_schedule import Totals
from tb_memplugin.importers.live_arrays import LiveArrays, read_live_arrays
from tb_memplugin.importers.memory_dump import (
    MAX_DUMP_BYTES,
    looks_like_dump,
    read_dump,
    summarize_dump,
)
from tb_memplugin.importers.oom_log import (
    MAX_LOG_BYTES,
    LoggedFailure,
    Request,
    read_log,
    read_message,
    read_proto_message,
)
from tb_memplugin.importers.xplane import MAX_PROFILE_BYTES, device_name, read_traces
