"""Every figure states its meaning, source and step; a category is selected in every view."""

import re
from urllib.parse import urlencode

import harness
import pytest
from page_views import ALL_COLUMNS
from playwright.sync_api import Page

from tb_memplugin.schema import format_bytes

PLACES = {
    "overview": {"run": "frozen", "step": 41},
    "overview between traces": {"run": "frozen", "step": 50},
    "overview of several runs": {"run": "frozen", "with": "all_trainable"},
    "layers": {"view": "layers", "run": "frozen"},
    "layers in groups": {"view": "layers", "run": "frozen", "group": "type", **ALL_COLUMNS},
    "layer": {"view": "layer", "run": "frozen", "layer": "vgg/block5_conv1"},
    "frozen": {"view": "frozen", "run": "frozen"},
    "step": {"view": "step", "run": "frozen", "step": 3},
    "compiled step by layer": {
        "view": "step",
        "run": "all_trainable",
        "stack": "layer",
        "moment": 30,
    },
    "fragmentation": {"view": "fragmentation", "run": "frozen", "step": 3},
    "oom": {"view": "oom", "run": "died_fragmentation"},
    "compare": {"view": "compare", "run": "frozen", "other": "all_trainable"},
    "activations": {"view": "activations", "run": "activations_only"},
}
FIGURES = """body => [...body.querySelectorAll(
        "[data-bytes], [data-value], [data-from]:not([data-layer]), [data-delta] td.number")]
    .filter(figure => figure.offsetParent !== null && figure.textContent.trim() !== "")
    .map(figure => {
        const row = figure.closest("[data-tip]");
        return [figure.textContent, row?.dataset.tip ?? "", figure.dataset.bytes ?? ""];
    })"""
SOURCE = re.compile(
    r"allocator|trace|layer " r"table|driver|operating " r"system|training|owners|TensorFlow"
)


@pytest.mark.reads
@pytest.mark.parametrize("name", PLACES)
def test_every_figure_says_what_it_is_with_source_and_step(
    page: Page, address: str, name: str
) -> None:
    frame = harness.open_tab(page, address, urlencode(PLACES[name]))
    found = frame.locator("body").evaluate(FIGURES)
    assert len(found) > 5
    for shown, tip, size in found:
        lines = tip.split("\n")
        assert len(lines) >= 2 and len(lines[1]) > 5, (shown, tip)
        if size:
            assert format_bytes(int(size)) in tip, (shown, tip)
    if name == "compare":
        return
    # AND those of the panel state their source and step
    tips = frame.locator(".figures tr[data-tip], .layers td[data-tip]").evaluate_all(
        "e => e.map(e => e.dataset.tip)"
    )
    assert tips
    for tip in tips:
        assert SOURCE.search(tip), tip
        assert re.search(r"[Ss]tep \d+|at the failure|layer table", tip), tip
