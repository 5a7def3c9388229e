"""No text lies on another text, leaves its box or runs over a chart."""

from urllib.parse import urlencode

import harness
import pytest
from page_views import VIEWS, mostly_long, run_of
from playwright.sync_api import Page

FAULTS = """(body) => {
      const BOXES =
        ".panel, .diagnosis, button, td, th, .answer-head, .findings li, .legend, .toolbar, aside";
      const scrolls = (e) => e.matches("main, html, body");
      // What is seen of a box: boxes that clip or scroll hide the rest; the page's scrolling not.
      const seen = (element, box) => {
        let { left, right, top, bottom } = box;
        for (let e = element; e && !scrolls(e); e = e.parentElement) {
          const style = getComputedStyle(e);
          if (style.overflowX !== "visible" || style.overflowY !== "visible") {
            const own = e.getBoundingClientRect();
            left = Math.max(left, own.left);
            right = Math.min(right, own.right);
            top = Math.max(top, own.top);
            bottom = Math.min(bottom, own.bottom);
          }
          if (style.position === "fixed") break;
        }
        return { left, right, top, bottom };
      };
      const texts = [];
      const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        const isOther = element.closest(
          "option, script, style, .unseen, dialog:not([open]), [role='tooltip']",
        );
        const isShown = element.checkVisibility({
          visibilityProperty: true,
          opacityProperty: true,
        });
        if (node.data.trim() === "" || isOther || !isShown) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const isStuck = (e) =>
          e &&
          !scrolls(e) &&
          (getComputedStyle(e).position === "sticky" || isStuck(e.parentElement));
        for (const line of range.getClientRects()) {
          const whole = line.toJSON();
          // The letters, without the room for accents above them and below.
          const air = whole.height * 0.25;
          const box = seen(element, { ...whole, top: whole.top + air, bottom: whole.bottom - air });
          if (box.right - box.left > 1 && box.bottom - box.top > 1)
            texts.push({
              element,
              box,
              text: node.data.trim().slice(0, 40),
              stuck: !!isStuck(element),
              table: element.closest("table"),
            });
        }
      }
      const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const faults = [];
      texts.forEach((one, at) => {
        for (const other of texts.slice(at + 1)) {
          // Rows of a table go under its heads.
          const isUnder =
            (one.stuck || other.stuck) && one.table !== null && one.table === other.table;
          if (isUnder || one.element === other.element) continue;
          if (across(one.box, other.box) > 1.5 && down(one.box, other.box) > 1)
            faults.push(`"${one.text}" lies on "${other.text}"`);
        }
        const holder = one.element.closest(BOXES);
        const own = holder?.getBoundingClientRect();
        const { left, right, top, bottom } = one.box;
        const isOut =
          own &&
          (left < own.left - 1 ||
            right > own.right + 1 ||
            top < own.top - 1 ||
            bottom > own.bottom + 1);
        if (isOut && own.width > 0)
          faults.push(`"${one.text}" leaves ${holder.tagName}.${holder.className}`);
        if (one.box.right > innerWidth + 1) faults.push(`"${one.text}" leaves the window`);
      });
      for (const plot of body.querySelectorAll("canvas, svg")) {
        const box = seen(plot, plot.getBoundingClientRect().toJSON());
        const chart = plot.closest(".chart") ?? plot.parentElement;
        for (const { element, box: own, text, stuck } of texts)
          if (!stuck && !chart.contains(element) && across(box, own) > 1 && down(box, own) > 1)
            faults.push(`"${text}" lies on a chart`);
      }
      return { texts: texts.length, faults: [...new Set(faults)] };
    }"""
CASES = {
    **{view: {"view": view, "run": run_of(view)} for view in VIEWS},
    "layer": {"view": "layer", "run": "frozen", "layer": "vgg/block5_conv1"},
    "failure": {"view": "overview", "run": "died_fragmentation"},
    "growth": {"view": "overview", "run": "growing"},
    "two runs": {"view": "compare", "run": "frozen", "other": "all_trainable"},
}


@pytest.mark.reads
@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("name", mostly_long(CASES, ("overview", "failure", "what-if")))
def test_no_text_lies_on_another_leaves_its_box_or_runs_over_a_chart(
    page: Page, address: str, name: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    frame = harness.open_tab(page, address, urlencode(CASES[name]))
    found = frame.locator("body").evaluate(FAULTS)
    assert found["texts"] > 40
    assert found["faults"] == []


@pytest.mark.reads
def test_each_fault_would_be_found(page: Page, address: str) -> None:
    """The search itself: it names what is moved on purpose."""
    frame = harness.open_tab(page, address, urlencode(CASES["overview"]))
    for selector, style, fault in (
        (".panel-head h2", "position: absolute; left: 500px", "lies on a chart"),
        (".panel-head h2", "position: relative; top: 29px", " lies on "),
        (
            ".panel-head h2",
            "position: relative; left: 400px; white-space: nowrap",
            "leaves the window",
        ),
        (".panel", "height: 40px; min-height: 0", "leaves ASIDE.panel"),
    ):
        moved = frame.locator(selector).first
        moved.evaluate("(e, style) => { e.style.cssText = style; }", style)
        faults = frame.locator("body").evaluate(FAULTS)["faults"]
        moved.evaluate("e => { e.style.cssText = ''; }")
        assert any(fault in one for one in faults), (style, faults)
