"""The pool at every step: what is measured, what follows, and between what it lies where nothing more is known."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import DEVICE, MIB, START, make_samples, make_snapshot

from tb_memplugin.analysis.overview import overview
from tb_memplugin.analysis.pool_growth import regions_by_rule
from tb_memplugin.analysis.pool_steps import MAYBE, POOL_SOURCES, THERE, PoolSteps, pool_history, pool_steps
from tb_memplugin.codec import MISSING
from tb_memplugin.model import Phase, Run, Snapshot
from tb_memplugin.store.columns import empty_activations

LIMIT = 2048 * MIB


def taken_at(step: int, pool: int | None, in_use: int = 8, limit: int | None = LIMIT, **more: object) -> Snapshot:
    """A snapshot with a pool (in MiB), all of `in_use` (in MiB) being activations."""
    made = make_snapshot(step, activations=in_use * MIB, frozen=0, trainable=0, unattributed=0)
    return dataclasses.replace(
        made,
        pool_bytes=None if pool is None else pool * MIB,
        capacity_bytes=limit,
        **more,  # type: ignore[arg-type]
    )


def run_of(peaks: list[int], *snapshots: Snapshot, starts: tuple[float, ...] = (), limit: int | None = LIMIT) -> Run:
    """Steps with peaks in MiB."""
    samples = make_samples(range(len(peaks)), [peak * MIB for peak in peaks])
    samples.devices[DEVICE].capacity_bytes[:] = MISSING if limit is None else limit
    made = Run("r", ("s",), ("",), (), samples, empty_activations(), snapshots, (), ())
    return dataclasses.replace(made, session_starts=starts)


def pool_of(run: Run, phase: Phase = "train") -> PoolSteps:
    return pool_steps(run, DEVICE, overview(run, DEVICE, phase, None, None, 10_000))


def told(pool: PoolSteps) -> list[tuple[str, int, int | None]]:
    """(source, low, high in MiB) of each row."""
    bounds = [
        (None if low == MISSING else low // MIB, None if high == MISSING else high // MIB)
        for low, high in zip(pool.low_bytes.tolist(), pool.high_bytes.tolist(), strict=True)
    ]
    return [(POOL_SOURCES[source], *bound) for source, bound in zip(pool.source.tolist(), bounds, strict=True)]


def test_between_traced_steps_with_one_pool_that_was_the_pool() -> None:
    pool = pool_of(run_of([8, 8, 8, 9], taken_at(0, 100), taken_at(3, 100, 9)))
    assert told(pool) == [
        ("traced", 100, 100),
        ("inferred", 100, 100),
        ("inferred", 100, 100),
        ("traced", 100, 100),
    ]


def test_where_the_pool_grew_it_lies_between_what_was_in_use_and_what_it_was_later() -> None:
    # GIVEN a pool of 100 MiB that has 300 three steps later, sizes of which the allocator's rule tells nothing
    pool = pool_of(run_of([8, 8, 200, 8, 9], taken_at(0, 100), taken_at(4, 301, 9)))
    assert told(pool)[1:4] == [("bounded", 100, 301), ("bounded", 200, 301), ("bounded", 200, 301)]


def test_a_pool_at_its_limit_stays_there_and_after_any_other_only_the_limit_bounds_it() -> None:
    assert told(pool_of(run_of([8, 8], taken_at(0, 2048))))[1] == ("inferred", 2048, 2048)
    assert told(pool_of(run_of([8, 8], taken_at(0, 100))))[1] == ("bounded", 100, 2048)
    assert told(pool_of(run_of([8, 8], taken_at(0, 100, limit=None), limit=None)))[1] == ("bounded", 100, None)


def test_the_rule_for_regions_tells_the_pool_as_soon_as_more_is_in_use() -> None:
    # GIVEN regions of 2, 4 and 8 MiB, then one of 16
    pool = pool_of(run_of([8, 8, 8, 15, 8, 16], taken_at(1, 14), taken_at(5, 30, 16)))
    assert told(pool) == [
        ("inferred", 14, 14),
        ("traced", 14, 14),
        ("bounded", 14, 30),
        ("inferred", 30, 30),
        ("inferred", 30, 30),
        ("traced", 30, 30),
    ]
    assert [(band.bytes // MIB, band.region, band.growth) for band in pool.bands] == [
        (2, True, 0),
        (4, True, 0),
        (8, True, 0),
        (16, True, 1),
    ]
    assert pool.there[:, 3].tolist() == [0, 0, MAYBE, THERE, THERE, THERE]
    assert (pool.there[:, :3] == THERE).all()


def test_what_is_known_at_traced_steps_only_is_told_of_no_other() -> None:
    pool = pool_of(run_of([8, 8, 8], taken_at(1, 512, rounding_bytes=77)))
    assert pool.largest_free_bytes.tolist() == [MISSING, 128 * MIB, MISSING]
    assert pool.rounding_bytes.tolist() == [MISSING, 77, MISSING]
    assert np.isnan(pool.fragmentation).tolist() == [True, False, True]


def test_a_traced_step_that_does_not_know_the_pool_tells_what_it_knows() -> None:
    pool = pool_of(run_of([8, 9], taken_at(0, None, rounding_bytes=77)))
    assert told(pool)[0] == ("none", None, None)
    assert pool.rounding_bytes.tolist() == [77, MISSING] and pool.largest_free_bytes.tolist() == [MISSING] * 2


def test_without_a_snapshot_that_knows_the_pool_nothing_is_told() -> None:
    assert told(pool_of(run_of([8, 9]))) == [("none", None, None)] * 2
    # Also one that holds less than what is in use in it knows nothing.
    assert told(pool_of(run_of([8, 9], taken_at(0, None), taken_at(1, 4)))) == [("none", None, None)] * 2


def test_a_session_begins_with_a_pool_of_its_own() -> None:
    # GIVEN two traced steps with the same pool, and a restart between them
    run = run_of([8, 8, 8, 8], taken_at(0, 100), taken_at(3, 100), starts=(START - 1, START + 0.75))
    assert told(pool_of(run)) == [
        ("traced", 100, 100),
        ("bounded", 100, 2048),
        ("bounded", 8, 100),
        ("traced", 100, 100),
    ]
    assert [growth.after for growth in pool_of(run).growths] == [None, None]


def test_regions_that_were_given_back_leave_a_pool_between_both_sizes() -> None:
    pool = pool_of(run_of([8, 8, 8], taken_at(0, 300), taken_at(2, 200)))
    assert told(pool)[1] == ("bounded", 200, 300)
    assert [(band.bytes // MIB, there) for band, there in zip(pool.bands, pool.there.T.tolist(), strict=True)] == [
        (300, [THERE, MAYBE, 0]),
        (200, [0, 0, THERE]),
    ]
    sentences = pool_of(run_of([8], taken_at(0, 300), taken_at(2, 200))).sentences
    assert "shrank by 100 MiB to 200 MiB" in sentences[1]


def test_a_growth_is_told_with_what_was_in_use_more() -> None:
    sentences = pool_of(run_of([8], taken_at(1, 14), taken_at(5, 30, 16), taken_at(9, 30))).sentences
    assert list(sentences) == [
        "The pool had 14.0 MiB at step 1, regions of 2.0 MiB, 4.0 MiB and 8.0 MiB.",
        "Between step 1 and step 5 the pool grew by 16.0 MiB to 30.0 MiB, a region of 16.0 MiB: at the peak 8.0 MiB "
        "more were in use, 8.0 MiB of it activations.",
        "From step 5 to step 9 it did not grow.",
    ]
    (_, no_more) = pool_of(run_of([8], taken_at(1, 14), taken_at(5, 30))).sentences
    assert "no free block was large enough" in no_more


def test_spans_of_steps_tell_the_idle_pool_where_it_is_known() -> None:
    history = pool_history(run_of([8, 20, 8, 8, 8], taken_at(0, 100), taken_at(2, 100)), DEVICE)
    assert [(span.first_step, span.last_step, span.source) for span in history.spans] == [
        (0, 2, "inferred"),
        (3, 4, "bounded"),
    ]
    assert (history.spans[0].least_idle_bytes, history.spans[0].most_idle_bytes) == (80 * MIB, 92 * MIB)
    assert history.spans[1].most_idle_bytes is None


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "limit", "regions"),
    [
        ([14, 30], None, [(2, 4, 8), (16,)]),
        ([62, 64], 64, [(2, 4, 8, 16, 32), (2,)]),
        ([66], None, None),  # 2 and 64, or 2, 32 and 32
        ([64], 64, None),
        ([15], None, None),  # no sum of such sizes
        ([14, 13], None, None),
        ([], None, None),
    ],
)
def test_the_regions_of_a_pool(pools: list[int], limit: int | None, regions: list[tuple[int, ...]] | None) -> None:
    found = regions_by_rule([pool * MIB for pool in pools], None if limit is None else limit * MIB)
    assert found == (None if regions is None else [tuple(size * MIB for size in sizes) for sizes in regions])


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), min_size=1, max_size=9), st.integers(4, 400))
def test_an_allocator_that_grows_is_never_contradicted(requests: list[tuple[int, bool]], limit_mib: int) -> None:
    # GIVEN an allocator as TensorFlow's source describes it, and what it was seen with after some of its growths
    limit, due, pool = limit_mib * MIB, 2 * MIB, 0
    truth: list[int] = []
    seen: list[int] = []
    for request, looked in requests:
        left = limit - pool
        if left < request:
            break
        increased = False
        while request > due:
            due, increased = 2 * due, True
        truth.append(min(due, left))
        pool += truth[-1]
        due = due if increased else 2 * due
        if looked:
            seen.append(pool)
    # WHEN the rule finds regions for what was seen
    found = regions_by_rule(seen, limit)
    # THEN they are those there were
    if found is not None:
        assert [size for sizes in found for size in sizes] == truth[: sum(map(len, found))]
        assert sum(size for sizes in found for size in sizes) == seen[-1]


def test_a_search_without_an_end_is_given_up() -> None:
    assert regions_by_rule([(1 << 60) + (1 << 22), (1 << 61) + 1], None) is None


@given(st.lists(st.integers(1, 200), min_size=2, max_size=30), st.data())
def test_bounds_hold_the_truth(growing: list[int], data: st.DataObject) -> None:
    # GIVEN a pool that grows now and then, by no rule, of which some steps are traced
    peaks = growing
    truth = np.maximum.accumulate(np.asarray(peaks)) * 2 + 1
    traced = data.draw(st.lists(st.integers(0, len(peaks) - 1), min_size=1, max_size=6, unique=True))
    run = run_of(peaks, *(taken_at(step, int(truth[step]), peaks[step]) for step in sorted(traced)))
    # THEN it lies between the bounds everywhere, and is what is said to be known
    for step, (source, low, high) in enumerate(told(pool_of(run))):
        assert source == ("traced" if step in traced else source) != "none"
        assert low is not None and high is not None and low <= truth[step] <= high
        assert (low == high) == (source in ("traced", "inferred"))
