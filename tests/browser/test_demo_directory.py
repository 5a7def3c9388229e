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
import numpy as np
import pytest
from first_screen import text_of, words_above_the_fold
from page_views import VIEWS
from playwright.sync_api import FrameLocator, Page, expect

import tb_memplugin
from tb_memplugin.model.units import format_bytes

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


def click(frame: FrameLocator, name: str) -> None:
    frame.get_by_role("button", name=name, exact=True).first.click()
    harness.idle(frame)


def test_why_it_failed_and_what_to_do(page: Page, address: str, demo: pathlib.Path) -> None:
    """Without a click."""
    frame = harness.open_tab(page, address)
    diagnosis = text_of(frame, "[data-testid='diagnosis']")
    assert line_of("out_of_memory.py", 'name=f"block{block}_attention"') in diagnosis
    assert "ran out of memory" in diagnosis and "Not enough free memory" in diagnosis
    assert re.search(r"fits\s+Batch size \d+", diagnosis)
    (failed,) = tb_memplugin.load(demo)["out_of_memory"].ooms
    assert failed.layer is not None and failed.layer in diagnosis
    assert f"{format_bytes(failed.requested_bytes)} requested" in text_of(frame, "[data-answer='fits']")
    assert "batch 4 → 96, +" in text_of(frame, "[data-answer='changed']")


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


def test_what_unfreezing_cost_and_what_the_earlier_optimizers_hold(
    page: Page, address: str, demo: pathlib.Path
) -> None:
    """One click, on the run."""
    frame = harness.open_tab(page, address)
    open_run(frame, "frozen")
    # Adam has two slots for each weight. The first optimizer trained the head, the second one block 5 as well.
    head = 4 * (512 * 256 + 256) + 4 * (256 * 8 + 8)
    block_5 = 3 * 4 * (9 * 512 * 512 + 512)
    # Which steps are traced, and with them the difference of their peaks, depends on how fast the steps are.
    peaks = {one.step: one.in_use_bytes for one in tb_memplugin.load(demo)["frozen"].snapshots if one.phase == "train"}
    cost = peaks[min(step for step in peaks if step >= 72)] - peaks[max(step for step in peaks if step < 72)]
    sentence = f"Step 72: unfroze 8 layers, +{format_bytes(cost)}"
    assert cost > 2 * block_5 and text_of(frame, "[data-answer='changed']").endswith(sentence)
    tip = (frame.locator("[data-answer='changed']").get_attribute("data-tip") or "").replace("\u00a0", " ")
    assert f"slots of the earlier optimizer stay, +{format_bytes(2 * (head + block_5))}" in tip
    assert f"take {format_bytes(2 * head + 2 * (head + block_5))} in all" in tip
    assert "tb_memplugin.release_unused()" in tip


def test_the_largest_tensor_at_the_peak(page: Page, address: str, demo: pathlib.Path) -> None:
    """One click, on Step."""
    frame = harness.open_tab(page, address)
    click(frame, "Step")
    shown = frame.get_by_test_id("live").locator("tr[data-tensor]").first
    run = tb_memplugin.load(demo)["out_of_memory"]
    step = int(frame.get_by_test_id("moment").get_attribute("data-step") or -1)
    (timeline,) = (one for one in run.timelines if one.step == step)
    live = (timeline.start <= timeline.peak) & (timeline.end > timeline.peak)
    requested = timeline.bytes - np.maximum(timeline.rounding_bytes, 0)
    assert int(shown.get_attribute("data-bytes") or 0) == requested[live].max()


def test_whether_batch_64_fits_8_gib(page: Page, address: str) -> None:
    """One click and typing."""
    frame = harness.open_tab(page, address)
    click(frame, "What if / Fit")
    verdict = frame.get_by_test_id("verdict")
    expect(verdict).to_have_attribute("data-verdict", "fails")
    for label, typed in (("batch size", "64"), ("capacity", "8GiB")):
        field = frame.get_by_label(label, exact=True)
        field.fill(typed)
        field.press("Enter")
        harness.idle(frame)
    expect(verdict).to_have_attribute("data-verdict", "fits")
    expect(verdict).to_contain_text(re.compile(r"^Fits: \d+\sMiB of 8\.0\sGiB$"))


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
