"""The worker's name by default: from TensorFlow's description of a cluster."""

import json
import pathlib

import pytest

from tb_memplugin.recorder.base.settings import check

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


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
        (json.dumps({"cluster": CLUSTER, "task": {"type": "../up", "index": 0}}), ""),
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": "x"}}), ""),
        (json.dumps({"cluster": CLUSTER}), ""),
    ],
)
def test_the_default_is_the_task_of_a_cluster(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, config: str | None, worker: str
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    assert check(tmp_path, 0.005, None, None, False, None).worker == worker
    assert check(tmp_path, 0.005, None, None, False, "mine").worker == "mine"


def test_beside_other_workers_steps_are_traced_on_request_only(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TensorFlow's profiler sometimes crashes such a process.
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}))
    by_default, asked = (check(tmp_path, 0.005, steps, None, False, None) for steps in (None, [3]))
    assert (by_default.traces, by_default.traced_steps, by_default.trace_steps) == (False, frozenset(), None)
    assert (asked.traces, asked.traced_steps) == (True, {3})
    monkeypatch.delenv("TF_CONFIG")
    alone = check(tmp_path, 0.005, None, None, False, None)
    assert alone.traces and alone.traced_steps is None
