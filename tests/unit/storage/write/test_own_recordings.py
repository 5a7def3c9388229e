"""Waiting for the recordings of this process, before their directories are read."""

import functools
import logging
import pathlib

import pytest

from tb_memplugin.export.loading import load
from tb_memplugin.storage.write import RunWriter, recordings


@pytest.fixture(autouse=True)
def _no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_writers", {})


def test_only_directories_at_or_below_the_one_that_is_read_are_waited_for(tmp_path: pathlib.Path) -> None:
    written: list[str] = []

    def write(name: str) -> bool:
        written.append(name)
        return True

    for name in ("runs/a", "runs/b/c", "runs2"):
        (tmp_path / name).mkdir(parents=True)
        recordings.register(str(tmp_path / name), functools.partial(write, name))
    recordings.register("gs://bucket/runs/a/", functools.partial(write, "remote"))
    (tmp_path / "link").symlink_to(tmp_path / "runs/a")
    for place, expected in {
        str(tmp_path / "runs"): ["runs/a", "runs/b/c"],
        str(tmp_path / "runs/b/c/"): ["runs/b/c"],
        str(tmp_path / "link"): ["runs/a"],
        "gs://bucket/runs": ["remote"],
        str(tmp_path / "other"): [],
    }.items():
        written.clear()
        recordings.write_under(place)
        assert written == expected, place


def test_a_wait_that_takes_too_long_is_a_warning(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    RunWriter(tmp_path / "run").close()
    recordings.register(str(tmp_path / "run"), lambda: False)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        assert list(load(tmp_path)) == ["run"]
    assert "run is incomplete: traced steps are still being analyzed" in caplog.text
