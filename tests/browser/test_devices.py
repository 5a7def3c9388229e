"""All devices and workers of a run side by side."""

import json
import pathlib
import urllib.request
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

DEVICES = [f"{worker}/GPU:{at}" for worker, scales in sample_devices.SCALES.items() for at in range(len(scales))]
CLUSTER_WORKERS = 70
CLUSTER_FAULTS = [Fault(9, 1, mib=3000), Fault(20, stops=100), Fault(33, leak_mib=900)]
MOST_LOADED = "worker_1/GPU:1"
ROW = "tr[data-device='{}']"
ALL_ROWS = "rows => rows.map(row => row.dataset.device)"
COUNT_ROWS = """
window.__rows = new Set();
new MutationObserver((changes) => {
  for (const { addedNodes } of changes)
    for (const node of addedNodes)
      if (node.querySelectorAll)
        for (const row of [node, ...node.querySelectorAll("tr")]) if (row.matches("tr[data-device]")) __rows.add(row);
}).observe(document, { childList: true, subtree: true });
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("devices")
    sample_devices.write_devices(directory / "devices")
    sample_runs.write_run(directory / "frozen", sample_runs.FROZEN)
    sample_runs.write_activations(directory / "activations_only", 3, 20)
    sample_devices.write_many(directory / "many")
    write_cluster(directory / "cluster", CLUSTER_WORKERS, 2, 200, CLUSTER_FAULTS, flush_steps=20)
    return directory


address = address_of_logdir("module")


@pytest.fixture(scope="module")
def answer(address: str) -> dict[str, Any]:
    """The server's answer on the run of two workers."""
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/devices?run=devices&phase=train") as response:
        result: dict[str, Any] = json.load(response)
    return result


def opened(page: Page, address: str, run: str = "devices", **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "devices", "run": run, **place}))


def rows(frame: FrameLocator) -> list[str]:
    shown: list[str] = frame.locator("tr[data-device]").evaluate_all(ALL_ROWS)
    return shown


@pytest.mark.reads
def test_the_bars_hold_every_byte_of_the_breakdown_on_one_scale(
    page: Page, address: str, answer: dict[str, Any]
) -> None:
    frame = opened(page, address)
    assert {device["breakdown"]["step"] for device in answer["devices"] if device["breakdown"]} == {60}
    expect(frame.locator(".devices")).to_contain_text("Breakdown from step 60. Unknown for 1 device: not traced.")
    for device in answer["devices"]:
        parts = frame.locator(f"{ROW.format(device['device'])} [data-part]").evaluate_all(
            "parts => parts.map(part => [Number(part.dataset.bytes), part.getBoundingClientRect().width])"
        )
        if device["breakdown"] is None:
            assert parts == [] and device["device"] == "worker_1/GPU:3"
            continue
        assert sum(size for size, _ in parts) == device["breakdown"]["peak_bytes"]
        bar = frame.locator(f"{ROW.format(device['device'])} .device-bar").bounding_box()
        assert bar
        # One scale for all: it ends at the capacity.
        for size, width in parts:
            assert width == pytest.approx(bar["width"] * size / sample_devices.CAPACITY_BYTES, abs=0.5)
        mark = frame.locator(f"{ROW.format(device['device'])} .at-peak").bounding_box()
        assert mark
        at = mark["x"] + 1 - bar["x"]
        assert at == pytest.approx(bar["width"] * device["peak_bytes"] / sample_devices.CAPACITY_BYTES, abs=1)
        limit = frame.locator(f"{ROW.format(device['device'])} .at-capacity").bounding_box()
        assert limit and limit["x"] == pytest.approx(bar["x"] + bar["width"], abs=2)


@pytest.mark.reads
def test_a_click_selects_the_device_of_every_view(page: Page, address: str, answer: dict[str, Any]) -> None:
    frame = opened(page, address)
    expect(frame.locator("tr[data-device][aria-current='true']")).to_have_attribute("data-device", MOST_LOADED)
    field = frame.locator(".toolbar select").first
    expect(field.locator("option:checked")).to_have_text(f"most loaded: {MOST_LOADED}")
    before = rows(frame)
    frame.locator(ROW.format("worker_0/GPU:2")).click()
    harness.idle(frame)
    assert rows(frame) == before
    expect(frame.locator("tr[data-device][aria-current='true']")).to_have_attribute("data-device", "worker_0/GPU:2")
    expect(field).to_have_value("worker_0/GPU:2")
    frame.get_by_role("button", name="Overview", exact=True).click()
    harness.idle(frame)
    expect(field).to_have_value("worker_0/GPU:2")
    # The peak of the device is the same in both views.
    peak = next(device["peak_bytes"] for device in answer["devices"] if device["device"] == "worker_0/GPU:2")
    figures = frame.locator("[data-answer='fits']").get_attribute("data-figures")
    assert json.loads(figures or "{}")["peak_bytes"] == peak
    assert "device=worker_0" in harness.place(page)
    field.select_option("")
    harness.idle(frame)
    expect(field.locator("option:checked")).to_have_text(f"most loaded: {MOST_LOADED}")


def test_of_many_devices_only_those_in_sight_are_in_the_document(fresh_page: Page, address: str) -> None:
    page = fresh_page
    page.add_init_script(COUNT_ROWS)
    frame = opened(page, address, "many", device="worker_0/GPU:0")
    count = sample_devices.MANY_WORKERS * sample_devices.MANY_DEVICES
    expect(frame.get_by_test_id("devices")).to_have_attribute(
        "aria-rowcount", str(1 + count + sample_devices.MANY_WORKERS)
    )
    shown = rows(frame)
    assert 8 < len(shown) < 40
    # The height was measured before the first frame: no row was made and thrown away again.
    assert frame.locator("body").evaluate("() => window.__rows.size") == len(shown)
    region = frame.get_by_role("region", name="Table of devices")
    region.focus()
    page.keyboard.press("End")
    harness.idle(frame)
    last = f"worker_{sample_devices.MANY_WORKERS - 1}/GPU:{sample_devices.MANY_DEVICES - 1}"
    expect(frame.locator(ROW.format(last))).to_be_in_viewport()
    expect(frame.locator(ROW.format(last))).to_have_attribute("aria-current", "true")
    assert len(rows(frame)) < 40


def test_of_many_workers_both_ends_are_shown_and_the_others_are_found(page: Page, address: str) -> None:
    # GIVEN 70 workers of two devices, one apart from its stage, one stopped, one growing
    frame = opened(page, address, "cluster")
    # THEN the ten most and the ten least loaded devices are there, and nothing is drawn for the others
    region = frame.get_by_role("region", name="Table of devices")
    more = region.get_by_role("button", name="Show 120 more devices")
    expect(frame.get_by_test_id("devices")).to_have_attribute("aria-rowcount", "22")
    assert rows(frame)[0] == f"{name_of(9)}/GPU:1"
    # AND what is wrong is said
    wrong = frame.get_by_test_id("conspicuous")
    expect(wrong).to_contain_text(f"{name_of(20)} recorded nothing after step 99; the others went on to step 199")
    expect(wrong).to_contain_text(f"{name_of(33)}: memory grows")
    # AND there is no chart, as roll-ups do not have every step
    expect(frame.get_by_test_id("devices-at-step")).to_have_count(0)
    # WHEN one is searched THEN it is there, and selecting it selects it in every view
    frame.get_by_role("searchbox", name="Search devices").fill("stage_3_worker_16")
    expect(frame.locator("tr[data-device]")).to_have_count(2)
    frame.locator(ROW.format("stage_3_worker_16/GPU:1")).click()
    expect(frame.locator(ROW.format("stage_3_worker_16/GPU:1"))).to_have_attribute("aria-current", "true")
    # AND all can be shown
    frame.get_by_role("searchbox", name="Search devices").fill("")
    region.evaluate("region => region.scrollTo(0, 10 * 28)")
    more.click()
    expect(frame.get_by_test_id("devices")).to_have_attribute("aria-rowcount", "141")


@pytest.mark.reads
@pytest.mark.parametrize("width", [900, 2560])
def test_nothing_is_clipped(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for run in ("devices", "many", "cluster"):
        frame = opened(page, address, run, devices="peak_bytes")
        assert cut_off(frame, width) == [], run
        bar = frame.locator(".device-bar").first.bounding_box()
        assert bar and bar["width"] > 100
