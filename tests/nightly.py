"""Records the README's quick start with the newest TensorFlow and Python, and prints what of the
recorder is on.

usage: python tests/nightly.py FOLDER [PACKAGE] [PYTHON ...]

Makes an environment in FOLDER of the first PYTHON that has a wheel of PACKAGE (tf-nightly), by
default of the newest one on PATH, and installs this checkout in it.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHONS = [name for minor in range(20, 9, -1) if shutil.which(name := f"python3.{minor}")]
INSPECT = """
import platform, sys
import keras, tensorflow as tf
import tb_memplugin
from tb_memplugin.recorder.devices import MemoryMaps, choose_devices
notes = []
names = [device.name for device in choose_devices(None)[0]]
maps = MemoryMaps(names, notes.append)
run = tb_memplugin.load("runs")["exp1"]
last = run.snapshots[-1]
share = sum(row.bytes for row in last.ledger if row.category == "unattributed") / last.in_use_bytes
read = [name for name in names if maps.available(name) and maps.read(name) is not None]
print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python {platform.python_version()}")
passed = f"passed its self-check on {', '.join(read)}" if read else f"off. {' '.join(notes)}"
print(f"memory map: {passed}")
replay = last.replay
found = "none" if replay is None else f"{replay.addresses} of {replay.of_addresses} addresses"
print(f"replay: {found}")
steps, traced = len(run.samples.step), len(run.snapshots)
print(f"steps: {steps}, traced: {traced}, unattributed in the last one: {share:.1%}")
print(f"notes: {' '.join(run.notes) or 'none'}")
"""


def run(*command: str, folder: pathlib.Path = ROOT) -> str:
    environment = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)[:200]} ended with {done.returncode}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def install(folder: pathlib.Path, package: str, pythons: list[str]) -> str:
    """The Python of an environment with the package and this checkout."""
    for python in pythons:
        try:
            run(python, "-m", "venv", "--clear", str(folder))
            own = str(folder / "bin" / "python")
            run(own, "-m", "pip", "install", "--pre", "--no-compile", package)
        except (OSError, RuntimeError) as error:  # not installed, or without a wheel
            print(f"not with {python}: {str(error).splitlines()[-1]}", file=sys.stderr)
            continue
        run(own, "-m", "pip", "install", "--no-compile", "-e", str(ROOT))
        return own
    raise SystemExit(f"no Python has a wheel of {package}: {', '.join(pythons)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("package", nargs="?", default="tf-nightly")
    parser.add_argument("pythons", nargs="*", default=PYTHONS)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    python = install(folder / "environment", arguments.package, arguments.pythons)
    run("rm", "-rf", str(folder / "runs"))
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    run(python, "-c", code, folder=folder)
    print(run(python, "-c", INSPECT, folder=folder), end="")


if __name__ == "__main__":
    main()
