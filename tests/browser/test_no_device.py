"""A run of which no device could be recorded: the tab says why before anything else."""

import pathlib
from urllib.parse import urlencode

import harness
import pytest
from logdirs import address_of_logdir
from playwright.sync_api import Page
from reading_cases import make_table, write_small_run

from tb_memplugin.storage.write import RunWriter

REASON = "Not recording CPU:0: put `import tb_memplugin` above <b>all</b> of `{}`."


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("first-run")
    writer = RunWriter(directory / "empty")
    writer.note(REASON)
    writer.note("memory samples stopped at step 3")
    writer.layer_table(make_table(0, unfrozen=False))
    writer.close()
    write_small_run(directory / "small")
    return directory


address = address_of_logdir("module")


@pytest.mark.reads
def test_a_run_without_a_device_says_why_before_anything_else(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "empty"}))
    banner = frame.get_by_test_id("no-device")
    assert banner.inner_text() == REASON.replace("`", "")
    assert banner.locator("code").all_inner_texts() == ["import tb_memplugin", "{}"]
    assert frame.get_by_test_id("notices").inner_text().startswith("1 note on data not recorded")
    assert frame.get_by_test_id("answers").count() == 0
