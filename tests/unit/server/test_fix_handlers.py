"""The route with the possible fixes of a failure."""

import dataclasses
import json
import pathlib

import pytest
import requests_cases
from reading_cases import MIB, make_oom

import tb_memplugin
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.reader.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server import fix_handlers
from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.routes import DATA_ROUTES

OOM = dataclasses.replace(make_oom(18), capacity_bytes=100 * MIB, op=None, batch_size=48)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "failed", oom=OOM)
    return directory


def ask(handlers: Handlers, source: FileSource, **values: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(DATA_ROUTES["fixes"][1](handlers, source, values)))
    return found


def test_the_answer_is_that_of_the_library_and_computed_once(
    logdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (oom,) = tb_memplugin.load(logdir)["failed"].ooms
    assert {"batch", "limit"} <= {fix.kind for fix in oom.fixes}
    calls = []
    real = fix_handlers.advice
    monkeypatch.setattr(fix_handlers, "advice", lambda *parts: calls.append(parts) or real(*parts))
    handlers, source = Handlers(Reader()), FileSource(logdir)
    expected = {"run": "failed", "oom": 0, "fixes": [dataclasses.asdict(fix) for fix in oom.fixes], "note": None}
    assert ask(handlers, source, run="failed", oom="0") == ask(handlers, source, run="failed", oom="0") == expected
    assert len(calls) == 1


def test_the_figures_of_a_failure_do_not_wait_for_its_fixes(
    logdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fix_handlers, "advice", lambda *parts: pytest.fail("simulated"))
    (oom,) = DATA_ROUTES["oom"][1](Handlers(Reader()), FileSource(logdir), {"run": "failed"})["ooms"]
    assert oom["batch_size"] == 48 and "fixes" not in oom


def test_unknown_failures(logdir: pathlib.Path) -> None:
    handlers, source = Handlers(Reader()), FileSource(logdir)
    with pytest.raises(NotFoundError, match="no failed allocation 1; it has 1"):
        ask(handlers, source, run="failed", oom="1")
    with pytest.raises(RequestError, match="oom"):
        ask(handlers, source, run="failed", oom="-1")
