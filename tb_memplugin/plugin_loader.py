"""The entry point. TensorBoard imports this module at startup, and does not start if the import
fails."""

from typing import Any

from tensorboard.plugins import base_plugin


class MemoryLoader(base_plugin.TBLoader):  # type: ignore[misc]  # tensorboard has no types
    """Creates the plugin, and imports its other modules only then."""

    def fix_flags(self, flags: Any) -> None:
        """Keep all events of this plugin, unless the user passed a number. The rotation of tags
        does not rely on it."""
        try:
            samples = dict(flags.samples_per_plugin or {})
            samples.setdefault("tb_memplugin", 0)  # all
            flags.samples_per_plugin = samples
        except Exception:
            return  # this TensorBoard has other flags

    def load(self, context: base_plugin.TBContext) -> Any:
        """Create the plugin; if this raises, TensorBoard reports it and runs without the tab."""
        from tb_memplugin.plugin import MemoryPlugin

        return MemoryPlugin(context)
