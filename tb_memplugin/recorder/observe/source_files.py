"""Names of the user's source files as they are stored: nothing that identifies a person or a machine."""

import os
import sysconfig
from collections.abc import Iterable

_INSTALLED = ("site-packages", "dist-packages")


class SourceFiles:
    """Tells the user's files from those of libraries.

    Names are relative to the working directory at construction. Files outside it, and all files if the working
    directory contains the home directory, have no directory in their names.

    Args:
        libraries: Directories of libraries, besides Python's own and what is installed in ``site-packages``.
    """

    def __init__(self, libraries: Iterable[str]) -> None:
        python = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        self._libraries = tuple(os.path.join(os.path.realpath(path), "") for path in (*libraries, *python))
        self._directory = _working_directory()
        self._names: dict[str, str | None] = {}

    def name(self, file_name: str) -> str | None:
        """The stored name of a file; None for a library's file and for code without a file."""
        try:
            return self._names[file_name]
        except KeyError:
            self._names[file_name] = name = self._find(file_name)
            return name

    def _find(self, file_name: str) -> str | None:
        if not file_name or file_name.startswith("<"):
            return None
        path = os.path.realpath(file_name)
        if path.startswith(self._libraries) or any(part in _INSTALLED for part in path.split(os.sep)):
            return None
        if self._directory is None or not path.startswith(self._directory):
            return os.path.basename(path)
        return path[len(self._directory) :].replace(os.sep, "/")


def _working_directory() -> str | None:
    """The working directory with a separator at its end; None if it is gone, or an ancestor of the home directory."""
    try:
        directory = os.path.join(os.path.realpath(os.getcwd()), "")
    except OSError:
        return None
    home = os.path.realpath(os.path.expanduser("~"))
    return None if home.startswith(directory) else directory
