"""The entry point. TensorBoard imports this module at startup, and does not start if the import fails."""

from typing import Any

from tensorboard.plugins import base_plugin

_NAME = "tb_memplugin"
_ALL_SAMPLES = 0
_M_ARENA_MAX = -8
"""From glibc's ``malloc.h``."""


class MemoryLoader(base_plugin.TBLoader):  # type: ignore[misc]  # tensorboard has no types
    """Creates the plugin, and imports its other modules only then."""

    def fix_flags(self, flags: Any) -> None:
        """Keep all events of this plugin, unless the user passed a number. The rotation of tags does not rely on it."""
        _share_one_heap()
        try:
            samples = dict(flags.samples_per_plugin or {})
            samples.setdefault(_NAME, _ALL_SAMPLES)
            flags.samples_per_plugin = samples
        except Exception:
            return  # this TensorBoard has other flags

    def load(self, context: base_plugin.TBContext) -> Any:
        """Create the plugin; if this raises, TensorBoard reports it and runs without the tab."""
        from tb_memplugin.plugin import MemoryPlugin

        return MemoryPlugin(context)


def _share_one_heap() -> None:
    """Have all threads of the server allocate from one heap, unless the environment says otherwise.

    The C library gives each thread a heap of its own, which keeps what the thread freed: after a few requests for large
    runs the process would take twice what is in use. It only heeds this before the server's threads begin.
    """
    try:
        import ctypes
        import os

        if "MALLOC_ARENA_MAX" not in os.environ and "GLIBC_TUNABLES" not in os.environ:
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, ImportError, OSError, TypeError):
        return  # another C library, or another system
