"""FACE."""

from tb_memplugin.cli.commands import main
