"""Moving between views: what Back undoes, the keys of the tab list, and links to what a run does not have."""

import pathlib
from urllib.parse import parse_qs, urlencode

import harness
import pytest
from playwright.sync_api import FrameLocator, Page, expect


def chosen(page: Page) -> dict[str, str]:
    """The page's part of the address."""
    return {name: values[-1] for name, values in parse_qs(harness.place(page)).items()}


def test_back_undoes_one_change_at_a_time(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    before = [chosen(page)]

    def changed(*names: str) -> None:
        harness.idle(frame)
        now = chosen(page)
        assert {name for name in {**now, **before[-1]} if now.get(name) != before[-1].get(name)} == set(names)
        before.append(now)

    frame.get_by_role("button", name="Layers", exact=True).click()
    changed("view")
    frame.get_by_role("button", name="Previous traced step").click()
    changed("step")
    frame.get_by_test_id("layers").locator("tr[data-layer='vgg/block5_conv1'] button").first.click()
    changed("layer")
    frame.get_by_role("button", name="Overview", exact=True).click()
    changed("view")
    frame.get_by_test_id("breakdown").locator("tr[data-figure='activations'] th").click()
    changed("category")
    frame.get_by_label("Filter runs").press_sequentially("fro")
    changed("filter")
    for earlier in reversed(before[:-1]):
        page.go_back()
        harness.settled(frame)
        assert chosen(page) == earlier


def focused(frame: FrameLocator) -> str:
    return frame.locator(":focus").inner_text()


@pytest.mark.reads
def test_arrow_keys_go_through_the_tabs(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    names = frame.locator(".tabs button.tab").all_inner_texts()
    frame.locator(".tabs button.tab").first.focus()
    for key, name in (("ArrowRight", names[1]), ("End", names[-1]), ("ArrowLeft", names[-2]), ("Home", names[0])):
        page.keyboard.press(key)
        assert focused(frame) == name
    # AND only the tab of the view is a stop of the Tab key
    assert frame.locator(".tabs button.tab[tabindex='0'], .tabs button.tab:not([tabindex])").count() == 1


@pytest.mark.reads
def test_the_page_of_a_layer_that_the_run_does_not_have_is_the_list_of_its_layers(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "view": "layer", "layer": "vgg/block9_conv9"}))
    expect(frame.get_by_test_id("layers")).to_be_visible()
    assert chosen(page)["view"] == "layers" and "layer" not in chosen(page)


def test_an_empty_directory_offers_the_import_of_a_failed_job(page: Page, tmp_path: pathlib.Path) -> None:
    with harness.viewer(str(tmp_path)) as address:
        page.goto(address)
        empty = page.get_by_test_id("empty")
        expect(empty).to_contain_text("A job that failed without the recorder")
        expect(empty).to_contain_text("tb-memplugin import training.log --logdir runs")
        page.goto("about:blank")
