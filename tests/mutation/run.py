"""Checks the tests: applies seeded faults one at a time to a copy of the repository and runs the
quick tests on each.

Each fault meets the unit tests of its room first, then all unit tests, then the whole quick suite,
until a test fails. A failure counts if the same test passes without the fault. Ends with the list,
and with exit code 1 if fewer faults are caught than --at-least.

usage: python tests/mutation/run.py [--seed 1] [--count 30] [--only 3 7] [--until room] [--list]
[--at-least 27]

--until room stops after the unit tests of the room, --until unit after all of them; --only takes
numbers of the list.
"""

import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from faults import ROOT, Fault, drawn

STAGE_SECONDS = 3600
"""A fault that makes tests hang is caught, too: pytest ends a test after 300 s."""
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-m",
    "not long",
]
SEVERAL = ["-n", "4", "--dist", "loadfile"]
UNTIL = ("room", "unit", "quick")
BUILD = ["npx", "vite", "build"]
QUICK = ["tests/unit", "tests/integration", "tests/hostile", "tests/browser"]


def copied(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the repository's files as they are, with the installed packages of the page."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listed, cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "frontend" / "node_modules").symlink_to(
        (ROOT / "frontend" / "node_modules").resolve()
    )
    return folder


class Suite:
    """Commands that end with an error if a test fails, in a copy of the repository."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def failing(self, command: list[str], inside: str = ".") -> str | None:
        """The first test that fails, None if all pass."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder),
            "HOSTILE_SECONDS": "8",
            "NO_COLOR": "1",
        }
        try:
            done = subprocess.run(
                command,
                cwd=self._folder / inside,
                env=environment,
                capture_output=True,
                text=True,
                timeout=STAGE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "no end"
        if done.returncode in (0, 5):  # 5: nothing was collected
            return None
        printed = done.stdout + done.stderr
        named = re.search(
            r"^(?:FAILED|ERROR) (.+?)(?: - " r".*)?$|^ " r"*FAIL " r"+(.+)$", printed, re.MULTILINE
        )
        return (named[1] or named[2]).strip() if named else printed[-300:]

    def passes_alone(self, test: str) -> bool:
        """Whether a test that failed with a fault passes without it."""
        if test.startswith("tests/browser"):
            self.failing(BUILD, "frontend")
        if "::" in test:
            return self.failing([*PYTEST, test]) is None
        file = test.split(" > ")[0]
        return (
            not file.endswith((".ts", ".tsx"))
            or self.failing(["npx", "vitest", "run", file], "frontend") is None
        )

    def stages(self, fault: Fault, until: str) -> list[tuple[list[str], str]]:
        """Commands and their folders, the quickest first."""
        if fault.path.endswith(".py"):
            module = pathlib.PurePath(fault.path).relative_to("tb_memplugin").with_suffix("")
            own = f"tests/unit/{module.parent / f'test_{module.name}.py'}"
            room = f"tests/unit/{fault.room}" if fault.room else own
            first = [path for path in dict.fromkeys((own, room)) if (self._folder / path).exists()]
            stages = {
                "room": [([*PYTEST, path], ".") for path in first],
                "unit": [([*PYTEST, *SEVERAL, "tests/unit"], ".")],
                "quick": [([*PYTEST, *SEVERAL, *QUICK], ".")],
            }
        else:
            vitest, source = (
                ["npx", "vitest", "--run", "--bail=1"],
                fault.path.removeprefix("frontend/"),
            )
            stages = {
                "room": [([*vitest[:2], "related", source, *vitest[2:]], "frontend")],
                "unit": [(vitest, "frontend")],
                "quick": [(BUILD, "frontend"), ([*PYTEST, *SEVERAL, "tests/browser"], ".")],
            }
        return list(itertools.chain(*list(stages.values())[: UNTIL.index(until) + 1]))

    def catches(self, fault: Fault, until: str) -> str | None:
        """The test that fails because of a fault, None if none does."""
        path = self._folder / fault.path
        source = path.read_text(encoding="utf-8")
        tried: set[str] = set()
        for command, inside in self.stages(fault, until):
            path.write_text(fault.applied(source), encoding="utf-8")
            try:
                test = self.failing(command, inside)
            finally:
                path.write_text(source, encoding="utf-8")
            if test is not None and test not in tried:
                tried.add(test)
                if self.passes_alone(test):
                    return test
                print(f"    {test} fails without the fault, too", flush=True)
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--until", choices=UNTIL, default="quick")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--at-least", type=int, default=0)
    options = parser.parse_args()
    numbered = dict(enumerate(drawn(options.seed, options.count), 1))
    chosen = {
        number: fault
        for number, fault in numbered.items()
        if not options.only or number in options.only
    }
    if options.list:
        for number, fault in chosen.items():
            print(f"{number:2} {fault.describe((ROOT / fault.path).read_text(encoding='utf-8'))}")
        return
    caught = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(pathlib.Path(temporary))
        suite = Suite(folder)
        for number, fault in chosen.items():
            described = fault.describe((folder / fault.path).read_text(encoding="utf-8"))
            test = suite.catches(fault, options.until)
            caught += test is not None
            print(
                f"{number:2} {described}\n    {'caught: ' + test if test else 'NOT CAUGHT'}",
                flush=True,
            )
    print(f"{caught} of {len(chosen)} faults caught, seed {options.seed}")
    if caught < options.at_least:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
