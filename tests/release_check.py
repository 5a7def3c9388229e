"""Installs a built wheel into a fresh environment and uses it as a viewer's machine does, without
TensorFlow.

usage: python tests/release_check.py [--quick-start] DIST [PYTHON ...]

Takes the wheel in the folder DIST, and its dependencies and pytest from the package index. Each
PYTHON makes an environment of its own and needs no pip: this script's pip installs. With
--quick-start, TensorFlow is installed as well and the README's quick start runs.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures" / "runs"
README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
SERVE = """
import json, sys, urllib.request
sys.modules["tensorflow"] = sys.modules["keras"] = None
from tensorboard import default, program
server = program.TensorBoard(plugins=default.get_plugins())
options = ["--port", "0", "--load_fast", "false", "--reload_interval", "1"]
server.configure(argv=["", "--logdir", sys.argv[1], *options])
address = server.launch()
def get(path): return urllib.request.urlopen(address + "data/" + path, timeout=60).read()
listed = json.loads(get("plugins_listing"))["tb_memplugin"]
runs = []
while not runs:
    runs = [run["run"] for run in json.loads(get("plugin/tb_memplugin/runs"))["runs"]]
path = listed["loading_mechanism"]["module_path"].partition("/tb_memplugin")[2]
found = {"tab": listed["tab_name"], "enabled": listed["enabled"], "runs": runs}
print(json.dumps({**found, "page": len(get("plugin/tb_memplugin" + path))}))
"""


def newest_wheel(dist: pathlib.Path) -> pathlib.Path:
    """The wheel in `dist` that was built last."""
    return max(dist.glob("tb_memplugin-*.whl"), key=lambda path: path.stat().st_mtime)


def install(
    wheel: pathlib.Path,
    folder: pathlib.Path,
    site_packages: str | None = None,
    python: str = sys.executable,
) -> pathlib.Path:
    """Make an environment of `python` in `folder`, install the wheel, and return the folder of the
    commands.

    With `site_packages`, dependencies come from there and nothing is downloaded; otherwise from the
    package index.
    """
    run([python, "-m", "venv", "--without-pip", str(folder)], folder)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    if site_packages is None:
        pip(commands, "install", "--quiet", str(wheel), "pytest")
        pip(commands, "check")
    else:
        pip(commands, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
        own = run(
            [
                str(commands / "python"),
                "-c",
                "import sysconfig; print(sysconfig.get_path('purelib'))",
            ],
            folder,
        )
        (pathlib.Path(own.strip()) / "dependencies.pth").write_text(
            site_packages + "\n", encoding="utf-8"
        )
    return commands


def pip(commands: pathlib.Path, *arguments: str) -> None:
    """Run this interpreter's pip for the environment of `commands`."""
    run(
        [sys.executable, "-m", "pip", "--python", str(commands / "python"), *arguments],
        commands,
        timeout=1800,
    )


def use(commands: pathlib.Path, folder: pathlib.Path, version: str) -> None:
    """Run what was installed: the command, and TensorBoard with the tab.

    Raises:
        AssertionError: Something does not work.
    """
    python, command = str(commands / "python"), str(commands / "tb-memplugin")
    where = run([python, "-c", "import tb_memplugin; print(tb_memplugin.__file__)"], folder).strip()
    assert pathlib.Path(where).is_relative_to(folder), f"not the installed package: {where}"
    assert run([command, "--version"], folder).split() == ["tb-memplugin", version]
    helped = run([command, "--help"], folder)
    assert all(name in helped for name in ("inspect", "check", "report", "import", "what-if"))
    inspected = json.loads(run([command, "inspect", str(FIXTURES), "--format", "json"], folder))[
        "runs"
    ]
    assert sorted(inspected) == sorted(path.name for path in FIXTURES.iterdir())
    assert all(run["steps"] and not run["damage"] for run in inspected.values())
    run([command, "check", str(FIXTURES), "--run", "finished", "--max-peak", "1GiB"], folder)
    report = folder / "report.html"
    run([command, "report", str(FIXTURES), "-o", str(report), "--run", "small"], folder)
    assert report.stat().st_size > 100_000
    served = json.loads(run([python, "-c", SERVE, str(FIXTURES)], folder).splitlines()[-1])
    assert served["tab"] == "Memory" and served["enabled"] and served["page"] > 100_000, served


def quick_start(commands: pathlib.Path, folder: pathlib.Path, wheel: pathlib.Path) -> None:
    """Install TensorFlow as the extra `record` has it, run the README's Python block and look at
    its run.

    Raises:
        AssertionError: The code ended in an error or left no breakdown.
    """
    pip(commands, "install", "--quiet", f"{wheel}[record]")
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    run([str(commands / "python"), "-c", code], folder)
    inspected = run(
        [str(commands / "tb-memplugin"), "inspect", "runs", "--run", "exp1", "--verbose"], folder
    )
    assert "traced step" in inspected, inspected


def run(command: list[str], folder: pathlib.Path, timeout: float = 300) -> str:
    """Run a command in `folder`, without this repository on the path, and return its output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)[:200]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick-start", action="store_true")
    parser.add_argument("dist", type=pathlib.Path)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    arguments = parser.parse_args()
    wheel = newest_wheel(arguments.dist).resolve()
    for python in arguments.pythons:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name).resolve()
            commands = install(wheel, folder, python=python)
            use(commands, folder, wheel.name.split("-")[1])
            if arguments.quick_start:
                quick_start(commands, folder, wheel)
            print(
                f"{wheel.name} installs and runs on "
                f"{run([str(commands / 'python'), '--version'], folder).strip()}"
            )


if __name__ == "__main__":
    main()
