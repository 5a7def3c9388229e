"""The view What if: figures are those of the terminal, conditions stand in the address, errors are sentences."""

import json
import pathlib
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import requests_cases
from playwright.sync_api import Browser, FrameLocator, Page, expect

from tb_memplugin.schema.units import format_bytes

RUN = "requests"


def asked(logdir: pathlib.Path, *options: str) -> dict[str, Any]:
    """What ``what-if --format json`` says."""
    result: dict[str, Any] = json.loads(
        harness.printed("what-if", str(logdir), "--run", RUN, "--format", "json", *options)
    )
    return result


def open_view(page: Page, address: str, **conditions: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "what-if", "run": RUN, **conditions}))


def figure(frame: FrameLocator, name: str) -> int:
    return int(frame.locator(f".prediction [data-figure='{name}']").get_attribute("data-value") or -1)


def columns(frame: FrameLocator) -> dict[str, tuple[str, str]]:
    """Measured and predicted bytes by category, as the panel has them."""
    rows = frame.locator("[data-testid='predicted'] tr[data-figure]").evaluate_all(
        "rows => rows.map(row => [row.dataset.figure, row.dataset.from, row.dataset.to])"
    )
    return {name: (measured, predicted) for name, measured, predicted in rows}


def by_category(ledger: list[dict[str, Any]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in ledger:
        side = (
            {None: "", True: ":trainable", False: ":frozen"}[row["trainable"]] if row["category"] == "weights" else ""
        )
        sums[row["category"] + side] = sums.get(row["category"] + side, 0) + row["bytes"]
    return sums


def check(frame: FrameLocator, answer: dict[str, Any]) -> None:
    """The figures of the view are those of the terminal's answer."""
    assert figure(frame, "peak_bytes") == answer["peak_bytes"]
    assert figure(frame, "largest_batch_size") == answer["largest_batch_size"]
    expect(frame.locator(".prediction [data-figure='peak_bytes']")).to_contain_text(
        f"{format_bytes(answer['low_bytes'])} to {format_bytes(answer['high_bytes'])}"
    )
    reproduced = answer["reproduced"]
    expect(frame.locator(".prediction [data-figure='reproduced']")).to_contain_text(
        f"{reproduced['addresses']:,} of {reproduced['of']:,} addresses"
    )
    verdict = {True: "fits", False: "fails", None: "unknown"}[answer["fits"]]
    expect(frame.get_by_test_id("verdict")).to_have_attribute("data-verdict", verdict)
    assert frame.get_by_test_id("assumptions").locator("li").all_text_contents() == answer["assumptions"]
    shown = columns(frame)
    expected = by_category(answer["ledger"])
    assert {name: int(shown[name][1]) for name in expected} == expected
    assert int(shown["total"][1]) == sum(expected.values())


@pytest.mark.reads
@pytest.mark.parametrize(
    ("conditions", "options"),
    [
        ({}, ()),
        ({"batch_size": 16}, ("--batch-size", "16")),
        ({"capacity": "16 MiB"}, ("--capacity", "16 MiB")),
        (
            {"freeze": "*conv2", "optimizer": "sgd", "precision": "mixed_float16"},
            ("--freeze", "*conv2", "--optimizer", "sgd", "--precision", "mixed_float16"),
        ),
        ({"unfreeze": "*conv1"}, ("--unfreeze", "*conv1")),
    ],
)
def test_figures_are_those_of_the_terminal(
    page: Page, address: str, logdir: pathlib.Path, conditions: dict[str, Any], options: tuple[str, ...]
) -> None:
    frame = open_view(page, address, **conditions)
    check(frame, asked(logdir, *options))
    traced = requests_cases.make_traced().values()
    highest = max((one.snapshot for one in traced), key=lambda snapshot: snapshot.in_use_bytes)
    assert columns(frame)["total"][0] == str(highest.in_use_bytes)
    measured = by_category([{**vars(row)} for row in highest.ledger])
    assert {name: int(columns(frame)[name][0]) for name in measured} == measured
    expect(frame.locator("[data-testid='peak-bars'] [data-bar]")).to_have_count(2)


def test_a_condition_changes_the_address_and_the_figures_and_back_undoes_it(
    page: Page, address: str, logdir: pathlib.Path
) -> None:
    frame = open_view(page, address)
    recorded = figure(frame, "peak_bytes")
    field = frame.get_by_label("batch size", exact=True)
    field.fill("32")
    field.press("Enter")
    harness.idle(frame)
    check(frame, asked(logdir, "--batch-size", "32"))
    assert "batch_size=32" in harness.place(page)
    # A text applies by itself after a pause.
    frame.get_by_label("capacity", exact=True).fill("64MiB")
    harness.idle(frame)
    check(frame, asked(logdir, "--batch-size", "32", "--capacity", "64MiB"))
    frame.get_by_role("combobox", name="optimizer").select_option("sgd")
    harness.idle(frame)
    check(frame, asked(logdir, "--batch-size", "32", "--capacity", "64MiB", "--optimizer", "sgd"))
    for _ in range(2):
        page.go_back()
        harness.idle(frame)
    check(frame, asked(logdir, "--batch-size", "32"))
    expect(frame.get_by_role("combobox", name="optimizer")).to_have_value("")
    page.go_forward()
    expect(frame.get_by_label("capacity", exact=True)).to_have_value("64MiB")
    frame.get_by_role("button", name="Reset").click()
    harness.idle(frame)
    assert figure(frame, "peak_bytes") == recorded and "batch_size" not in harness.place(page)
    expect(frame.get_by_role("button", name="Reset")).to_have_count(0)  # there is nothing to reset


def test_the_slider_shows_each_batch_size_as_it_moves(page: Page, address: str, logdir: pathlib.Path) -> None:
    frame = open_view(page, address, capacity="64MiB")
    slider, point = frame.get_by_role("slider", name="Batch size of the curve"), frame.get_by_test_id("curve-point")
    curve = page.evaluate("url => fetch(url).then(answer => answer.json())", f"./what_if?run={RUN}&capacity=64MiB")[
        "curve"
    ]
    box = slider.bounding_box()
    assert box is not None and {one["fits"] for one in curve} == {True, False}
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url) if "/what_if?" in request.url else None)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, middle, steps=6)
    # WHILE it moves, the figures are those of the curve, and nothing is asked of the server
    last = curve[-1]
    expect(point).to_contain_text(f"{last['batch_size']:,}: {format_bytes(last['peak_bytes'])}")
    expect(point).to_contain_text(f"does not fit: fails at {format_bytes(last['fails_at']['requested_bytes'])}")
    assert asked_for == []
    expect(slider).to_have_attribute("aria-valuetext", point.inner_text().replace("\u00a0", " "))
    # WHEN it is let go, that batch size is asked about
    page.mouse.up()
    harness.idle(frame)
    expect(frame.get_by_label("batch size", exact=True)).to_have_value(str(last["batch_size"]))
    check(frame, asked(logdir, "--capacity", "64MiB", "--batch-size", str(last["batch_size"])))
    # The keys apply after a pause.
    slider.focus()
    page.keyboard.press("Home")
    expect(point).to_contain_text(f"batch size {curve[0]['batch_size']}: ")
    expect(frame.get_by_label("batch size", exact=True)).to_have_value(str(curve[0]["batch_size"]))


def test_a_refused_condition_shows_the_servers_sentence(browser: Browser, address: str) -> None:
    # A page of its own: Chromium logs every answer that is an error.
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    frame = open_view(page, address)
    for label, text, sentence in (
        ("unfreeze", "conv9", "unfreeze: no layer with weights has a path like 'conv9'; the nearest is 'net/conv"),
        ("freeze", "*conv*, x", "freeze: no layer with weights has a path like 'x'"),
        ("capacity", "300", "a capacity is a size with its unit, such as 24GiB"),
        ("batch size", "0", "batch_size"),
    ):
        field = frame.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")
        # Beside the field, while the last answer stays.
        fault = frame.get_by_role("alert")
        expect(fault).to_contain_text(sentence)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(fault.inner_text())
        verdict = frame.get_by_test_id("verdict")
        expect(verdict).to_be_visible()
        expect(frame.locator(".last-answer")).to_have_text("Last answer: batch size 4, capacity 256\u00a0MiB")
        boxes = [one.bounding_box() for one in (field, fault, verdict)]
        at, told, below = (box for box in boxes if box is not None)
        assert 0 <= told["y"] - at["y"] - at["height"] < 12 and abs(told["x"] - at["x"]) < 2
        assert told["y"] + told["height"] <= below["y"] and told["x"] + told["width"] <= 1440
        field.fill("")
        field.press("Enter")
        expect(frame.get_by_test_id("verdict")).to_be_visible()
        expect(frame.get_by_role("alert")).to_have_count(0)
    page.close()
    assert errors and all("status of 400" in error or "/favicon.ico" in error for error in errors)


def test_a_report_has_the_recorded_answer_only(page: Page, logdir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    harness.printed("report", str(logdir), "-o", str(file), "--run", RUN)
    place = urlencode({"view": "what-if", "run": RUN, "batch_size": 64})
    check(harness.open_alone(page, f"{file.as_uri()}#{place}"), asked(logdir))
    expect(page.get_by_text("A report contains the recorded conditions only.")).to_be_visible()
    fields = page.get_by_role("form", name="Conditions").locator("input, select")
    assert fields.count() == 6
    for field in fields.all():
        expect(field).to_be_disabled()
        expect(field).to_have_value("")
