"""The cause of growth: named where the counters' numbers explain it, and only there."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot, sentences

from tb_memplugin.analysis import Growth, answers, findings, growth_of, host_growth, host_summary
from tb_memplugin.schema import MISSING, Counters, HeldTensorGroup, LedgerRow, Run, Snapshot

STEPS = np.arange(2000)
FLAT = np.full(2000, 300 * MIB)
Row = tuple[int, Any, str | None, int, int]
LEAK = FLAT + STEPS * MIB // 10
LUMPS = FLAT + STEPS // 10 * MIB
"""1 MiB more in each tenth step."""


def counters(rows: list[Row], worker: str = "") -> Counters:
    step, kind, name, count, size = zip(*rows, strict=True)
    return Counters(np.asarray(step), kind, name, np.asarray(count), np.asarray(size), worker)


def every_tenth(kind: str, size: int, steps: int = 2000, name: str | None = "CPU:0") -> list[Row]:
    tenths = range(0, steps, 10)
    return [
        (step, kind, name, step // 10, size * (step // 10) if size >= 0 else size)
        for step in tenths
    ]


def host_run(
    host: npt.NDArray[np.int64], device: npt.NDArray[np.int64] = FLAT, **parts: Any
) -> Run:
    samples = make_samples(range(len(device)), [900 * MIB] * len(device), in_use=device.tolist())
    return make_run(dataclasses.replace(samples, host_resident_bytes=host), **parts)


def leak(device: npt.NDArray[np.int64] = LEAK, **parts: Any) -> Growth:
    found = growth_of(host_run(np.full(2000, MISSING), device, **parts), DEVICE)
    assert found is not None
    return found


def cause(rows: list[Row]) -> str | None:
    found = leak(counters=(counters(rows),)).cause
    return None if found is None else found.text


def host_cause(values: npt.NDArray[np.int64], rows: list[Row]) -> str | None:
    growth = host_growth(host_run(values, counters=(counters(rows),)))
    return None if growth.cause is None else growth.cause.text


def test_models_that_are_not_freed_explain_their_bytes() -> None:
    assert cause(every_tenth("models_alive", MIB)) == (
        "195 models (195 MiB) that were built and not freed"
    )
    # Those that are gone are told from those that exist.
    text = cause([*every_tenth("models_gone", MIB), *every_tenth("slots_without_model", MIB // 2)])
    assert text is not None and "no longer exist but whose variables were not freed" in text
    assert text.endswith("optimizers of them still exist")
    text = cause([(0, "dataset_caches", None, 1, MIB // 10)])
    assert text == "the dataset is cached in memory, 102 KiB for each batch"
    replaced = every_tenth("optimizers_replaced", MIB)
    assert cause([*replaced, *every_tenth("traces", MISSING, name="learn")]) == (
        "slots of 195 replaced optimizers (195 MiB), which TensorFlow keeps with each "
        "`tf.function` that it traced for one: `learn` was traced 195 times. Make the function "
        "and its optimizer once (in Keras: compile once), and assign its `learning_rate`"
    )
    text = cause(replaced)
    assert text is not None and "for one. Make the function" in text
    # The holder of models is named, and that of tensors.
    kept = every_tenth("kept_models", MIB, name="attribute `_model` of History in list `all`")
    assert cause([*every_tenth("models_alive", MIB), *kept]) == (
        "199 earlier models (199 MiB) kept alive by attribute `_model` of History in list `all`. "
        "Keep `history.history` instead of the History, which refers to its model"
    )
    text = cause(every_tenth("kept_tensors", MIB, name="list `outputs` in module __main__"))
    assert text == (
        "list `outputs` in module __main__ keeps 198 MiB of tensors more than at step 10"
    )
    assert cause(every_tenth("kept_tensors", MIB // 4, name="list `outputs`")) is None
    # Counters of another worker or an earlier session are not used.
    rows, later = (
        every_tenth("models_alive", MIB),
        counters([(1900, "models_alive", "CPU:0", 1, MIB)]),
    )
    assert leak(counters=(counters(rows, worker="other"),)).cause is None
    assert leak(counters=(counters(rows), later)).cause is None
    # Traces are the cause of device memory only if it is of no layer.
    sizes = {
        step: (LedgerRow(None, "other_state", None, step * MIB // 10, 0),) for step in (500, 1500)
    }
    traced = tuple(
        dataclasses.replace(make_snapshot(step), ledger=ledger) for step, ledger in sizes.items()
    )
    found = leak(snapshots=traced, counters=(counters(every_tenth("traces", MISSING, name="f")),))
    assert found.cause is not None and found.cause.kind == "retracing"


@pytest.mark.parametrize(
    "rows",
    [
        every_tenth("models_alive", MIB // 4),  # too little
        every_tenth("models_alive", 4 * MIB),  # more than there is
        every_tenth("models_alive", MIB, name="GPU:0"),  # on another device
        every_tenth("models_alive", MIB, steps=20),  # before the growth went on
        every_tenth("models_built", MISSING, name=None),  # built, and freed
        [(0, "dataset_caches", None, 1, MIB)],  # ten times too large
        [(0, "dataset_caches", None, 1, MISSING)],
        every_tenth("traces", MISSING, name="f"),  # device memory of no known owner
    ],
)
def test_no_cause_is_named_that_the_numbers_do_not_support(rows: list[Row]) -> None:
    assert cause(rows) is None


def test_traces_and_compilations_are_named() -> None:
    traces = every_tenth("traces", MISSING, name="train_step")
    text = host_cause(LUMPS, [*traces, *every_tenth("traces", MISSING, steps=50, name="other")])
    assert text is not None and text.startswith("`train_step` was traced 19")
    # XLA compiles a function that is traced: the compilation is the cause.
    shapes = every_tenth("compiled_shapes", MISSING, name="train_step")
    text = host_cause(LUMPS, [*traces, *shapes])
    assert text is not None and text.startswith("XLA compiled `train_step` 19")


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        (LUMPS, every_tenth("traces", MISSING, steps=600, name="f")),  # stopped long before the end
        # at one step
        (LUMPS, [(0, "traces", "f", 0, MISSING), (1000, "traces", "f", 900, MISSING)]),
        # too few
        (LUMPS, [(step, "traces", "f", step // 400, MISSING) for step in range(0, 2000, 400)]),
        # at other steps
        (LUMPS, [(step + 5, *rest) for step, *rest in every_tenth("traces", MISSING, name="f")]),
        # RSS that is unknown before each step that traces, and rises five steps later
        (
            np.where(STEPS % 10 == 9, MISSING, FLAT + (STEPS + 5) // 10 * MIB),
            every_tenth("traces", MISSING, name="f"),
        ),
    ],
)
def test_traces_that_do_not_go_with_the_growth_are_no_cause(values, rows: list[Row]) -> None:
    assert host_cause(values, rows) is None


def holding(step: int, grown: int, *groups: HeldTensorGroup) -> Snapshot:
    ledger = (LedgerRow(None, "held_tensors", None, grown, 0),)
    return dataclasses.replace(make_snapshot(step), ledger=ledger, held_tensors=groups)


def group(
    elements: int, size: int, held_by: str | None, line: str | None = None
) -> HeldTensorGroup:
    return HeldTensorGroup((elements,), "float32", 1, size, held_by, line)


@pytest.mark.parametrize("held_by", ["list `history` in module __main__", None])
def test_a_known_holder_is_the_cause(held_by: str | None) -> None:
    # GIVEN held tensors that make up the growth between two traced steps
    sizes = {step: step * MIB // 10 for step in (500, 1500)}
    snapshots = tuple(holding(step, size, group(4, size, held_by)) for step, size in sizes.items())
    found = leak(
        snapshots=snapshots, counters=(counters(every_tenth("traces", MISSING, name="f")),)
    )
    # Held tensors are measured, so traces are not why memory grows, whether their holder is known
    # or not.
    assert found.owner is not None and found.owner.category == "held_tensors"
    assert found.held_by == held_by and found.cause is None


def test_the_line_of_the_held_tensors_that_grow_most_is_named() -> None:
    history, cache = "list `history` in module __main__", "list `cache` in module __main__"

    def finding(*snapshots: Snapshot) -> str:
        sentence = leak(snapshots=snapshots).sentence()
        return sentence.partition("largest growth from step 500 to step 1500: ")[2].partition(";")[
            0
        ]

    steady = group(8, 900 * MIB, history, "train.py:7")
    first = holding(
        500, MIB, steady, group(4, MIB, history, "train.py:8"), group(2, MIB, cache, "train.py:9")
    )
    last = holding(
        1500,
        101 * MIB,
        steady,
        group(4, 81 * MIB, history, "train.py:8"),
        group(2, 20 * MIB, cache, None),
    )
    assert finding(first, last) == (
        f"held tensors, 100 MiB, kept alive by {history}, made at train.py:8"
    )
    # A step that made none of them does not know their line: the latest that made some does.
    last = holding(1500, 101 * MIB, steady, group(4, 101 * MIB, history, None))
    assert finding(first, last) == (
        f"held tensors, 100 MiB, kept alive by {history}, made at train.py:8"
    )
    # Without a holder, their line is named.
    unknown = (
        holding(step, step * MIB, group(4, step * MIB, None, "train.py:8")) for step in (500, 1500)
    )
    assert finding(*unknown) == "held tensors, 1000 MiB, made at train.py:8"


def test_growing_host_memory_is_a_finding_with_its_cause() -> None:
    traces = every_tenth("traces", MISSING, name="train_step")
    run = host_run(LUMPS, counters=(counters(traces),))
    (sentence,) = sentences(findings({"": run}))
    assert sentence.startswith("Host RSS grows by 10.0 MiB every 100 steps since step ")
    assert "`train_step` was traced 19" in sentence
    growing = answers(run, DEVICE)[1]
    assert growing.sentence.startswith("Host RSS +102 KiB/step since step ")
    assert growing.sentence.endswith(": retracing of train_step") and growing.status == "warning"
    (sentence,) = sentences(findings({"": host_run(LEAK)}))
    assert sentence.startswith("Host RSS grows") and "Cause" not in sentence


def with_pool(run: Run, pool: npt.NDArray[np.int64]) -> Run:
    device = dataclasses.replace(run.samples.devices[DEVICE], pool_bytes=pool)
    return dataclasses.replace(
        run, samples=dataclasses.replace(run.samples, devices={DEVICE: device})
    )


def test_host_memory_that_the_cpu_allocator_explains_is_no_second_finding() -> None:
    explained = host_run(LEAK, LEAK)
    assert host_growth(explained) is None
    # It does grow, though, and the section on host memory says so.
    summary = host_summary(explained)
    assert summary is not None and summary.growth is not None and "grows" in summary.sentence
    growth = host_growth(host_run(LEAK + STEPS * MIB // 2, LEAK))
    assert growth.beyond_cpu.bytes_per_step == pytest.approx(MIB // 2, rel=0.02)
    assert "(50.0 MiB of it beyond the memory of CPU:0)" in growth.sentence()
    # A pool that grows twice as much as the memory in use explains that much.
    run = host_run(FLAT + STEPS * MIB // 5, LEAK)
    assert host_growth(run) is not None
    assert host_growth(with_pool(run, FLAT + STEPS * MIB // 5)) is None


def test_the_answer_says_what_its_rate_is_and_leads_to_the_chart_of_host_memory() -> None:
    # GIVEN memory in use that stays, and RSS that grows; without and with a pool of CPU:0 that
    # grows less
    run = host_run(FLAT + STEPS * MIB // 2)
    for one in (run, with_pool(run, FLAT + STEPS * MIB // 8)):
        growing = answers(one, DEVICE)[1]
        # THEN nothing is called growth beyond a device whose memory in use does not grow
        assert growing.sentence.startswith("Host RSS +512 KiB/step since step ")
        assert growing.figures["host_bytes_per_step"] == pytest.approx(512 << 10, rel=0.02)
        assert growing.evidence.view == "fragmentation" and growing.evidence.zoom is not None


def kept(kind: str, size: int) -> Counters:
    """Three looks at what an object keeps, one more each step, `size` bytes each."""
    steps, name = (100, 200, 600), "list `seen` of Data"
    return counters(
        [(step, kind, name, step, size * step if size >= 0 else size) for step in steps]
    )


@pytest.mark.parametrize(
    ("size", "kind"), [(MIB // 10, "kept_arrays"), (MIB // 100, None), (MIB, None)]
)
def test_kept_arrays_are_the_cause_of_growing_host_memory_at_their_rate(
    size: int, kind: str | None
) -> None:
    found = host_growth(host_run(LEAK, counters=(kept("kept_arrays", size),))).cause
    assert (found and found.kind) == kind
    assert not found or found.text.startswith(
        "list `seen` of Data keeps 500 NumPy arrays (50.0 MiB) more"
    )
    found = leak(counters=(kept("kept_iterators", MISSING),)).cause
    assert found is not None and found.kind == "kept_iterators"
    assert found.text.startswith(
        "list `seen` of Data keeps 500 iterators over data sets more than at step 100"
    )
