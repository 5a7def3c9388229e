"""What people open the tab for, from a cold start on a directory of runs, with the clicks
counted."""

import pathlib
import re
import shutil

import harness
import numpy as np
import pytest
import task_runs
from first_screen import text_of
from logdirs import address_of_logdir, made_once
from playwright.sync_api import FrameLocator, Page, expect
from reading_cases import MIB
from requests_cases import program_fits

import tb_memplugin
from tb_memplugin.schema import format_bytes

pytest.importorskip("playwright")

RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "runs" / "out_of_memory"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "task-runs", task_runs.write_all)


address = address_of_logdir("module")


def opened(page: Page, address: str) -> FrameLocator:
    """The page as somebody opens it who knows nothing of the runs."""
    return harness.open_tab(page, address)


def test_why_it_failed_and_what_to_do(page: Page, address: str) -> None:
    """Without a click."""
    failed = task_runs.failure()
    assert failed.layer is not None and failed.op is not None
    frame = opened(page, address)
    diagnosis = text_of(frame, "[data-testid='diagnosis']")
    for part in (
        f"Step {task_runs.FAILED_STEP}",
        "ran out of memory",
        failed.layer,
        failed.op.rsplit("/", 1)[-1],
    ):
        assert part in diagnosis
    assert "train.py:42" in diagnosis and "Not enough free memory" in diagnosis
    requested, largest = (
        format_bytes(failed.requested_bytes),
        format_bytes(failed.largest_free_bytes),
    )
    assert f"{requested} requested" in text_of(frame, "[data-answer='fits']")
    assert f"largest {largest}" in text_of(frame, "[data-answer='fragmented']")
    # What to do: a batch size with which the program itself runs, and not far from the first with
    # which it does not.
    advised = re.search(r"Batch size (\d+)", diagnosis)
    assert advised is not None
    batch = int(advised.group(1))
    assert program_fits(batch, task_runs.CAPACITY) and not program_fits(
        round(1.12 * batch), task_runs.CAPACITY
    )
    # And what was different in that step.
    assert "Step 20: batch 4 → 48, +" in text_of(frame, "[data-answer='changed']")


def test_what_unfreezing_cost_and_what_stays_of_the_earlier_optimizer(
    page: Page, address: str
) -> None:
    """One click, on the run."""
    frame = opened(page, address)
    frame.get_by_role("button", name="unfrozen").first.click()
    harness.idle(frame)
    before, after = (task_runs.unfrozen_snapshot(step).in_use_bytes for step in (25, 33))
    cost = format_bytes(after - before)
    assert f"Step 30: unfroze backbone, +{cost}" in text_of(frame, "[data-answer='changed']")
    # Its tooltip names the 56 MiB, as does the comparison that it opens, with what frees them.
    tip = frame.locator("[data-answer='changed']").get_attribute("data-tip") or ""
    assert "(and 56.0 of the earlier optimizer stayed)" in tip and "take 56.0 MiB in all" in tip
    frame.locator("[data-answer='changed']").click()
    harness.idle(frame)
    causes = text_of(frame, "[data-testid='causes']")
    assert (
        "Mainly optimizer state +57.0 (and 56.0 of the earlier optimizer stayed), activations "
        "+131 MiB."
    ) in causes
    assert "tb_memplugin.release_unused()" in causes
    # AND the table and the waterfall have the same two parts
    for table in ("versus", "waterfall"):
        for part, grown in (("current", 57), ("earlier", 56)):
            row = frame.get_by_test_id(table).locator(f"[data-figure='optimizer_state:{part}']")
            size = row.evaluate(
                "one => Number(one.dataset.bytes ?? one.dataset.to - one.dataset.from)"
            )
            assert size == grown << 20, (table, part)
            # The waterfall has the change in writing, the table beside it what it is between.
            assert table == "versus" or f"+{grown}.0 MiB" in (row.text_content() or "")
    difference = frame.get_by_test_id("difference").inner_text().replace("\u00a0", " ")
    assert f"B needs {cost} more than A" in difference


def test_another_batch_size_on_another_card(page: Page, address: str) -> None:
    """One click and typing."""
    frame = opened(page, address)
    frame.get_by_role("button", name="What if", exact=True).click()
    harness.idle(frame)
    # It begins with what failed, says why, and what would be enough.
    verdict = frame.get_by_test_id("verdict")
    expect(verdict).to_have_attribute("data-verdict", "fails")
    expect(frame.get_by_label("batch size", exact=True)).to_have_attribute(
        "placeholder", "48, as failed"
    )
    reason = frame.locator("[data-testid='verdict'] + p").inner_text().replace("\u00a0", " ")
    enough = re.search(r"At (\d+) MiB it fits", reason)
    assert enough is not None, reason
    size = int(enough.group(1)) * MIB
    assert program_fits(task_runs.FAILED_BATCH, size) and not program_fits(
        task_runs.FAILED_BATCH, round(0.8 * size)
    )
    for label, typed in (("batch size", "64"), ("capacity", "8GiB")):
        field = frame.get_by_label(label, exact=True)
        field.fill(typed)
        field.press("Enter")
        harness.idle(frame)
    expect(verdict).to_have_attribute("data-verdict", "fits")
    expect(verdict).to_contain_text(re.compile(r"^Fits: \d+\sMiB of 8\.0\sGiB$"))
    assert program_fits(64, 8 << 30)


def test_the_largest_tensor_at_the_peak(page: Page, tmp_path: pathlib.Path) -> None:
    """One click, on a recorded run that ran out of memory: the first row below the picture."""
    shutil.copytree(RECORDED, tmp_path / "out_of_memory")
    run = tb_memplugin.load(tmp_path)["out_of_memory"]
    (failed,) = run.ooms
    (timeline,) = (one for one in run.timelines if one.step == failed.step)
    live = np.flatnonzero((timeline.start <= timeline.peak) & (timeline.end > timeline.peak))
    largest = live[np.argmax(timeline.bytes[live])]
    owner = timeline.owners[timeline.owner[largest]]
    assert owner.layer is not None
    with harness.viewer(str(tmp_path)) as address:
        frame = opened(page, address)
        frame.get_by_role("button", name="Step", exact=True).click()
        harness.idle(frame)
        first = frame.get_by_test_id("live").locator("tr[data-tensor]").first
        requested = int(timeline.bytes[largest] - max(timeline.rounding_bytes[largest], 0))
        assert int(first.get_attribute("data-bytes") or 0) == requested
        text = first.inner_text()
        for part in (
            owner.layer.rsplit("/", 1)[-1],
            owner.category.replace("_", " "),
            timeline.ops[timeline.op[largest]].rsplit("/", 1)[-1],
        ):
            assert part in text
        page.goto("about:blank")
