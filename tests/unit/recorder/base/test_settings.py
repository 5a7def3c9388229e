"""Invalid arguments of the recorder are rejected before training starts, with a sentence; the
worker's default name."""

import json
import os
import pathlib

import pytest

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder.base import checked_settings

GOOD = {
    "overhead": 0.005,
    "trace_steps": None,
    "devices": None,
    "keep_profile": False,
    "worker": "",
}
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"overhead": -0.1}, "overhead must be"),
        ({"overhead": 2}, "overhead must be"),
        ({"overhead": "a lot"}, "overhead must be"),
        ({"overhead": True}, "overhead must be"),
        ({"trace_steps": [3, -1]}, "trace_steps must be"),
        ({"trace_steps": [1.5]}, "trace_steps must be"),
        ({"trace_steps": 7}, "trace_steps must be"),
        ({"devices": ["GPU:0", 1]}, "devices must be a list"),
        ({"devices": []}, "devices must be a list"),
        ({"keep_profile": 1}, "keep_profile must be"),
        ({"source_lines": "no"}, "source_lines must be"),
        ({"worker": "../up"}, "worker must be"),
        ({"worker": "a/b"}, "worker must be"),
    ],
)
def test_an_invalid_argument_is_named_with_the_received_value(tmp_path, changed, sentence) -> None:
    with pytest.raises(RecordingError, match=sentence) as raised:
        checked_settings(tmp_path / "run", **{**GOOD, **changed})
    assert repr(next(iter(changed.values()))) in str(raised.value)


def test_a_log_dir_that_is_a_file_or_not_writable_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="it is a file"):
        checked_settings(tmp_path / "file", **GOOD)
    with pytest.raises(RecordingError, match="cannot be created"):
        checked_settings(tmp_path / "file" / "below", **GOOD)
    # The superuser may write anywhere, so the operating system's answer is given here.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RecordingError, match="is not writable"):
        checked_settings(tmp_path, **GOOD)
    for log_dir in (None, 3, "", b"runs"):
        with pytest.raises(RecordingError, match="log_dir must be a path"):
            checked_settings(log_dir, **GOOD)


def test_a_log_dir_is_the_same_from_every_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for same in ("runs/exp1", "./runs/exp1/", "runs/../runs/exp1", tmp_path / "runs" / "exp1"):
        assert checked_settings(same, **GOOD).log_dir == str(tmp_path / "runs" / "exp1")
    url = checked_settings("gs://bucket/exp1", **GOOD)
    assert url.log_dir == "gs://bucket/exp1" and url.remote


@pytest.mark.parametrize(
    ("config", "worker"),
    [
        (None, ""),
        ("", ""),
        ("not json", ""),
        ("[]", ""),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}), "worker_1"),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}), "chief_0"),
        (json.dumps({"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}), ""),
        (
            json.dumps({"cluster": {"worker": ["b:1"] * 2}, "task": {"type": "worker"}}),
            "worker_0",
        ),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "../up", "index": 0}}), ""),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": "x"}}), ""),
        (json.dumps({"cluster": CLUSTER}), ""),
    ],
)
def test_the_default_is_the_task_of_a_cluster(tmp_path, monkeypatch, config, worker) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    settings = checked_settings(tmp_path, 0.005, None, None, False, None)
    assert settings.worker == worker
    # AND it follows another one, unless it is the first
    assert settings.follows is (worker == "worker_1")
    assert checked_settings(tmp_path, 0.005, None, None, False, "mine").worker == "mine"


@pytest.mark.parametrize(
    ("overhead", "steps", "traces"),
    [(0.005, None, True), (0.0, None, False), (0.0, [3], True), (0.005, [], False)],
)
def test_steps_may_be_traced_by_the_budget_or_on_request(tmp_path, overhead, steps, traces) -> None:
    assert checked_settings(tmp_path, overhead, steps, None, False, None).traces == traces
