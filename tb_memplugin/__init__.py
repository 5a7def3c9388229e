"""Memory of TensorFlow training runs, for TensorBoard.

Recording needs TensorFlow; reading and viewing do not. Names are imported on first use, so that neither pays for the
other.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin import summary
    from tb_memplugin.analysis.what_if import WhatIf
    from tb_memplugin.commands.loading import load
    from tb_memplugin.commands.what_if import what_if
    from tb_memplugin.errors import (
        FormatError,
        MemoryPluginError,
        NewerFormatError,
        NotFoundError,
        RecordingError,
        RequestError,
    )
    from tb_memplugin.model import Run, Snapshot
    from tb_memplugin.recorder.callback import MemoryCallback
    from tb_memplugin.recorder.memory_summary import memory_summary
    from tb_memplugin.recorder.probing.largest import BatchSizeAnswer, largest_batch_size
    from tb_memplugin.recorder.probing.probe import probe
    from tb_memplugin.recorder.session import MemoryRecorder

__all__ = [
    "BatchSizeAnswer",
    "FormatError",
    "MemoryCallback",
    "MemoryPluginError",
    "MemoryRecorder",
    "NewerFormatError",
    "NotFoundError",
    "RecordingError",
    "RequestError",
    "Run",
    "Snapshot",
    "WhatIf",
    "__version__",
    "largest_batch_size",
    "load",
    "memory_summary",
    "probe",
    "summary",
    "what_if",
]

_MODULES = {
    "BatchSizeAnswer": "recorder.probing.largest",
    "FormatError": "errors",
    "MemoryCallback": "recorder.callback",
    "MemoryPluginError": "errors",
    "MemoryRecorder": "recorder.session",
    "NewerFormatError": "errors",
    "NotFoundError": "errors",
    "RecordingError": "errors",
    "RequestError": "errors",
    "Run": "model",
    "Snapshot": "model",
    "WhatIf": "analysis.what_if",
    "largest_batch_size": "recorder.probing.largest",
    "load": "commands.loading",
    "memory_summary": "recorder.memory_summary",
    "probe": "recorder.probing.probe",
    "what_if": "commands.what_if",
}


def __getattr__(name: str) -> Any:
    if name == "summary":
        return importlib.import_module("tb_memplugin.summary")
    if name in _MODULES:
        return getattr(importlib.import_module(f"tb_memplugin.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'tb_memplugin' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
