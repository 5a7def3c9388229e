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
