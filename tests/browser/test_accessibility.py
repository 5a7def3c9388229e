"""axe-core finds no fault in any view, light and dark."""

import pathlib
from typing import Any, Literal
from urllib.parse import urlencode

import harness
import pytest
from page_views import ALL_COLUMNS
from playwright.sync_api import Page, expect

AXE = pathlib.Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """async (rules) => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"], ...rules });
      return violations.map(({ id, nodes }) => [
        id,
        ...nodes.slice(0, 4).map((node) => `${node.target} ${node.failureSummary}`),
      ]);
    }"""
SCHEMES: dict[Literal["light", "dark"], dict[str, Any]] = {
    "light": {},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}
"""All rules in light colours; in dark ones the two on colours, for nothing else of the document
differs."""
PLACES = {
    "overview": {},
    "growing": {"view": "overview", "run": "growing"},
    "layers": {},
    "all columns": {"view": "layers", **ALL_COLUMNS},
    "layer": {"layer": "vgg/block5_conv1"},
    "selected category": {"view": "layers", "category": "weights"},
    "frozen": {},
    "step": {"step": 3, "layer": "vgg/block5_conv1", "moment": 4},
    "compiled step": {
        "view": "step",
        "run": "all_trainable",
        "stack": "layer",
        "timeline": "event index",
    },
    "no timeline": {"view": "step", "run": "roomy"},
    "fragmentation": {"step": 3},
    "host": {},
    "devices": {},
    "oom": {"run": "died_fragmentation"},
    "no failure": {"view": "oom"},
    "what-if": {"run": "requests", "batch_size": 64},
    "no requests": {"view": "what-if"},
    "compare": {"other": "all_trainable"},
    "activations": {"run": "activations_only"},
}


@pytest.mark.reads
@pytest.mark.parametrize("name", PLACES)
def test_no_fault_light_or_dark(page: Page, address: str, name: str) -> None:
    place = urlencode({"view": name, "run": "frozen", **PLACES[name]})
    # The system chooses: the document is loaded once and changes its colours.
    frame = harness.open_tab(page, address, place, dark=None)
    if page.evaluate("() => typeof axe === 'undefined'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    for scheme, rules in SCHEMES.items():
        page.emulate_media(color_scheme=scheme)
        expect(page.locator(":root")).to_have_attribute("data-scheme", scheme)
        harness.settled(frame)
        assert page.evaluate(CHECK, rules) == [], scheme
