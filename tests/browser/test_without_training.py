"""Runs that only predict or evaluate, in every view: no empty view without a reason, no words about
training."""

import dataclasses
import pathlib
import re
from urllib.parse import urlencode

import harness
import pytest
from logdirs import address_of_logdir
from page_views import OF_STEPS
from playwright.sync_api import Page, expect
from reading_cases import (
    MIB,
    make_map,
    make_samples,
    make_snapshot,
    make_table,
    make_timeline,
    write_small_run,
)

from tb_memplugin.schema import Phase
from tb_memplugin.storage.write import RunWriter

OF_TRAINING = re.compile(r"backward|unfreez|training step|saved|fit\(", re.IGNORECASE)


def write_run(directory: pathlib.Path, phase: Phase) -> None:
    """60 steps of one phase; step 3 is traced."""
    writer = RunWriter(directory)
    writer.layer_table(make_table(0, unfrozen=False))
    writer.samples(make_samples(range(60), [200 * MIB] * 60, in_use=[150 * MIB] * 60, phase=phase))
    snapshot = make_snapshot(3)
    ledger = tuple(row for row in snapshot.ledger if row.category != "activations")
    in_use = sum(row.bytes for row in ledger)
    writer.traced(
        dataclasses.replace(
            snapshot, phase=phase, ledger=ledger, in_use_bytes=in_use, saved_for_backward=()
        )
    )
    writer.traced(dataclasses.replace(make_map(3), phase=phase))
    timeline = make_timeline(3, phase=phase)
    writer.traced(dataclasses.replace(timeline, bands=timeline.bands[:1]))
    writer.close()


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("inference")
    write_run(directory / "predicted", "predict")
    write_run(directory / "evaluated", "validation")
    write_small_run(directory / "trained")
    return directory


address = address_of_logdir("module")


@pytest.mark.reads
@pytest.mark.parametrize("run", ["predicted", "evaluated"])
def test_every_view_shows_the_run(page: Page, address: str, run: str) -> None:
    for view in OF_STEPS:
        place = {"view": view, "run": run, "runs": run, "layer": "model/backbone"}
        frame = harness.open_tab(page, address, urlencode(place))
        expect(frame.locator("main")).to_be_visible()
        nothing = frame.get_by_test_id("nothing")
        if view == "oom":
            expect(nothing).to_contain_text(f"No step of {run} ran out of memory")
        elif view == "what-if":
            expect(nothing).to_contain_text("this run has only")
        else:
            expect(nothing).to_have_count(0)
            said = frame.locator("main").inner_text()
            allowed = said.replace("This run has no training steps, so no weight has gradients", "")
            assert not OF_TRAINING.search(allowed), (view, OF_TRAINING.findall(allowed))
