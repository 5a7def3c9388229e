"""The animated picture at the top of the README: a walk through the Memory tab on the demo's runs,
light and dark.

usage: python tests/browser/animation.py LOGDIR OUTDIR [--run frozen] [--failed out_of_memory]

Writes ``tour-light.webp`` and ``tour-dark.webp``. Every frame is a screenshot of the tab in
TensorBoard. The letters are those of Roboto, which TensorBoard contains, so that the picture does
not depend on installed fonts.
"""

import argparse
import io
import pathlib
import re
from collections.abc import Callable

import harness
from PIL import Image
from playwright.sync_api import Browser, FrameLocator, Locator, Page, sync_playwright
from screenshots import ADD_FONTS, roboto

WIDTH, HEIGHT, SCALE = 1280, 840, 1.5
"""Size of the window in CSS pixels, and device pixels for each. The README shows the picture at
about this width."""
LOOK_MILLISECONDS, GLANCE_MILLISECONDS, MOVE_MILLISECONDS, PRESS_MILLISECONDS = 2800, 500, 50, 250
MOVES = 8
"""Frames of the pointer's way to its next target."""
LARGEST_BYTES = 1_500_000
POINTER = """() => {
  const pointer = document.createElement("div");
  pointer.id = "tour-pointer";
  pointer.style = "position: fixed; z-index: 99999; pointer-events: none; left: 0; top: 0";
  pointer.innerHTML = `<svg width="22" height="28" viewBox="0 0 22 28">
    <path d="M2 2v20l5-5 4 9 4-2-4-8h7z" fill="#fff" stroke="#000" stroke-width="1.6" stroke-linejoin="round"/></svg>`;
  document.body.append(pointer);
}"""
MOVE_POINTER = """([x, y]) => {
  document.getElementById("tour-pointer").style.transform = `translate(${x - 2}px, ${y - 2}px)`;
}"""


class Film:
    """Screenshots of one page with their durations, and the drawn pointer that leads through
    them."""

    def __init__(self, page: Page, frame: FrameLocator) -> None:
        self.frame = frame
        self._page = page
        self._pictures: list[Image.Image] = []
        self._milliseconds: list[int] = []
        self._at = (WIDTH * 0.55, HEIGHT * 0.6)
        page.evaluate(POINTER)
        page.evaluate(MOVE_POINTER, self._at)

    def look(self, milliseconds: int = LOOK_MILLISECONDS) -> None:
        """A frame of the page as it is."""
        harness.idle(self.frame)
        picture = Image.open(io.BytesIO(self._page.screenshot())).convert("RGB")
        self._pictures.append(picture)
        self._milliseconds.append(milliseconds)

    def point(self, target: Locator, across: float = 0.5, down: float = 0.6) -> None:
        """Moves the pointer, and the mouse with it, to a place in the target given by shares of its
        size."""
        box = target.bounding_box()
        assert box is not None
        start, end = self._at, (box["x"] + box["width"] * across, box["y"] + box["height"] * down)
        for move in range(1, MOVES + 1):
            share = move / MOVES
            share = share * share * (3 - 2 * share)  # slow at both ends
            self._at = tuple(
                one + (other - one) * share for one, other in zip(start, end, strict=True)
            )  # type: ignore[assignment]
            self._page.mouse.move(*self._at)
            self._page.evaluate(MOVE_POINTER, self._at)
            self.look(MOVE_MILLISECONDS)

    def click(self, target: Locator, milliseconds: int = LOOK_MILLISECONDS) -> None:
        """Points at a target, clicks it, and shows what it opens."""
        self.point(target)
        self._milliseconds[-1] = PRESS_MILLISECONDS
        self._page.mouse.down()
        self._page.mouse.up()
        self.look(milliseconds)

    def save(self, path: pathlib.Path) -> None:
        first, *others = self._pictures
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self._milliseconds,
            loop=0,
            lossless=True,
            quality=90,
            method=4,
            minimize_size=True,
        )


def tour(film: Film, failed: str) -> None:
    """What is shown: the overview, the layers, one step, what a change cost, a prediction, and a
    failed run."""
    frame = film.frame

    def button(name: str) -> Locator:
        return frame.get_by_role("button", name=name, exact=True)

    film.look()
    film.click(button("Layers"))
    film.click(button("Step"))
    film.point(frame.locator(".u-over").first, 0.4, 0.55)
    film.look()
    film.click(frame.locator("[data-answer='changed']"))
    film.click(button("What if"), GLANCE_MILLISECONDS)
    film.click(frame.get_by_label("batch size", exact=True), GLANCE_MILLISECONDS)
    frame.get_by_label("batch size", exact=True).fill("64")
    film.point(frame.get_by_test_id("peak-bars"), 0.9, 0.7)
    film.look()
    # Its button also names the run's status and peak.
    film.click(
        frame.get_by_role("button", name=re.compile(f"^{re.escape(failed)} ")), GLANCE_MILLISECONDS
    )
    film.click(frame.locator("[data-answer='fits']"))


def record(
    browser: Browser, address: str, run: str, dark: bool, act: Callable[[Film], None]
) -> Film:
    """The film of one colour scheme."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE
    )
    page = context.new_page()
    frame = harness.open_tab(page, address, f"run={run}", dark)
    frame.locator("body").evaluate(ADD_FONTS, roboto())
    # Canvases measure and paint their texts anew.
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT + 1})
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    film = Film(page, frame)
    act(film)
    context.close()
    return film


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logdir")
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--run", default="frozen", help="the run that is shown first")
    parser.add_argument("--failed", default="out_of_memory", help="the run that ran out of memory")
    arguments = parser.parse_args()
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    with harness.tensorboard(arguments.logdir) as address, sync_playwright() as playwright:
        browser = harness.launch(playwright)
        for dark in (False, True):
            film = record(
                browser, address, arguments.run, dark, lambda film: tour(film, arguments.failed)
            )
            path = arguments.outdir / f"tour-{'dark' if dark else 'light'}.webp"
            film.save(path)
            size = path.stat().st_size
            print(f"{path}: {size / 1e6:.2f} MB")
            if size > LARGEST_BYTES:
                raise SystemExit(
                    f"{path} is larger than {LARGEST_BYTES / 1e6} MB: show less, or at a smaller "
                    "scale"
                )
        browser.close()


if __name__ == "__main__":
    main()
