"""Runs for the tests of exports: sizes and times are stated here, and tests compare with them."""

import pathlib

from reading_cases import MIB, make_map, make_samples

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.export import Runs
from tb_memplugin.schema import Timeline
from tb_memplugin.storage.write import RunWriter

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "runs"
"""Recorded runs; `out_of_memory` has timelines of some steps."""
TIMELINE_STEPS = tuple(sorted(one.step for one in Runs(FIXTURES)["out_of_memory"].timelines))
"""These steps; the last one ran out of memory."""

GIB = 1 << 30
MONDAY = 1_789_948_800.0
"""2026-09-21, 00:00 UTC."""
WEEK = 7 * 86_400.0
GPU_PEAKS = {
    ("base", "worker_0", 0): 30 * GIB,
    ("base", "worker_1", 0): 31 * GIB,
    ("base", "worker_1", 1): 33 * GIB,
    ("wider", "", 1): 41 * GIB,
    ("reverted", "", 2): 30 * GIB,
}
"""Run, worker and week to the highest peak of ``GPU:0``, at the fourth of its five steps."""
FAILED = ("failed", 39 * GIB, 2 * GIB)
"""Run, bytes in use and request of a failed allocation."""
COMMITS = """run,commit,committed
base,aaa111,2026-09-20T10:00:00
wider,bbb222,2026-09-27T10:00:00
reverted,ccc333,2026-10-04T10:00:00
"""


def write_weeks(logdir: pathlib.Path) -> None:
    """Write the runs of `GPU_PEAKS` and `FAILED`; each has a CPU, whose peaks are below those of
    the GPUs."""
    for run, worker in dict.fromkeys((run, worker) for run, worker, _ in GPU_PEAKS):
        writer = RunWriter(logdir / run, worker=worker)
        for (of_run, of_worker, week), peak in GPU_PEAKS.items():
            if (of_run, of_worker) == (run, worker):
                steps = range(10 * week, 10 * week + 5)
                start = MONDAY + week * WEEK
                peaks = [peak if step % 10 == 3 else peak - MIB for step in steps]
                writer.samples(make_samples(steps, peaks, device="GPU:0", start=start))
                writer.samples(make_samples(steps, [GIB] * 5, device="CPU:0", start=start))
        writer.close()
    run, in_use, requested = FAILED
    writer = RunWriter(logdir / run)
    event = OomEvent(
        "1",
        "failed",
        "GPU:0",
        MONDAY,
        0,
        "train",
        requested,
        "model/dense/MatMul",
        "model/dense",
        "[16]",
    )
    oom = post_mortem(event, make_map(0, device="GPU:0", capacity=40 * GIB))
    writer.oom(type(oom)(**{**vars(oom), "in_use_bytes": in_use, "ledger": ()}))
    writer.close()


def recorded_ledger(timeline: Timeline) -> dict[tuple[str | None, str], int]:
    """Layer and category to the bytes in the breakdown of a step of the fixture `out_of_memory`."""
    (snapshot,) = (
        one
        for one in Runs(FIXTURES, details=False)["out_of_memory"].snapshots
        if one.step == timeline.step
    )
    assert sum(row.bytes for row in snapshot.ledger) == timeline.in_use_bytes
    ledger: dict[tuple[str | None, str], int] = {}
    for row in snapshot.ledger:
        ledger[row.layer, row.category] = ledger.get((row.layer, row.category), 0) + row.bytes
    return {key: size for key, size in ledger.items() if size}
