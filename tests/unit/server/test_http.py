"""HTTP: invalid parameters are refused with a sentence; files or the provider answer; columns are
read back as given, JSON has no NaN, content types are explicit, and of the page's files only known
names are served."""

import gzip
import json
import pathlib
import struct
import types
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import write_small_run
from werkzeug.datastructures import MultiDict
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request, Response

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.schema import MISSING
from tb_memplugin.server import StaticFiles, data_body, messages
from tb_memplugin.server.messages import (
    PHASE,
    POINTS,
    RUN,
    SESSION,
    STATIC_DIRECTORY,
    STEP,
    STEPS,
    Columns,
    Parameter,
    Sources,
    parse,
)
from tb_memplugin.storage.files import FileSource, ProviderSource


def test_known_parameters_given_once_are_taken_and_others_refused() -> None:
    given = {"run": "a", "step": "5"}
    assert parse(MultiDict(given), ("run", "step", "phase")) == given
    for wrong, accepted, sentence in (
        ([("stpe", "5")], ("run", "step"), "unknown parameter 'stpe'; accepted: run, step"),
        ([("run", "a"), ("run", "a")], ("run",), "'run' is given 2 times"),
        ([("x", "")], (), "accepted: none"),
    ):
        with pytest.raises(RequestError, match=sentence):
            parse(MultiDict(wrong), accepted)


INVALID = (
    "",
    "-1",
    "+1",
    " 1",
    "1.0",
    "1e3",
    "１",
    "0x1",
    "1_0",
    "nan",
    "9" * 17,
    "9007199254740992",
    "None",
)


@pytest.mark.parametrize(
    ("parameter", "values", "expected"),
    [
        (RUN, {"run": "a/b"}, "a/b"),
        (SESSION, {}, None),
        *((RUN, values, "'run'") for values in ({}, {"run": ""}, {"run": "x" * 5000})),
        (STEP, {"step": "9007199254740991"}, 2**53 - 1),
        (STEP, {}, "missing"),
        *((STEP, {"step": value}, "an integer") for value in INVALID),
        (STEPS, {"first_step": "3", "last_step": "3"}, (3, 3)),
        (STEPS, {}, (None, None)),
        (STEPS, {"first_step": "4", "last_step": "3"}, "after last_step"),
        (POINTS, {}, 1500),
        (POINTS, {"points": "10"}, 10),
        (POINTS, {"points": "10000"}, 10_000),
        *((POINTS, {"points": value}, "from 10 to 10000") for value in ("9", "10001", "x")),
        (PHASE, {}, "train"),
        (PHASE, {"phase": "predict"}, "predict"),
        (PHASE, {"phase": "test"}, "train, validation, predict"),
    ],
)
def test_values_are_read_or_refused(
    parameter: Parameter, values: dict[str, str], expected: Any
) -> None:
    try:
        assert parameter.read(values) == expected
    except RequestError as error:
        assert isinstance(expected, str) and expected in str(error)


@given(st.text())
def test_any_text_gives_a_value_or_a_sentence(value: str) -> None:
    for parameter in (STEPS, POINTS, PHASE):
        try:
            parameter.read({"first_step": value, "points": value, "phase": value})
        except RequestError as error:
            assert 0 < len(str(error)) < 400 and "\n" not in str(error)


def request(**headers: str) -> Request:
    return Request(EnvironBuilder(headers=list(headers.items())).get_environ())


def context(logdir: str | None, provider: object | None = None, **flags: object) -> Any:
    return types.SimpleNamespace(
        logdir=logdir, data_provider=provider, flags=types.SimpleNamespace(**flags)
    )


def test_a_directory_is_read_from_its_files_once_it_is_there(tmp_path: pathlib.Path) -> None:
    sources = Sources(context(str(tmp_path / "runs"), object()))
    assert isinstance(sources.of(request())[1], ProviderSource)
    write_small_run(tmp_path / "runs" / "exp")
    name, source = sources.of(request())
    assert isinstance(source, FileSource) and list(source.listing()) == ["exp/memory"]
    assert sources.of(request()) == (name, source)
    fsspec.filesystem("memory").pipe("/sources/exp/other", b"")
    assert isinstance(Sources(context("memory://sources", object())).of(request())[1], FileSource)
    with pytest.raises(NotFoundError, match="no data provider"):
        Sources(None).of(request())


@pytest.mark.parametrize(
    "of",
    [
        context("", object()),  # --logdir_spec
        context(None, object()),
        context("unknown://bucket/runs", object()),
        context("memory://none", object()),
        context("/", object(), grpc_data_provider="localhost:1"),
    ],
)
def test_everything_else_is_asked_of_the_data_provider(of: Any) -> None:
    assert isinstance(Sources(of).of(request())[1], ProviderSource)


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
    return (
        response.headers["X-Content-Type-Options"] == "nosniff"
        and "no-cache" in response.headers["Cache-Control"]
    )


def test_columns_are_read_back_as_they_were_given_and_missing_values_are_nan() -> None:
    for name in ("run", "run12", "run123456"):  # other lengths, other padding
        given = {"step": np.asarray([1, 2**53 - 1, MISSING]), "time": np.asarray([0.5, -1.0, 2.0])}
        head, columns = unpack(messages.pack_columns({"run": name}, given))
        assert head == {"rows": 3, "columns": ["step", "time"], "run": name}
        assert columns["step"][:2] == [1.0, float(2**53 - 1)] and np.isnan(columns["step"][2])
        assert columns["time"] == [0.5, -1.0, 2.0]
    for empty in ({"a": np.empty(0, np.int64)}, {}):
        head = {"rows": 0, "columns": [*empty]}
        assert unpack(messages.pack_columns({}, empty)) == (head, {name: [] for name in empty})
    with pytest.raises(ValueError, match="different lengths"):
        messages.pack_columns({}, {"a": np.arange(2), "b": np.arange(3)})


def responded(payload: Any, **headers: str) -> Response:
    own = request(**headers)
    return messages.respond(own, *data_body(payload))


def test_json_contains_finite_numbers_only() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        data_body({"x": float("nan")})
    response = responded({"x": None, "name": "<b>é</b>"})
    assert json.loads(response.data) == {"x": None, "name": "<b>é</b>"}
    assert response.content_type == "application/json" and headers_are_safe(response)
    # An encoded answer stays as it is.
    body, content_type = data_body({"run": "cluster", "peak_bytes": 2**53 - 1})
    assert data_body(body) == (body, content_type)


def test_large_responses_are_compressed_for_clients_that_accept_it() -> None:
    columns = {"a": np.zeros(1000)}
    plain = responded(Columns(types.SimpleNamespace(), columns))
    packed = responded(Columns(types.SimpleNamespace(), columns), **{"Accept-Encoding": "gzip, br"})
    assert plain.headers.get("Content-Encoding") is None and headers_are_safe(plain)
    assert packed.headers["Content-Encoding"] == "gzip" and headers_are_safe(packed)
    assert gzip.decompress(packed.data) == plain.data
    assert packed.content_type == "application/x-tb-memplugin-columns"


def test_errors_are_sentences_as_plain_text() -> None:
    response = messages.error_response(request(), 404, "there is no run '\ud800<script>'")
    assert response.status_code == 404 and response.content_type == "text/plain; charset=utf-8"
    assert "there is no run" in response.get_data(as_text=True) and headers_are_safe(response)


@pytest.fixture
def page(tmp_path: pathlib.Path) -> StaticFiles:
    directory = tmp_path / "static"
    (directory / "inner").mkdir(parents=True)
    for name in ("index.js", "style.css", ".gitattributes", "inner/x.js"):
        (directory / name).write_bytes(name.encode())
    (tmp_path / "secret.js").write_bytes(b"secret")
    return StaticFiles(directory)


def test_the_files_of_the_page_are_served_with_their_types(
    page: StaticFiles, tmp_path: pathlib.Path
) -> None:
    assert page.names == {"index.js", "style.css"}
    assert page.read("index.js") == (b"index.js", "text/javascript") and page.read("style.css") == (
        b"style.css",
        "text/css",
    )
    assert StaticFiles(tmp_path / "missing").names == frozenset()
    # The page's script is where the package says, and small.
    assert STATIC_DIRECTORY.parts[-2:] == ("tb_memplugin", "static")
    assert len(gzip.compress((STATIC_DIRECTORY / "index.js").read_bytes(), 9)) <= 150_000


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            ".",
            "..",
            "/",
            "../secret.js",
            "..%2fsecret.js",
            "..\\secret.js",
            "/etc/passwd",
            "inner/x.js",
            "inner",
        ),
        *(
            "./index.js",
            "index.js/",
            "INDEX.JS",
            ".gitattributes",
            "index.js\x00.css",
            "%2e%2e/secret.js",
        ),
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
