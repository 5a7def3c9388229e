"""Parameters of requests: invalid ones are refused with a sentence. Which source answers: files, else the provider."""

import pathlib
import types
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import write_small_run
from werkzeug.datastructures import MultiDict
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.server import requests
from tb_memplugin.server.requests import Sources
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.files.provider_source import ProviderSource


def test_known_parameters_given_once_are_taken_and_others_refused() -> None:
    given = {"run": "a", "step": "5"}
    assert requests.parse(MultiDict(given), ("run", "step", "phase")) == given
    with pytest.raises(RequestError, match=r"unknown parameter 'stpe'; accepted: run, step"):
        requests.parse(MultiDict([("stpe", "5")]), ("run", "step"))
    with pytest.raises(RequestError, match="'run' is given 2 times"):
        requests.parse(MultiDict([("run", "a"), ("run", "a")]), ("run",))
    with pytest.raises(RequestError, match="accepted: none"):
        requests.parse(MultiDict([("x", "")]), ())


def test_a_name_is_required_and_limited_in_length() -> None:
    assert requests.text_of({"run": "a/b"}, "run") == "a/b"
    assert requests.optional_text_of({}, "run") is None
    for values in ({}, {"run": ""}, {"run": "x" * 5000}):
        with pytest.raises(RequestError, match="'run'"):
            requests.text_of(values, "run")


@pytest.mark.parametrize(
    "value", ["", "-1", "+1", " 1", "1.0", "1e3", "１", "0x1", "1_0", "nan", "9" * 17, "9007199254740992", "None"]
)
def test_invalid_steps_are_refused(value: str) -> None:
    with pytest.raises(RequestError, match="an integer"):
        requests.step({"step": value}, "step")


@given(st.integers(0, 2**53 - 1))
def test_steps_are_read(step: int) -> None:
    assert requests.step({"step": str(step)}, "step") == step


@pytest.mark.parametrize(
    ("parse", "values", "expected"),
    [
        (requests.step_limits, {"first_step": "3", "last_step": "3"}, (3, 3)),
        (requests.step_limits, {}, (None, None)),
        (requests.step_limits, {"first_step": "4", "last_step": "3"}, "after last_step"),
        (requests.points, {}, 1500),
        (requests.points, {"points": "10"}, 10),
        (requests.points, {"points": "10000"}, 10_000),
        *((requests.points, {"points": value}, "from 10 to 10000") for value in ("9", "10001", "x")),
        (requests.phase, {}, "train"),
        (requests.phase, {"phase": "predict"}, "predict"),
        (requests.phase, {"phase": "test"}, "train, validation, predict"),
        (lambda values: requests.step(values, "step"), {}, "missing"),
    ],
)
def test_values_are_read_or_refused(parse: Any, values: dict[str, str], expected: Any) -> None:
    try:
        assert parse(values) == expected
    except RequestError as error:
        assert isinstance(expected, str) and expected in str(error)


@given(st.text())
def test_any_text_gives_a_value_or_a_sentence(value: str) -> None:
    for parse in (requests.step_limits, requests.points, requests.phase):
        try:
            parse({"first_step": value, "points": value, "phase": value})
        except RequestError as error:
            assert 0 < len(str(error)) < 400 and "\n" not in str(error)


def context(logdir: str | None, provider: object | None = None, **flags: object) -> Any:
    return types.SimpleNamespace(logdir=logdir, data_provider=provider, flags=types.SimpleNamespace(**flags))


def request() -> Request:
    return Request(EnvironBuilder(path="/runs").get_environ())


def test_a_local_directory_is_read_from_its_files_once(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "exp")
    sources = Sources(context(str(tmp_path), object()))
    name, source = sources.of(request())
    assert isinstance(source, FileSource) and list(source.listing()) == ["exp/memory"]
    assert sources.of(request()) == (name, source)


@pytest.mark.parametrize(
    "of",
    [
        context("", object()),  # --logdir_spec
        context(None, object()),
        context("unknown://bucket/runs", object()),
        context("/", object(), grpc_data_provider="localhost:1"),
    ],
)
def test_everything_else_is_asked_of_the_data_provider(of: Any) -> None:
    assert isinstance(Sources(of).of(request())[1], ProviderSource)


def test_a_directory_in_a_store_is_read_from_its_files(tmp_path: pathlib.Path) -> None:
    fsspec.filesystem("memory").pipe("/sources/exp/other", b"")
    sources = Sources(context("memory://sources", object()))
    assert isinstance(sources.of(request())[1], FileSource)
    assert isinstance(Sources(context("memory://none", object())).of(request())[1], ProviderSource)


def test_a_directory_may_be_created_later(tmp_path: pathlib.Path) -> None:
    sources = Sources(context(str(tmp_path / "runs"), object()))
    assert isinstance(sources.of(request())[1], ProviderSource)
    write_small_run(tmp_path / "runs" / "exp")
    assert isinstance(sources.of(request())[1], FileSource)


def test_without_any_source_there_are_no_runs() -> None:
    with pytest.raises(NotFoundError, match="no data provider"):
        Sources(None).of(request())
