"""The entry point. TensorBoard imports this module at every start, and does not start if that fails."""

from typing import Any

from tensorboard.plugins import base_plugin

_NAME = "tb_memplugin"
_ALL_SAMPLES = 0


class MemoryLoader(base_plugin.TBLoader):  # type: ignore[misc]  # tensorboard has no types
    """Makes the plugin; everything else is imported only then."""

    def fix_flags(self, flags: Any) -> None:
        """Asks for all of this plugin's events to be kept, unless the user said how many: a second line of defence."""
        try:
            samples = dict(flags.samples_per_plugin or {})
            samples.setdefault(_NAME, _ALL_SAMPLES)
            flags.samples_per_plugin = samples
        except Exception:
            return  # another TensorBoard's flags; the tags' rotation keeps every event anyway

    def load(self, context: base_plugin.TBContext) -> Any:
        """The plugin; TensorBoard reports an exception here and goes on without the tab."""
        from tb_memplugin.plugin import MemoryPlugin

        return MemoryPlugin(context)
