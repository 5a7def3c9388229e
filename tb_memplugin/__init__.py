"""Memory of TensorFlow training runs, for TensorBoard.

Recording needs TensorFlow, reading and viewing do not: names are looked up on first use so that neither pays for the
other.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tb_memplugin.version import __version__

if TYPE_CHECKING:
    from tb_memplugin import summary
    from tb_memplugin.loading import load
    from tb_memplugin.recorder.callback import MemoryCallback
    from tb_memplugin.recorder.session import MemoryRecorder

__all__ = ["MemoryCallback", "MemoryRecorder", "__version__", "load", "summary"]

_HOMES = {
    "MemoryCallback": "tb_memplugin.recorder.callback",
    "MemoryRecorder": "tb_memplugin.recorder.session",
    "load": "tb_memplugin.loading",
}


def __getattr__(name: str) -> Any:
    if name == "summary":
        return importlib.import_module("tb_memplugin.summary")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tb_memplugin' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)
