"""Memory of TensorFlow training runs, for TensorBoard.

Recording needs TensorFlow; reading and viewing do not. Names are imported on first use, so that neither pays for the
other.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tb_memplugin.environment import is_off, prefer_bfc
from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin import summary
    from tb_memplugin.analysis.fit.plan_answer import Plan
    from tb_memplugin.analysis.fit.what_if_answer import WhatIf
    from tb_memplugin.commands.fit import what_if
    from tb_memplugin.commands.loading import RecordedRun, load
    from tb_memplugin.errors import (
        FormatError,
        MemoryPluginError,
        NewerFormatError,
        NotFoundError,
        RecomputationError,
        RecordingError,
        RequestError,
    )
    from tb_memplugin.export.parquet import Exported, export_parquet
    from tb_memplugin.recomputation.remat import remat
    from tb_memplugin.recomputation.segments import cut_points
    from tb_memplugin.recorder.callback import MemoryCallback
    from tb_memplugin.recorder.memory_recorder import MemoryRecorder
    from tb_memplugin.recorder.memory_summary import memory_summary
    from tb_memplugin.recorder.probing.largest import BatchSizeAnswer, largest_batch_size
    from tb_memplugin.recorder.probing.planning import plan
    from tb_memplugin.recorder.probing.probe import probe
    from tb_memplugin.recorder.release import release_unused
    from tb_memplugin.schema import Run, Snapshot

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
    "probe",
    "release_unused",
    "remat",
    "summary",
    "what_if",
]

prefer_bfc()

_MODULES = {
    "BatchSizeAnswer": "recorder.probing.largest",
    "Exported": "export.parquet",
    "FormatError": "errors",
    "MemoryCallback": "recorder.callback",
    "MemoryPluginError": "errors",
    "MemoryRecorder": "recorder.memory_recorder",
    "NewerFormatError": "errors",
    "NotFoundError": "errors",
    "Plan": "analysis.fit.plan_answer",
    "RecomputationError": "errors",
    "RecordedRun": "commands.loading",
    "RecordingError": "errors",
    "RequestError": "errors",
    "Run": "schema",
    "Snapshot": "schema",
    "WhatIf": "analysis.fit.what_if_answer",
    "cut_points": "recomputation.segments",
    "export_parquet": "export.parquet",
    "largest_batch_size": "recorder.probing.largest",
    "load": "commands.loading",
    "memory_summary": "recorder.memory_summary",
    "plan": "recorder.probing.planning",
    "probe": "recorder.probing.probe",
    "release_unused": "recorder.release",
    "remat": "recomputation.remat",
    "what_if": "commands.fit",
}
_OFF = ("MemoryCallback", "MemoryRecorder", "largest_batch_size", "memory_summary", "probe")
"""Names that `recorder.off` replaces while recording is turned off."""


def __getattr__(name: str) -> Any:
    if name == "summary":
        return importlib.import_module("tb_memplugin.summary")
    if name in _MODULES:
        module = "recorder.off" if name in _OFF and is_off() else _MODULES[name]
        return getattr(importlib.import_module(f"tb_memplugin.{module}"), name)
    raise AttributeError(f"module 'tb_memplugin' has no attribute {name!r}; it offers {', '.join(__all__)}")


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext tb_memplugin`` in IPython."""
    from tb_memplugin.notebook import load_extension

    load_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext tb_memplugin``."""
    from tb_memplugin.notebook import unload_extension

    unload_extension(shell)


def __dir__() -> list[str]:
    return list(__all__)
