"""Which source answers: files of the log directory, else the data provider."""

import pathlib
import types
from typing import Any

import fsspec
import pytest
from reading_cases import write_small_run
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.provider_source import ProviderSource
from tb_memplugin.server.sources import Sources


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
