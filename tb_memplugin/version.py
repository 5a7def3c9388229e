"""The package's version, in one place, and the name by which TensorBoard knows the plugin."""

__version__ = "0.1.0"
PLUGIN_NAME = "tb_memplugin"
