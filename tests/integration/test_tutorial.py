"""The tutorial, typed as it stands: each command in a fresh process, with nothing set beforehand."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from page_runner import shape
from prepared_python import bare_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """The code blocks of one kind, in the page's order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def typed(command: str, directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of the page in a shell."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = bare_environment(PATH=path, PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")
    return subprocess.run(
        command, shell=True, cwd=directory, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_does_what_it_says(tmp_path: pathlib.Path) -> None:
    script, question = blocks("python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    commands = [line for block in blocks("sh") for line in block.splitlines() if not line.startswith("tensorboard")]
    shown = blocks("text")
    # 1. The training fails.
    done = typed(commands[0], tmp_path)
    assert done.returncode != 0 and "OOM when allocating tensor with shape[" in done.stderr
    # 2. The run names what held the memory.
    done = typed(commands[1], tmp_path)
    assert set(shape(shown[0])) <= set(shape(done.stdout)), done.stdout
    assert re.search("verdict: (capacity|fragmentation)", done.stdout)
    # 3. A small recording answers for the large batch: as the real training, it does not fit.
    assert typed(commands[2], tmp_path).returncode == 0
    done = typed(commands[3], tmp_path)
    assert set(shape(shown[1])) <= set(shape(done.stdout)), done.stdout
    (tmp_path / "question.py").write_text(question, encoding="utf-8")
    fits, largest = typed("python question.py", tmp_path).stdout.split()
    assert fits == "False" and f"largest batch size that fits: {largest}\n" in done.stdout
    # 4. The largest batch size that was named fits, or the next smaller multiple of 16 as on the page.
    batch = int(largest) // 16 * 16
    assert 32 <= batch < 96
    assert typed(f"python train.py {batch}", tmp_path).returncode == 0
    done = typed(f"tb-memplugin inspect runs --run batch_{batch}", tmp_path)
    assert set(shape(shown[3])) <= set(shape(done.stdout)), done.stdout
