"""HTTP responses: JSON, binary columns, errors as plain text, and the files of the built page."""

import dataclasses
import gzip
import json
import pathlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorboard.backend import http_util
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import MISSING

COLUMNS_TYPE = "application/x-tb-memplugin-columns"
PARAMETER_HEADER = "X-Parameter"
_GZIP_FROM = 1 << 10
"""Shorter responses are not compressed."""
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


@dataclasses.dataclass(frozen=True)
class Columns:
    """A response of JSON fields and columns of equal length."""

    fields: Mapping[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]


class LargeAnswer(dict[str, Any]):
    """A JSON object that is kept for later requests and encoded once, because that takes longest. It never changes."""

    body: bytes | None = None


def data_body(payload: Mapping[str, Any] | Columns) -> tuple[bytes, str]:
    """Content and content type of a payload; a number in JSON that is not finite raises ValueError."""
    if isinstance(payload, Columns):
        return pack_columns(payload.fields, payload.columns), COLUMNS_TYPE
    if not isinstance(payload, LargeAnswer):
        return _dump(payload), "application/json"
    if payload.body is None:
        payload.body = _dump(payload)
    return payload.body, "application/json"


def error_response(request: Request, status: int, sentence: str, parameter: str | None = None) -> Response:
    """An error response with `sentence` as plain text, and the name of the parameter that it is about."""
    response = respond(request, sentence.encode("utf-8", "replace"), "text/plain; charset=utf-8", status)
    if parameter is not None:
        response.headers[PARAMETER_HEADER] = parameter
    return response


def respond(request: Request, content: bytes, content_type: str, status: int = 200) -> Response:
    # TensorBoard's `Respond` sets nosniff and no-cache, but compresses only text, and slowly.
    encoding = None
    if len(content) >= _GZIP_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
        content, encoding = gzip.compress(content, 1, mtime=0), "gzip"
    response: Response = http_util.Respond(request, content, content_type, code=status, content_encoding=encoding)
    return response


def pack_columns(fields: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Pack columns of equal length in binary form; `MISSING` in integer columns becomes NaN."""
    rows = {len(column) for column in columns.values()}
    if len(rows) > 1:
        raise ValueError(f"columns of different lengths: {sorted(rows)}")
    head = _dump({"rows": rows.pop() if rows else 0, "columns": list(columns), **fields})
    padding = -(4 + len(head)) % 8
    parts = [struct.pack("<I", len(head)), head, bytes(padding)]
    parts.extend(_as_float(column).tobytes() for column in columns.values())
    return b"".join(parts)


def _as_float(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    values = column.astype("<f8")
    if column.dtype == np.int64:
        values[column == MISSING] = np.nan
    return values


def _dump(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":"), allow_nan=False).encode()


class StaticFiles:
    """The files of the built page. Only names found at startup are served."""

    def __init__(self, directory: pathlib.Path = STATIC_DIRECTORY) -> None:
        entries = directory.iterdir() if directory.is_dir() else iter(())
        self._files = {entry.name: entry for entry in entries if entry.is_file() and _ending(entry.name) in _TYPES}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def read(self, name: str) -> tuple[bytes, str]:
        """Content and content type of a file; raises NotFoundError if the page has no such file."""
        file = self._files.get(name)
        if file is None:
            raise NotFoundError(f"the page has no file {name!r:.80}")
        return file.read_bytes(), _TYPES[_ending(name)]


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower()
