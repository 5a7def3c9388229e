"""The answers of all routes without HTTP, as JSON objects."""

import json
from typing import Any

from tb_memplugin.schema import as_json
from tb_memplugin.server import DATA_ROUTES, Lookup, RunList
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import Source


class Columns:
    """The fields and the columns of an answer."""

    def __init__(self, fields: Any, columns: Any) -> None:
        self.fields, self.columns = as_json(fields), columns


def plain(found: Any) -> Any:
    """A handler's result as an object."""
    if isinstance(found, bytes):
        return json.loads(found)
    return Columns(found.fields, found.columns) if hasattr(found, "columns") else as_json(found)


class Handlers:
    """A method for each route, which is given a source and the values of the parameters."""

    def __init__(self, reader: Reader, patience_seconds: float | None = None) -> None:
        self._reader, self._runs = reader, RunList(patience_seconds)

    def lookup(self, source: Source) -> Lookup:
        return Lookup(self._reader, source, self._runs)

    def ask(self, route: str, source: Source, values: dict[str, str]) -> Any:
        """The answer to a request with these parameters."""
        return plain(DATA_ROUTES[route].answer(self.lookup(source), values))

    def __getattr__(self, route: str) -> Any:
        handler = DATA_ROUTES[route].handler
        return lambda source, *given, **named: plain(handler(self.lookup(source), *given, **named))
