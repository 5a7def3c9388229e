"""The four answers on the first screen, for every run."""

import re
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from playwright.sync_api import FrameLocator, Page, expect

RUNS = (
    "all_trainable",
    "frozen",
    "restarted",
    "growing",
    "many_chunks",
    "roomy",
    "requests",
    "activations_only",
)
DIED = ("died_fragmentation", "died_capacity", "died_without_map")
NAMES = ["fits", "growing", "fragmented", "changed"]
UNKNOWN = "No allocator data recorded"


def shown(frame: FrameLocator) -> list[dict[str, Any]]:
    """The tiles: name, status, figures and the sentence behind the question, with their boxes."""
    tiles: list[dict[str, Any]] = frame.locator("[data-testid='answers'] > button").evaluate_all(
        """tiles => tiles.map(tile => {
            const { top, bottom, left, right } = tile.getBoundingClientRect();
            const sentence = tile.querySelector(".tile-sentence");
            const question = tile.querySelector(".tile-question");
            return { name: tile.dataset.answer, status: tile.dataset.status,
                     figures: JSON.parse(tile.dataset.figures),
                sentence: sentence.textContent.slice(question.textContent.length + 1)
                    .replaceAll("\\u00a0", " "), top, bottom, left, right,
                lines: Math.round((sentence.clientHeight - (question.clientHeight || 0)) /
                    parseFloat(getComputedStyle(sentence).lineHeight)),
                cut: tile.scrollHeight > tile.clientHeight || tile.scrollWidth > tile.clientWidth,
                words: tile.querySelector(".tile-status").textContent };
        })"""
    )
    return tiles


def expected(inspected: dict[str, Any], run: str) -> list[dict[str, Any]]:
    """The answers of `inspect`; without a device all are unknown."""
    answers: list[list[dict[str, Any]]] = list(inspected[run]["answers"].values())
    return (
        answers[0]
        if answers
        else [{"name": name, "sentence": UNKNOWN, "status": "unknown"} for name in NAMES]
    )


@pytest.mark.reads
@pytest.mark.parametrize("run", [*RUNS, *DIED, sample_runs.HOSTILE_RUN])
def test_they_stand_on_the_first_screen(
    page: Page, address: str, inspected: dict[str, Any], run: str
) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": run}))
    tiles = shown(frame)
    assert [tile["name"] for tile in tiles] == NAMES
    for tile, answer in zip(tiles, expected(inspected, run), strict=True):
        assert (tile["sentence"], tile["status"]) == (answer["sentence"], answer["status"])
        assert tile["figures"] == answer.get("figures", {})
        assert tile["words"] == {"ok": "OK"}.get(tile["status"], tile["status"].capitalize())
        # TensorBoard's bar of 64 pixels lies above
        assert 0 < tile["bottom"] < 336 and not tile["cut"]
    # One row, above the view.
    assert len({tile["top"] for tile in tiles}) == 1
    below = frame.locator("[data-testid='answers'] + *").bounding_box()
    assert below and below["y"] >= max(tile["bottom"] for tile in tiles)


@pytest.mark.reads
@pytest.mark.parametrize("run", ["died_fragmentation", "frozen", "growing"])
def test_nothing_is_cut_at_any_width(page: Page, address: str, run: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": run}))
    for width in (390, 900, 1000, 1181, 1320, 1321, 1440, 1700, 1920, 2560):
        harness.resize(page, frame, width, 900)
        tiles = shown(frame)
        assert [tile["cut"] for tile in tiles] == [False] * 4, width
        assert len({tile["top"] for tile in tiles}) == (
            1 if width > 1320 else 2 if width > 600 else 4
        ), width
        if not 1320 < width <= 1500:
            assert len({round(tile["right"] - tile["left"], 1) for tile in tiles}) == 1, width
        assert len({tile["bottom"] - tile["top"] for tile in tiles}) == 1, width
        assert max(tile["right"] for tile in tiles) <= width


@pytest.mark.reads
@pytest.mark.parametrize("font", ["", "DejaVu Sans"])
@pytest.mark.parametrize(
    "run", ["frozen", "growing", "died_capacity", "all_trainable", "many_chunks"]
)
def test_each_is_one_line(page: Page, address: str, run: str, font: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": run}))
    frame.locator("body").evaluate("(body, font) => { body.style.fontFamily = font; }", font)
    harness.settled(frame)
    tiles = shown(frame)
    frame.locator("body").evaluate("body => { body.style.fontFamily = ''; }")
    assert [tile["lines"] for tile in tiles] == [1] * 4, [tile["sentence"] for tile in tiles]


def test_their_place_is_kept_while_they_load(page: Page, address: str) -> None:
    held = harness.Held(page, re.compile(r"/answers\?"))
    held.hold()
    page.goto(harness.tab_url(address, urlencode({"run": "frozen"})))
    frame: Any = page
    expect(frame.locator(".plot")).to_be_visible()
    chart = frame.locator(".chart").first
    before = chart.bounding_box()
    assert before and frame.locator("[data-testid='answers'] > .blank").count() == 4
    held.let_through()
    expect(frame.locator("[data-testid='answers'] > button")).to_have_count(4)
    harness.idle(frame)
    assert chart.bounding_box() == before
