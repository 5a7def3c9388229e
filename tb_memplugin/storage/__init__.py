"""What a recorder writes on disk and everything that reads it again, safe for directories of
strangers.

Records of `schema` become frames under rotating tags of event files (`frames`, `write`); files or
TensorBoard's data provider give them back (`files`), they are checked and decoded within limits,
and joined to sessions and runs. A `Reader` caches that; the server, exports and the command line
ask it, the recorder calls `write` and imports no reader."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tb_memplugin.storage.cache import given_back
    from tb_memplugin.storage.catalog import RunTags, no_records, of_session, of_worker, workers_of
    from tb_memplugin.storage.run_reader import LoadedRun, Reader, WorkerRuns
    from tb_memplugin.storage.sessions import limited
    from tb_memplugin.storage.streams import (
        ALL,
        BASIC,
        MAPS,
        META,
        OOM,
        PEAK,
        REQUESTS,
        SAMPLES,
        SNAPSHOTS,
        TIMELINES,
        Stream,
        basic_streams,
    )

_MODULES = ("cache", "catalog", "run_reader", "sessions", "streams", "decoding", "samples")


def __getattr__(name: str) -> Any:
    for module in _MODULES if not name.startswith("_") else ():
        found = importlib.import_module(f"tb_memplugin.storage.{module}")
        if name in vars(found):
            return vars(found)[name]
    raise AttributeError(f"tb_memplugin.storage has no attribute {name!r}")
