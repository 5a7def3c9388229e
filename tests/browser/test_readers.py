"""What the page asks for is answered alike by the viewer and by each of TensorBoard's readers, for every view."""

import pathlib
import urllib.request
from urllib.parse import urlencode, urlsplit

import harness
import pytest
from page_views import VIEWS
from playwright.sync_api import Page, Request

RUNS = {"activations": "activations_only", "oom": "died_fragmentation", "what-if": "requests"}
DATA = "/data/plugin/tb_memplugin/"


def answer(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as response:
        assert response.status == 200
        body: bytes = response.read()
    return body


@pytest.mark.long
@pytest.mark.parametrize("reader", ["--load_fast=true", "--load_fast=false"])
def test_every_view_gets_the_same_answers(page: Page, address: str, logdir: pathlib.Path, reader: str) -> None:
    asked: set[str] = set()

    def on_request(request: Request) -> None:
        asked.add(request.url)

    page.on("request", on_request)
    for view in VIEWS:
        place = {"view": view, "run": RUNS.get(view, "frozen"), "step": 3, "layer": "vgg/block5_conv1"}
        harness.open_tab(page, address, urlencode({**place, "other": "all_trainable"}))
    page.remove_listener("request", on_request)
    parts = [urlsplit(url) for url in asked]
    paths = sorted(f"{part.path}?{part.query}" for part in parts if DATA in part.path and "." not in part.path)
    names = {path.partition("?")[0].rpartition("/")[2] for path in paths}
    assert {"runs", "overview", "snapshot", "layers", "timeline", "map", "oom", "answers"} <= names
    with harness.tensorboard(str(logdir), [reader]) as tensorboard:
        differing = [path for path in paths if answer(tensorboard, path) != answer(address, path)]
    assert differing == []
