"""What if on a recorded training that ran out of memory: the verdict first, and nothing moves or is
cut."""

import pathlib
import re
import shutil
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import Page, expect

import tb_memplugin

RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "runs" / "out_of_memory"
RUN = "out_of_memory"
TEXTS_THAT_OVERLAP = """(svg) => {
      const boxes = [...svg.querySelectorAll("text")].map((one) => [
        one.textContent,
        one.getBoundingClientRect(),
      ]);
      // Two lines of text may touch.
      const meet = (a, b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3;
      return boxes.flatMap(([text, box], at) =>
        boxes
          .slice(at + 1)
          .filter(([, other]) => meet(box, other))
          .map(([other]) => `${text} / ${other}`),
      );
    }"""
OUTSIDE = """(host, width) =>
      [...host.querySelectorAll("th, td, text, button, input, select")]
        .filter(
          (one) =>
            getComputedStyle(one).visibility !== "hidden" &&
            one.getBoundingClientRect().right > width + 1,
        )
        .map((one) => one.textContent || one.name)"""


@pytest.fixture
def address(tmp_path: pathlib.Path) -> Iterator[str]:
    """Of a server that has computed nothing yet."""
    shutil.copytree(RECORDED, tmp_path / "runs" / RUN)
    with harness.viewer(str(tmp_path / "runs")) as address:
        yield address


def test_a_verdict_waits_neither_for_the_curve_nor_for_the_plan(page: Page, address: str) -> None:
    run = tb_memplugin.load(RECORDED.parent)[RUN]
    began = time.monotonic()
    alone = {size: tb_memplugin.what_if(run, batch_size=size).sentence for size in (None, 40)}
    bound = 1 + 3 * (time.monotonic() - began)  # seconds: what the library takes, here and now
    # GIVEN a server that does not answer with the curve
    held = harness.Held(page, re.compile(r".*/curve\?.*"))
    held.hold()
    frame = harness.open_tab(page, address, urlencode({"view": "overview", "run": RUN}))
    # WHEN the view is opened
    began = time.monotonic()
    frame.get_by_role("button", name="What if", exact=True).click()
    verdict = frame.get_by_test_id("verdict")
    expect(verdict).to_contain_text(first_sentence(alone[None]))
    first = time.monotonic() - began
    # THEN there is a verdict, and room for the curve; a verdict for another batch size does not
    # wait for it either
    waiting = frame.locator(".peak-curve")
    expect(waiting.get_by_role("status")).to_have_text("Simulating batch sizes …")
    before = waiting.bounding_box()
    began = time.monotonic()
    frame.locator("[name=batch_size]").fill("40")
    frame.locator("[name=batch_size]").press("Enter")
    expect(verdict).to_contain_text(first_sentence(alone[40]))
    second = time.monotonic() - began
    print(
        f"first verdict after {first:.2f} s, the next one after {second:.2f} s; bound {bound:.2f} s"
    )
    assert max(first, second) < bound
    held.let_through()
    expect(waiting.locator("canvas")).to_have_count(1)
    harness.idle(frame)
    after = waiting.bounding_box()
    assert before and after and abs(before["height"] - after["height"]) < 8


def first_sentence(text: str) -> str:
    return text.split(". ")[0]


@pytest.mark.parametrize("width", [1440, 390])
def test_texts_neither_overlap_nor_are_cut(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    frame = harness.open_tab(page, address, urlencode({"view": "what-if", "run": RUN}))
    harness.idle(frame)
    frame.get_by_text("Largest batch size for 8 to 80 GiB").click()
    expect(frame.get_by_text("Each size is simulated at its capacity")).to_be_visible()
    expect(frame.get_by_test_id("plan-options")).to_be_visible()
    harness.idle(frame)
    for picture in ("plan-dots", "peak-bars"):
        assert frame.get_by_test_id(picture).locator("svg").evaluate(TEXTS_THAT_OVERLAP) == [], (
            picture
        )
    assert frame.get_by_test_id("what-if").evaluate(OUTSIDE, width) == []
    scroll = frame.get_by_role("region", name="Table of simulated changes")
    assert scroll.evaluate("one => one.scrollWidth <= one.clientWidth")
    if width == 1440:  # The headlines have one line each.
        lines = (
            "all => all.map(one => Math.round(one.offsetHeight / "
            "parseFloat(getComputedStyle(one).lineHeight)))"
        )
        assert frame.locator(".verdict").evaluate_all(lines) == [1, 1]


def test_cards_have_the_batch_sizes_that_the_library_says(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "what-if", "run": RUN}))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    table = frame.get_by_test_id("batch-limits")
    expect(table).to_have_count(0)
    frame.get_by_text("Largest batch size for 8 to 80 GiB").click()
    row = table.locator("[data-card='8GiB']")
    expect(row).to_have_attribute("data-batch", re.compile(r"\d+"))
    expect(frame.get_by_text("Each size is simulated at its capacity")).to_be_visible()
    assert len([url for url in requests if "batch_limit" in url]) == 5
    sizes = [
        int(one or 0)
        for one in table.locator("tbody tr").evaluate_all(
            "all => all.map(one => one.dataset.batch)"
        )
    ]
    assert sizes == sorted(sizes) and sizes[0] > 0
    run = tb_memplugin.load(RECORDED.parent)[RUN]
    assert sizes[0] == tb_memplugin.what_if(run, capacity="8GiB").largest_batch_size
    # A click asks for the verdict there: it fits.
    row.get_by_role("button", name="8 GiB").click()
    expect(frame.get_by_test_id("verdict")).to_have_attribute("data-verdict", "fits")
    assert frame.locator("[name=batch_size]").input_value() == str(sizes[0])
    harness.idle(frame)
