"""What is installed: the built page is in the wheel, and a viewer's install brings no TensorFlow.

Building takes setuptools from the package index; installing and using the wheel needs no network.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser

import pytest
from markdown_it import MarkdownIt
from release_check import install, newest_wheel, use

from tb_memplugin.version import __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What is published: the source distribution, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if name != "REPOSITORY_URL"}
    subprocess.run(command, check=True, capture_output=True, timeout=240, env=environment)
    return directory


@pytest.fixture(scope="module")
def wheel(dist: pathlib.Path) -> zipfile.ZipFile:
    """The wheel that `pip install .` makes."""
    return zipfile.ZipFile(newest_wheel(dist))


def described(wheel: zipfile.ZipFile) -> Message:
    """The wheel's metadata; the description is the payload."""
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def targets(markdown: str) -> set[str]:
    """Where the links and pictures of a description lead."""
    page = MarkdownIt("commonmark").enable("table").render(markdown)
    return set(re.findall(r'(?:href|src|srcset)="([^"]+)"', page))


def test_the_page_is_in_the_wheel_as_it_is_committed(wheel: zipfile.ZipFile) -> None:
    page = ROOT / "tb_memplugin" / "static" / "index.js"
    assert wheel.read("tb_memplugin/static/index.js") == page.read_bytes()
    assert {"tb_memplugin/py.typed", "tb_memplugin/server/http_api.md"} <= set(wheel.namelist())
    assert not [
        name for name in wheel.namelist() if name.startswith(("tests/", "demo/", "frontend/"))
    ]


def test_a_source_distribution_holds_what_the_package_is_built_and_tested_from(
    dist: pathlib.Path,
) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    missing = {name for name in tracked if not name.startswith((".", "docs/screenshots/"))} - names
    assert missing == {name for name in missing if pathlib.Path(name).name.startswith(".")}
    assert not [name for name in names if "node_modules" in name or name.endswith(".pyc")]


def test_licences_of_what_the_page_contains_are_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    notices = wheel.read("tb_memplugin/THIRD_PARTY_NOTICES.txt").decode()
    lock = json.loads((ROOT / "frontend" / "package-lock.json").read_text(encoding="utf-8"))[
        "packages"
    ]
    bundled = [
        name
        for name in lock
        if name and not lock[name].get("dev") and not lock[name].get("optional")
    ]
    assert bundled
    for path in bundled:
        name = path.removeprefix("node_modules/")
        assert f"{name} {lock[path]['version']} ({lock[path]['license']})" in notices


def test_the_version_is_that_of_the_newest_entry_of_the_changelog(wheel: zipfile.ZipFile) -> None:
    newest = re.search(
        r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert newest is not None
    assert any(name.startswith(f"tb_memplugin-{newest[1]}.dist-info/") for name in wheel.namelist())


def test_tensorboard_finds_the_plugin_and_the_shell_the_command(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(name).decode()
    assert "[tensorboard_plugins]\ntb_memplugin = tb_memplugin.plugin_loader:MemoryLoader" in text
    assert "[console_scripts]\ntb-memplugin = tb_memplugin.__main__:main" in text


def test_viewing_requires_no_tensorflow_and_recording_does(wheel: zipfile.ZipFile) -> None:
    requirements = described(wheel).get_all("Requires-Dist") or []
    tensorflow = [line for line in requirements if line.lower().startswith("tensorflow")]
    extras = {match[1] for line in tensorflow if (match := re.search(r"extra == ['\"](\w+)", line))}
    assert len(tensorflow) == 2 and extras == {"record", "cuda"}


def test_the_metadata_name_the_authors_the_licence_and_where_recording_works(
    wheel: zipfile.ZipFile,
) -> None:
    metadata = described(wheel)
    assert metadata["Name"] == "tb-memplugin" and metadata["Author"] == "The tb_memplugin authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert [
        line for line in metadata.get_all("Classifier") or [] if line.startswith("Operating System")
    ] == ["Operating System :: POSIX :: Linux"]


def test_no_link_of_the_description_leads_nowhere_without_a_repository(
    wheel: zipfile.ZipFile,
) -> None:
    assert targets(str(described(wheel).get_payload())) == set()


def test_the_links_and_pictures_of_the_description_lead_into_the_published_repository() -> None:
    code = (
        "import runpy, setuptools, json; setuptools.setup = lambda **given: "
        "print(json.dumps(given))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "runpy.run_path('setup.py')"],
        cwd=ROOT,
        env={**os.environ, "REPOSITORY_URL": "https://forge.example/some/repository"},
        capture_output=True,
        text=True,
        check=True,
    )
    given = json.loads(done.stdout)
    found = targets(given["long_description"])
    base = "https://forge.example/some/repository/"
    ours = {target.removeprefix(base) for target in found if target.startswith(base)}
    paths = {
        re.sub(rf"^(?:blob|raw)/v{re.escape(__version__)}/|#.*", "", target) for target in ours
    }
    assert len(paths) > 5 and all((ROOT / path).exists() for path in paths)
    assert all(target.startswith("https://") for target in found)
    assert set(given["project_urls"].values()) > {base.rstrip("/")}


def test_both_distributions_are_fit_for_the_package_index(dist: pathlib.Path) -> None:
    files = sorted(map(str, dist.iterdir()))
    assert len(files) == 2 and all(f"tb_memplugin-{__version__}" in file for file in files)
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_installed_wheel_runs(dist: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # GIVEN an environment with the wheel and this environment's dependencies, without downloads
    commands = install(newest_wheel(dist), tmp_path, sysconfig.get_path("purelib"))
    # THEN the command, and TensorBoard's tab work
    use(commands, tmp_path, __version__)
