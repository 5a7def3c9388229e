"""Responses: round trips of columns, no NaN in JSON, explicit content types; of the page's files, known names only."""

import gzip
import json
import pathlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import MISSING
from tb_memplugin.server import responses
from tb_memplugin.server.responses import STATIC_DIRECTORY, Columns, StaticFiles


def request(**headers: str) -> Request:
    return Request(EnvironBuilder(headers=list(headers.items())).get_environ())


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The page's own way to read columns, from their description."""
    (length,) = struct.unpack_from("<I", data)
    head = json.loads(data[4 : 4 + length])
    at = (4 + length + 7) // 8 * 8
    assert len(data) == at + 8 * head["rows"] * len(head["columns"])
    columns = {}
    for name in head["columns"]:
        columns[name] = list(struct.unpack_from(f"<{head['rows']}d", data, at))
        at += 8 * head["rows"]
    return head, columns


def headers_are_safe(response: Response) -> bool:
    return response.headers["X-Content-Type-Options"] == "nosniff" and "no-cache" in response.headers["Cache-Control"]


def test_columns_are_read_back_as_they_were_given() -> None:
    for name in ("run", "run12", "run123456"):  # other lengths, other padding
        head, columns = unpack(
            responses.pack_columns({"run": name}, {"step": np.asarray([1, 2**53 - 1]), "time": np.asarray([0.5, -1.0])})
        )
        assert head == {"rows": 2, "columns": ["step", "time"], "run": name}
        assert columns == {"step": [1.0, float(2**53 - 1)], "time": [0.5, -1.0]}


def test_missing_values_are_nan_and_no_rows_are_possible() -> None:
    _, columns = unpack(responses.pack_columns({}, {"a": np.asarray([MISSING, 3])}))
    assert np.isnan(columns["a"][0]) and columns["a"][1] == 3
    for empty in ({"a": np.empty(0, np.int64)}, {}):
        assert unpack(responses.pack_columns({}, empty)) == (
            {"rows": 0, "columns": [*empty]},
            {name: [] for name in empty},
        )


def test_columns_of_different_lengths_are_a_bug() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        responses.pack_columns({}, {"a": np.arange(2), "b": np.arange(3)})


def responded(payload: Any, **headers: str) -> Response:
    own = request(**headers)
    return responses.respond(own, *responses.data_body(payload))


def test_json_contains_finite_numbers_only() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        responses.data_body({"x": float("nan")})
    response = responded({"x": None, "name": "<b>é</b>"})
    assert json.loads(response.data) == {"x": None, "name": "<b>é</b>"}
    assert response.content_type == "application/json" and headers_are_safe(response)


def test_large_responses_are_compressed_for_clients_that_accept_it() -> None:
    columns = {"a": np.zeros(1000)}
    plain = responded(Columns({}, columns))
    packed = responded(Columns({}, columns), **{"Accept-Encoding": "gzip, br"})
    assert plain.headers.get("Content-Encoding") is None and headers_are_safe(plain)
    assert packed.headers["Content-Encoding"] == "gzip" and headers_are_safe(packed)
    assert gzip.decompress(packed.data) == plain.data
    assert packed.content_type == "application/x-tb-memplugin-columns"


def test_errors_are_sentences_as_plain_text() -> None:
    response = responses.error_response(request(), 404, "there is no run '\ud800<script>'")
    assert response.status_code == 404 and response.content_type == "text/plain; charset=utf-8"
    assert "there is no run" in response.get_data(as_text=True) and headers_are_safe(response)


def test_a_large_answer_is_encoded_once_and_as_any_other() -> None:
    answer = {"run": "cluster", "devices": [{"peak_bytes": 2**53 - 1}]}
    large = responses.LargeAnswer(answer)
    first, again = responses.data_body(large), responses.data_body(large)
    assert first == responses.data_body(answer)
    assert first[0] is again[0]


@pytest.fixture
def page(tmp_path: pathlib.Path) -> StaticFiles:
    directory = tmp_path / "static"
    (directory / "inner").mkdir(parents=True)
    for name in ("index.js", "style.css", ".gitattributes", "inner/x.js"):
        (directory / name).write_bytes(name.encode())
    (tmp_path / "secret.js").write_bytes(b"secret")
    return StaticFiles(directory)


def test_the_files_of_the_page_are_served_with_their_types(page: StaticFiles, tmp_path: pathlib.Path) -> None:
    assert page.names == {"index.js", "style.css"}
    assert page.read("index.js") == (b"index.js", "text/javascript") and page.read("style.css") == (
        b"style.css",
        "text/css",
    )
    assert StaticFiles(tmp_path / "missing").names == frozenset()


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/", "../secret.js", "..%2fsecret.js", "..\\secret.js", "/etc/passwd", "inner/x.js", "inner"),
        *("./index.js", "index.js/", "INDEX.JS", ".gitattributes", "index.js\x00.css", "%2e%2e/secret.js"),
        "....//secret.js",
    ],
)
def test_anything_else_is_not_there(page: StaticFiles, name: str) -> None:
    with pytest.raises(NotFoundError, match="has no file"):
        page.read(name)


@given(st.text(max_size=30))
def test_no_name_reaches_a_file_that_is_not_of_the_page(name: str) -> None:
    with pytest.raises(NotFoundError):
        StaticFiles(pathlib.Path(__file__).parent).read(name)


def test_the_pages_script_is_where_the_package_says_and_small() -> None:
    assert STATIC_DIRECTORY.parts[-2:] == ("tb_memplugin", "static")
    assert len(gzip.compress((STATIC_DIRECTORY / "index.js").read_bytes(), 9)) <= 150_000
