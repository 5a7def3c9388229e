"""Log directories that do not exist, and stores that keep their listings."""

import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader import files


class Store(MemoryFileSystem):
    """A store in memory, as another process writes into it."""

    protocol = "written"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


class KeepingStore(Store):
    """The same store, whose listings are kept, as the file system of Google Cloud Storage does."""

    protocol = "keeping"
    kept: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("keeping://")))

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.kept:
            self.kept[path] = super().ls(path, detail=True)
        return self.kept[path] if detail else [entry["name"] for entry in self.kept[path]]

    def info(self, path: str, **more: Any) -> Any:
        path = self._strip_protocol(path)
        for entry in self.kept.get(self._parent(path), ()):
            if entry["name"] == path:
                return entry
        return super().info(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.kept.pop(self._strip_protocol(path), None)


@pytest.fixture
def written() -> Iterator[Store]:
    fsspec.register_implementation("keeping", KeepingStore, clobber=True)
    yield Store()
    Store.store.clear()
    KeepingStore.kept.clear()


@pytest.mark.parametrize(
    ("path", "what"),
    [("/none/", "the log directory"), ("s3://bucket", "a directory in the bucket, such as s3://bucket/runs")],
)
def test_a_missing_directory_is_a_sentence(path: str, what: str) -> None:
    # TensorBoard's file layer reads directories in an S3 bucket, not the bucket.
    with pytest.raises(NotFoundError) as raised:
        files.log_directory(path)
    assert str(raised.value) == f"no directory {path.rstrip('/')}; pass {what}, as for tensorboard --logdir"


def test_a_growing_run_is_seen_in_a_store_that_keeps_its_listings(written: Store) -> None:
    written.pipe("/bucket/exp/a", b"0123456789")
    assert [entry.name for entry in files.entries("keeping://bucket/exp")] == ["a"]
    assert files.state("keeping://bucket/exp/a").length == 10
    # WHEN the file is replaced by a longer one, and another one comes
    written.pipe({"/bucket/exp/a": b"0123456789abcdef", "/bucket/exp/b": b"0"})
    assert files.state("keeping://bucket/exp/a").length == 10  # as the store says until it is listed again
    # THEN the next listing has both
    assert [entry.name for entry in files.entries("keeping://bucket/exp")] == ["a", "b"]
    assert files.state("keeping://bucket/exp/a").length == 16
    assert files.reader("keeping://bucket/exp/a")(10, 20) == b"abcdef"


def test_a_local_directory_is_asked_of_the_operating_system_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(files.gfile, "isdir", lambda path: asked.append(path) or path.endswith("runs"))
    assert files.is_directory(str(tmp_path)) and not files.is_directory(str(tmp_path / "none"))
    assert asked == []
    assert files.is_directory("gs://bucket/runs") and not files.is_directory("gs://bucket/none")
    assert asked == ["gs://bucket/runs", "gs://bucket/none"]


def test_a_store_that_cannot_be_asked_has_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> bool:
        raise OSError("no credentials")

    monkeypatch.setattr(files.gfile, "isdir", refuse)
    assert not files.is_directory("gs://bucket/runs")
