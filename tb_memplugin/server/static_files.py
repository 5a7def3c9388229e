"""The files of the built page. Only names found at startup are served."""

import pathlib

from tb_memplugin.errors import NotFoundError

STATIC_DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "static"
_TYPES = {
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "wasm": "application/wasm",
    "woff2": "font/woff2",
}
"""Content types by extension; the system's registry may map JavaScript to plain text."""


class StaticFiles:
    """The files of the built page, by name.

    Args:
        directory: Directory of the built page.
    """

    def __init__(self, directory: pathlib.Path = STATIC_DIRECTORY) -> None:
        entries = directory.iterdir() if directory.is_dir() else iter(())
        self._files = {entry.name: entry for entry in entries if entry.is_file() and _ending(entry.name) in _TYPES}

    @property
    def names(self) -> frozenset[str]:
        """Names of the served files."""
        return frozenset(self._files)

    def read(self, name: str) -> tuple[bytes, str]:
        """Content and content type of the file `name`.

        Raises:
            NotFoundError: The page has no such file.
        """
        file = self._files.get(name)
        if file is None:
            raise NotFoundError(f"the page has no file {name!r:.80}")
        return file.read_bytes(), _TYPES[_ending(name)]


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()
