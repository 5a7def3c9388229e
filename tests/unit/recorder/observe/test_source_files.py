"""Names of source files: relative to the working directory, or a name alone; nothing of libraries, nothing absolute."""

import pathlib
import sysconfig

import pytest

from tb_memplugin.recorder.observe.source_files import SourceFiles


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The working directory of a training, next to other directories."""
    directory = tmp_path / "alice" / "project"
    (directory / "models").mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


def test_files_are_named_relative_to_the_working_directory(project: pathlib.Path) -> None:
    files = SourceFiles([])
    assert files.name(str(project / "train.py")) == "train.py"
    assert files.name("train.py") == "train.py"
    assert files.name(str(project / "models" / "unet.py")) == "models/unet.py"
    assert files.name(str(project / "models" / ".." / "train.py")) == "train.py"


def test_files_outside_have_no_directory(project: pathlib.Path) -> None:
    files = SourceFiles([])
    assert files.name(str(project.parent / "shared" / "losses.py")) == "losses.py"
    assert files.name(str(project) + "_2/train.py") == "train.py"
    assert files.name("../secret/losses.py") == "losses.py"


def test_a_link_to_the_working_directory_is_the_working_directory(
    project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    assert SourceFiles([]).name(str(link / "models" / "unet.py")) == "models/unet.py"


@pytest.mark.parametrize("directory", ["/", "home"])
def test_a_working_directory_above_the_home_directory_names_no_directories(
    directory: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/" if directory == "/" else tmp_path / directory)
    assert SourceFiles([]).name(str(home / "project" / "train.py")) == "train.py"


def test_libraries_have_no_name(project: pathlib.Path) -> None:
    files = SourceFiles([str(project / "keras")])
    assert files.name(str(project / "keras" / "src" / "layer.py")) is None
    assert files.name(str(project / "keras_models" / "unet.py")) == "keras_models/unet.py"
    assert files.name(str(project / ".venv" / "lib" / "python3.11" / "site-packages" / "lib" / "a.py")) is None
    assert files.name(sysconfig.get_path("stdlib") + "/contextlib.py") is None


@pytest.mark.parametrize("name", ["<string>", "<frozen runpy>", "<stdin>", ""])
def test_code_without_a_file_has_no_name(name: str) -> None:
    assert SourceFiles([]).name(name) is None
