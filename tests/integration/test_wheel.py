"""What is installed: the built page is in the wheel, and a viewer's install brings no TensorFlow."""

import pathlib
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that `pip install .` makes."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(directory), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return zipfile.ZipFile(next(directory.glob("*.whl")))


def test_the_page_is_in_the_wheel_as_it_is_committed(wheel: zipfile.ZipFile) -> None:
    page = ROOT / "tb_memplugin" / "static" / "index.js"
    assert wheel.read("tb_memplugin/static/index.js") == page.read_bytes()
    assert {"tb_memplugin/py.typed", "tb_memplugin/server/http_api.md"} <= set(wheel.namelist())
    assert not [name for name in wheel.namelist() if name.startswith(("tests/", "demo/", "frontend/"))]


def test_tensorboard_finds_the_plugin_and_the_shell_the_command(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(name).decode()
    assert "[tensorboard_plugins]\ntb_memplugin = tb_memplugin.plugin_loader:MemoryLoader" in text
    assert "[console_scripts]\ntb-memplugin = tb_memplugin.cli:main" in text


def test_viewing_requires_no_tensorflow_and_recording_does(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    requirements = Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []
    tensorflow = [line for line in requirements if line.lower().startswith("tensorflow")]
    assert len(tensorflow) == 1 and 'extra == "record"' in tensorflow[0].replace("'", '"')
