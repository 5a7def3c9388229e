"""What the Step view costs in the browser with 10,000, 30,000 and 100,000 tensors in one step.

Writes one run for each size, opens its step in Chromium through `tests/page_server.py`, several
times, and prints with its limit: milliseconds from the arrival of the timeline to the painted chart
(median), JavaScript's heap after that with its typed arrays (largest), and the main thread's
processor time for each frame while the pointer moves over the chart, while the wheel zooms, and
while Shift and a drag pan (95th percentile of all frames). Chromium draws in software.

usage: python tests/benchmarks/bench_timeline.py [--rounds 3] [--smallest]
"""

import pathlib
import statistics
import tempfile
from collections.abc import Callable
from urllib.parse import urlencode

from bench_page import FIRST_PAINT, FRAMES, busy_clock, write_memory
from harness import idle, launch, tab_url, viewer
from limits import finish, parser_of, print_limit
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

TENSORS = (10_000, 30_000, 100_000)
LAYERS = 300
STEPS = 200
FRAMES_EACH = 60
FRAME_MILLISECONDS, PAINT_MILLISECONDS, HEAP_MIB = 16, 500, 100
TURN = 120
"""Pixels of one turn of the wheel."""
AXES = ("time", "event index")

Act = Callable[[int], None]


def frames(page: Page, act: Act) -> list[float]:
    """Processor time of the main thread for each of `FRAMES_EACH` actions and what is painted then,
    in milliseconds."""
    busy = busy_clock(page, "threadTicks")
    page.wait_for_timeout(400)
    taken = []
    for index in range(FRAMES_EACH):
        before = busy()
        act(index)
        page.wait_for_timeout(40)
        taken.append(1000 * (busy() - before))
    return taken


def heap(session: CDPSession) -> float:
    """JavaScript's live objects with their typed arrays, in MiB."""
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"] + usage["backingStorageSize"]) / 2**20


def gestures(page: Page) -> dict[str, list[float]]:
    """Frames of each gesture over the open chart."""
    box = page.locator(".timeline .u-over").bounding_box()
    assert box is not None
    left, top, width, height = (box[name] for name in ("x", "y", "width", "height"))

    def hover(index: int) -> None:
        page.mouse.move(
            left + width * (0.1 + 0.8 * index / FRAMES_EACH),
            top + height * (0.2 + 0.013 * (index % 60)),
        )

    def zoom(index: int) -> None:
        page.mouse.wheel(0, -TURN if index < FRAMES_EACH // 2 else TURN)

    def pan(index: int) -> None:
        away = index if index < FRAMES_EACH // 2 else FRAMES_EACH - index
        page.mouse.move(left + width * (0.7 - 0.4 * away / FRAMES_EACH), top + height / 2)

    found = {"hovering": frames(page, hover)}
    page.mouse.move(left + width / 2, top + height / 2)
    found["zooming"] = frames(page, zoom)
    for _ in range(8):
        page.mouse.wheel(0, -TURN)
    page.mouse.move(left + width * 0.7, top + height / 2)
    page.keyboard.down("Shift")
    page.mouse.down()
    found["panning"] = frames(page, pan)
    page.mouse.up()
    page.keyboard.up("Shift")
    return found


def opened(browser: Browser, url: str) -> tuple[dict[str, float], dict[str, list[float]]]:
    """First paint and heap, and the frames of each gesture, of one fresh page."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(FRAMES)
    page.goto(url)
    page.locator(".timeline .u-over").wait_for()
    idle(page)
    page.wait_for_timeout(1500)
    paint = float(page.evaluate(FIRST_PAINT, "/timeline?")["paint"])
    once = {"paint": paint, "heap": heap(context.new_cdp_session(page))}
    found = gestures(page)
    context.close()
    return once, found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def show(browser: Browser, address: str, tensors: int, rounds: int) -> None:
    name = f"{tensors:,} tensors"
    for axis in AXES:
        place = urlencode({"view": "step", "run": str(tensors), "step": 0, "timeline": axis})
        taken = [opened(browser, tab_url(address, place)) for _ in range(rounds)]
        if axis == AXES[0]:
            paint = statistics.median(once["paint"] for once, _ in taken)
            print_limit(f"{name}: first paint", paint, PAINT_MILLISECONDS, "ms")
            print_limit(
                f"{name}: heap",
                max(once["heap"] for once, _ in taken),
                HEAP_MIB,
                "MiB",
                any_size=True,
            )
        for gesture in taken[0][1]:
            all_frames = [frame for _, found in taken for frame in found[gesture]]
            middle, high = (percentile(all_frames, share) for share in (0.5, 0.95))
            what = f"{name} over {axis}: p95 frame while {gesture} (median {middle:.1f} ms)"
            print_limit(what, high, FRAME_MILLISECONDS, "ms")


def main() -> None:
    arguments = parser_of(__doc__, rounds=(3, 1)).parse_args()
    sizes = TENSORS[:1] if arguments.smallest else TENSORS
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        for tensors in sizes:
            write_memory(pathlib.Path(directory) / str(tensors), STEPS, LAYERS, tensors)
        with viewer(directory) as address:
            browser = launch(playwright)
            for tensors in sizes:
                show(browser, address, tensors, arguments.rounds)
            browser.close()
    finish()


if __name__ == "__main__":
    main()
