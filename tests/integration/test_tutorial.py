"""The tutorials, typed as they stand: each command in a fresh process, with nothing set
beforehand."""

import pathlib
import re
import subprocess

import pytest
from page_runner import shape
from prepared_python import shell_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page: str, kind: str) -> list[str]:
    """The code blocks of one kind, in the page's order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    """The lines to type, but for the one that serves until it is stopped."""
    return [
        line
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if not line.startswith("tensorboard")
    ]


def typed(command: str, directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of the page in a shell."""
    environment = shell_environment(ROOT)
    return subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_does_what_it_says(tmp_path: pathlib.Path) -> None:
    page = "tutorial.md"
    script, question = blocks(page, "python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    commands, shown = commands_of(page), blocks(page, "text")
    # 1. The training fails.
    done = typed(commands[0], tmp_path)
    assert done.returncode != 0 and "OOM when allocating tensor with shape[" in done.stderr
    # 2. The run names what held the memory.
    done = typed(commands[1], tmp_path)
    assert set(shape(shown[0])) <= set(shape(done.stdout)), done.stdout
    assert re.search(
        "Not enough free memory: |Free memory is in pieces: ", " ".join(done.stdout.split())
    )
    # 3. A small recording answers for the large batch: as the real training, it does not fit.
    assert typed(commands[2], tmp_path).returncode == 0
    done = typed(commands[3], tmp_path)
    assert set(shape(shown[1])) <= set(shape(done.stdout)), done.stdout
    (tmp_path / "question.py").write_text(question, encoding="utf-8")
    fits, largest = typed("python question.py", tmp_path).stdout.split()
    assert fits == "False" and f"largest batch size: {largest}\n" in done.stdout
    # 4. The largest batch size that was named fits, or the next smaller multiple of 16 as on the
    #    page.
    batch = int(largest) // 16 * 16
    assert 32 <= batch < 96
    assert typed(f"python train.py {batch}", tmp_path).returncode == 0
    done = typed(f"tb-memplugin inspect runs --run batch_{batch}", tmp_path)
    assert set(shape(shown[3])) <= set(shape(done.stdout)), done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_on_fitting_trains_the_same_within_the_budget(tmp_path: pathlib.Path) -> None:
    page = "fitting_tutorial.md"
    (script,) = blocks(page, "python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    commands, shown = commands_of(page), blocks(page, "text")
    plain, plan, recomputed, inspected = (typed(command, tmp_path) for command in commands)
    for done, text in zip((plain, plan, recomputed, inspected), shown, strict=True):
        assert done.returncode == 0, done.stderr[-3000:]
        assert set(shape(text)) <= set(shape(done.stdout)), done.stdout
    # The same losses, and a peak within the budget that needs it.
    assert plain.stdout == recomputed.stdout
    budget = 100.0
    before, after = (
        float(re.search(rf"{words} +([0-9.]+) MiB", done.stdout)[1])  # type: ignore[index]
        for words, done in (("unchanged peak", plan), (r"Fits\?", inspected))
    )
    assert after <= budget < before
