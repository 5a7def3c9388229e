"""What the page costs in the browser, beside TensorBoard's own Time Series tab with as many points.

Writes a run of many layers and steps and, for Time Series, one scalar for each line and band of the
overview, at the same steps. Opens both tabs in Chromium in turn, several times, and prints medians:
milliseconds from the arrival of the data to painted charts, main-thread milliseconds for each move
of the pointer over the chart, bytes of the answers as they came; milliseconds from a click on a tab
to the end of the first frame that it changed; once, the script's size gzipped. `bench_timeline.py`
measures the Step view at several sizes.

usage: python tests/benchmarks/bench_page.py [--steps 10000] [--layers 300] [--rounds 5]
[--smallest]
"""

import dataclasses
import gzip
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from urllib.parse import urlencode

import numpy as np
from limits import finish, parser_of, print_limit
from playwright.sync_api import Browser, Frame, Page, sync_playwright
from reading_cases import make_layer, make_timeline
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "browser"))
import harness
import sample_runs

from tb_memplugin.schema import (
    MISSING,
    Band,
    ChunkOwner,
    DeviceSamples,
    LayerTable,
    LedgerRow,
    Samples,
    Snapshot,
    Timeline,
)
from tb_memplugin.storage.write import RunWriter

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MIB = sample_runs.MIB
DEVICE = "GPU:0"
CATEGORIES = (
    "weights",
    "optimizer_state",
    "activations",
    "activation_gradients",
    "weight_gradients",
    "workspace",
)
LINES = 12
"""What the overview draws: ten bands, the peak, the capacity."""
SNAPSHOTS = 100
TENSORS = (10_000, 500)
"""Rectangles that the Step view draws, and at the smallest size."""
MOVES = 60
PAINT_MILLISECONDS, FRAME_MILLISECONDS, CHANGE_MILLISECONDS, PAYLOAD_BYTES = 100, 16, 100, 1_000_000

FRAMES = """
window.__frames = [];
(function tick(now) { window.__frames.push(now); requestAnimationFrame(tick); })(performance.now());
"""
FIRST_PAINT = """data => {
    const all = performance.getEntriesByType("resource");
    const asked = all.filter((entry) => entry.name.includes(data));
    const arrived = Math.max(...asked.map((entry) => entry.responseEnd));
    const frames = window.__frames.filter((at) => at > arrived);
    const soon = (index) => frames[index] - frames[index - 1] < 25;
    const calm = frames.findIndex((_, index) => index > 1 && soon(index) && soon(index - 1));
    const own = all.filter((entry) => /data\\/plugin/.test(entry.name));
    const bytes = own.reduce((sum, entry) => sum + entry.encodedBodySize, 0);
    return { paint: frames[calm - 2] - arrived, bytes };
}"""
"""First frame after the last answer from which on frames follow each other at once: by then the
charts are painted."""


CHANGE = """async title => {
    const tab = [...document.querySelectorAll(".tab")].find((one) => one.firstChild.data === title);
    const frame = () => new Promise(requestAnimationFrame);
    await frame();
    const began = performance.now();
    tab.click();
    await frame();
    await frame();
    return performance.now() - began;
}"""
"""Milliseconds from a click on a tab to the start of the frame after the one that shows its
view."""


def write_memory(directory: pathlib.Path, steps: int, layers: int, tensors: int) -> None:
    """The run that the Memory tab shows."""
    random = np.random.default_rng(1)
    names = [f"model/block_{at // 10:02d}/layer_{at:03d}" for at in range(layers)]
    sizes = random.integers(64, 4096, (layers, len(CATEGORIES))) * 256
    weights = sizes[:, 0].tolist()
    table = tuple(
        make_layer(name, True, size // 4, 2 * size, "Dense", (-1, 64))
        for name, size in zip(names, weights, strict=True)
    )
    ledger = tuple(
        LedgerRow(name, category, True, int(size), 0)
        for name, row in zip(names, sizes, strict=True)
        for category, size in zip(CATEGORIES, row, strict=True)
    )
    total = sum(row.bytes for row in ledger)
    step = np.arange(steps, dtype=np.int64)
    peak = total + random.integers(0, 64, steps) * MIB // 16
    traced = np.linspace(0, steps - 1, SNAPSHOTS).astype(int)
    peak[traced] = total
    writer = RunWriter(directory, producer="recorder", versions={})
    writer.layer_table(LayerTable(0, sample_runs.STARTED, "recording began", table, "Adam", 12, 16))
    missing = np.full(steps, MISSING, np.int64)
    device = DeviceSamples(peak // 2, peak, np.full(steps, 2 * total, np.int64), *[missing] * 5)
    wall_time = sample_runs.STARTED + step * 0.1
    writer.samples(
        Samples(step, np.zeros(steps, np.int64), step // 500, wall_time, missing, {DEVICE: device})
    )
    pool = (2 * total, total // 2, 2 * total, 0.5)
    for at in traced.tolist():
        when = sample_runs.STARTED + at * 0.1
        writer.traced(Snapshot(at, "train", DEVICE, when, "graph", total, *pool, 0, ledger, (), ()))
    writer.traced(tensors_of_step(tensors, layers))
    writer.close()


def tensors_of_step(tensors: int, layers: int) -> Timeline:
    """A step of a training: weights that stay, activations freed in the opposite order, temporaries
    of one moment."""
    random = np.random.default_rng(2)
    stay = tensors // 10
    moving = tensors - stay
    half = moving // 2
    moments = 2 * half + 2
    kept = np.arange(half)
    # Every third one is a temporary of its op, the others live until the backward pass reaches
    # their layer.
    freed = np.where(kept % 3 == 2, kept + 2, moments - 1 - kept)
    later = np.arange(moving - half)
    start = np.concatenate([np.zeros(stay, np.int64), kept + 1, half + later])
    end = np.concatenate(
        [np.full(stay, moments), np.maximum(freed, kept + 2), half + later + 1 + later % 7]
    )
    owners = [
        ChunkOwner(f"model/block_{at // 10:02d}/layer_{at:03d}", category, True)
        for category in CATEGORIES
        for at in range(layers)
    ]
    place = {category: at * layers for at, category in enumerate(CATEGORIES)}
    of = np.concatenate(
        [
            place["weights"] + np.arange(stay) % layers,
            np.where(kept % 3 == 2, place["workspace"], place["activations"])
            + kept * layers // half,
            place["activation_gradients"] + layers - 1 - later * layers // len(later),
        ]
    )
    end = np.minimum(end, moments)
    sizes = random.integers(1, 4096, tensors) * 256
    levels = np.zeros(moments + 1, np.int64)
    np.add.at(levels, start, sizes)
    np.subtract.at(levels, end, sizes)
    in_use = np.cumsum(levels)[:-1]
    peak = int(in_use.argmax())
    return dataclasses.replace(
        make_timeline(0, device=DEVICE),
        in_use_bytes=int(in_use[peak]),
        peak=peak,
        events=moments - 1,
        duration_ns=moments * 20_000,
        time_ns=np.arange(moments) * 20_000,
        event=np.arange(moments),
        start=start,
        end=end,
        bytes=sizes,
        rounding_bytes=np.zeros(tensors, np.int64),
        count=np.ones(tensors, np.int64),
        owner=of,
        op=of,
        **dict.fromkeys(("address", "shape", "line"), np.full(tensors, -1)),
        owners=tuple(owners),
        ops=tuple(f"{owner.layer}/{owner.category}" for owner in owners),
        bands=(Band("forward", 0, half), Band("backward_and_update", half, moments)),
        compiled=(),
    )


def write_scalars(directory: pathlib.Path, steps: int) -> None:
    """As many points for Time Series: a scalar for each line."""
    writer = EventFileWriter(str(directory))
    random = np.random.default_rng(1)
    for line in range(LINES):
        for step, value in enumerate(random.normal(100, 1, steps).tolist()):
            point = summary_pb2.Summary.Value(tag=f"memory/{line:02d}", simple_value=value)
            summary = summary_pb2.Summary(value=[point])
            writer.add_event(
                event_pb2.Event(
                    step=step, wall_time=sample_runs.STARTED + step * 0.1, summary=summary
                )
            )
    writer.close()


def busy_clock(page: Page, domain: str = "timeTicks") -> Callable[[], float]:
    """Gives the seconds of the main thread's tasks: by the clock, or with `threadTicks` its
    processor time only."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": domain})

    def busy() -> float:
        metrics = {
            each["name"]: each["value"]
            for each in session.send("Performance.getMetrics")["metrics"]
        }
        return float(metrics["TaskDuration"])

    return busy


def measure(page: Page, url: str, data: str, chart: str, inside: str | None) -> dict[str, float]:
    """First paint after the data, work for a move of the pointer, and bytes, of one tab."""
    page.add_init_script(FRAMES)
    page.goto(url)
    frame: Frame = page.main_frame
    if inside is not None:
        page.wait_for_selector(f"iframe[src*='{inside}']")
        frame = next(each for each in page.frames if "plugin_entry.html" in each.url)
    frame.locator(chart).first.wait_for(state="attached")
    page.wait_for_timeout(3000)
    found: dict[str, float] = frame.evaluate(FIRST_PAINT, data)
    box = frame.locator(chart).first.bounding_box()
    assert box is not None
    busy = busy_clock(page)
    before = busy()
    for move in range(MOVES):
        page.mouse.move(
            box["x"] + box["width"] * (0.1 + 0.8 * move / MOVES), box["y"] + box["height"] / 2
        )
        page.wait_for_timeout(20)
    return {
        "paint": found["paint"],
        "hover": 1000 * (busy() - before) / MOVES,
        "bytes": found["bytes"],
    }


def view_changes(browser: Browser, url: str, count: int) -> dict[str, float]:
    """Of each tab, the median time of a change to it from the view before; the answers of all views
    are loaded."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(url)
    frame = page.frame_locator("iframe[src*='tb_memplugin']")
    harness.idle(frame)
    titles = frame.locator(".tab").evaluate_all("tabs => tabs.map((tab) => tab.firstChild.data)")
    taken: dict[str, list[float]] = {title: [] for title in titles}
    for _ in range(count + 1):
        for title in [*titles[1:], titles[0]]:
            taken[title].append(
                frame.locator("body").evaluate(f"(_, title) => ({CHANGE})(title)", title)
            )
            harness.idle(frame)
    context.close()
    return {title: statistics.median(times[1:]) for title, times in taken.items()}


VIEWS = {
    "overview": "/overview?",
    "frozen": "/ledger_totals?",
    "layer": "/ledger_totals?",
    "step": "/timeline?",
}
"""The measured views, and the answer that each one waits for."""


def rounds(
    browser: Browser, url: str, count: int, data: str, chart: str, inside: str | None
) -> dict[str, float]:
    taken = []
    for _ in range(count):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        taken.append(measure(context.new_page(), url, data, chart, inside))
        context.close()
    return {name: statistics.median(each[name] for each in taken) for name in taken[0]}


def main() -> None:
    arguments = parser_of(
        __doc__, steps=(10_000, 200), layers=(300, 10), rounds=(5, 1), tensors=TENSORS
    ).parse_args()
    script = (REPOSITORY / "tb_memplugin" / "static" / "index.js").read_bytes()
    print(f"script: {len(script):,} B")
    print_limit("script, gzipped", len(gzip.compress(script, 9)), 150 * 1024, "B", any_size=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        write_memory(
            pathlib.Path(directory) / "large", arguments.steps, arguments.layers, arguments.tensors
        )
        write_scalars(pathlib.Path(directory) / "scalars", arguments.steps)
        samples = ["--samples_per_plugin", f"scalars={arguments.steps}"]
        with harness.tensorboard(directory, samples) as address:
            browser = harness.launch(playwright)
            print(
                f"{arguments.layers} layers x {arguments.steps} steps, {LINES} lines; medians of "
                f"{arguments.rounds}"
            )
            print(f"{'':24}{'first paint':>14}{'a move':>12}{'payload':>14}")
            for view, data in list(VIEWS.items())[:: 3 if arguments.smallest else 1]:
                place = {"view": view, "run": "large", "layer": "model/block_00/layer_000"}
                url = harness.tab_url(address, urlencode(place))
                show(
                    f"Memory, {view}",
                    rounds(browser, url, arguments.rounds, data, ".u-over", "tb_memplugin"),
                )
            url = harness.tab_url(address, urlencode({"run": "large"}))
            for title, taken in view_changes(browser, url, arguments.rounds).items():
                print_limit(f"change to {title}: first frame", taken, CHANGE_MILLISECONDS, "ms")
            url = f"{address}/?darkMode=false&runFilter=scalars#timeseries"
            chart = "line-chart .series-view"
            show("Time Series", rounds(browser, url, arguments.rounds, "timeSeries", chart, None))
            browser.close()
    finish()


def show(name: str, found: dict[str, float]) -> None:
    print(f"{name:24}{found['paint']:>11.0f} ms{found['hover']:>9.1f} ms{found['bytes']:>12,.0f} B")
    if name.startswith("Memory"):
        print_limit(f"{name}: first paint", found["paint"], PAINT_MILLISECONDS, "ms")
        print_limit(f"{name}: a move of the pointer", found["hover"], FRAME_MILLISECONDS, "ms")
        print_limit(f"{name}: payload", found["bytes"], PAYLOAD_BYTES, "B", any_size=True)


if __name__ == "__main__":
    main()
