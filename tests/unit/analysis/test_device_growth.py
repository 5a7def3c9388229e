"""Growth over steps and trainings: leaks are found with rate, first step and owner; other series give no finding."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import MIB, make_activations, make_run, make_samples, make_snapshot, make_table

from tb_memplugin.analysis import trend as trend_module
from tb_memplugin.analysis.growth import Growth, find_growth, session_growth
from tb_memplugin.analysis.questions import answers
from tb_memplugin.analysis.run_findings import findings, growth_findings
from tb_memplugin.analysis.trend import find_trend, largest_jump
from tb_memplugin.schema import MISSING, CounterKind, Counters, LedgerRow, Run, Snapshot
from tb_memplugin.storage.read.columns import join_samples

STEPS = np.arange(2000)
FLAT = np.full(2000, 300 * MIB)


def run_of(in_use: npt.NDArray[np.int64], **parts: object) -> Run:
    return make_run(make_samples(range(len(in_use)), [900 * MIB] * len(in_use), in_use=in_use.tolist()), **parts)


@pytest.mark.parametrize("since", [0, 500, 1500])
@pytest.mark.parametrize("noise", [0, 5 * MIB])
def test_a_leak_is_found_with_its_rate_and_its_beginning(since: int, noise: int) -> None:
    # GIVEN 256 KiB more at each step from `since` on, under noise
    random = np.random.default_rng(since)
    values = FLAT + np.maximum(0, STEPS - since) * (MIB // 4) + random.integers(0, noise + 1, 2000)
    trend = find_trend(STEPS, values)
    assert trend.bytes_per_step == pytest.approx(MIB // 4, rel=0.05)
    assert abs(trend.since_step - max(since, 40)) <= 60 and trend.last_step == 1999
    assert trend.from_bytes == pytest.approx(300 * MIB + max(0, trend.since_step - since) * MIB // 4, rel=0.03)
    assert trend.to_bytes == pytest.approx(values[-1], rel=0.03)


@pytest.mark.parametrize(("rises", "found"), [(3, False), (4, True)])
def test_a_few_rises_in_a_short_series_are_no_leak(rises: int, found: bool) -> None:
    # GIVEN 40 steps with rises of 20 MiB at regular steps
    steps = np.arange(40)
    values = 300 * MIB + 20 * MIB * np.searchsorted(np.linspace(10, 36, rises), steps, side="right")
    assert (find_trend(steps, values) is not None) == found


def test_host_memory_that_a_training_takes_once_is_no_growth() -> None:
    # GIVEN the recorded RSS of a training of VGG16, in MiB, which had no leak
    values = [1335, 1411, 1412, 1412, 1412, 1412, 1443, 1443, 1443, 1443, 1445, 1445, 1445, 1494, 1509, 1509, 1467]
    values += [1478, 1479, 1479, 1470, *[1512] * 11, 1530, 1532, 1532, 1532]
    assert find_trend(np.arange(len(values)), np.array(values) * MIB) is None


def test_single_peaks_and_smaller_batches_hide_no_leak() -> None:
    values = FLAT + STEPS * 50_000
    values[::97] += 500 * MIB
    values[49::50] -= 100 * MIB
    trend = find_trend(STEPS, values)
    assert trend is not None and trend.bytes_per_step == pytest.approx(50_000, rel=0.05)


def series() -> dict[str, npt.NDArray[np.int64]]:
    random = np.random.default_rng(11)
    warm_up = FLAT.copy()
    warm_up[:30] = np.linspace(0, 300 * MIB, 30)
    return {
        "flat": FLAT,
        "warm-up": warm_up,
        "one jump": FLAT + (STEPS >= 1000) * 200 * MIB,
        "a late jump": FLAT + (STEPS >= 1900) * 200 * MIB,
        "three jumps": FLAT + ((STEPS >= 200) * 50 + (STEPS >= 500) * 50 + (STEPS >= 600) * 50) * MIB,
        "saturating": (300 * MIB * (1 - np.exp(-STEPS / 100))).astype(np.int64),
        "falling": FLAT - STEPS * 1000,
        "sawtooth": FLAT + STEPS % 200 * MIB,
        "noise": FLAT + random.integers(0, 100 * MIB, 2000),
        "lone peaks": FLAT + np.where(random.random(2000) < 0.1, np.arange(2000) * MIB, 0),
        "tiny": FLAT + STEPS * 100,
        "short": FLAT[:30] + STEPS[:30] * MIB,
    }


@pytest.mark.parametrize("name", sorted(series()))
def test_other_series_give_no_finding(name: str) -> None:
    values = series()[name]
    assert find_trend(STEPS[: len(values)], values) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(36, 3000), st.integers(0, 60))
def test_noise_around_a_level_is_no_finding(seed: int, steps: int, amplitude: int) -> None:
    random = np.random.default_rng(seed)
    values = 300 * MIB + random.integers(0, amplitude * MIB + 1, steps)
    assert find_trend(np.arange(steps), values) is None


@pytest.mark.parametrize(("unfrozen", "word"), [(False, "jumps"), (True, "drops")])
def test_another_layer_table_is_no_growth_and_hides_none(unfrozen: bool, word: str) -> None:
    # GIVEN a jump where a layer was unfrozen, or a drop where it was frozen
    tables = (make_table(0, unfrozen=unfrozen), make_table(1000, unfrozen=not unfrozen))
    values = FLAT + ((STEPS >= 1000) != unfrozen) * 200 * MIB
    assert findings({"": run_of(values, layer_tables=tables)}) == []
    (growth,) = find_growth(run_of(values + STEPS * 100_000, layer_tables=tables))
    assert growth.trend.bytes_per_step == pytest.approx(100_000, rel=0.05)
    assert f"(including {word} of 200 MiB)" in growth.sentence()


def jumping(steps: int, rate: int, at: int, size: int, since: int = 0) -> npt.NDArray[np.int64]:
    """300 MiB, growing by `rate` per step from `since` on, `size` higher from `at` on; with small noise."""
    step = np.arange(steps)
    noise = np.random.default_rng(at).integers(-MIB // 4, MIB // 4, steps)
    return 300 * MIB + np.maximum(step - since, 0) * rate + (step >= at) * size + noise


@pytest.mark.parametrize(("steps", "since", "at"), [(240, 40, 160), (2000, 300, 700), (2000, 300, 1900)])
def test_a_jump_without_a_change_of_the_layer_table_is_no_part_of_the_rate(steps: int, since: int, at: int) -> None:
    # GIVEN a leak of 64 KiB per step, and a larger batch from some step on
    values = jumping(steps, MIB // 16, at, 20 * MIB, since)
    (growth,) = find_growth(run_of(values))
    assert growth.trend.bytes_per_step == pytest.approx(MIB // 16, rel=0.05)
    assert abs(growth.trend.since_step - since) <= max(12, steps // 40)
    # THEN the levels are those measured, the jump included
    assert growth.trend.to_bytes == pytest.approx(values[-1], abs=MIB * steps // 1000 + MIB)
    assert growth.trend.from_bytes == pytest.approx(values[since], abs=2 * MIB)
    (jump,) = growth.jumps
    assert abs(jump[0] - at) <= 1 and jump[1] == pytest.approx(20 * MIB, abs=2 * MIB)
    assert f"(including jumps of {jump[1] / MIB:.1f} MiB)" in growth.sentence()


def test_only_growth_between_jumps_names_the_owner() -> None:
    # GIVEN a leak of bytes of no layer, under a jump of activations between the last two traced steps
    leak, size = MIB // 16, 40 * MIB
    snapshots = []
    for step in (400, 1000, 1500, 1950):
        base = make_snapshot(step, unattributed=4096 + step * leak)
        more = LedgerRow("a", "activations", True, size if step >= 1800 else 256, 0)
        snapshots.append(dataclasses.replace(base, ledger=(*base.ledger, more)))
    values = jumping(2000, leak, 1800, size, 300)
    (growth,) = find_growth(run_of(values, snapshots=tuple(snapshots)))
    assert growth.owner == (None, "unattributed") and growth.owner_bytes == 1100 * leak


def test_growth_in_lumps_is_growth_and_a_jump_alone_is_none() -> None:
    lumps = FLAT + STEPS // 100 * 10 * MIB
    (growth,) = find_growth(run_of(lumps))
    assert growth.trend.bytes_per_step == pytest.approx(0.1 * MIB, rel=0.1) and growth.jumps == ()
    for at in (700, 1900):
        assert findings({"": run_of(jumping(2000, 0, at, 100 * MIB))}) == []
    for period in (200, 400, 700, 1100):
        assert findings({"": run_of(FLAT + STEPS % period * (MIB // 4))}) == []


def test_validation_and_the_step_after_it_do_not_count() -> None:
    parts = []
    for first in range(0, 600, 20):
        parts.append(make_samples([first], [900 * MIB], in_use=[(300 + first) * MIB]))
        parts.append(make_samples(range(first + 1, first + 20), [900 * MIB] * 19, in_use=[300 * MIB] * 19))
        parts.append(make_samples([first + 19], [900 * MIB], phase="validation", in_use=[(300 + first) * MIB]))
    assert findings({"": make_run(join_samples(parts)[0])}) == []


def test_a_growing_peak_is_found_if_memory_at_step_end_does_not_grow() -> None:
    samples = make_samples(range(2000), (500 * MIB + STEPS * 100_000).tolist(), in_use=FLAT.tolist())
    (growth,) = find_growth(make_run(samples))
    assert growth.at_peak and "peak memory of a training step grows" in growth.sentence()


def test_the_category_and_layer_that_grow_are_named_from_traced_steps() -> None:
    # GIVEN a leak that shows in the traced steps as bytes of no layer
    snapshots = tuple(make_snapshot(step, unattributed=4096 + step * 100_000) for step in (5, 600, 1200, 1900))
    (sentence,) = findings({"": run_of(FLAT + STEPS * 100_000, snapshots=snapshots)})
    assert sentence.startswith("CPU:0: memory in use at step end grows by 9.5 MiB every 100 steps since step ")
    assert "largest growth from step 600 to step 1900: unattributed, not tied to a layer, 124 MiB" in sentence
    assert "at this rate memory runs out by step 13945" in sentence


def test_small_tensors_whose_rounding_grows_most_are_named_with_it() -> None:
    # GIVEN a list of losses: each step adds 4 bytes in a chunk of 256
    def taken(step: int) -> Snapshot:
        base = make_snapshot(step)
        rounding = LedgerRow(None, "rounding", None, 252 * step, 252 * step)
        leak = (LedgerRow(None, "held_tensors", None, 4 * step, 0), rounding)
        return dataclasses.replace(base, ledger=(*base.ledger, *leak), in_use_bytes=base.in_use_bytes + 256 * step)

    steps = np.arange(50_000)
    samples = make_samples(range(50_000), (900 * MIB + steps).tolist(), in_use=(300 * MIB + steps * 256).tolist())
    (growth,) = find_growth(make_run(samples, snapshots=(taken(15_000), taken(45_000))))
    assert growth.owner == (None, "held_tensors")
    assert (growth.owner_bytes, growth.rounding_bytes) == (4 * 30_000, 252 * 30_000)
    clause = "largest growth from step 15000 to step 45000: held tensors, 117 KiB and 7.2 MiB of rounding"
    assert clause in growth.sentence()


def test_a_layer_that_grows_is_named_from_recorded_activations() -> None:
    recorded = make_activations(STEPS, ["a", "b", "c"], np.stack([FLAT, FLAT + STEPS * 100_000, FLAT], axis=1))
    (growth,) = find_growth(run_of(FLAT + STEPS * 100_000, activations=recorded))
    assert growth.owner == ("b", "activations")
    assert growth.owner_bytes == pytest.approx(1900 * 100_000, rel=0.1)


def test_the_step_at_which_the_device_is_full() -> None:
    # GIVEN 300 MiB of 2 GiB, a quarter of a MiB more at each step, and peaks 400 MiB above the ends of steps
    def leak(rate: int, above: int) -> Growth:
        ends = FLAT + STEPS * rate
        (growth,) = find_growth(make_run(make_samples(range(2000), (ends + above).tolist(), in_use=ends.tolist())))
        return growth

    # THEN the first step that does not fit is the one whose peak reaches the capacity
    assert leak(MIB // 4, 400 * MIB).capacity_step == pytest.approx((2048 - 300 - 400) * 4, rel=0.02)
    assert leak(MIB // 4, 0).capacity_step == pytest.approx((2048 - 300) * 4, rel=0.02)
    # AND none where that is far beyond what was seen
    assert leak(MIB // 200, 400 * MIB).capacity_step is None


def test_unknown_figures_are_no_growth() -> None:
    samples = make_samples(range(2000), [MISSING] * 2000, in_use=[MISSING] * 2000)
    assert findings({"": make_run(samples)}) == []
    half = make_samples(range(2000), [900 * MIB] * 2000, in_use=(FLAT + STEPS * 100_000).tolist())
    figures = half.devices["CPU:0"]
    known = np.where(STEPS % 2, figures.in_use_bytes, MISSING)
    half = dataclasses.replace(half, devices={"CPU:0": dataclasses.replace(figures, in_use_bytes=known)})
    assert len(findings({"": make_run(half)})) == 1


@st.composite
def any_series(draw: st.DrawFn) -> npt.NDArray[np.int64]:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = np.arange(draw(st.integers(40, 1500)))
    values = draw(st.sampled_from([0, 3, 300, 4000])) * MIB + random.normal(0, 1, len(steps)) * draw(
        st.sampled_from([0, MIB // 9, MIB, 9 * MIB])
    )
    values += np.maximum(0, steps - random.integers(len(steps))) * draw(st.sampled_from([0, 1024, MIB // 8, MIB]))
    values += (steps > random.integers(len(steps))) * draw(st.sampled_from([0, -90, 2, 40, 200])) * MIB
    values += np.cumsum(random.normal(0, 1, len(steps))) * draw(st.sampled_from([0, MIB // 90, MIB]))
    lump = draw(st.sampled_from([256, 5 * MIB]))
    return np.maximum(values, 0).astype(np.int64) // lump * lump


@settings(max_examples=200, deadline=None)
@given(any_series())
def test_what_ends_the_search_early_changes_no_finding(values: npt.NDArray[np.int64]) -> None:
    steps = np.arange(len(values))
    quick = find_trend(steps, values), largest_jump(steps, values)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trend_module, "_may_grow", lambda *_: True)
        patched.setattr(trend_module, "_ends_higher", lambda *_: True)
        patched.setattr(trend_module, "_may_jump", lambda *_: True)
        assert quick == (find_trend(steps, values), largest_jump(steps, values))


def test_the_onset_fits_as_candidates_tried_one_by_one() -> None:
    random = np.random.default_rng(3)
    for count in range(30, 240, 7):
        begins = np.cumsum(random.integers(1, 40, count)).astype(float)
        values = 300.0 * MIB + np.maximum(0, np.arange(count) - count // 3) * MIB + random.normal(0, MIB, count)
        errors = []
        for at in range(count - 7):
            level, run = np.median(values[: at + 1]), begins[at + 1 :] - begins[at]
            slope = max(0.0, float(np.median((values[at + 1 :] - level) / run)))
            flat, rising = np.abs(values[: at + 1] - level), np.abs(values[at + 1 :] - level - slope * run)
            errors.append(flat.sum() + rising.sum())
        assert trend_module._onset(begins, values) == int(np.argmin(errors))


Row = tuple[CounterKind, int, int]
"""Kind, count and bytes of a row for ``CPU:0`` at step 0."""


def run_after(*left: int, more: Sequence[Row] = (), in_use: int = 0) -> Run:
    """A run of three steps, after trainings that left so many bytes in use."""
    rows: list[Row] = [("earlier_sessions", number + 1, size) for number, size in enumerate(left)]
    rows += more
    counters = Counters(
        step=np.zeros(len(rows), np.int64),
        kind=tuple(kind for kind, _, _ in rows),
        name=("CPU:0",) * len(rows),
        count=np.asarray([count for _, count, _ in rows], np.int64),
        bytes=np.asarray([size for _, _, size in rows], np.int64),
        detail=(None,) * len(rows),
    )
    in_use = in_use or max(left, default=MIB)
    return make_run(make_samples(range(3), [in_use] * 3, in_use=[in_use] * 3), counters=(counters,))


STEADY = tuple(number * 4 * MIB + 10 * MIB for number in range(16))


def test_memory_that_rises_from_training_to_training_is_growth_though_each_has_too_few_steps() -> None:
    growth = session_growth(run_after(*STEADY), "CPU:0")
    assert growth is not None and growth.cause is None
    # The first training, which takes memory once, does not count.
    assert (growth.first, growth.sessions) == (2, 16)
    assert (growth.bytes_per_session, growth.from_bytes, growth.to_bytes) == (4 * MIB, 14 * MIB, 70 * MIB)
    assert "grows by 4.0 MiB from one training of this process to the next" in growth.sentence()
    assert "from 14.0 MiB after the 2nd to 70.0 MiB after the 16th" in growth.sentence()
    growing = answers(run_after(*STEADY), "CPU:0")[1]
    assert (growing.sentence, growing.status) == ("+4.0 MiB per training since the 2nd", "warning")
    assert growth_findings("", run_after(*STEADY)) == [growth.sentence()]


@pytest.mark.parametrize(
    "left",
    [
        (),
        STEADY[:4],  # too few
        (10 * MIB,) * 16,
        (10 * MIB,) * 8 + (90 * MIB,) * 8,  # memory that is taken once
        (10 * MIB, 40 * MIB) * 8,  # two kinds of models
        tuple(reversed(STEADY)),
        tuple(10 * MIB + number % 5 * 8 * MIB for number in range(20)),  # the collector frees it again and again
        tuple(10 * MIB + number * 1000 for number in range(16)),  # little
    ],
)
def test_other_sessions_are_no_growth(left: tuple[int, ...]) -> None:
    assert session_growth(run_after(*left), "CPU:0") is None
    assert growth_findings("", run_after(*left)) == []


@pytest.mark.parametrize(
    ("kind", "clause", "cause"),
    [
        ("models_unreachable", "`gc.collect()` frees 60.0 MiB", "models_unreachable"),
        ("models_gone", "that no longer exist but whose variables were not freed", "models_gone"),
        ("models_alive", "that were built and not freed", "models_alive"),
        ("dataset_caches", "", None),
    ],
)
def test_the_models_that_make_up_most_of_it_are_the_cause(kind: CounterKind, clause: str, cause: str | None) -> None:
    run = run_after(*STEADY, more=[("models_alive", 1, 4 * MIB), (kind, 15, 60 * MIB)])
    growth = session_growth(run, "CPU:0")
    assert growth is not None and (growth.cause and growth.cause.kind) == cause
    assert clause in growth.sentence()
    assert len(growth_findings("", run)) == 1


def test_models_that_wait_for_the_collector_are_a_finding_where_nothing_grows() -> None:
    (finding,) = growth_findings("", run_after(more=[("models_unreachable", 3, 40 * MIB)], in_use=100 * MIB))
    assert finding.startswith("CPU:0: 3 models (40.0 MiB) could no longer be reached at step 0")
    assert "`gc.collect()` frees 40.0 MiB" in finding
    # No more is freed than is in use.
    (finding,) = growth_findings("", run_after(more=[("models_unreachable", 9, 40 * MIB)], in_use=30 * MIB))
    assert "9 models (40.0 MiB)" in finding and "`gc.collect()` frees up to 30.0 MiB" in finding


@pytest.mark.parametrize("size", [MIB // 2, 4 * MIB, MISSING])
def test_few_bytes_that_wait_are_no_finding(size: int) -> None:
    assert growth_findings("", run_after(more=[("models_unreachable", 3, size)], in_use=100 * MIB)) == []
