"""Two runs and two steps side by side, a layer's own page, downloads, and the keys; figures are
those of `inspect`."""

import json
import pathlib
from urllib.parse import urlencode
from xml.etree import ElementTree

import harness
import pytest
import sample_runs
from page_views import mostly_long, run_of
from playwright.sync_api import FrameLocator, Page

COLLISIONS = """
(labels) => {
  const boxes = labels.map((label) => [label.textContent, label.getBoundingClientRect()]);
  const found = [];
  for (const [one, a] of boxes)
    for (const [two, b] of boxes)
      if (
        a !== b &&
        a.left < b.right - 1 &&
        b.left < a.right - 1 &&
        a.top < b.bottom - 3 &&
        b.top < a.bottom - 3
      )
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
    place = {
        "view": "compare",
        "run": "frozen",
        "step": 163,
        "other": sample_runs.HOSTILE_RUN,
        "other_step": 9,
    }
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


def download(page: Page, frame: FrameLocator, kind: str) -> pathlib.Path:
    frame.locator(".downloads summary").click()
    with page.expect_download() as waiting:
        frame.get_by_role("button", name=kind, exact=True).click()
    return pathlib.Path(waiting.value.path())


PICTURES = {
    "layers": {"SVG"},
    **{view: {"PNG"} for view in ("overview", "frozen", "fragmentation", "layer", "activations")},
    **{view: {"PNG", "SVG"} for view in ("step", "oom", "what-if", "compare")},
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


# Not `reads`: after about thirty downloads Chromium refuses a document those that no click started
# itself.
@pytest.mark.parametrize("view", mostly_long(PICTURES, ("overview", "compare", "step", "oom")))
def test_every_view_can_be_saved(page: Page, address: str, view: str) -> None:
    other = {"other": "all_trainable"} if view == "compare" else {}
    place = {
        "view": view,
        "run": run_of(view, "died_capacity"),
        "layer": "vgg/block5_conv1",
        **other,
    }
    frame = harness.open_tab(page, address, urlencode(place))
    lines = download(page, frame, "CSV").read_text().splitlines()
    assert len(lines) > 5
    assert len(json.loads(download(page, frame, "JSON").read_text())) == len(lines) - 1
    no_pictures = {"CSV", "JSON", "CSV: changes", "JSON: changes", "Print all views"}
    no_pictures |= {"Copy link", "Copy report command"}
    offered = set(frame.locator(".downloads button").all_text_contents()) - no_pictures
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
