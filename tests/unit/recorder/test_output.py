"""What a session writes is readable once it was flushed, and a fault of the file stops writing only."""

import logging
import pathlib
from typing import cast

import pytest

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.recorder import output
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.settings import Settings
from tb_memplugin.recorder.output import RunFiles


def opened(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> RunFiles:
    monkeypatch.setattr(output, "open_run_writer", lambda settings: RunWriter(directory))
    files = RunFiles(cast(Settings, None), Faults())
    files.open()
    return files


def on_disk(directory: pathlib.Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("events.out.tfevents.*"))


def test_flushed_records_are_on_disk_while_the_file_is_open(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a record that still waits in the buffer
    files = opened(tmp_path, monkeypatch)
    files.write(RunWriter.note, "step 7 was not analyzed")
    before = on_disk(tmp_path)
    # WHEN it is flushed THEN another process can read it, though the file is open
    files.flush()
    assert len(on_disk(tmp_path)) > len(before)


def test_a_full_disk_is_reported_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(writer: RunWriter, record: str) -> None:
        raise OSError("no space left")

    files = opened(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        files.write(full, "one")
        files.write(full, "two")
        files.flush()
        files.end()
        files.rest()
    assert [record.message for record in caplog.records] == [
        "writing the memory run stopped: OSError: no space left; training is not affected"
    ]
