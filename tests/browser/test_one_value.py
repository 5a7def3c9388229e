"""One quantity has one value and one name: in every view, in ``inspect`` and in the report."""

import json
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from inspected_quantities import json_sightings, text_sightings
from page_views import mostly_long
from playwright.sync_api import FrameLocator, Page
from quantities import COLLECT, Sighting, contradictions, derived, page_sightings

# the step at which all views are read, and how many quantities must be seen in two places at least
RUNS = {
    "frozen": (120, 290),
    "all_trainable": (120, 290),
    "died_fragmentation": (3, 250),
    "died_capacity": (3, 250),
    "growing": (120, 140),
    "requests": (0, 150),
    "activations_only": (0, 10),
}
STEPS, LEAST_SHARED = ({run: pair[at] for run, pair in RUNS.items()} for at in (0, 1))
OF_EVERY_TRACED_STEP = ("frozen", "all_trainable")
"""Runs of which the views of every traced step are read as well."""
TABS = ("Overview", "Layers", "Frozen", "Step", "Fragmentation", "OOM", "What if", "Compare")
OF_A_STEP = {**{tab.split()[0].lower(): tab for tab in TABS[:5]}, "layer": "layer"}
"""These views, with the names of their tabs."""
OTHER = {"frozen": "all_trainable", "out_of_memory": "finished"}
LAYER = {"requests": "net/conv2", "out_of_memory": "encoder/block1_attention"}
RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "runs"
"""Recorded runs; `out_of_memory` ran out of memory for real, in a traced step."""
UNFOLD = """(body) => {
      for (const button of body.querySelectorAll(".folded-rows button[aria-expanded='false']"))
        button.click();
    }"""
"""Shows rows that are too small to be shown at once."""
SCOPE = """(body) => {
      const data = (id, name) => body.querySelector(`[data-testid='${id}']`)?.dataset[name] ?? "";
      const text = (query) => body.querySelector(query)?.textContent ?? "";
      return {
        step: data("step", "step") || data("moment", "step") || data("step-selector", "step"),
        traced: data("layers-step", "step") || data("step-selector", "breakdown"),
        tensor: data("tensor", "tensor"),
        A: data("side-A", "step"),
        B: data("side-B", "step"),
        sideB: text("[data-testid='side-B']"),
        head: text(".panel-head"),
        text: body.innerText,
      };
    }"""


def inspect(logdir: pathlib.Path, *arguments: str) -> str:
    return harness.printed("inspect", str(logdir), "--verbose", *arguments)


@pytest.fixture(scope="module")
def inspected_sightings(logdir: pathlib.Path, inspected: dict[str, Any]) -> list[Sighting]:
    seen = []
    for run, step in STEPS.items():
        seen += json_sightings(run, inspected[run])
        seen += text_sightings(run, inspect(logdir / run))
        seen += text_sightings(run, inspect(logdir / run, "--step", str(step)))
    return seen


@pytest.fixture(scope="module")
def report(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "report.html"
    harness.printed("report", str(logdir), "-o", str(file), *(f"--run={run}" for run in STEPS))
    return file.as_uri()


class Reader:
    """Reads every figure of a page's views."""

    def __init__(self, run: str, inspected: dict[str, Any], where: str) -> None:
        self.run, self.other, self.where = run, OTHER.get(run, "frozen"), where
        self.layer = LAYER.get(run, "vgg/block5_conv1")
        self.answers = {
            answer["name"]: answer for answer in next(iter(inspected[run]["answers"].values()), [])
        }
        self.seen: list[Sighting] = []
        self.faults: list[str] = []

    def place(self, **more: Any) -> str:
        return urlencode(
            {"run": self.run, "step": STEPS.get(self.run, 0), "other": self.other, **more}
        )

    def read(self, frame: Any, view: str) -> None:
        body = frame.locator("body")
        body.evaluate(UNFOLD)
        harness.settled(frame)
        dom = body.evaluate(SCOPE)
        scope = self.scope(dom, view)
        seen, faults = page_sightings(body.evaluate(COLLECT), scope, f"{self.where}, {view}")
        self.seen += seen
        self.faults += faults
        # No view of a failed run speaks of headroom without the step that had it.
        if scope["headroom"] != "headroom":
            self.faults += re.findall(r".*headroom(?! at step \d).*", dom["text"])

    def count_groups(self, frame: Any) -> None:
        """Layers and weights of each group; the layer table of the read steps is that of step 0."""
        for side in ("frozen", "trainable"):
            row = frame.locator(f"tr.subtotal[data-group='{side}']")
            if row.count():
                layers = int(row.locator(".count").inner_text().split()[0])
                weights = int(row.locator("[data-figure='weights']").get_attribute("data-bytes"))
                where = f"{self.where}, Layers by training"
                self.seen.append(Sighting(f"{self.run}: {side} layers from step 0", layers, where))
                self.seen.append(
                    Sighting(f"{self.run}: {side} weights from step 0", weights, where)
                )

    def scope(self, dom: dict[str, str], view: str) -> dict[str, Any]:
        fits, fragmented, changed = (
            self.answers.get(name) for name in ("fits", "fragmented", "changed")
        )
        ended = fragmented is not None and "at step end" in fragmented["sentence"]
        step, traced = dom["step"], dom["traced"] or dom["step"]
        what_if = re.search(r"measured: peak of step (\d+)", dom["text"])
        breakdown = re.search(r"breakdown from step (\d+)", dom["sideB"])
        return {
            "run": self.run,
            "b": f"{self.other} step {dom['B']}",
            "step": "last" if view == "Recorded activations" else step,
            "traced": step if view == "layer" else traced,
            "layer": self.layer if view == "layer" else "",
            "tensor": dom["tensor"],
            "instant": "end" if "at step end" in dom["head"] else "peak",
            "mapat": "at the failure" if view == "OOM" else f"at the peak of step {traced}",
            "headroom": "headroom"
            if fits is None or fits["status"] != "failed"
            else f"headroom at step {step}",
            "whatif": what_if[1] if what_if else "",
            "runA": self.run,
            "runB": self.other,
            "stepA": dom["A"],
            "stepB": dom["B"],
            "tracedA": traced,
            "tracedB": breakdown[1] if breakdown else dom["B"],
            "evidence": fits and fits["evidence"]["step"],
            "before": changed and changed["evidence"]["step"],
            "after": changed and changed["evidence"]["other_step"],
            "evidencepool": fragmented
            and f"at the {'end' if ended else 'peak'} of step {fragmented['evidence']['step']}",
        }


def all_columns(frame: FrameLocator) -> None:
    frame.get_by_role("button", name="All columns", exact=True).click()
    harness.idle(frame)


def read_tabs(reader: Reader, frame: FrameLocator) -> None:
    """The page of a layer, which is open, and every tab."""
    reader.read(frame, "layer")
    for tab in TABS:
        button = frame.locator("button.tab", has_text=tab)
        if button.count() == 0:
            continue  # it does not apply to the run
        button.click()
        harness.idle(frame)
        reader.read(frame, tab)
        if tab == "Layers":
            all_columns(frame)
            reader.read(frame, "Layers, all columns")
        if tab == "Layers" and reader.where == "tab":
            frame.get_by_role("button", name="trainable", exact=True).click()
            harness.idle(frame)
            reader.read(frame, "Layers by training")
            reader.count_groups(frame)


def read_page(reader: Reader, page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, reader.place(view="layer", layer=reader.layer))
    read_tabs(reader, frame)
    # AND the evidence of each answer
    for answer in ("fits", "fragmented", "changed"):
        frame.locator(f"[data-answer='{answer}']").click()
        harness.idle(frame)
        view = reader.answers[answer]["evidence"]["view"]
        reader.read(frame, {"oom": "OOM"}.get(view, view.capitalize()))


def read_traced_steps(reader: Reader, page: Page, address: str, inspected: dict[str, Any]) -> None:
    for snapshot in inspected[reader.run]["snapshots"]:
        if snapshot["step"] == STEPS[reader.run]:
            continue
        for view, tab in OF_A_STEP.items():
            place = reader.place(view=view, layer=reader.layer, step=snapshot["step"])
            reader.read(harness.open_tab(page, address, place), tab)


def read_report(reader: Reader, page: Page, report: str) -> None:
    read_tabs(
        reader,
        harness.open_alone(page, f"{report}#{reader.place(view='layer', layer=reader.layer)}"),
    )


def shared(run: str, seen: list[Sighting]) -> dict[str, set[str]]:
    """The quantities of a run that were seen in two places at least, with these places."""
    places: dict[str, set[str]] = defaultdict(set)
    for one in seen:
        if one.quantity.startswith(f"{run}: "):
            places[one.quantity].add(one.where)
    return {quantity: found for quantity, found in places.items() if len(found) > 1}


@pytest.mark.parametrize("run", mostly_long(list(STEPS)[:-1], ("frozen", "died_capacity")))
def test_a_quantity_has_one_value_and_one_name(
    page, address, report, inspected, inspected_sightings, run
) -> None:
    readers = [Reader(run, inspected, where) for where in ("tab", "report")]
    read_page(readers[0], page, address)
    if run in OF_EVERY_TRACED_STEP:
        read_traced_steps(readers[0], page, address, inspected)
    read_report(readers[1], page, report)
    seen = [*inspected_sightings, *(one for reader in readers for one in reader.seen)]
    seen += derived(seen)
    faults = [fault for reader in readers for fault in reader.faults] + contradictions(seen)
    assert not faults, "\n".join(faults)
    found = shared(run, seen)
    assert len(found) >= LEAST_SHARED[run], len(found)
    # AND the report and the terminal are among these places
    for where in ("tab", "report", "inspect --format json", "inspect"):
        assert (
            sum(any(place.startswith(where) for place in places) for places in found.values()) > 3
        ), where


@pytest.mark.reads
def test_recorded_activations_have_one_value(page, address, inspected, inspected_sightings) -> None:
    reader = Reader("activations_only", inspected, "tab")
    reader.read(
        harness.open_tab(page, address, urlencode({"run": "activations_only"})),
        "Recorded activations",
    )
    assert reader.faults == []
    seen = [*inspected_sightings, *reader.seen]
    assert contradictions(seen) == []
    assert len(shared("activations_only", seen)) >= LEAST_SHARED["activations_only"]


@pytest.fixture(scope="module")
def failure() -> dict[str, Any]:
    """What `inspect` says of the recorded failure."""
    return json.loads(inspect(RECORDED, "--run", "out_of_memory", "--format", "json"))["runs"]


@pytest.fixture(scope="module")
def recorded_address() -> Iterator[str]:
    with harness.viewer(str(RECORDED)) as address:
        yield address


@pytest.mark.parametrize("moment", ["traced", "between", "failed"])
def test_a_recorded_failure_has_one_breakdown_in_every_view(
    page: Page, recorded_address: str, failure: dict[str, Any], moment: str
) -> None:
    run = failure["out_of_memory"]
    (failed,) = [oom["step"] for oom in run["oom"]]
    traced = [snapshot["step"] for snapshot in run["snapshots"]]
    between = next(step for step in range(traced[0], failed) if step not in traced)
    step = {"traced": traced[0], "between": between, "failed": failed}[moment]
    reader = Reader("out_of_memory", failure, "tab")

    def read(view: str, tab: str, **more: Any) -> None:
        place = reader.place(view=view, **more)
        reader.read(harness.open_tab(page, recorded_address, place), tab)

    for view, tab in OF_A_STEP.items():
        layers = (reader.layer, "encoder/block2_wide") if view == "layer" else (reader.layer,)
        for reader.layer in layers:
            read(view, tab, layer=reader.layer, step=step)
    read("oom", "OOM")
    page.goto("about:blank")
    said = inspect(RECORDED, "--run", "out_of_memory", "--step", str(step))
    seen = [
        *reader.seen,
        *json_sightings("out_of_memory", run),
        *text_sightings("out_of_memory", said),
    ]
    seen += derived(seen)
    faults = reader.faults + contradictions(seen)
    assert not faults, "\n".join(faults)
    # AND the main categories of a step with a breakdown are seen in the panel of a step, in its
    # timeline and in the terminal
    if moment == "between":
        return
    places = shared("out_of_memory", seen)
    for category in ("workspace", "activations", "rounding", "optimizer_state"):
        found = places[f"out_of_memory: {category.replace('_', ' ')} at the peak of step {step}"]
        assert {"tab, Overview, breakdown", "tab, Step, timeline-breakdown", "inspect"} <= found, (
            category
        )


def test_a_contradiction_is_found() -> None:
    seen = [
        Sighting("r: pool at the failure", value, where)
        for value, where in ((2**20, "a"), ("1.0 MiB", "b"))
    ]
    assert contradictions(seen) == []
    for other in (2**20 + 1, None, "1.1 MiB"):
        (said,) = contradictions([*seen, Sighting("r: pool at the failure", other, "c")])
        assert said.startswith("r: pool at the failure: ") and "(c)" in said
