"""Which session records into a run, and that each is closed before the process ends."""

import pathlib
from typing import Any

import pytest

from tb_memplugin.recorder.base import checked_settings
from tb_memplugin.recorder.loop import is_recording, recording
from tb_memplugin.storage.write import recordings


@pytest.fixture(autouse=True)
def own_sessions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Sessions of this test only; what a reader of a run directory in this process waits for."""
    written: dict[str, Any] = {}
    monkeypatch.setattr(recording, "_by_place", type(recording._by_place)())
    monkeypatch.setattr(recording, "choose_devices", lambda devices: ([], []))
    monkeypatch.setattr(recordings, "register", written.__setitem__)
    return written


def started(directory: pathlib.Path, name: str = "a", worker: str = "") -> Any:
    made = recording.Recording(checked_settings(directory / name, 0.005, None, None, False, worker))
    made.start()
    return made


def test_the_open_predecessor_of_a_run_is_closed(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    first = started(tmp_path)
    # Other workers and runs are not the same run.
    others = [started(tmp_path, worker="worker_1"), started(tmp_path, "b")]
    assert not first.closed and not caplog.records
    second = started(tmp_path)
    assert first.closed and [record.message for record in caplog.records] == [
        "a newer recorder of this process took over the run"
    ]
    # AND one that is paused is closed in silence
    second.pause()
    started(tmp_path)
    assert second.closed and len(caplog.records) == 1 and not any(other.closed for other in others)


def test_an_open_session_records_unless_it_is_paused_or_left_out(tmp_path: pathlib.Path) -> None:
    assert not is_recording([])
    made = started(tmp_path)
    assert is_recording([]) and not is_recording([str(tmp_path / "a")])
    made.pause()
    assert not is_recording([])
    made.observe()
    assert is_recording([])
    made.close_without_waiting()
    assert not is_recording([])
