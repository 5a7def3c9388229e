"""The workflows for a public forge name the versions that the package supports."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"

pytestmark = pytest.mark.skipif(
    not WORKFLOWS.exists(), reason="a source distribution has no workflows"
)

PYTHONS = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FIRST_TENSORFLOW = {"3.10": 16, "3.11": 16, "3.12": 16, "3.13": 20}
"""The first TensorFlow 2.x from 2.16 on that has wheels for each Python."""


def text(name: str) -> str:
    return (WORKFLOWS / name).read_text(encoding="utf-8")


def commands_of(target: str, *variables: str) -> str:
    command = ["make", "--dry-run", target, *variables]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_every_supported_python_and_tensorflow_is_tested() -> None:
    pairs = re.findall(r'python: "(3\.\d+)", tensorflow: "2\.(\d+)"', text("ci.yml"))
    assert {python for python, _ in pairs} == set(PYTHONS) == set(FIRST_TENSORFLOW)
    assert {int(minor) for _, minor in pairs} == set(range(16, 22))
    assert all(int(minor) >= FIRST_TENSORFLOW[python] for python, minor in pairs)


def test_the_wheel_is_installed_on_every_supported_python() -> None:
    (listed,) = re.findall(r"python: \[(.*)\]", text("ci.yml"))
    assert re.findall(r"3\.\d+", listed) == PYTHONS


def test_the_workflows_run_targets_that_exist() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    used = set(
        re.findall(
            r"run: make ([a-z-]+)", "".join(path.read_text("utf-8") for path in WORKFLOWS.iterdir())
        )
    )
    assert {"bench", "check", "fresh", "test-all", "dist"} == used <= targets


def test_benchmarks_fail_if_a_limit_does_not_hold(tmp_path: pathlib.Path) -> None:
    """AND at the smallest size, a limit that says nothing there does not count."""
    script = tmp_path / "bench.py"
    path = str(ROOT / "tests" / "benchmarks")
    lines = [
        "import sys",
        f"sys.path.insert(0, {path!r})",
        "from limits import finish, print_limit",
    ]
    lines += ["print_limit('a', 2, 1, any_size='any' in sys.argv)", "finish()"]
    script.write_text("\n".join(lines), encoding="utf-8")

    def fails(*options: str) -> bool:
        done = subprocess.run(
            [sys.executable, str(script), *options], capture_output=True, text=True
        )
        assert "limit 1: DOES NOT HOLD" in done.stdout
        return done.returncode != 0

    assert fails() and fails("any") and fails("any", "--smallest")
    assert not fails("--smallest")


def test_every_benchmark_runs_after_one_that_fails(tmp_path: pathlib.Path) -> None:
    for target in ("bench", "bench-smallest"):
        (tmp_path / "python").write_text("#!/bin/sh\necho ran $1\nexit 1\n", encoding="utf-8")
        (tmp_path / "python").chmod(0o755)
        lines = commands_of(target, f"BIN={tmp_path}").splitlines()
        (loop,) = (line for line in lines if "tests/benchmarks/bench_" in line)
        done = subprocess.run(["sh", "-c", loop], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.count("ran tests/benchmarks/") == len(
            list((ROOT / "tests/benchmarks").glob("bench_*.py"))
        )
        assert done.returncode != 0


def test_every_promise_is_in_all_the_tests_and_the_quick_ones_leave_out_what_is_marked() -> None:
    commands = {target: commands_of(target) for target in ("test", "test-all")}
    quick, whole = (
        [line for line in commands[name].splitlines() if "-m pytest" in line] for name in commands
    )
    assert quick and all('-m "not long"' in line for line in quick)
    assert whole and not any("not long" in line for line in whole)
    for suite in ("tests/unit", "tests/integration", "tests/hostile", "tests/browser"):
        assert any(suite in line for line in quick) and any(suite in line for line in whole)
    for part in (
        "test_scenarios.py",
        "test_demo.py",
        "tests/accuracy/measure.py --small",
        "tests/benchmarks/",
    ):
        assert part in commands["test-all"], part
    assert all("npm test" in text for text in commands.values())


def test_the_demo_needs_python_only(tmp_path: pathlib.Path) -> None:
    commands = commands_of("demo", f"VENV={tmp_path}")
    assert "-m venv" in commands and "pip install" in commands and "demo/serve.py" in commands
    assert not re.search(r"\bnpm\b|\bnode\b|frontend", commands)


def test_ci_runs_checks_quick_tests_and_documented_code_and_the_forge_every_test() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)$", script, re.MULTILINE) == [
        "check",
        "fresh",
        "test",
        "test-docs",
    ]
    assert re.findall(r"run: make (\S+)", text("ci.yml"))[:3] == ["check", "fresh", "test-all"]


def test_a_release_publishes_what_was_tested_without_a_password() -> None:
    release = text("release.yml")
    assert "needs: [ci, version]" in release and "id-token: write" in release
    assert "password" not in release and "secrets." not in release
