"""axe-core finds no serious fault in any view, light and dark."""

import pathlib
from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import Page

AXE = pathlib.Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical")
        .map(({ id, nodes }) => [id, ...nodes.slice(0, 4).map((node) => `${node.target} ${node.failureSummary}`)]);
}"""
PLACES = {
    "overview": {},
    "growing": {"view": "overview", "run": "growing"},
    "layers": {},
    "layer": {"layer": "vgg/block5_conv1"},
    "selected category": {"view": "layers", "category": "weights"},
    "frozen": {},
    "step": {"step": 3, "layer": "vgg/block5_conv1", "moment": 4},
    "compiled step": {"view": "step", "run": "all_trainable", "stack": "layer", "timeline": "event index"},
    "no timeline": {"view": "step", "run": "roomy"},
    "fragmentation": {"step": 3},
    "devices": {},
    "oom": {"run": "died_fragmentation"},
    "no failure": {"view": "oom"},
    "what-if": {"run": "requests", "batch_size": 64},
    "no requests": {"view": "what-if"},
    "compare": {"other": "all_trainable"},
    "activations": {"run": "activations_only"},
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PLACES)
def test_no_serious_fault(page: Page, address: str, name: str, dark: bool) -> None:
    place = urlencode({"view": name, "run": "frozen", **PLACES[name]})
    harness.open_tab(page, address, place, dark)
    inside = next(frame for frame in page.frames if "plugin_entry.html" in frame.url)
    inside.evaluate(AXE.read_text(encoding="utf-8"))
    assert inside.evaluate(CHECK) == []
