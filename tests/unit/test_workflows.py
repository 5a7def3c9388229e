"""The workflows for a public forge name the versions that the package supports."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"

pytestmark = pytest.mark.skipif(not WORKFLOWS.exists(), reason="a source distribution has no workflows")

PYTHONS = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "setup.py").read_text(encoding="utf-8"))
FIRST_TENSORFLOW = {"3.10": 16, "3.11": 16, "3.12": 16, "3.13": 20}
"""The first TensorFlow 2.x from 2.16 on that has wheels for each Python."""


def text(name: str) -> str:
    return (WORKFLOWS / name).read_text(encoding="utf-8")


def test_every_supported_python_and_tensorflow_is_tested() -> None:
    pairs = re.findall(r'python: "(3\.\d+)", tensorflow: "2\.(\d+)"', text("ci.yml"))
    assert {python for python, _ in pairs} == set(PYTHONS) == set(FIRST_TENSORFLOW)
    assert {int(minor) for _, minor in pairs} == set(range(16, 22))
    assert all(int(minor) >= FIRST_TENSORFLOW[python] for python, minor in pairs)


def test_the_wheel_is_installed_on_every_supported_python() -> None:
    (listed,) = re.findall(r"python: \[(.*)\]", text("ci.yml"))
    assert re.findall(r"3\.\d+", listed) == PYTHONS


def test_the_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = set(re.findall(r"make ([a-z-]+)", text("ci.yml") + text("release.yml")))
    assert {"check", "fresh", "test", "dist"} == used <= targets


def test_a_release_publishes_what_was_tested_without_a_password() -> None:
    release = text("release.yml")
    assert "needs: [ci, version]" in release and "id-token: write" in release
    assert "password" not in release and "secrets." not in release
