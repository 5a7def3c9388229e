"""All devices and workers of a run side by side."""

import pathlib
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_devices
import sample_runs
from cluster_cases import Fault, name_of, write_cluster
from first_screen import cut_off
from logdirs import address_of_logdir
from playwright.sync_api import FrameLocator, Page, expect

CLUSTER_WORKERS = 70
MANY_WORKERS, MANY_DEVICES = 64, 8
CLUSTER_FAULTS = [Fault(9, 1, mib=3000), Fault(20, stops=100), Fault(33, leak_mib=900)]
ROW = "tr[data-device='{}']"
ALL_ROWS = "rows => rows.map(row => row.dataset.device)"
COUNT_ROWS = """
window.__rows = new Set();
new MutationObserver((changes) => {
  for (const { addedNodes } of changes)
    for (const node of addedNodes)
      if (node.querySelectorAll)
        for (const row of [node, ...node.querySelectorAll("tr")])
          if (row.matches("tr[data-device]")) __rows.add(row);
}).observe(document, { childList: true, subtree: true });
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("devices")
    sample_devices.write_devices(directory / "devices")
    sample_runs.write_run(directory / "frozen", sample_runs.FROZEN)
    sample_runs.write_activations(directory / "activations_only", 3, 20)
    write_cluster(directory / "many", MANY_WORKERS, MANY_DEVICES, 12, [])
    write_cluster(directory / "cluster", CLUSTER_WORKERS, 2, 200, CLUSTER_FAULTS, flush_steps=20)
    return directory


address = address_of_logdir("module")


def opened(page: Page, address: str, run: str = "devices", **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "devices", "run": run, **place}))


def rows(frame: FrameLocator) -> list[str]:
    shown: list[str] = frame.locator("tr[data-device]").evaluate_all(ALL_ROWS)
    return shown


def test_of_many_devices_only_those_in_sight_are_in_the_document(
    fresh_page: Page, address: str
) -> None:
    page = fresh_page
    page.add_init_script(COUNT_ROWS)
    frame = opened(page, address, "many", device=f"{name_of(0)}/GPU:0", devices="device")
    count = MANY_WORKERS * MANY_DEVICES
    expect(frame.get_by_test_id("devices")).to_have_attribute(
        "aria-rowcount", str(1 + count + MANY_WORKERS)
    )
    shown = rows(frame)
    assert 8 < len(shown) < 40
    # The height was measured before the first frame: no row was made and thrown away again.
    assert frame.locator("body").evaluate("() => window.__rows.size") == len(shown)
    region = frame.get_by_role("region", name="Table of devices")
    region.focus()
    page.keyboard.press("End")
    harness.idle(frame)
    last = f"{name_of(MANY_WORKERS - 1)}/GPU:{MANY_DEVICES - 1}"
    expect(frame.locator(ROW.format(last))).to_be_in_viewport()
    expect(frame.locator(ROW.format(last))).to_have_attribute("aria-current", "true")
    assert len(rows(frame)) < 40


@pytest.mark.reads
@pytest.mark.parametrize("width", [900, 2560])
def test_nothing_is_clipped(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for run in ("devices", "many", "cluster"):
        frame = opened(page, address, run, devices="peak_bytes")
        assert cut_off(frame, width) == [], run
        bar = frame.locator(".device-bar").first.bounding_box()
        assert bar and bar["width"] > 100, run
