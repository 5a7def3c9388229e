"""What the handlers compute from every step is kept until the run changes."""

import pathlib
from typing import Any

import pytest
from reading_cases import DEVICE, START, write_small_run

from tb_memplugin.model import PHASES
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server import answer_handlers, handlers
from tb_memplugin.server.handlers import Handlers, Stretch


def test_the_changes_of_the_layer_table_are_computed_once_for_each_version(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    real = handlers.change_effects

    def counted(*args: Any) -> Any:
        computed.append(1)
        return real(*args)

    monkeypatch.setattr(handlers, "change_effects", counted)
    write_small_run(tmp_path / "run")
    of, source = Handlers(Reader()), FileSource(tmp_path)

    def changes(first: int | None = None, last: int | None = None, session: str | None = None) -> Any:
        stretch = Stretch(DEVICE, "train", first, last, 100, session)
        return of.overview(source, "run", stretch).fields["changes"]

    # WHEN the page zooms in and out
    whole = changes()
    assert [change["step"] for change in whole] == [0, 30] and whole[1]["peak_before_bytes"] < whole[1][
        "peak_after_bytes"
    ]
    assert changes(10, 20) == changes(35, 50) == whole
    # THEN the changes are computed once
    assert len(computed) == 1
    # WHEN a second session is added, they are computed again, and once for the session alone
    write_small_run(tmp_path / "run", start=START + 1000)
    changes()
    changes(10, 20)
    assert len(computed) == 2
    session = of.overview(source, "run", Stretch(DEVICE, "train", None, None, 100)).fields["sessions"][0]["session"]
    assert changes(session=session) == changes(5, 9, session) == whole and len(computed) == 3


def test_the_answers_used_last_are_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two responses, and for nothing else
    write_small_run(tmp_path / "run")
    reader = Reader(cache_bytes=2 * answer_handlers._RESPONSE_BYTES)
    monkeypatch.setattr(reader, "load", Reader().load)
    answering, source = Handlers(reader).answering, FileSource(tmp_path)
    train, validation, predict = PHASES
    first, second = (answering.answers(source, "run", DEVICE, phase) for phase in (train, validation))
    # WHEN the first is used again before a third comes
    assert answering.answers(source, "run", DEVICE, train) is first
    answering.answers(source, "run", DEVICE, predict)
    # THEN the second goes
    assert answering.answers(source, "run", DEVICE, train) is first
    assert answering.answers(source, "run", DEVICE, validation) is not second
