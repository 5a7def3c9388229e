"""The view What if: a refused condition is said beside its field."""

from urllib.parse import urlencode

import harness
from playwright.sync_api import Browser, expect


def test_a_refused_condition_shows_the_servers_sentence(browser: Browser, address: str) -> None:
    # A page of its own: Chromium logs every answer that is an error.
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    frame = harness.open_tab(page, address, urlencode({"view": "what-if", "run": "requests"}))
    for label, text, sentence in (
        ("unfreeze", "conv9", "unfreeze: no layer with weights has a path like 'conv9'; the nearest is 'net/conv"),
        ("freeze", "*conv*, x", "freeze: no layer with weights has a path like 'x'"),
        ("capacity", "300", "a capacity is a size with its unit, such as 24GiB"),
        ("batch size", "0", "batch_size"),
        ("budget", "300", "a budget is a size with its unit, such as 24GiB"),
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
        if label != "budget":
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
