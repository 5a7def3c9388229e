"""Memory of TensorFlow training runs, for TensorBoard.

Recording needs TensorFlow; reading and viewing do not. Names are imported on first use, so that
neither pays for the other. The rooms are `schema`, `allocator`, `importers`, `attribution`,
`storage`, `analysis`, `fit`, `export`, `recorder`, `training`, `server` and `cli`, each with a
face, its ``__init__``, that says what it is for. A room imports only the faces of rooms that come
before it."""

import importlib
from typing import TYPE_CHECKING, Any

from tb_memplugin.environment import prefer_bfc, why_unrecorded
from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin import summary
    from tb_memplugin.errors import (
        FormatError,
        MemoryPluginError,
        NewerFormatError,
        NotFoundError,
        RecomputationError,
        RecordingError,
        RequestError,
    )
    from tb_memplugin.export import Exported, RecordedRun, export_parquet, load, what_if
    from tb_memplugin.fit import Plan, WhatIf
    from tb_memplugin.planning import plan
    from tb_memplugin.recorder.heap import release_unused
    from tb_memplugin.recorder.loop import MemoryCallback, MemoryRecorder, memory_summary
    from tb_memplugin.recorder.watch import cut_points
    from tb_memplugin.schema import Run, Snapshot
    from tb_memplugin.training import (
        BatchSizeAnswer,
        largest_batch_size,
        print_what_fits,
        probe,
        remat,
    )

__all__ = [
    "BatchSizeAnswer",
    "Exported",
    "FormatError",
    "MemoryCallback",
    "MemoryPluginError",
    "MemoryRecorder",
    "NewerFormatError",
    "NotFoundError",
    "Plan",
    "RecomputationError",
    "RecordedRun",
    "RecordingError",
    "RequestError",
    "Run",
    "Snapshot",
    "WhatIf",
    "__version__",
    "cut_points",
    "export_parquet",
    "largest_batch_size",
    "load",
    "memory_summary",
    "plan",
    "print_what_fits",
    "probe",
    "release_unused",
    "remat",
    "summary",
    "what_if",
]

prefer_bfc()

_ROOMS = {
    "export": "Exported RecordedRun export_parquet load what_if",
    "fit": "Plan WhatIf",
    "planning": "plan",
    "recorder.heap": "release_unused",
    "recorder.loop": "MemoryCallback MemoryRecorder memory_summary",
    "recorder.watch": "cut_points",
    "schema": "Run Snapshot",
    "training": "BatchSizeAnswer largest_batch_size print_what_fits probe remat",
    "errors": " ".join(name for name in __all__ if name.endswith("Error")),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}
_OFF = (
    "MemoryCallback",
    "MemoryRecorder",
    "largest_batch_size",
    "memory_summary",
    "print_what_fits",
    "probe",
)
"""Names that `off` replaces while nothing can be recorded: see `environment.why_unrecorded`."""
_ON_JAX = "MemoryCallback", "largest_batch_size", "probe"


def __getattr__(name: str) -> Any:
    if name == "summary":
        return importlib.import_module("tb_memplugin.summary")
    if name in _ROOM_OF:
        why = why_unrecorded(on_jax=name in _ON_JAX) if name in _OFF else None
        room = _ROOM_OF[name] if why is None else "off"
        return getattr(importlib.import_module(f"tb_memplugin.{room}"), name)
    # for ``%load_ext tb_memplugin``
    if name in ("load_ipython_extension", "unload_ipython_extension"):
        return getattr(
            importlib.import_module("tb_memplugin.cli.notebook"), name.replace("ipython_", "")
        )
    raise AttributeError(
        f"module 'tb_memplugin' has no attribute {name!r}; it offers {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return list(__all__)
