"""The extension for IPython and Jupyter: ``%load_ext tb_memplugin`` records every training,
``%memory`` shows it."""

import time
from typing import Any

from tb_memplugin.environment import is_unrecorded, why_unrecorded
from tb_memplugin.export import RecordedRun, load
from tb_memplugin.recorder.automatic import AutomaticRecording, Wrapping

LOG_DIR = "runs"
NOTHING = "Nothing was recorded since %load_ext tb_memplugin."


class Notebook:
    """Records the trainings of one IPython shell, and shows them."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._recording = AutomaticRecording(LOG_DIR, f"notebook-{time.strftime('%Y%m%d-%H%M%S')}")
        self._wrapping = Wrapping(self._recording)
        shell.register_magic_function(self.memory, magic_kind="line_cell", magic_name="memory")
        if not is_unrecorded():
            self._wrapping.install()

    def unload(self) -> None:
        self._wrapping.remove()
        self._recording.close()
        for magics in self._shell.magics_manager.magics.values():
            magics.pop("memory", None)

    def memory(self, line: str, cell: str | None = None) -> RecordedRun | None:
        """``%memory [RUN]`` shows the run recorded last, or the one of this name; ``%%memory`` runs
        the cell before."""
        if cell is not None:
            self._recording.latest = None
            self._shell.run_cell(cell)
        name = line.strip() or self._recording.latest
        if why_not := why_unrecorded():
            print(f"{why_not}.")
            return None
        for note in self._recording.notes():
            print(note)
        if name is None:
            print(NOTHING)
            return None
        run = load(self._recording.log_dir)[name]
        if hasattr(self._shell, "kernel"):
            return run  # the notebook shows it
        print(run)
        return None


_loaded: dict[int, Notebook] = {}  # by id of the shell, which lives as long as the process


def load_extension(shell: Any) -> None:
    if id(shell) not in _loaded:
        _loaded[id(shell)] = Notebook(shell)


def unload_extension(shell: Any) -> None:
    if id(shell) in _loaded:
        _loaded.pop(id(shell)).unload()
