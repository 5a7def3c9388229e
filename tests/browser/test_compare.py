"""Two runs and two steps side by side, a layer's own page, downloads, and the keys; figures are those of `inspect`."""

import csv
import json
import pathlib
import re
from collections import defaultdict
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import harness
import pytest
import sample_runs
from playwright.sync_api import FrameLocator, Page, expect
from test_values import PERSISTENT, by_group


def snapshot_of(inspected: dict[str, Any], run: str, step: int) -> dict[str, Any]:
    found: dict[str, Any] = next(snapshot for snapshot in inspected[run]["snapshots"] if snapshot["step"] == step)
    return found


def by_layer(ledger: list[dict[str, Any]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for row in ledger:
        sums[row["layer"] or ""] += row["bytes"]
    return dict(sums)


@pytest.mark.reads
@pytest.mark.parametrize(("other", "other_step"), [("all_trainable", 60), ("frozen", 200), ("roomy", 60)])
def test_comparison(page: Page, each_reader: str, inspected: dict[str, Any], other: str, other_step: int) -> None:
    place = {"view": "compare", "run": "frozen", "step": 3, "other": other, "other_step": other_step}
    frame = harness.open_tab(page, each_reader, urlencode(place))
    one, two = snapshot_of(inspected, "frozen", 3), snapshot_of(inspected, other, other_step)
    rows = frame.locator("[data-testid='versus'] tr[data-figure]").evaluate_all(
        "rows => rows.map(row => [row.dataset.figure, +row.dataset.from, +row.dataset.to])"
    )
    shown = {name: (start, end) for name, start, end in rows}
    for side, snapshot in enumerate((one, two)):
        expected = by_group(snapshot["ledger"])
        assert {name: shown[name][side] for name in expected} == expected
        assert shown["peak_bytes"][side] == snapshot["in_use_bytes"]
    layers = frame.locator("[data-testid='deltas'] tr[data-layer]").evaluate_all(
        "rows => rows.map(row => [row.dataset.layer, +row.dataset.delta])"
    )
    before, after = by_layer(one["ledger"]), by_layer(two["ledger"])
    expected = {name: after.get(name, 0) - before.get(name, 0) for name in before | after}
    assert dict(layers) == {name: delta for name, delta in expected.items() if delta}
    difference = shown["peak_bytes"][1] - shown["peak_bytes"][0]
    expect(frame.get_by_test_id("difference")).to_contain_text("more than A" if difference > 0 else "less than A")


@pytest.mark.reads
def test_layers_that_only_one_run_has(page: Page, address: str) -> None:
    place = {"view": "compare", "run": "frozen", "other": sample_runs.HOSTILE_RUN}
    frame = harness.open_tab(page, address, urlencode(place))
    renamed = frame.locator("[data-testid='deltas'] tr[data-match='type and shape']")
    expect(renamed).to_have_attribute("data-layer", "block1_conv1")
    expect(renamed).to_contain_text(sample_runs.HOSTILE_LAYER)
    expect(frame.locator(".deltas")).to_contain_text("10 layers matched by path · 1 by type and shape")
    sizes = renamed.locator("td[data-bytes]").evaluate_all("cells => cells.map(cell => +cell.dataset.bytes)")
    assert len(sizes) == 2 and all(sizes)
    assert renamed.get_attribute("data-delta") == str(sizes[1] - sizes[0])
    assert frame.locator("[data-testid='deltas'] tr[data-match^='only in']").count() == 0


@pytest.mark.reads
def test_swap(page: Page, address: str) -> None:
    place = {"view": "compare", "run": "frozen", "step": 3, "other": "all_trainable", "other_step": 60}
    frame = harness.open_tab(page, address, urlencode(place))
    said = frame.get_by_test_id("difference").inner_text()
    frame.get_by_role("button", name="Swap A and B").click()
    expect(frame.get_by_label("Run A")).to_have_value("all_trainable")
    expect(frame.get_by_test_id("side-A")).to_have_attribute("data-step", "60")
    expect(frame.get_by_test_id("side-A")).to_have_text("step 60")
    assert "more than A" in said
    expect(frame.get_by_test_id("difference")).to_contain_text("less than A")


@pytest.mark.reads
def test_comparison_opens_from_a_change(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "frozen", "run": "frozen"}))
    change = frame.get_by_test_id("changes").locator("li").filter(has_text="Step 160")
    change.get_by_role("button", name="Compare before and after").click()
    # THEN the nearest traced steps are filled in, in the address as well, and their peaks are those of the sentence
    before = max(step for step in sample_runs.FROZEN.traced if step < 160)
    after = min(step for step in sample_runs.FROZEN.traced if step >= 160)
    peaks = {step: sample_runs.peak_at(sample_runs.FROZEN, step) for step in (before, after)}
    expect(frame.get_by_test_id("side-A")).to_have_attribute("data-step", str(before))
    expect(frame.get_by_test_id("side-B")).to_have_attribute("data-step", str(after))
    assert f"step={before}" in harness.place(page) and f"other_step={after}" in harness.place(page)
    row = frame.locator("[data-testid='versus'] tr[data-figure='peak_bytes']")
    expect(row).to_have_attribute("data-from", str(peaks[before]))
    expect(row).to_have_attribute("data-to", str(peaks[after]))
    said = "Equal weights, 18.0 MiB became trainable."
    expect(frame.get_by_test_id("difference")).to_contain_text(said)


COLLISIONS = """
labels => {
  const boxes = labels.map(label => [label.textContent, label.getBoundingClientRect()]);
  const found = [];
  for (const [one, a] of boxes) for (const [two, b] of boxes)
    if (a !== b && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
      found.push([one, two]);
  return found;
}
"""


OUTSIDE = """
labels => labels.filter(label => {
  const [a, b] = [label.getBoundingClientRect(), label.ownerSVGElement.getBoundingClientRect()];
  return a.left < b.left - 1 || a.right > b.right + 1;
}).map(label => label.textContent)
"""


@pytest.mark.reads
def test_labels_of_the_waterfall_do_not_collide(page: Page, address: str) -> None:
    place = {"view": "compare", "run": "frozen", "step": 163, "other": sample_runs.HOSTILE_RUN, "other_step": 9}
    frame = harness.open_tab(page, address, urlencode(place))
    labels = frame.locator("[data-testid='waterfall'] text")
    for width in (900, 1180, 1440, 1920, 2560):
        harness.resize(page, frame, width, 1000)
        assert labels.count() > 10 and labels.evaluate_all(COLLISIONS) == [], width
        assert labels.evaluate_all(OUTSIDE) == [], width
        # THEN the run's name is whole, or whole in the tooltip
        assert f"B: {sample_runs.HOSTILE_RUN}" in (
            frame.locator("[data-testid='waterfall'] g").last.get_attribute("data-tip") or ""
        )


@pytest.mark.reads
def test_from_the_overview_to_a_layer_and_back(page: Page, address: str, inspected: dict[str, Any]) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 41}))
    assert frame.locator(".owners .leads").count() > 0  # they come with what the page waits for
    frame.locator(".owners .leads").first.click()
    expect(frame.locator(".layer-head h2")).to_be_visible()
    snapshot = snapshot_of(inspected, "frozen", 41)
    kept = by_layer([row for row in snapshot["ledger"] if row["layer"] and row["category"] in PERSISTENT])
    for row in snapshot["saved_for_backward"]:
        kept[row["layer"]] += row["bytes"]
    largest = max(kept, key=lambda path: kept[path])
    # THEN that is not the layer with the largest temporary
    held = by_layer([row for row in snapshot["ledger"] if row["layer"]])
    assert largest != max(held, key=lambda path: held[path])
    assert frame.locator(".layer-head h2").get_attribute("title") == largest
    frame.get_by_role("button", name="All layers").click()
    expect(frame.get_by_test_id("layers")).to_be_visible()
    assert "view=layers" in harness.place(page) and "step=41" in harness.place(page)


def download(page: Page, frame: FrameLocator, kind: str) -> pathlib.Path:
    frame.locator(".downloads summary").click()
    with page.expect_download() as waiting:
        frame.get_by_role("button", name=kind, exact=True).click()
    return pathlib.Path(waiting.value.path())


@pytest.mark.reads
def test_downloads(page: Page, address: str, inspected: dict[str, Any]) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    rows = list(csv.DictReader(download(page, frame, "CSV").read_text().splitlines()))
    assert len(rows) == 240
    assert int(rows[188]["peak_bytes"]) == sample_runs.peak_at(sample_runs.FROZEN, 188)
    assert download(page, frame, "PNG").read_bytes().startswith(b"\x89PNG")
    frame.get_by_role("button", name="Layers", exact=True).click()
    harness.idle(frame)
    layers = json.loads(download(page, frame, "JSON").read_text())
    step = frame.get_by_test_id("layers-step").get_attribute("data-step")
    expected = by_layer(snapshot_of(inspected, "frozen", int(step or -1))["ledger"])
    assert {layer["layer"] or "": layer["total_bytes"] for layer in layers} == expected
    outputs = {layer["path"]: layer["output_bytes"] for layer in inspected["frozen"]["layers"]}
    assert {layer["layer"]: layer["output_bytes"] for layer in layers} == {**outputs, None: None}
    rows = list(csv.DictReader(download(page, frame, "CSV").read_text(encoding="utf-8-sig").splitlines()))
    assert {row["layer"]: row["output_bytes"] for row in rows if row["layer"]} == {
        path: str(size) for path, size in outputs.items()
    }
    frame.get_by_role("button", name="Compare", exact=True).click()
    harness.idle(frame)
    assert "<svg" in download(page, frame, "SVG").read_text()


PICTURES = {
    "overview": {"PNG"},
    "layers": {"SVG"},
    "frozen": {"PNG"},
    "step": {"PNG", "SVG"},
    "fragmentation": {"PNG"},
    "oom": {"PNG", "SVG"},
    "what-if": {"PNG", "SVG"},
    "compare": {"PNG", "SVG"},
    "layer": {"PNG"},
    "activations": {"PNG"},
}


def outside(page: Page, drawing: str) -> list[str]:
    """Bars and texts of a saved drawing that its edges cut off."""
    viewer = page.context.new_page()
    viewer.set_content(drawing)
    found: list[str] = viewer.evaluate(
        """() => { const all = document.querySelector("svg").getBoundingClientRect();
            const shown = [...document.querySelectorAll("svg > rect, svg text, svg g rect")]
                .filter(one => !one.closest("defs, pattern, clipPath"));
            return shown.filter(one => { const box = one.getBoundingClientRect();
                return box.left < all.left - 1 || box.right > all.right + 1
                    || box.top < all.top - 1 || box.bottom > all.bottom + 1; })
                .map(one => one.textContent || one.outerHTML.slice(0, 80)); }"""
    )
    viewer.close()
    return found


# Not `reads`: after about thirty downloads Chromium refuses a document those that no click started itself.
@pytest.mark.parametrize(
    "view",
    [
        view if view in ("overview", "compare", "step", "oom") else pytest.param(view, marks=pytest.mark.long)
        for view in PICTURES
    ],
)
def test_every_view_can_be_saved(page: Page, address: str, view: str) -> None:
    run = {"oom": "died_capacity", "activations": "activations_only", "what-if": "requests"}.get(view, "frozen")
    other = {"other": "all_trainable"} if view == "compare" else {}
    place = urlencode({"view": view, "run": run, "layer": "vgg/block5_conv1", **other})
    frame = harness.open_tab(page, address, place)
    lines = download(page, frame, "CSV").read_text().splitlines()
    assert len(lines) > 5
    assert len(json.loads(download(page, frame, "JSON").read_text())) == len(lines) - 1
    offered = set(frame.locator(".downloads button").all_text_contents()) - {"CSV", "JSON"}
    assert offered == PICTURES[view]
    for kind in offered:
        saved = download(page, frame, kind).read_bytes()
        if kind == "PNG":
            assert saved.startswith(b"\x89PNG") and len(saved) > 5000
        else:
            drawing = ElementTree.fromstring(saved)
            assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
            assert len(list(drawing.iter("{http://www.w3.org/2000/svg}rect"))) > 5
            assert outside(page, saved.decode()) == []


@pytest.mark.reads
def test_a_saved_drawing_says_what_the_view_says(page: Page, address: str, inspected: dict[str, Any]) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "frozen", "step": 163}))
    told = ElementTree.fromstring(download(page, frame, "SVG").read_bytes()).itertext()
    shown = " ".join(told)
    for path in by_layer(snapshot_of(inspected, "frozen", 163)["ledger"]):
        assert (path or "not tied to a layer") in shown
    # A post-mortem that has no map has this picture.
    frame = harness.open_tab(page, address, urlencode({"view": "oom", "run": "died_without_map"}))
    assert set(frame.locator(".downloads button").all_text_contents()) == {"CSV", "JSON", "SVG"}
    told = ElementTree.fromstring(download(page, frame, "SVG").read_bytes()).itertext()
    assert "requested" in told


@pytest.mark.reads
def test_frozen_weights_have_their_pattern_in_the_waterfall(page: Page, address: str) -> None:
    place = {"view": "compare", "run": "frozen", "step": 3, "other": "all_trainable", "other_step": 60}
    frame = harness.open_tab(page, address, urlencode(place))
    fills = dict(
        frame.locator("[data-testid='waterfall'] g[data-tip]").evaluate_all(
            "bars => bars.map(bar => [[...bar.querySelectorAll('text')].slice(1).map(t => t.textContent).join(' '),"
            " bar.querySelector('rect').getAttribute('fill')])"
        )
    )
    assert fills["weights, frozen"].startswith("url(#fill-diagonal-")
    assert frame.locator(f"[id='{fills['weights, frozen'][5:-1]}']").count() == 1
    assert fills["weights, trainable"].startswith("#")


def test_keys(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    frame.get_by_role("slider").focus()
    page.keyboard.press("?")
    dialog = frame.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("/")
    expect(frame.get_by_label("Filter runs by regular expression")).to_be_focused()
    page.keyboard.type("2")
    expect(frame.get_by_label("Filter runs by regular expression")).to_have_value("2")
    frame.get_by_label("Filter runs by regular expression").fill("")
    frame.get_by_role("slider").focus()
    page.keyboard.press("w")
    harness.idle(frame)
    assert "zoom=" in harness.place(page)
    page.keyboard.press("0")
    page.keyboard.press("2")
    expect(frame.get_by_role("button", name="Layers", exact=True)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("/")
    expect(frame.get_by_label("Search layers by regular expression")).to_be_focused()


@pytest.mark.parametrize(
    ("digit", "answer", "label"),
    [
        ("2", "layers", "Search layers by regular expression"),
        ("4", "timeline", "Search live allocations by regular expression"),
    ],
)
def test_search_waits_for_its_view(page: Page, address: str, digit: str, answer: str, label: str) -> None:
    held = harness.Held(page, re.compile(rf"/tb_memplugin/{answer}\?"))
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 3}))
    frame.get_by_role("slider").focus()
    held.hold()
    with page.expect_request(re.compile(rf"/tb_memplugin/{answer}\?")):
        page.keyboard.press(digit)
    page.keyboard.press("/")
    expect(frame.get_by_label("Filter runs by regular expression")).not_to_be_focused()
    expect(frame.get_by_label(label)).to_have_count(0)
    held.let_through()
    expect(frame.get_by_label(label)).to_be_focused()
