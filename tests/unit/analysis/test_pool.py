"""The pool at every step: measured at step end, else traced at the peak, else unknown; the division
of device memory sums to the total, whatever the driver reports."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import DEVICE, MIB, START, make_run, make_samples, make_snapshot

from tb_memplugin.analysis import POOL_SOURCES, device_memory, pool_history, pool_steps
from tb_memplugin.export import format_run
from tb_memplugin.schema import MISSING, Run, Snapshot


def traced(
    step: int, pool: int | None, in_use: int = 8, largest: int = 2, rounding: int | None = 77
) -> Snapshot:
    """A snapshot with sizes in MiB, all of `in_use` being activations."""
    made = make_snapshot(step, activations=in_use * MIB, frozen=0, trainable=0, unattributed=0)
    free = 0 if pool is None else pool - in_use
    return dataclasses.replace(
        made,
        pool_bytes=None if pool is None else pool * MIB,
        largest_free_bytes=largest * MIB,
        fragmentation=(free - largest) / free if free > 0 else None,
        rounding_bytes=rounding,
    )


def run_of(
    peaks: Sequence[int],
    pools: Mapping[int, tuple[int, int]] | None = None,
    snapshots: Sequence[Snapshot] = (),
    starts: tuple[float, ...] = (),
) -> Run:
    """Steps with peaks in MiB and half of that allocated at their ends; `pools` in MiB at measured
    steps."""
    sizes = {step: (pool * MIB, largest * MIB) for step, (pool, largest) in (pools or {}).items()}
    in_use = [peak * MIB // 2 for peak in peaks]
    samples = make_samples(
        range(len(peaks)), [peak * MIB for peak in peaks], in_use=in_use, pools=sizes
    )
    return make_run(samples, snapshots=tuple(snapshots), session_starts=starts)


def pool_of(run: Run, limit: int = 10_000) -> Any:
    pool = pool_steps(run, DEVICE, "train", None, None, limit)
    return types.SimpleNamespace(
        **pool.columns._asdict(), growths=pool.growths, sentences=pool.sentences
    )


def figures(pool: Any) -> list[tuple[str, int | None, int | None]]:
    """(source, pool, largest free chunk in MiB) of each row."""
    sizes = zip(
        pool.pool_source.tolist(),
        pool.pool_bytes.tolist(),
        pool.largest_free_bytes.tolist(),
        strict=True,
    )
    return [
        (
            POOL_SOURCES[source],
            *(None if size == MISSING else size // MIB for size in (total, largest)),
        )
        for source, total, largest in sizes
    ]


def test_a_row_is_measured_or_traced_or_unknown() -> None:
    pool = pool_of(
        run_of([8, 8, 8, 8], {0: (16, 9), 2: (16, 12)}, [traced(1, 16, largest=2), traced(2, 16)])
    )
    assert figures(pool) == [
        ("measured", 16, 9),
        ("traced", 16, 2),
        ("measured", 16, 12),
        ("unknown", None, None),
    ]
    assert pool.rounding_bytes.tolist() == [MISSING, 77, 77, MISSING]
    assert pool.fragmentation[:3].tolist() == [0.25, 0.75, 0.0] and np.isnan(pool.fragmentation[3])


@pytest.mark.parametrize("pool", [(3, 0), (16, 13), (16, -1)])
def test_inconsistent_figures_are_unknown(pool: tuple[int, int]) -> None:
    # GIVEN 4 MiB allocated at the end of the step
    run = run_of([8], {0: pool})
    if pool[1] < 0:
        run.samples.devices[DEVICE].largest_free_bytes[:] = MISSING
    assert figures(pool_of(run)) == [("unknown", None, None)]
    assert figures(pool_of(run_of([8], None, [traced(0, 7)]))) == [("unknown", None, None)]
    assert figures(pool_of(run_of([8], None, [traced(0, 16, largest=9)]))) == [("traced", 16, None)]
    # BUT a full pool is known, and has no fragmentation
    full = pool_of(run_of([8], {0: (4, 0)}))
    assert figures(full) == [("measured", 4, 0)] and np.isnan(full.fragmentation[0])


def test_growth_has_sentences_with_two_known_steps_and_a_reason() -> None:
    run = run_of([8, 8, 16, 8, 8, 8], {0: (16, 9), 2: (32, 16), 3: (48, 40), 5: (48, 40)})
    pool = pool_of(run)
    found = [
        (growth.after_step, growth.by_step, growth.pool_bytes // MIB) for growth in pool.growths
    ]
    assert found == [(None, 0, 16), (0, 2, 32), (2, 3, 48)]
    assert list(pool.sentences) == [
        "The pool was 16.0 MiB at step 0.",
        "Between step 0 and step 2 the pool grew by 16.0 MiB to 32.0 MiB: the highest peak rose "
        "by 8.0 MiB.",
        "Between step 2 and step 3 the pool grew by 16.0 MiB to 48.0 MiB: no free chunk was "
        "large enough for a request, although the highest peak did not rise.",
        "From step 3 to step 5 the known pool sizes are the same.",
    ]


def test_a_pool_that_shrank_returned_regions() -> None:
    (_, sentence) = pool_of(run_of([8, 8], {0: (32, 9), 1: (16, 9)})).sentences
    shrank = "Between step 0 and step 1 the pool shrank by 16.0 MiB to 16.0 MiB"
    assert sentence == f"{shrank}: the allocator returned free regions to the device."


def test_growth_is_seen_in_every_phase_and_in_traced_steps() -> None:
    run = run_of(
        [8, 8],
        {0: (16, 9)},
        [traced(1, 32), dataclasses.replace(traced(1, 64), phase="validation")],
    )
    validation = dataclasses.replace(run.snapshots[1], wall_time=START + 10)
    run = dataclasses.replace(run, snapshots=(run.snapshots[0], validation))
    sentences = pool_of(run).sentences
    assert sentences[1].startswith(
        "Between step 0 and step 1 the pool grew by 16.0 MiB to 32.0 MiB"
    )
    assert sentences[2].startswith("At step 1 the pool grew by 32.0 MiB to 64.0 MiB")


def test_a_session_begins_with_a_pool_of_its_own() -> None:
    run = run_of([8] * 4, {0: (16, 9), 3: (16, 9)}, starts=(START - 1, START + 0.75))
    pool = pool_of(run)
    assert [growth.after_step for growth in pool.growths] == [None, None]
    assert pool.session.tolist() == [1, 1, 2, 2]
    assert len(pool_history(run, DEVICE).spans) == 2


def test_only_the_last_of_many_changes_have_sentences() -> None:
    run = run_of([8] * 100, {step: (16 + step, 9) for step in range(100)})
    sentences = pool_of(run).sentences
    assert len(sentences) == 31 and sentences[0] == "70 earlier changes are not shown."


def test_a_run_without_samples_or_snapshots_has_no_growth() -> None:
    assert (
        pool_of(run_of([8, 8])).growths == () and pool_history(run_of([8, 8]), DEVICE).spans == ()
    )
    bare = dataclasses.replace(run_of([]), snapshots=(traced(3, 16),))
    bare.samples.devices.clear()  # type: ignore[attr-defined]
    assert figures(pool_of(bare)) == [("traced", 16, 2)]


def test_spans_hold_the_range_of_their_known_steps() -> None:
    run = run_of([8, 20, 8, 8], {0: (100, 60), 1: (100, 50), 3: (100, 96)}, [traced(2, 100)])
    history = pool_history(run, DEVICE)
    assert [
        (span.first_step, span.last_step, span.known_steps, span.source) for span in history.spans
    ] == [
        (0, 1, 2, "measured"),
        (2, 2, 1, "traced"),
        (3, 3, 1, "measured"),
    ]
    span = history.spans[0]
    # Free bytes are of the instant of the figures: half of the peak is allocated at a step's end.
    assert (span.least_free_bytes, span.most_free_bytes) == (90 * MIB, 96 * MIB)
    assert (span.least_largest_free_bytes, span.most_fragmentation) == (
        50 * MIB,
        pytest.approx(1 - 50 / 90),
    )
    lines = format_run(run).splitlines()
    lines = lines[lines.index("CPU:0, pool over training steps:") :]
    assert lines[:2] == [
        "CPU:0, pool over training steps:",
        "  steps 0 to 1 (2 measured at step end): pool 100 MiB, free 90.0 MiB to 96.0 MiB, "
        "largest free chunk at least 50.0 MiB,",
    ]
    assert lines[2] == "    fragmentation up to 44 %"
    assert lines[3].startswith(
        "  step 2 (traced, at the peak): pool 100 MiB, free 92.0 MiB, largest"
    )


@given(
    st.lists(
        st.none() | st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500)),
        min_size=1,
        max_size=400,
    ),
    st.integers(20, 60),
)
def test_a_reduction_keeps_the_extremes(
    rows: list[tuple[int, int, int] | None], limit: int
) -> None:
    # GIVEN any measured figures (largest free chunk, other free chunks, allocated) at some steps
    run = run_of([1] * len(rows))
    of_device = run.samples.devices[DEVICE]
    for step, row in enumerate(rows):
        if row is not None:
            of_device.in_use_bytes[step] = row[2]
            of_device.pool_bytes[step], of_device.largest_free_bytes[step] = sum(row), row[0]
    whole, reduced = pool_of(run), pool_of(run, limit)
    # THEN the lowest and the highest of each figure are there, and every row is a real one
    for name in ("pool_bytes", "largest_free_bytes", "fragmentation"):
        before, after = [
            getattr(pool, name)[pool.pool_source == POOL_SOURCES.index("measured")]
            for pool in (whole, reduced)
        ]
        before, after = before[~np.isnan(before)], after[~np.isnan(after)]
        assert (
            len(after) == 0
            if len(before) == 0
            else (before.min(), before.max()) == (after.min(), after.max())
        )


SNAPSHOT = make_snapshot(3)


def bar(process: int, used: int, total: int, **changes: object) -> Any:
    samples = make_samples([3], [200 * MIB])
    figures = dataclasses.replace(
        samples.devices[DEVICE],
        driver_process_bytes=np.asarray([process]),
        driver_used_bytes=np.asarray([used]),
        driver_total_bytes=np.asarray([total]),
    )
    snapshot = dataclasses.replace(SNAPSHOT, **changes)  # type: ignore[arg-type]
    run = make_run(dataclasses.replace(samples, devices={DEVICE: figures}), snapshots=(snapshot,))
    return device_memory(run, DEVICE)


def sizes(found: Any) -> dict[str, int]:
    sums: dict[str, int] = {}
    for segment in found.segments:
        sums[segment.part] = sums.get(segment.part, 0) + segment.bytes
    return sums


def test_the_parts_sum_to_the_device_memory() -> None:
    found = bar(600 * MIB, 1000 * MIB, 4096 * MIB)
    in_use = SNAPSHOT.in_use_bytes
    assert sizes(found) == {
        "in_use": in_use,
        "free_largest": 128 * MIB,
        "free_other": 512 * MIB - in_use - 128 * MIB,
        "process_other": 88 * MIB,
        "others": 400 * MIB,
        "device_free": 3096 * MIB,
    }
    assert sum(sizes(found).values()) == found.total_bytes == 4096 * MIB and found.notes == ()


@pytest.mark.parametrize("process", [MISSING, 100 * MIB])
def test_a_driver_without_process_figures_is_noted(process: int) -> None:
    found = bar(process, 1000 * MIB, 4096 * MIB)
    assert sizes(found)["others"] == 488 * MIB and "process_other" not in sizes(found)
    assert sum(sizes(found).values()) == 4096 * MIB
    assert len(found.notes) == 1 and "unknown" in found.notes[0]


def test_without_the_pools_size_its_free_part_is_unknown() -> None:
    found = bar(600 * MIB, 1000 * MIB, 4096 * MIB, pool_bytes=None, largest_free_bytes=None)
    assert not {"free_largest", "free_other", "pool_free"} & sizes(found).keys()
    assert any("free part of the pool" in note for note in found.notes)
    # Without a driver the bar is the allocator's limit.
    found = bar(MISSING, MISSING, MISSING)
    assert sizes(found)["unreserved"] == (2048 - 512) * MIB
    assert sum(sizes(found).values()) == found.total_bytes == 2048 * MIB
    # AND without a driver the remaining capacity is not called unreserved: a part of it may be
    # reserved
    found = bar(MISSING, MISSING, MISSING, pool_bytes=None, largest_free_bytes=None)
    assert (
        "unreserved" not in sizes(found)
        and sizes(found)["headroom"] == 2048 * MIB - found.snapshot.in_use_bytes
    )


def test_contradictory_figures_give_no_bar() -> None:
    found = bar(600 * MIB, 700 * MIB, 100 * MIB)
    assert found.segments == () and any("do not fit" in note for note in found.notes)
