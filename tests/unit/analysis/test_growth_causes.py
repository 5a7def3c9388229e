"""The cause of growth: named where the counters' numbers explain it, and only there."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import MIB, make_run, make_samples, make_snapshot

from tb_memplugin.analysis.growth import find_growth, growth_bound
from tb_memplugin.analysis.host import host_growth, host_summary
from tb_memplugin.analysis.questions import answers
from tb_memplugin.analysis.run_findings import findings
from tb_memplugin.analysis.trend import find_trend
from tb_memplugin.schema import MISSING, Counters, HeldTensorGroup, LedgerRow, Run, Snapshot
from unit.analysis.test_device_growth import FLAT, STEPS, run_of

Row = tuple[int, Any, str | None, int, int, str | None]
LEAK = FLAT + STEPS * MIB // 10
LUMPS = FLAT + STEPS // 10 * MIB
"""1 MiB more in each tenth step."""
WHY = "argument `scale` changed from 1 to 2 (Python value)"


def counters(rows: list[Row], worker: str = "") -> Counters:
    step, kind, name, count, size, detail = zip(*rows, strict=True)
    return Counters(np.asarray(step), kind, name, np.asarray(count), np.asarray(size), detail, worker)


def every_tenth(
    kind: str, size: int, steps: int = 2000, name: str | None = "CPU:0", detail: str | None = None
) -> list[Row]:
    return [
        (step, kind, name, step // 10, size * (step // 10) if size >= 0 else size, detail)
        for step in range(0, steps, 10)
    ]


def cause(values: npt.NDArray[np.int64], rows: list[Row]) -> str | None:
    (growth,) = find_growth(run_of(values, counters=(counters(rows),)))
    return None if growth.cause is None else growth.cause.text


def test_models_that_are_not_freed_explain_their_bytes() -> None:
    text = cause(LEAK, every_tenth("models_alive", MIB))
    assert text == "195 models (195 MiB) that were built and not freed"
    # Those that are gone are told from those that exist.
    text = cause(LEAK, [*every_tenth("models_gone", MIB), *every_tenth("slots_without_model", MIB // 2)])
    assert text is not None and "no longer exist but whose variables were not freed" in text
    assert text.endswith("optimizers of them still exist")
    text = cause(LEAK, [(0, "dataset_caches", None, 1, MIB // 10, None)])
    assert text == "the dataset is cached in memory, 102 KiB for each batch"


@pytest.mark.parametrize(
    "rows",
    [
        every_tenth("models_alive", MIB // 4),  # too little
        every_tenth("models_alive", 4 * MIB),  # more than there is
        every_tenth("models_alive", MIB, name="GPU:0"),  # on another device
        every_tenth("models_alive", MIB, steps=20),  # before the growth went on
        every_tenth("models_built", MISSING, name=None),  # built, and freed
        [(0, "dataset_caches", None, 1, MIB, None)],  # ten times too large
        [(0, "dataset_caches", None, 1, MISSING, None)],
    ],
)
def test_no_cause_is_named_that_the_numbers_do_not_support(rows: list[Row]) -> None:
    assert cause(LEAK, rows) is None


def test_traces_and_compilations_are_named_with_the_argument() -> None:
    traces = every_tenth("traces", MISSING, name="train_step", detail=WHY)
    text = host_cause(LUMPS, [*traces, *every_tenth("traces", MISSING, steps=50, name="other")])
    assert text is not None and text.startswith("`train_step` was traced 19") and text.endswith(WHY)
    # XLA compiles a function that is traced: the compilation is the cause.
    shapes = every_tenth("compiled_shapes", MISSING, name="train_step", detail="the shape of argument 0 changed")
    text = host_cause(LUMPS, [*traces, *shapes])
    assert text is not None and text.startswith("XLA compiled `train_step` 19")


@pytest.mark.parametrize(
    "rows",
    [
        every_tenth("traces", MISSING, steps=600, name="f"),  # stopped long before the end
        [(0, "traces", "f", 0, MISSING, None), (1000, "traces", "f", 900, MISSING, WHY)],  # at one step
        [(step, "traces", "f", step // 400, MISSING, WHY) for step in range(0, 2000, 400)],  # too few
        [(step + 5, *rest) for step, *rest in every_tenth("traces", MISSING, name="f")],  # at other steps
    ],
)
def test_traces_that_do_not_go_with_the_growth_are_no_cause(rows: list[Row]) -> None:
    assert host_cause(LUMPS, rows) is None


def test_traces_are_the_cause_of_device_memory_only_if_it_is_of_no_layer() -> None:
    rows = every_tenth("traces", MISSING, name="f")
    assert cause(LEAK, rows) is None
    snapshots = tuple(
        dataclasses.replace(make_snapshot(step), ledger=(LedgerRow(None, "other_state", None, step * MIB // 10, 0),))
        for step in (500, 1500)
    )
    (growth,) = find_growth(run_of(LEAK, snapshots=snapshots, counters=(counters(rows),)))
    assert growth.cause is not None and growth.cause.kind == "retracing"


def holding(step: int, grown: int, *groups: HeldTensorGroup) -> Snapshot:
    ledger = (LedgerRow(None, "held_tensors", None, grown, 0),)
    return dataclasses.replace(make_snapshot(step), ledger=ledger, held_tensors=groups)


def group(elements: int, size: int, held_by: str | None, line: str | None = None) -> HeldTensorGroup:
    return HeldTensorGroup((elements,), "float32", 1, size, held_by, line)


@pytest.mark.parametrize("held_by", ["list `history` in module __main__", None])
def test_a_known_holder_is_the_cause(held_by: str | None) -> None:
    # GIVEN held tensors that make up the growth between two traced steps
    sizes = {step: step * MIB // 10 for step in (500, 1500)}
    snapshots = tuple(holding(step, size, group(4, size, held_by)) for step, size in sizes.items())
    rows = (counters(every_tenth("traces", MISSING, name="f")),)
    (growth,) = find_growth(run_of(LEAK, snapshots=snapshots, counters=rows))
    # Held tensors are measured, so traces are not why memory grows, whether their holder is known or not.
    assert growth.owner == (None, "held_tensors") and growth.held_by == held_by and growth.cause is None


def test_the_line_of_the_held_tensors_that_grow_most_is_named() -> None:
    history, cache = "list `history` in module __main__", "list `cache` in module __main__"

    def finding(*snapshots: Snapshot) -> str:
        (growth,) = find_growth(run_of(LEAK, snapshots=snapshots))
        return growth.sentence().partition("largest growth from step 500 to step 1500: ")[2].partition(";")[0]

    steady = group(8, 900 * MIB, history, "train.py:7")
    first = holding(500, MIB, steady, group(4, MIB, history, "train.py:8"), group(2, MIB, cache, "train.py:9"))
    last = holding(1500, 101 * MIB, steady, group(4, 81 * MIB, history, "train.py:8"), group(2, 20 * MIB, cache, None))
    assert finding(first, last) == f"held tensors, 100 MiB, kept alive by {history}, made at train.py:8"
    # A step that made none of them does not know their line: the latest that made some does.
    last = holding(1500, 101 * MIB, steady, group(4, 101 * MIB, history, None))
    assert finding(first, last) == f"held tensors, 100 MiB, kept alive by {history}, made at train.py:8"
    # Without a holder, their line is named.
    unknown = (holding(step, step * MIB, group(4, step * MIB, None, "train.py:8")) for step in (500, 1500))
    assert finding(*unknown) == "held tensors, 1000 MiB, made at train.py:8"


def host_run(host: npt.NDArray[np.int64], device: npt.NDArray[np.int64] = FLAT, **parts: Any) -> Run:
    samples = make_samples(range(len(device)), [900 * MIB] * len(device), in_use=device.tolist())
    samples = dataclasses.replace(samples, host_resident_bytes=host)
    return make_run(samples, **parts)


def host_cause(values: npt.NDArray[np.int64], rows: list[Row]) -> str | None:
    growth = host_growth(host_run(values, counters=(counters(rows),)))
    return None if growth.cause is None else growth.cause.text


def test_growing_host_memory_is_a_finding_with_its_cause() -> None:
    traces = counters(every_tenth("traces", MISSING, name="train_step", detail=WHY))
    run = host_run(LUMPS, counters=(traces,))
    (sentence,) = findings({"": run})
    assert sentence.startswith("Host RSS grows by 10.0 MiB every 100 steps since step ")
    assert sentence.endswith(f"the last time because {WHY}.")
    growing = answers(run, "CPU:0")[1]
    assert growing.sentence.startswith("Host RSS +102 KiB/step since step ")
    assert growing.sentence.endswith(": retracing of train_step") and growing.status == "warning"
    (sentence,) = findings({"": host_run(LEAK)})
    assert sentence.startswith("Host RSS grows") and "Cause" not in sentence


def test_host_memory_that_the_cpu_allocator_explains_is_no_second_finding() -> None:
    explained = host_run(LEAK, LEAK)
    assert host_growth(explained) is None
    # It does grow, though, and the section on host memory says so.
    summary = host_summary(explained)
    assert summary is not None and summary.growth is not None and "grows" in summary.sentence()
    growth = host_growth(host_run(LEAK + STEPS * MIB // 2, LEAK))
    assert growth.beyond_cpu.bytes_per_step == pytest.approx(MIB // 2, rel=0.02)
    assert "(50.0 MiB of it beyond the memory of CPU:0)" in growth.sentence()


def with_pool(run: Run, pool: npt.NDArray[np.int64]) -> Run:
    device = dataclasses.replace(run.samples.devices["CPU:0"], pool_bytes=pool)
    return dataclasses.replace(run, samples=dataclasses.replace(run.samples, devices={"CPU:0": device}))


def test_a_growing_pool_of_the_cpu_explains_host_memory() -> None:
    # GIVEN a pool that grows twice as much as the memory in use
    run = host_run(FLAT + STEPS * MIB // 5, LEAK)
    assert host_growth(run) is not None
    assert host_growth(with_pool(run, FLAT + STEPS * MIB // 5)) is None


def test_the_answer_says_what_its_rate_is_and_leads_to_the_chart_of_host_memory() -> None:
    # GIVEN memory in use that stays, and RSS that grows; without and with a pool of CPU:0 that grows less
    run = host_run(FLAT + STEPS * MIB // 2)
    for one in (run, with_pool(run, FLAT + STEPS * MIB // 8)):
        growing = answers(one, "CPU:0")[1]
        # THEN nothing is called growth beyond a device whose memory in use does not grow
        assert growing.sentence.startswith("Host RSS +512 KiB/step since step ")
        assert growing.figures["host_bytes_per_step"] == pytest.approx(512 << 10, rel=0.02)
        assert growing.evidence.view == "fragmentation" and growing.evidence.zoom is not None


def test_steps_without_a_known_rss_do_not_count_as_rises() -> None:
    # GIVEN RSS that is unknown before each step that traces, and rises five steps later
    resident = np.where(STEPS % 10 == 9, MISSING, FLAT + (STEPS + 5) // 10 * MIB)
    assert host_cause(resident, every_tenth("traces", MISSING, name="f")) is None


def test_no_growth_names_the_bound_that_was_tested() -> None:
    run = run_of(FLAT)
    bound = growth_bound(run, "CPU:0")
    assert bound == 3 * MIB and answers(run, "CPU:0")[1].sentence == "No growth over 2,000 steps (under 3.0 MiB)"
    # Growth just above the bound is found, and below it is not.
    assert find_trend(STEPS, FLAT + STEPS * bound * 11 // 10 // 1950) is not None
    assert find_trend(STEPS, FLAT + STEPS * bound * 9 // 10 // 2000) is None


def test_counters_of_another_worker_or_an_earlier_session_are_not_used() -> None:
    rows = every_tenth("models_alive", MIB)
    later = counters([(1900, "models_alive", "CPU:0", 1, MIB, None)])
    for of_run in ((counters(rows, worker="other"),), (counters(rows), later)):
        (growth,) = find_growth(run_of(LEAK, counters=of_run))
        assert growth.cause is None


def kept(kind: str, size: int, name: str = "list `seen` of Data") -> Counters:
    """Three looks at what an object keeps, one more each step, `size` bytes each."""
    return counters([(step, kind, name, step, size * step if size >= 0 else size, None) for step in (100, 200, 600)])


def test_kept_iterators_are_named_as_the_cause() -> None:
    (growth,) = find_growth(run_of(LEAK, counters=(kept("kept_iterators", MISSING),)))
    assert growth.cause is not None and growth.cause.kind == "kept_iterators"
    assert growth.cause.text.startswith("list `seen` of Data keeps 500 iterators over data sets more than at step 100")


@pytest.mark.parametrize(("size", "kind"), [(MIB // 10, "kept_arrays"), (MIB // 100, None), (MIB, None)])
def test_kept_arrays_are_the_cause_of_growing_host_memory_at_their_rate(size: int, kind: str | None) -> None:
    resident = FLAT + STEPS * MIB // 10
    samples = dataclasses.replace(make_samples(range(2000), FLAT.tolist()), host_resident_bytes=resident)
    growth = host_growth(make_run(samples, counters=(kept("kept_arrays", size),)))
    assert (growth.cause and growth.cause.kind) == kind
    if growth.cause is not None:
        assert growth.cause.text.startswith("list `seen` of Data keeps 500 NumPy arrays (50.0 MiB) more")
