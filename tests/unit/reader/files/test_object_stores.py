"""What is asked of S3: one listing of everything. Other stores, and what fails, are in the tests of `files`."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.reader.files import object_stores
from tb_memplugin.reader.files.object_stores import _S3


class Client:
    """A bucket whose listings have two objects per page."""

    def __init__(self, objects: dict[str, int]) -> None:
        self.objects = objects
        self.pages = 0

    def get_paginator(self, name: str) -> Any:
        assert name == "list_objects"
        return SimpleNamespace(paginate=self.paginate)

    def paginate(self, Bucket: str, Prefix: str) -> Iterator[Any]:  # noqa: N803
        assert Bucket == "bucket"
        found = [{"Key": key, "Size": size} for key, size in self.objects.items() if key.startswith(Prefix)]
        for at in range(0, max(1, len(found)), 2):
            self.pages += 1
            yield {"Contents": found[at : at + 2]} if found else {}


def asked(monkeypatch: pytest.MonkeyPatch, objects: dict[str, int], path: str) -> tuple[Any, Client]:
    client = Client(objects)
    monkeypatch.setattr(object_stores, "_s3_client", lambda: client)
    system = SimpleNamespace(bucket_and_path=lambda path: tuple(path.removeprefix("s3://").split("/", 1)))
    store = object.__new__(_S3)
    store._place = system.bucket_and_path
    return store.tree(path, "fevents"), client


def test_event_files_below_a_directory_come_with_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    events = {"runs/a/tfevents.x": 10, "runs/b/c/tfevents.y": 0, "runs/tfevents.z": 7}
    others = {"runs/": 0, "runs/a/": 0, "runs/my.tfevents/model.keras": 3, "runs2/tfevents.w": 1, "other": 2}
    for path in ("s3://bucket/runs", "s3://bucket/runs/"):
        listed, client = asked(monkeypatch, {**others, **events}, path)
        assert listed == {"a/tfevents.x": 10, "b/c/tfevents.y": 0, "tfevents.z": 7} and client.pages == 3
    assert asked(monkeypatch, events, "s3://bucket/none")[0] == {}


def test_more_objects_than_are_listed_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {f"runs/{at:02}{'.tfevents' * (at == 7)}": at for at in range(20)}
    monkeypatch.setattr(object_stores, "MAX_LISTED", 5)
    listed, client = asked(monkeypatch, objects, "s3://bucket/runs")
    assert listed is None and client.pages == 3  # it does not read on
    monkeypatch.setattr(object_stores, "MAX_LISTED", 20)
    assert asked(monkeypatch, objects, "s3://bucket/runs")[0] == {"07.tfevents": 7}
