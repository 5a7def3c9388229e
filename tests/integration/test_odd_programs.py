"""Programs with objects that raise, lie or never end run with the recorder as without it, and are
recorded.

Drawn from seeds; see odd_programs.py. Others are drawn with another first seed, and run one by one:
``TB_MEMPLUGIN_ODD_SEED=7000 pytest tests/integration/test_odd_programs.py``,
``python tests/integration/odd_programs.py DIRECTORY SEED``.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from child import ANSWER, HERE, ROOT, child_environment
from prepared_python import run_python

import tb_memplugin

FIRST = int(os.environ.get("TB_MEMPLUGIN_ODD_SEED", "1"))
DRAWN = int(os.environ.get("TB_MEMPLUGIN_ODD_COUNT", "300"))
QUICK, PER_PROCESS = 8, 4
MOST_UNATTRIBUTED = 0.01
CRASHED = {"many_fits": "60", "gc_crash": "12"}
"""Programs of tests/programs/reported that the recorder has crashed, and how long they run."""
PROGRAMS_OWN = {"MainThread", "maker"}
"""Threads of the programs, beside TensorFlow's."""


@dataclasses.dataclass
class Ended:
    """How a process ended that ran several programs."""

    code: int
    printed: list[str]
    answers: dict[int, Any]
    errors: str


def ran(directory: pathlib.Path | None, seeds: range) -> Ended:
    command = [str(HERE / "odd_programs.py"), str(directory or "-"), *map(str, seeds)]
    done = run_python(command, environment=child_environment(), timeout=280)
    lines = done.stdout.splitlines()
    answers = [json.loads(line[len(ANSWER) :]) for line in lines if line.startswith(ANSWER)]
    printed = [line for line in lines if not line.startswith(ANSWER)]
    return Ended(done.returncode, printed, {one["seed"]: one for one in answers}, done.stderr)


def threads(answer: Any) -> set[str]:
    """Names of the threads that destroyed something; TensorFlow's without their number."""
    return {re.sub(r"^Dummy-\d+$", "Dummy", name) for _, name in answer["destroyed"]}


def worst_share(directory: pathlib.Path, held: int) -> float:
    """The largest share of unattributed bytes of any recorded step, without `held` bytes."""
    snapshots = [one for run in tb_memplugin.load(directory).values() for one in run.snapshots]
    assert snapshots, "nothing was recorded"
    nobodys = [
        sum(row.bytes for row in one.ledger if row.category == "unattributed") for one in snapshots
    ]
    return max(
        (size - held) / one.in_use_bytes for one, size in zip(snapshots, nobodys, strict=True)
    )


def differences(directory: pathlib.Path, seeds: range) -> list[str]:
    """What the recorder changed in programs, and what it did not see; empty if all is well."""
    plain, recorded = ran(None, seeds), ran(directory, seeds)
    assert plain.answers.keys() == set(seeds) and plain.code in (0, 3), (
        f"{seeds}: {plain.code}\n{plain.errors[-3000:]}"
    )
    found = []
    if recorded.code != plain.code:
        reached = [seed for seed in seeds if seed not in recorded.answers][:1]
        found.append(
            f"{reached or seeds}: exit code {recorded.code}, not "
            f"{plain.code}\n{recorded.errors[-3000:]}"
        )
    elif recorded.printed != plain.printed:
        told = [line for line in recorded.printed if line not in plain.printed]
        found.append(f"{seeds}: printed {told[:3]} besides")
    for seed, answer in recorded.answers.items():
        before, program = plain.answers[seed], answer["program"]
        if answer["losses"] != before["losses"]:
            found.append(f"{program}: other losses")
        if not threads(answer) <= threads(before) | PROGRAMS_OWN:
            found.append(f"{program}: destroyed on {threads(answer)}")
        in_order = list if answer["repeats"] else sorted
        labels, as_before = (
            in_order(label for label, _ in one["destroyed"]) for one in (answer, before)
        )
        if labels != as_before or (
            answer["repeats"] and answer["destroyed"] != before["destroyed"]
        ):
            found.append(f"{program}: destroyed {labels}, not {as_before}")
        share = worst_share(directory / str(seed), answer["held"])
        if share > MOST_UNATTRIBUTED:
            found.append(f"{program}: {share:.1%} unattributed")
    return found


def of_all(directory: pathlib.Path, first: int, count: int) -> list[str]:
    groups = [
        range(at, min(at + PER_PROCESS, first + count))
        for at in range(first, first + count, PER_PROCESS)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [
            one
            for found in pool.map(lambda seeds: differences(directory, seeds), groups)
            for one in found
        ]


def test_odd_programs_have_the_same_losses_and_end_by_no_signal(tmp_path: pathlib.Path) -> None:
    # Threads of destructors, printed lines and shares are compared by the long test beside it only.
    found = of_all(tmp_path, 1, QUICK)
    assert not [one for one in found if "other losses" in one or "exit code -" in one], "\n".join(
        found
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundreds_of_odd_programs_run_as_without_the_recorder_and_have_owners(
    tmp_path: pathlib.Path,
) -> None:
    found = of_all(tmp_path, FIRST, DRAWN)
    assert not found, "\n".join(found)


def crashed(directory: pathlib.Path, times: int) -> list[str]:
    """Runs of the programs that end otherwise than without the recorder."""

    def run(name: str, number: int | None) -> tuple[int, str, str]:
        program = [str(ROOT / "tests" / "programs" / "reported" / f"{name}.py"), CRASHED[name]]
        place = directory / f"{name} {number}"
        place.mkdir()
        command = [
            sys.executable,
            *(["-m", "tb_memplugin", "run"] if number is not None else []),
            *program,
        ]
        done = subprocess.run(
            command, cwd=place, env=child_environment(), capture_output=True, text=True, timeout=280
        )
        return done.returncode, done.stdout, done.stderr

    jobs = [(name, number) for number in (None, *range(times)) for name in CRASHED]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda job: (job[0], run(*job)), jobs))
    plain = dict(ends[: len(CRASHED)])
    assert all(code == 0 and "ended with" in out for code, out, _ in plain.values()), plain
    return [f"{name}: {end}" for name, end in ends if end[:2] != plain[name][:2]]


def test_trainings_that_crashed_end_as_without_the_recorder(tmp_path: pathlib.Path) -> None:
    assert not crashed(tmp_path, 1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_trainings_that_crashed_end_as_without_the_recorder_two_hundred_times(
    tmp_path: pathlib.Path,
) -> None:
    assert not crashed(tmp_path, 200)
