"""From the installation to the first breakdown on screen, by the README alone, with a stopwatch."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import harness
import pytest
from playwright.sync_api import Page, expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60


def blocks(kind: str) -> list[str]:
    """The README's blocks of one kind, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_first_breakdown_is_on_screen_within_a_minute(
    page: Page, tmp_path: pathlib.Path
) -> None:
    _, serve = blocks("sh")
    name, option, logdir = shlex.split(serve, comments=True)
    assert (name, option) == ("tensorboard", "--logdir")
    environment = {
        key: text
        for key, text in os.environ.items()
        if not key.startswith(("TF_", "TB_", "KERAS_"))
    }
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    began = time.monotonic()
    # GIVEN the README's program, run as it stands
    (program,) = blocks("python")
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )
    # WHEN TensorBoard is started as the README says, on a free port, and its tab Memory is opened
    with harness.tensorboard(str(tmp_path / logdir)) as address:
        frame = harness.open_tab(page, address)
        # THEN a breakdown with the layers' categories is seen, soon enough
        expect(frame.get_by_test_id("breakdown")).to_contain_text("optimizer state")
        seconds = time.monotonic() - began
    print(f"{seconds:.1f} s from the installation to the first breakdown")
    assert seconds < LIMIT_SECONDS
