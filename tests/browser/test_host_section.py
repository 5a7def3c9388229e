"""Host memory: its parts sum to RSS, and it says whether it grows."""

from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import Page
from sample_runs import MIB

from tb_memplugin.analysis import PART_NAMES


@pytest.mark.reads
def test_the_parts_sum_to_rss_and_growth_is_judged(page: Page, address: str) -> None:
    frame = harness.open_tab(
        page, address, urlencode({"view": "host", "run": "frozen", "step": 25})
    )
    section = frame.get_by_role("region", name="Host memory", exact=True)
    # parts without memory have no row
    section.locator("tr[data-figure=host_resident_bytes]").wait_for()
    figures = {
        row.get_attribute("data-figure"): int(row.get_attribute("data-bytes") or 0)
        for row in section.locator("tr[data-figure]").all()
    }
    assert (
        sum(figures.get(name, 0) for name in PART_NAMES)
        == figures["host_resident_bytes"]
        == 1400 * MIB
    )
    assert figures["tf_data_bytes"] == 48 * MIB
    assert section.locator(".unit").inner_text() == "GiB"
    assert section.get_by_test_id("step").get_attribute("data-step") == "25"
    assert section.get_by_test_id("host-step").inner_text() == "parts measured after step 19"
    growth = section.get_by_test_id("host-growth").inner_text().replace("\u00a0", " ")
    assert growth.startswith("Host RSS: no growth of 14.0 MiB or more")


@pytest.mark.reads
def test_a_step_before_the_first_measurement_has_no_parts(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "host", "run": "frozen", "step": 1}))
    section = frame.get_by_role("region", name="Host memory", exact=True)
    assert "parts not measured up to this step" in section.get_by_test_id("host-step").inner_text()
    assert section.locator("tr[data-figure=tf_data_bytes]").get_attribute("data-bytes") in (
        None,
        "",
    )
