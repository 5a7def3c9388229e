"""What the page shows equals what ``inspect`` prints, to the byte, with each of TensorBoard's readers."""

import json
import re
from collections import defaultdict
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from playwright.sync_api import FrameLocator, Page, Route, expect

from tb_memplugin.model.units import format_bytes

SIDES = {True: "trainable", False: "frozen", None: "other"}


def figures(frame: FrameLocator, table: str) -> dict[str, int]:
    """The exact bytes of a table's rows, by their names."""
    rows = frame.locator(f"[data-testid='{table}'] tr[data-bytes]")
    pairs = rows.evaluate_all("rows => rows.map(row => [row.dataset.figure, row.dataset.bytes])")
    return {name: int(value) for name, value in pairs if value != ""}


def by_group(ledger: list[dict[str, Any]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for row in ledger:
        split = row["category"] == "weights" and row["trainable"] is not None
        sums[f"{row['category']}:{SIDES[row['trainable']]}" if split else row["category"]] += row["bytes"]
    return dict(sums)


@pytest.mark.reads
@pytest.mark.parametrize("run", ["roomy", sample_runs.HOSTILE_RUN])
def test_stack_at_traced_steps(page: Page, each_reader: str, inspected: dict[str, Any], run: str) -> None:
    for snapshot in inspected[run]["snapshots"]:
        place = urlencode({"run": run, "device": snapshot["device"], "step": snapshot["step"]})
        frame = harness.open_tab(page, each_reader, place)
        assert frame.get_by_test_id("step").get_attribute("data-step") == str(snapshot["step"])
        assert frame.get_by_test_id("provenance").get_attribute("data-kind") == "traced"
        shown = figures(frame, "breakdown")
        expected = by_group(snapshot["ledger"])
        assert {name: shown.get(name, 0) for name in expected} == expected
        assert shown["peak_bytes"] == snapshot["in_use_bytes"] == sum(expected.values())
        assert shown["capacity_bytes"] == snapshot["capacity_bytes"]


@pytest.mark.reads
def test_the_answer_on_the_peak(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    frame = harness.open_tab(page, each_reader, urlencode({"run": "frozen"}))
    device = inspected["frozen"]["devices"]["CPU:0"]
    fits = json.loads(frame.locator("[data-answer='fits']").get_attribute("data-figures") or "")
    assert (fits["peak_bytes"], fits["capacity_bytes"]) == (device["peak_bytes"], device["capacity_bytes"])
    # AND the step with that peak has it in the panel
    frame.get_by_label("Selected step").fill(str(device["peak_step"]))
    frame.get_by_label("Selected step").press("Enter")
    harness.idle(frame)
    assert figures(frame, "breakdown")["headroom"] == fits["headroom_bytes"]
    assert frame.get_by_test_id("step").get_attribute("data-step") == str(device["peak_step"])
    assert figures(frame, "breakdown")["peak_bytes"] == device["peak_bytes"]


@pytest.mark.reads
def test_every_step_sums_to_its_peak(page: Page, each_reader: str) -> None:
    for step in (0, 39, 100, 159, 160, 161, 239):
        frame = harness.open_tab(page, each_reader, urlencode({"run": "frozen", "step": step}))
        shown = figures(frame, "breakdown")
        peak = sample_runs.peak_at(sample_runs.FROZEN, step)
        assert shown["peak_bytes"] == peak
        assert sum(value for name, value in shown.items() if name.split(":")[0] in CATEGORIES) == peak


CATEGORIES = {
    "weights",
    "optimizer_state",
    "other_state",
    "held_tensors",
    "inputs",
    "activations",
    "activation_gradients",
    "weight_gradients",
    "workspace",
    "rounding",
    "unattributed",
}


PERSISTENT = {"weights", "optimizer_state", "other_state", "held_tensors"}


@pytest.mark.reads
def test_rounding_and_held_tensors_explain_themselves(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 3}))
    snapshot = sample_runs.snapshot_at(sample_runs.FROZEN, 3)
    shown = figures(frame, "breakdown")
    assert shown["rounding"] == snapshot.rounding_bytes and shown["held_tensors"] == 256 * 1024 - 96
    # THEN weights are what the model counts, without rounding
    layers = sample_runs.table_at(sample_runs.FROZEN, 3).layers
    weights = sum(layer.weight_bytes for layer in layers)
    assert shown["weights:frozen"] + shown["weights:trainable"] == weights
    for name, label, meaning in (
        ("rounding", "rounding", "allocated − requested: 256-byte rounding and unsplit remainders"),
        ("held_tensors", "held tensors", "tensors that Python code keeps alive"),
    ):
        row = frame.locator(f"[data-testid='breakdown'] [data-figure='{name}']")
        expect(row).to_contain_text(label)
        assert meaning in (row.get_attribute("data-tip") or "")
    swatch = frame.locator("[data-testid='breakdown'] [data-figure='rounding'] .swatch")
    expect(swatch).to_have_class("swatch dotted")


@pytest.mark.reads
def test_what_frozen_layers_cost(page: Page, address: str, inspected: dict[str, Any]) -> None:
    # GIVEN the last traced step before the unfreezing
    snapshot = [snapshot for snapshot in inspected["frozen"]["snapshots"] if snapshot["step"] < 160][-1]
    place = urlencode({"view": "frozen", "run": "frozen", "step": snapshot["step"]})
    costs = harness.open_tab(page, address, place).get_by_test_id("costs").inner_text().replace("\u00a0", " ")
    frozen = [row for row in snapshot["ledger"] if row["trainable"] is False]
    step, held = snapshot["step"], format_bytes(sum(row["bytes"] for row in frozen))
    weights = sum(layer.weight_bytes for layer in sample_runs.layers_of(sample_runs.FROZEN, 1) if not layer.trainable)
    assert f"At step {step}, frozen layers use {held}:" in costs
    assert f"{format_bytes(2 * weights)} of optimizer state (2 × the weights" in costs
    assert f"up to {format_bytes(weights)} of weight gradients" in costs


@pytest.mark.reads
def test_unfreezing_is_marked(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "frozen", "run": "frozen"}))
    mark = frame.locator(".mark")
    assert mark.count() == 1
    assert mark.inner_text().startswith("unfroze 2 layers")
    moved = sum(layer.trainable_weight_bytes for layer in sample_runs.layers_of(sample_runs.FROZEN, 3)) - sum(
        layer.trainable_weight_bytes for layer in sample_runs.layers_of(sample_runs.FROZEN, 1)
    )
    assert moved == 18_878_464
    changes = frame.get_by_test_id("changes")
    expect(changes).to_contain_text("Step 160: vgg/block5_conv1 and 1 more became trainable. 18.0 MiB of weights")
    expect(changes).to_contain_text("optimizer state +36.0 MiB; measured peak 115 MiB → 165 MiB (+50.5 MiB)")


@pytest.mark.reads
def test_pool_not_available(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "roomy"}))
    assert "because TF_GPU_ALLOCATOR=cuda_malloc_async" in frame.get_by_test_id("not-available").inner_text()
    assert "pool_bytes" not in figures(frame, "pool")


@pytest.mark.reads
def test_pool_between_traced_steps(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    # GIVEN a run whose pool is known at traced steps only
    frame = harness.open_tab(page, each_reader, urlencode({"view": "fragmentation", "run": "frozen", "step": 50}))
    expect(frame.get_by_test_id("provenance")).to_have_attribute("data-kind", "unknown")
    expect(frame.get_by_test_id("provenance")).to_contain_text("Fragmentation unknown")
    shown = figures(frame, "pool")
    assert shown["allocated_bytes"] == sample_runs.peak_at(sample_runs.FROZEN, 50)
    assert not shown.keys() & {"pool_bytes", "free_bytes", "free_largest", "free_other", "unreserved", "rounding_bytes"}
    pool = inspected["frozen"]["pool"]["CPU:0"]
    assert sum(span["known_steps"] for span in pool["spans"]) == len(sample_runs.FROZEN.traced)
    told = frame.get_by_test_id("pool-growth").locator("li").all_inner_texts()
    assert [text.replace("\u00a0", " ") for text in told] == pool["sentences"][-5:]
    expect(frame.get_by_test_id("about-growth")).to_have_attribute("data-grows", "true")


@pytest.mark.reads
@pytest.mark.parametrize(("step", "kind"), [(40, "measured"), (41, "unknown"), (3, "traced"), (60, "measured")])
def test_measured_pool(page: Page, each_reader: str, step: int, kind: str) -> None:
    # GIVEN a run whose pool was measured at the end of every fourth step, and which was traced at 3 and 60
    plan = sample_runs.ALL_TRAINABLE
    place = urlencode({"view": "fragmentation", "run": "all_trainable", "step": step})
    frame = harness.open_tab(page, each_reader, place)
    expect(frame.get_by_test_id("provenance")).to_have_attribute("data-kind", kind)
    shown = figures(frame, "pool")
    # THEN all figures of the step are of one instant
    at_peak = kind == "traced"
    allocated = sample_runs.peak_at(plan, step) if at_peak else sample_runs.in_use_at(plan, step)
    assert shown["allocated_bytes"] == allocated
    expect(frame.locator(".panel-head")).to_contain_text("at the peak" if at_peak else "at step end")
    if kind == "unknown":
        assert not shown.keys() & {"pool_bytes", "free_bytes", "free_largest", "free_other", "unreserved"}
        return
    pool, largest = sample_runs.measured_at(plan, step)
    if at_peak:
        taken = sample_runs.snapshot_at(plan, step)
        pool, largest = taken.pool_bytes or 0, taken.largest_free_bytes or 0
    free = pool - allocated
    expected = {"pool_bytes": pool, "free_bytes": free, "free_largest": largest, "free_other": free - largest}
    assert {name: shown[name] for name in expected} == expected
    assert shown["unreserved"] == plan.capacity_bytes - pool
    ratio = frame.locator("tr[data-figure='fragmentation']").get_attribute("data-value")
    assert float(ratio or "nan") == pytest.approx(1 - largest / free, abs=1e-12)


@pytest.mark.reads
def test_recorded_activations(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    frame = harness.open_tab(page, each_reader, urlencode({"run": "activations_only"}))
    recorded = inspected["activations_only"]["activations"]
    shown = figures(frame, "activations")
    largest = sorted(recorded, key=lambda layer: -layer["max_bytes"])[:12]
    assert {f"layer:{layer['layer']}": layer["last_bytes"] for layer in largest}.items() <= shown.items()
    assert shown["total"] == sum(layer["last_bytes"] for layer in recorded)
    assert shown["others"] == shown["total"] - sum(layer["last_bytes"] for layer in largest)
    assert "other 8 layers" in frame.get_by_test_id("activations").inner_text()


@pytest.mark.reads
def test_layers(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    for snapshot in inspected["frozen"]["snapshots"]:
        place = urlencode({"view": "layers", "run": "frozen", "step": snapshot["step"]})
        frame = harness.open_tab(page, each_reader, place)
        assert frame.get_by_test_id("layers-step").get_attribute("data-step") == str(snapshot["step"])
        expected: dict[str, int] = defaultdict(int)
        for row in snapshot["ledger"]:
            expected[row["layer"] or ""] += row["bytes"]
        rows = frame.locator("[data-testid='layers'] tr[data-layer]")
        shown = dict(
            rows.evaluate_all(
                "rows => rows.map(r => [r.dataset.layer, +r.querySelector('[data-figure=total]').dataset.bytes])"
            )
        )
        assert {layer: shown[layer] for layer in expected} == expected
        assert sum(shown.values()) == snapshot["in_use_bytes"]
        cells = frame.locator(
            "[data-testid='layers'] tr[data-layer]:not([data-layer='']) td[data-figure]"
        ).evaluate_all("cells => cells.map(c => [c.closest('tr').dataset.layer, c.dataset.figure, +c.dataset.bytes])")
        by_category: dict[tuple[str, str], int] = defaultdict(int)
        for row in snapshot["ledger"]:
            if row["layer"] is not None:
                by_category[row["layer"], row["category"]] += row["bytes"]
        sums = ("persistent", "saved", "total")
        columns = {name for _, name, _ in cells}
        # Categories too small to read in the column's unit share one.
        expected_cells: dict[tuple[str, str], int] = defaultdict(int)
        for (layer, name), size in by_category.items():
            expected_cells[layer, name if name in columns else "others"] += size
        assert {(layer, name): size for layer, name, size in cells if size and name not in sums} == expected_cells
        # AND layers are ranked by what persists and what is saved for the backward pass
        sizes = {(layer, name): size for layer, name, size in cells if name in sums}
        ranked = [
            (sizes[layer, "persistent"] + sizes[layer, "saved"], layer) for layer, name, _ in cells if name == "total"
        ]
        saved = {row["layer"]: row["bytes"] for row in snapshot["saved_for_backward"]}
        kept: dict[str, int] = defaultdict(int)
        for (layer, name), size in by_category.items():
            kept[layer] += size if name in PERSISTENT else 0
        for _, layer in ranked:
            assert (sizes[layer, "persistent"], sizes[layer, "saved"]) == (kept[layer], saved.get(layer, 0))
        assert [size for size, _ in ranked] == sorted((size for size, _ in ranked), reverse=True)
        # AND the columns of every row, and those of the totals, sum to the total
        summed = frame.locator("[data-testid='layers'] :is(tr[data-layer], tr.totals)").evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('[data-figure]')]"
            ".map(cell => [cell.dataset.figure, +cell.dataset.bytes]))"
        )
        for row in summed:
            shares = dict(row)
            assert sum(size for name, size in row if name not in sums) == shares["total"]
        assert dict(summed[-1])["total"] == snapshot["in_use_bytes"]


@pytest.mark.reads
def test_the_treemap_follows_the_grouping(page: Page, address: str) -> None:
    frame = harness.open_tab(
        page, address, urlencode({"view": "layers", "run": "frozen", "step": 163, "group": "type"})
    )
    subtotals = dict(
        frame.locator("tr.subtotal").evaluate_all(
            """rows => rows.map(row => [row.dataset.group, ["persistent", "saved"]
                .reduce((sum, name) => sum + +row.querySelector(`[data-figure=${name}]`).dataset.bytes, 0)])"""
        )
    )
    areas = dict(
        frame.locator(".treemap [data-block]").evaluate_all(
            "blocks => blocks.map(block => [block.dataset.block, [...block.querySelectorAll('.area')]"
            ".map(area => area.getBoundingClientRect()).reduce((sum, box) => sum + box.width * box.height, 0)])"
        )
    )
    assert list(areas) == sorted(subtotals, key=lambda title: -subtotals[title])
    assert areas["Conv2D"] > 4 * areas["Dense"] > 0
    titles = frame.locator(".treemap .block-title").all_inner_texts()
    assert titles[0].replace("\u00a0", " ") == f"Conv2D {format_bytes(subtotals['Conv2D'])}"


@pytest.mark.reads
def test_trainable_layers_are_counted_the_same_in_every_view(page: Page, address: str) -> None:
    place = {"run": "frozen", "step": 163}
    frame = harness.open_tab(page, address, urlencode({**place, "view": "layers", "group": "trainable"}))
    layers = sample_runs.layers_of(sample_runs.FROZEN, 3)
    for name, trainable in (("trainable", True), ("frozen", False)):
        count = sum(layer.trainable is trainable and layer.weight_bytes > 0 for layer in layers)
        expect(frame.locator(f"tr[data-group='{name}'] td.count")).to_have_text(f"{count} layers")
    expect(frame.locator("tr.totals td.count")).to_have_text(f"{len(layers)} layers")
    expect(frame.locator("tr.totals td[data-parameters]")).to_have_attribute(
        "data-parameters", str(sum(layer.parameters for layer in layers))
    )
    # AND the bytes of each side are those of the frozen view
    sides = {
        name: frame.locator(f"tr[data-group='{name}'] [data-figure='total']").get_attribute("data-bytes")
        for name in ("frozen", "trainable")
    }
    shown = figures(harness.open_tab(page, address, urlencode({**place, "view": "frozen"})), "sides")
    assert sides == {name: str(shown[name]) for name in sides}


@pytest.mark.reads
@pytest.mark.parametrize("width", [1440, 1920, 2560])
def test_the_columns_of_layers_fit(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "frozen", "step": 163}))
    fits = "host => host.scrollWidth <= host.clientWidth + 1"
    assert frame.get_by_role("region", name="Layers").evaluate(fits)
    cut = frame.locator("[data-testid='layers'] :is(td, th)").evaluate_all(
        "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"
    )
    assert cut == []


def test_largest_layers_keep_their_order_under_the_pointer(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 41}))
    names = frame.locator(".owners .leads")
    selected = names.all_inner_texts()
    assert len(selected) == 2
    chart = frame.get_by_role("slider").bounding_box()
    assert chart is not None
    shown = []
    for share in (0.3, 0.7, 0.9):
        page.mouse.move(chart["x"] + share * chart["width"], chart["y"] + chart["height"] / 2)
        harness.settled(frame)
        assert names.all_inner_texts() == selected
        shown.append(figures_of(frame))
    # THEN the figures are those of the step under the pointer: after the unfreezing they are larger
    assert shown[-1] != shown[0]


def figures_of(frame: FrameLocator) -> list[str | None]:
    rows = frame.locator(".owners td[data-bytes]")
    return [rows.nth(index).get_attribute("data-bytes") for index in range(rows.count())]


def test_sizes_of_outputs(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    expected = {layer["path"]: layer["output_bytes"] for layer in inspected["frozen"]["layers"]}
    frame = harness.open_tab(page, each_reader, urlencode({"view": "layers", "run": "frozen", "step": 163}))
    cells = frame.locator("[data-testid='layers'] td.output")
    read = "cells => cells.map(cell => [cell.closest('tr').dataset.layer, +cell.dataset.bytes])"
    shown = cells.evaluate_all(read)
    assert dict(shown) == expected
    # WHEN they are sorted, which they were not, and exact
    assert [size for _, size in shown] != sorted(expected.values(), reverse=True)
    before = frame.locator("[data-testid='layers'] thead").bounding_box()
    frame.get_by_role("button", name="output", exact=True).click()
    assert frame.locator("[data-testid='layers'] thead").bounding_box() == before
    frame.get_by_role("button", name="MiB", exact=True).click()
    shown = cells.evaluate_all(read)
    assert dict(shown) == expected
    assert [size for _, size in shown] == sorted(expected.values(), reverse=True)
    assert cells.all_inner_texts() == [f"{size:,}" for _, size in shown]
    expect(frame.locator("th[aria-sort='descending']")).to_contain_text("output")
    # AND groups have no sum of them
    frame.get_by_role("button", name="type", exact=True).first.click()
    assert frame.locator("tr.subtotal").count() == 3
    assert frame.locator("tr.subtotal td.output").count() == 0
    assert dict(cells.evaluate_all(read)) == expected
    # AND a layer's page has it
    place = {"view": "layer", "run": "frozen", "layer": "vgg/block5_conv1"}
    output = harness.open_tab(page, each_reader, urlencode(place)).get_by_test_id("output")
    assert output.get_attribute("data-bytes") == str(expected["vgg/block5_conv1"])
    expect(output).to_have_text(f"{format_bytes(expected['vgg/block5_conv1'])} per batch")


def test_an_unknown_output_size_says_why(page: Page, address: str) -> None:
    def forget(route: Route) -> None:
        answer = route.fetch()
        table = answer.json()
        table["layers"][0]["output_bytes"] = None
        route.fulfill(response=answer, json=table)

    page.route(re.compile(r"/layers\?"), forget)
    why = "Output size unknown: a dimension is unknown, (batch, 64, 64, 64) float32."
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "frozen"}))
    unknown = frame.locator("tr[data-layer='block1_conv1'] td.output")
    expect(unknown).to_have_text("–")
    unknown.scroll_into_view_if_needed()
    harness.settled(frame)
    unknown.hover()
    expect(frame.get_by_role("tooltip")).to_contain_text(why)
    known = frame.locator("tr[data-layer] td.output").all_inner_texts()
    assert known.count("–") == 1 and len(known) > 1
    frame = harness.open_tab(page, address, urlencode({"view": "layer", "run": "frozen", "layer": "block1_conv1"}))
    expect(frame.get_by_test_id("output")).to_have_text("size unknown")
    frame.get_by_test_id("output").hover()
    expect(frame.get_by_role("tooltip")).to_contain_text(why)
