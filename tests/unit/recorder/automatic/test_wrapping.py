"""Jobs run once their module is imported, and change nothing about how it is."""

import importlib
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tb_memplugin.recorder.automatic.wrapping import AfterImport

NAME = "tb_memplugin_test_module"


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = before
    sys.modules.pop(NAME, None)


def write(folder: pathlib.Path, code: str) -> None:
    (folder / f"{NAME}.py").write_text(code, encoding="utf-8")
    importlib.invalidate_caches()


def test_the_job_runs_after_the_modules_code_and_once(folder: pathlib.Path) -> None:
    write(folder, "value = 5")
    seen: list[int] = []
    AfterImport({NAME: lambda module: seen.append(module.value)}).install()
    assert seen == []
    module = importlib.import_module(NAME)
    importlib.reload(module)
    assert seen == [5]
    # THEN the loader is the one that the module would have had
    assert vars(module.__loader__).keys() == {"name", "path"}


def test_a_module_that_is_imported_already_is_told_at_once(folder: pathlib.Path) -> None:
    write(folder, "value = 6")
    importlib.import_module(NAME)
    seen: list[ModuleType] = []
    AfterImport({NAME: seen.append}).install()
    assert [module.__name__ for module in seen] == [NAME]


def test_a_failing_import_fails_as_before_and_a_later_one_is_told(folder: pathlib.Path) -> None:
    write(folder, "raise ValueError(7)")
    seen: list[ModuleType] = []
    AfterImport({NAME: seen.append}).install()
    with pytest.raises(ValueError, match="7"):
        importlib.import_module(NAME)
    write(folder, "value = 77")
    importlib.import_module(NAME)
    assert len(seen) == 1


def test_a_failing_job_does_not_fail_the_import(folder: pathlib.Path) -> None:
    write(folder, "value = 8")
    AfterImport({NAME: lambda module: module.missing}).install()
    assert importlib.import_module(NAME).value == 8


def test_a_missing_module_is_missing_and_nothing_is_left_after_removal() -> None:
    before = list(sys.meta_path)
    finder = AfterImport({"tb_memplugin_no_such_module": lambda _: None})
    finder.install()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tb_memplugin_no_such_module")
    finder.remove()
    assert sys.meta_path == before
