"""The tab on the directory that `make demo` trains: what people open it for, from a cold start with the clicks counted,
and how much each view says at once. The trainings take about three minutes."""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlencode

import harness
import pytest
from first_screen import text_of, words_above_the_fold
from page_views import VIEWS
from playwright.sync_api import FrameLocator, Page

import tb_memplugin

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
DEMO = ("out_of_memory", "leak", "frozen_backbone")
RUNS = ("all_trainable", "frozen", "leak", "out_of_memory")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("demo") / "runs"

    def train(script: str) -> None:
        command = [sys.executable, str(ROOT / "demo" / f"{script}.py"), "--logdir", str(directory)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(train, DEMO))
    assert sorted(one.name for one in directory.iterdir()) == list(RUNS)
    return directory


@pytest.fixture(scope="module")
def address(demo: pathlib.Path, watched: tuple[Page, object]) -> Iterator[str]:
    with harness.viewer(str(demo)) as address:
        yield address
        watched[0].goto("about:blank")


def line_of(script: str, code: str) -> str:
    """The only line of a demo with this code, as the tab names it."""
    lines = (ROOT / "demo" / script).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if code in line)
    return f"demo/{script}:{number}"


def open_run(frame: FrameLocator, run: str) -> None:
    frame.get_by_role("button", name=re.compile(f"^{run} ")).click()
    harness.idle(frame)


def test_the_line_that_leaks(page: Page, address: str, demo: pathlib.Path) -> None:
    """One click, on the run."""
    frame = harness.open_tab(page, address)
    open_run(frame, "leak")
    diagnosis = text_of(frame, "[data-testid='diagnosis']")
    assert line_of("leak.py", "logits, features = model(images") in diagnosis
    assert "kept alive by list history" in diagnosis and "memory runs out by step" in diagnosis
    growing = re.search(r"\+([\d.]+)\sMiB/step since step (\d+)", text_of(frame, "[data-answer='growing']"))
    assert growing is not None
    # Each step keeps the features of 2 MiB; chunks that are a little larger add to what the allocator counts.
    in_use = tb_memplugin.load(demo)["leak"].samples.devices["CPU:0"].in_use_bytes[int(growing[2]) :] / MIB
    assert 2.0 <= float(growing[1]) <= round((in_use[-1] - in_use[0]) / (len(in_use) - 1), 1) < 2.2


@pytest.mark.parametrize("run", RUNS)
def test_no_view_says_more_than_150_words_and_values_at_once(page: Page, address: str, run: str) -> None:
    counts = {}
    for view in (None, *VIEWS, "layer", "compare", "fit"):
        place = {"run": run, **({} if view is None else {"view": view})}
        if view == "compare":
            place["other"] = next(name for name in RUNS if name != run)
        counts[view or "the page as it opens"] = len(
            words_above_the_fold(harness.open_tab(page, address, urlencode(place)))
        )
    print(run, counts)
    assert max(counts.values()) <= 150, counts
