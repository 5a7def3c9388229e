"""Local paths become absolute, URLs stay as they are."""

import pathlib

import pytest

from tb_memplugin.paths import absolute


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("runs", "{here}/runs"),
        ("./runs/", "{here}/runs"),
        ("../runs", "{parent}/runs"),
        (".", "{here}"),
        ("/data/runs", "/data/runs"),
        ("gs://bucket/runs", "gs://bucket/runs"),
        ("s3://bucket//runs/", "s3://bucket//runs/"),
        ("ram://runs", "ram://runs"),
    ],
)
def test_local_paths_become_absolute(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(path) == expected.format(here=tmp_path, parent=tmp_path.parent)
