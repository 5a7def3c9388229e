"""How many words and figures each view shows above the fold, and where its chart begins."""

import pathlib
import shutil
from collections.abc import Iterator
from urllib.parse import urlencode

import harness
import pytest
import sample_devices
from first_screen import words_above_the_fold
from page_views import OF_STEPS
from playwright.sync_api import Page

RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "runs" / "out_of_memory"
RUNS = {"all_trainable": "frozen", "out_of_memory": "frozen", "frozen": "all_trainable"}
RUNS |= {"growing": "frozen"}
"""As many as a directory of the demo has, each with the run that it is compared with."""
LAYER = {"out_of_memory": "encoder/block1_attention"}
PLACES: dict[str, dict[str, str]] = {
    "the page as it opens": {},
    **{
        f"{view} of {run}": {
            "view": view,
            "run": run,
            "other": other,
            "layer": LAYER.get(run, "vgg/block5_conv1"),
        }
        for run, other in RUNS.items()
        for view in OF_STEPS
        if view != "devices"
    },
    "two steps": {"view": "compare", "run": "frozen", "other": "frozen"},
}
MOST = 150


def write_runs(directory: pathlib.Path, logdir: pathlib.Path, *runs: str) -> None:
    for run in runs:
        shutil.copytree(RECORDED if run == RECORDED.name else logdir / run, directory / run)


@pytest.fixture(scope="module")
def few_runs(logdir, tmp_path_factory, watched) -> Iterator[str]:
    """Address of a viewer on four runs."""
    few = tmp_path_factory.mktemp("few")
    write_runs(few, logdir, *RUNS)
    with harness.viewer(str(few)) as address:
        yield address
        watched[0].goto("about:blank")


@pytest.mark.reads
@pytest.mark.parametrize("name", PLACES)
def test_few_words_and_figures_stand_above_the_fold(page: Page, few_runs: str, name: str) -> None:
    expect_few_words(page, few_runs, name, PLACES[name])


@pytest.mark.reads
def test_of_eight_devices_few_words_and_figures_stand_above_the_fold(
    page: Page, logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    write_runs(tmp_path, logdir, *list(RUNS)[1:])
    # One of two workers with four devices each stopped early.
    sample_devices.write_devices(tmp_path / "devices")
    with harness.viewer(str(tmp_path)) as address:
        place = {"view": "devices", "run": "devices"}
        expect_few_words(page, address, "eight devices", place)
        page.goto("about:blank")


def expect_few_words(page: Page, address: str, name: str, place: dict[str, str]) -> None:
    found = words_above_the_fold(harness.open_tab(page, address, urlencode(place)))
    print(f"{name}: {len(found)} words and figures above the fold at 1440 x 900")
    assert 30 < len(found) <= MOST, " ".join(found)


def test_words_are_counted_where_they_are_seen(page: Page) -> None:
    page.set_content(
        """<p>one two <b>3.5 MiB</b> &lt;0.01 · 12&nbsp;%</p><p hidden>no</p>
        <p style="position: absolute; top: 2000px">no</p>
        <div style="height: 20px; overflow: hidden"><p style="margin: 0">six</p><p>no</p></div>
        <select><option>no</option><option selected>seven</option></select>
        <input value="eight 9" />"""
    )
    words = words_above_the_fold(page)  # type: ignore[arg-type]
    assert words == ["one", "two", "3.5 MiB", "<0.01", "12\u00a0%", "six", "seven", "eight", "9"]
