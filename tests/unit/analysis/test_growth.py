"""Growth over steps, sessions and trainings: leaks are found with rate, first step and owner; other
series are not."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_cases import (
    DEVICE,
    MIB,
    START,
    make_activations,
    make_run,
    make_samples,
    make_snapshot,
    make_table,
    sentences,
)

from tb_memplugin.analysis import (
    Growth,
    answers,
    findings,
    growth_findings,
    growth_of,
    host_growth,
)
from tb_memplugin.analysis.trend import find_trend
from tb_memplugin.export import describe_run, format_run
from tb_memplugin.schema import (
    MISSING,
    CounterKind,
    Counters,
    LedgerRow,
    Run,
    Samples,
    Snapshot,
    as_json,
)
from tb_memplugin.storage import join_samples, samples_of_workers

STEPS = np.arange(2000)
FLAT = np.full(2000, 300 * MIB)


def run_of(in_use: npt.NDArray[np.int64], **parts: object) -> Run:
    return make_run(
        make_samples(range(len(in_use)), [900 * MIB] * len(in_use), in_use=in_use.tolist()), **parts
    )


def growth(values: npt.NDArray[np.int64], **parts: object) -> Growth | None:
    return growth_of(run_of(values, **parts), DEVICE)


@pytest.mark.parametrize("since", [0, 500, 1500])
@pytest.mark.parametrize("noise", [0, 5 * MIB])
def test_a_leak_is_found_with_its_rate_and_its_beginning(since: int, noise: int) -> None:
    # GIVEN 256 KiB more at each step from `since` on, under noise
    random = np.random.default_rng(since)
    values = FLAT + np.maximum(0, STEPS - since) * (MIB // 4) + random.integers(0, noise + 1, 2000)
    trend = growth(values).trend
    assert trend.bytes_per_step == pytest.approx(MIB // 4, rel=0.05)
    assert abs(trend.since_step - max(since, 40)) <= 60 and trend.last_step == 1999
    assert trend.from_bytes == pytest.approx(
        300 * MIB + max(0, trend.since_step - since) * MIB // 4, rel=0.03
    )
    assert trend.to_bytes == pytest.approx(values[-1], rel=0.03)


def test_the_onset_fits_as_candidates_tried_one_by_one() -> None:
    random = np.random.default_rng(3)
    for count in range(45, 240, 13):
        steps, skipped = np.cumsum(random.integers(1, 40, count)), 5
        noisy = (
            300 * MIB
            + np.maximum(0, np.arange(count) - count // 3) * MIB
            + random.normal(0, MIB, count)
        )
        begins, values, errors = steps[skipped:], np.rint(noisy[skipped:]), []
        for at in range(len(values) - 7):
            level, run = np.median(values[: at + 1]), begins[at + 1 :] - begins[at]
            slope = max(0.0, float(np.median((values[at + 1 :] - level) / run)))
            flat, rising = (
                np.abs(values[: at + 1] - level),
                np.abs(values[at + 1 :] - level - slope * run),
            )
            errors.append(flat.sum() + rising.sum())
        found = find_trend(steps, np.rint(noisy).astype(np.int64))
        assert found is not None and found.since_step == begins[int(np.argmin(errors))]


@pytest.mark.parametrize(("rises", "found"), [(3, False), (4, True)])
def test_a_few_rises_in_a_short_series_are_no_leak(rises: int, found: bool) -> None:
    # GIVEN 40 steps with rises of 20 MiB at regular steps
    steps = np.arange(40)
    values = 300 * MIB + 20 * MIB * np.searchsorted(np.linspace(10, 36, rises), steps, side="right")
    assert (growth(values) is not None) == found


def series() -> dict[str, npt.NDArray[np.int64]]:
    random = np.random.default_rng(11)
    warm_up = FLAT.copy()
    warm_up[:30] = np.linspace(0, 300 * MIB, 30)
    # The recorded RSS of a training of VGG16, in MiB, which had no leak.
    once = [
        1335,
        1411,
        1412,
        1412,
        1412,
        1412,
        1443,
        1443,
        1443,
        1443,
        1445,
        1445,
        1445,
        1494,
        1509,
        1509,
        1467,
    ]
    once += [1478, 1479, 1479, 1470, *[1512] * 11, 1530, 1532, 1532, 1532]
    return {
        "flat": FLAT,
        "warm-up": warm_up,
        "taken once": np.asarray(once) * MIB,
        "one jump": FLAT + (STEPS >= 1000) * 200 * MIB,
        "a late jump": FLAT + (STEPS >= 1900) * 200 * MIB,
        "three jumps": FLAT
        + ((STEPS >= 200) * 50 + (STEPS >= 500) * 50 + (STEPS >= 600) * 50) * MIB,
        "saturating": (300 * MIB * (1 - np.exp(-STEPS / 100))).astype(np.int64),
        "falling": FLAT - STEPS * 1000,
        "sawtooth": FLAT + STEPS % 200 * MIB,
        "noise": FLAT + random.integers(0, 100 * MIB, 2000),
        "lone peaks": FLAT + np.where(random.random(2000) < 0.1, np.arange(2000) * MIB, 0),
        "tiny": FLAT + STEPS * 100,
        "short": FLAT[:30] + STEPS[:30] * MIB,
        "unknown": np.full(2000, MISSING),
    }


@pytest.mark.parametrize("name", sorted(series()))
def test_other_series_give_no_finding(name: str) -> None:
    """Neither as they are, nor after jumps are removed, for a device or host memory."""
    values = series()[name]
    assert findings({"": run_of(values)}) == []
    samples = make_samples(range(len(values)), [900 * MIB] * len(values))
    assert findings({"": make_run(dataclasses.replace(samples, host_resident_bytes=values))}) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(36, 3000), st.integers(0, 60))
def test_noise_around_a_level_is_no_finding(seed: int, steps: int, amplitude: int) -> None:
    values = 300 * MIB + np.random.default_rng(seed).integers(0, amplitude * MIB + 1, steps)
    assert growth(values) is None


@pytest.mark.parametrize(("unfrozen", "word"), [(False, "jumps"), (True, "drops")])
def test_another_layer_table_is_no_growth_and_hides_none(unfrozen: bool, word: str) -> None:
    # GIVEN a jump where a layer was unfrozen, or a drop where it was frozen
    tables = (make_table(0, unfrozen=unfrozen), make_table(1000, unfrozen=not unfrozen))
    values = FLAT + ((STEPS >= 1000) != unfrozen) * 200 * MIB
    assert growth(values, layer_tables=tables) is None
    found = growth(values + STEPS * 100_000, layer_tables=tables)
    assert found.trend.bytes_per_step == pytest.approx(100_000, rel=0.05)
    assert f"(including {word} of 200 MiB)" in found.sentence()


def jumping(steps: int, rate: int, at: int, size: int, since: int = 0) -> npt.NDArray[np.int64]:
    """300 MiB, growing by `rate` per step from `since` on, `size` higher from `at` on; with small
    noise."""
    step = np.arange(steps)
    noise = np.random.default_rng(at).integers(-MIB // 4, MIB // 4, steps)
    return 300 * MIB + np.maximum(step - since, 0) * rate + (step >= at) * size + noise


@pytest.mark.parametrize(
    ("steps", "since", "at"), [(240, 40, 160), (2000, 300, 700), (2000, 300, 1900)]
)
def test_a_jump_without_a_change_of_the_layer_table_is_no_part_of_the_rate(
    steps: int, since: int, at: int
) -> None:
    # GIVEN a leak of 64 KiB per step, and a larger batch from some step on
    values = jumping(steps, MIB // 16, at, 20 * MIB, since)
    found = growth(values)
    assert found.trend.bytes_per_step == pytest.approx(MIB // 16, rel=0.05)
    assert abs(found.trend.since_step - since) <= max(12, steps // 40)
    # THEN the levels are those measured, the jump included
    assert found.trend.to_bytes == pytest.approx(values[-1], abs=MIB * steps // 1000 + MIB)
    assert found.trend.from_bytes == pytest.approx(values[since], abs=2 * MIB)
    (jump,) = found.jumps
    assert abs(jump[0] - at) <= 1 and jump[1] == pytest.approx(20 * MIB, abs=2 * MIB)
    assert f"(including jumps of {jump[1] / MIB:.1f} MiB)" in found.sentence()


def test_only_growth_between_jumps_names_the_owner() -> None:
    # GIVEN a leak of bytes of no layer, under a jump of activations between the last two traced
    # steps
    leak, size = MIB // 16, 40 * MIB
    snapshots = []
    for step in (400, 1000, 1500, 1950):
        base = make_snapshot(step, unattributed=4096 + step * leak)
        more = LedgerRow("a", "activations", True, size if step >= 1800 else 256, 0)
        snapshots.append(dataclasses.replace(base, ledger=(*base.ledger, more)))
    owner = growth(jumping(2000, leak, 1800, size, 300), snapshots=tuple(snapshots)).owner
    assert (owner.layer, owner.category, owner.bytes) == (None, "unattributed", 1100 * leak)


def test_growth_in_lumps_is_growth_and_a_jump_alone_is_none() -> None:
    found = growth(FLAT + STEPS // 100 * 10 * MIB)
    assert found.trend.bytes_per_step == pytest.approx(0.1 * MIB, rel=0.1) and found.jumps == ()
    assert all(growth(jumping(2000, 0, at, 100 * MIB)) is None for at in (700, 1900))
    assert all(
        growth(FLAT + STEPS % period * (MIB // 4)) is None for period in (200, 400, 700, 1100)
    )


def with_epochs(values: npt.NDArray[np.int64], length: int) -> Run:
    samples = make_samples(range(len(values)), [900 * MIB] * len(values), in_use=values.tolist())
    return make_run(dataclasses.replace(samples, epoch=np.arange(len(values)) // length))


def test_growth_that_begins_anew_in_each_epoch_is_found() -> None:
    # GIVEN 128 KiB more at each step of an epoch, and remainders of chunks at every other step
    place = np.arange(180) % 60
    values = 10 * MIB + place * (MIB // 8) + (place % 2) * (place > 30) * 4 * MIB
    found = growth_of(with_epochs(values, 60), DEVICE)
    assert found is not None and found.epochs == 3 and not found.at_peak and found.full is None
    assert found.trend.bytes_per_step == pytest.approx(MIB // 8, rel=0.01)
    assert 120 <= found.trend.since_step <= 130 and found.trend.last_step == 178
    answer = answers(with_epochs(values, 60), DEVICE)[1]
    assert answer.sentence == "+128 KiB/step within each of 3 epochs"
    assert "every 100 steps within each of 3 epochs and falls back at its end" in found.sentence()
    # AND also if the last step of an epoch is sampled after its end
    freed = np.where(place == 59, 10 * MIB, values)
    assert growth_of(with_epochs(freed, 60), DEVICE).epochs == 3
    # THEN it is none where epochs end elsewhere, or where memory rises in one of them alone
    assert growth_of(with_epochs(values, 45), DEVICE) is None
    once = np.where(np.arange(180) < 60, values, values[0])
    assert growth_of(with_epochs(once, 60), DEVICE) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(36, 400), st.integers(2, 6))
def test_noise_in_epochs_is_no_growth(seed: int, length: int, epochs: int) -> None:
    values = 300 * MIB + np.random.default_rng(seed).integers(0, 60 * MIB, length * epochs)
    assert growth_of(with_epochs(values, length), DEVICE) is None


def test_validation_and_the_step_after_it_do_not_count() -> None:
    parts = []
    for first in range(0, 600, 20):
        parts.append(make_samples([first], [900 * MIB], in_use=[(300 + first) * MIB]))
        parts.append(
            make_samples(range(first + 1, first + 20), [900 * MIB] * 19, in_use=[300 * MIB] * 19)
        )
        parts.append(
            make_samples(
                [first + 19], [900 * MIB], phase="validation", in_use=[(300 + first) * MIB]
            )
        )
    assert findings({"": make_run(join_samples(parts)[0])}) == []


@pytest.mark.parametrize("per_step", [0, 64 << 10])
def test_steps_that_all_follow_a_prediction_are_compared_with_each_other(per_step: int) -> None:
    # a reinforcement loop: `fit` on one batch after each `predict`
    parts = []
    for step in range(219):
        sizes = {"peaks": [900 * MIB], "in_use": [300 * MIB + per_step * step]}
        parts.append(make_samples([step], phase="predict", **sizes))
        parts.append(make_samples([step], **sizes))
    run = make_run(join_samples(parts)[0])
    growing = answers(run, DEVICE)[1]
    assert growing.name == "growing"
    assert growing.sentence.startswith("No growth over 219 steps") == (not per_step)
    assert growing.status == ("warning" if per_step else "ok")


def test_the_category_and_layer_that_grow_are_named_from_traced_steps() -> None:
    # GIVEN a leak that shows in the traced steps as bytes of no layer
    snapshots = tuple(
        make_snapshot(step, unattributed=4096 + step * 100_000) for step in (5, 600, 1200, 1900)
    )
    (sentence,) = sentences(findings({"": run_of(FLAT + STEPS * 100_000, snapshots=snapshots)}))
    assert sentence.startswith(
        "CPU:0: memory in use at step end grows by 9.5 MiB every 100 steps since step "
    )
    assert (
        "largest growth from step 600 to step 1900: unattributed, not tied to a layer, 124 MiB"
    ) in sentence
    assert "at this rate memory runs out by step 13945" in sentence
    (found,) = findings({"": run_of(FLAT + STEPS * 100_000, snapshots=snapshots)})
    assert (found.kind, found.device, found.step, found.minor) == ("growth", "CPU:0", 1999, False)
    assert found.since_step is not None and f"since step {found.since_step}, " in sentence
    # 100,000 bytes in each step.
    assert found.bytes == pytest.approx(100_000 * (1999 - found.since_step), rel=1e-6)
    assert found.share == pytest.approx(found.bytes / (900 * MIB))


def test_small_tensors_whose_rounding_grows_most_are_named_with_it() -> None:
    # GIVEN a list of losses: each step adds 4 bytes in a chunk of 256
    def taken(step: int) -> Snapshot:
        base = make_snapshot(step)
        rounding = LedgerRow(None, "rounding", None, 252 * step, 252 * step)
        leak = (LedgerRow(None, "held_tensors", None, 4 * step, 0), rounding)
        return dataclasses.replace(
            base, ledger=(*base.ledger, *leak), in_use_bytes=base.in_use_bytes + 256 * step
        )

    steps = np.arange(50_000)
    samples = make_samples(
        range(50_000), (900 * MIB + steps).tolist(), in_use=(300 * MIB + steps * 256).tolist()
    )
    (sentence,) = sentences(
        findings({"": make_run(samples, snapshots=(taken(15_000), taken(45_000)))})
    )
    assert (
        "largest growth from step 15000 to step 45000: held tensors, 117 KiB and 7.2 MiB of "
        "rounding"
    ) in sentence


def test_a_layer_that_grows_is_named_from_recorded_activations() -> None:
    recorded = make_activations(
        STEPS, ["a", "b", "c"], np.stack([FLAT, FLAT + STEPS * 100_000, FLAT], axis=1)
    )
    owner = growth(FLAT + STEPS * 100_000, activations=recorded).owner
    assert (owner.layer, owner.category, owner.steps) == ("b", "activations", None)
    assert owner.bytes == pytest.approx(1900 * 100_000, rel=0.1)


def test_the_step_at_which_the_device_is_full() -> None:
    # GIVEN 300 MiB of 2 GiB, a quarter of a MiB more at each step, and peaks 400 MiB above the ends
    # of steps
    def full(rate: int, above: int) -> int | None:
        ends = FLAT + STEPS * rate
        samples = make_samples(range(2000), (ends + above).tolist(), in_use=ends.tolist())
        found = growth_of(make_run(samples), DEVICE).full
        assert found is None or found[1:] == (pytest.approx(ends[-1] + above, rel=0.01), 2048 * MIB)
        return found and found.capacity_step

    # THEN the first step that does not fit is the one whose peak reaches the capacity
    assert full(MIB // 4, 400 * MIB) == pytest.approx((2048 - 300 - 400) * 4, rel=0.02)
    assert full(MIB // 4, 0) == pytest.approx((2048 - 300) * 4, rel=0.02)
    # AND none where that is far beyond what was seen
    assert full(MIB // 200, 400 * MIB) is None


def test_single_peaks_smaller_batches_and_unknown_sizes_hide_no_leak() -> None:
    values = FLAT + STEPS * 50_000
    values[::97] += 500 * MIB
    values[49::50] -= 100 * MIB
    assert growth(np.where(STEPS % 2, values, MISSING)).trend.bytes_per_step == pytest.approx(
        50_000, rel=0.05
    )
    # Peaks may grow where memory at step end does not.
    (sentence,) = sentences(
        findings({"": make_run(make_samples(range(2000), values.tolist(), in_use=FLAT.tolist()))})
    )
    assert "peak memory of a training step grows" in sentence


def test_no_growth_names_the_bound_that_was_tested() -> None:
    assert answers(run_of(FLAT), DEVICE)[1].sentence == "No growth over 2,000 steps (under 3.0 MiB)"
    # Growth just above the bound is found, and below it is not.
    assert growth(FLAT + STEPS * 3 * MIB * 11 // 10 // 1950) is not None
    assert growth(FLAT + STEPS * 3 * MIB * 9 // 10 // 2000) is None


Row = tuple[CounterKind, int, int]
"""Kind, count and bytes of a row for ``CPU:0`` at step 0."""


def run_after(*left: int, more: Sequence[Row] = (), in_use: int = 0) -> Run:
    """A run of three steps, after trainings that left so many bytes in use."""
    rows: list[Row] = [("earlier_sessions", number + 1, size) for number, size in enumerate(left)]
    rows += more
    kinds, counts, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    named = kinds, ("CPU:0",) * len(rows)
    columns = np.asarray(counts, np.int64), np.asarray(sizes, np.int64)
    counters = Counters(np.zeros(len(rows), np.int64), *named, *columns)
    in_use = in_use or max(left, default=MIB)
    return make_run(make_samples(range(3), [in_use] * 3, in_use=[in_use] * 3), counters=(counters,))


STEADY = tuple(number * 4 * MIB + 10 * MIB for number in range(16))


def test_memory_that_rises_from_training_to_training_is_growth_though_each_has_too_few_steps() -> (
    None
):
    growing = answers(run_after(*STEADY), DEVICE)[1]
    assert (growing.sentence, growing.status) == ("+4.0 MiB per training since the 2nd", "warning")
    sizes = {"bytes_per_session": 4 * MIB, "from_bytes": 14 * MIB, "to_bytes": 70 * MIB}
    assert growing.figures == {"steps": 3, "sessions": 16, **sizes} and growing.source == "measured"
    # The first training, which takes memory once, does not count.
    finding = (
        "CPU:0: memory in use grows by 4.0 MiB from one training of this process to the next, "
        "from 14.0 MiB after the 2nd to 70.0 MiB after the 16th, each without its own model."
    )
    assert growing.details == (finding,) and sentences(growth_findings("", run_after(*STEADY))) == [
        finding
    ]


@pytest.mark.parametrize(
    "left",
    [
        (),
        STEADY[:4],  # too few
        (10 * MIB,) * 16,
        (10 * MIB,) * 8 + (90 * MIB,) * 8,  # memory that is taken once
        (10 * MIB, 40 * MIB) * 8,  # two kinds of models
        tuple(reversed(STEADY)),
        # the collector frees it again and again
        tuple(10 * MIB + number % 5 * 8 * MIB for number in range(20)),
        tuple(10 * MIB + number * 1000 for number in range(16)),  # little
    ],
)
def test_other_sessions_are_no_growth(left: tuple[int, ...]) -> None:
    assert growth_findings("", run_after(*left)) == []


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        ("models_unreachable", "`gc.collect()` frees 60.0 MiB"),
        ("models_gone", "that no longer exist but whose variables were not freed"),
        ("models_alive", "that were built and not freed"),
        ("dataset_caches", None),
    ],
)
def test_the_models_that_make_up_most_of_it_are_the_cause(
    kind: CounterKind, clause: str | None
) -> None:
    run = run_after(*STEADY, more=[("models_alive", 1, 4 * MIB), (kind, 15, 60 * MIB)])
    (finding,) = sentences(growth_findings("", run))
    assert ("Cause: " in finding) == (clause is not None) and (clause or "") in finding


@pytest.mark.parametrize(
    ("models", "size", "in_use", "clauses"),
    [
        (
            3,
            40,
            100,
            ["CPU:0: 3 models (40.0 MiB) could no longer be reached at step 0", "frees 40.0 MiB"],
        ),
        # no more than is in use
        (9, 40, 30, ["9 models (40.0 MiB)", "`gc.collect()` frees up to 30.0 MiB"]),
        (3, 0.5, 100, None),
        (3, 4, 100, None),
        (3, MISSING / MIB, 100, None),
    ],
)
def test_models_that_wait_for_the_collector_are_a_finding_where_nothing_grows(
    models, size, in_use, clauses
) -> None:
    more: list[Row] = [("models_unreachable", models, int(size * MIB))]
    found = sentences(growth_findings("", run_after(more=more, in_use=in_use * MIB)))
    assert len(found) == (clauses is not None) and all(
        clause in found[0] for clause in clauses or ()
    )


LATER = START + 10_000


def session(first_step: int, steps: int, start: float, rate: int = MIB) -> Samples:
    """A session whose bytes in use and RSS grow by `rate` at each step, from 300 MiB on."""
    grown = 300 * MIB + np.arange(steps) * rate
    every = range(first_step, first_step + steps)
    samples = make_samples(every, [1500 * MIB] * steps, in_use=grown.tolist(), start=start)
    return dataclasses.replace(samples, host_resident_bytes=grown)


def restarted(*sessions: Samples, **parts: Any) -> Run:
    starts = tuple(float(one.wall_time[0]) - 1 for one in sessions)
    return make_run(
        join_samples(sessions)[0], **{"sessions": ("s", "t"), "session_starts": starts, **parts}
    )


def test_memory_that_grows_again_after_a_restart_is_found() -> None:
    run = restarted(session(0, 200, START), session(200, 240, LATER))
    trend = growth_of(run, DEVICE).trend
    assert trend.bytes_per_step == pytest.approx(MIB, rel=0.02) and trend.to_bytes == pytest.approx(
        539 * MIB, rel=0.02
    )
    assert 200 < trend.since_step < 220 and trend.last_step == 439
    assert answers(run, DEVICE)[1].sentence.startswith("+1.0 MiB/step since step 2")
    # AND so is host RSS where the device's memory does not grow
    device = run.samples.devices[DEVICE]
    flat = dataclasses.replace(device, in_use_bytes=device.in_use_bytes * 0 + 300 * MIB)
    run = dataclasses.replace(run, samples=dataclasses.replace(run.samples, devices={DEVICE: flat}))
    found = host_growth(run)
    assert found.trend.since_step > 200 and found.trend.bytes_per_step == pytest.approx(
        MIB, rel=0.02
    )
    assert found.sentence() == sentences(findings({"": run}))[0]


def test_after_a_short_session_the_one_before_it_counts() -> None:
    run = restarted(session(0, 200, START), session(200, 10, LATER))
    assert growth_of(run, DEVICE).trend.last_step == 199
    # Sessions of several workers overlap: they are not told apart.
    assert growth_of(dataclasses.replace(run, workers=("a", "b")), DEVICE) is None


@pytest.mark.parametrize(("short", "found"), [(19, True), (20, False)])
def test_sessions_are_told_apart_up_to_a_limit(short: int, found: bool) -> None:
    later = [session(200 + at, 1, LATER + 10 * at) for at in range(short)]
    assert (growth_of(restarted(session(0, 200, START), *later), DEVICE) is not None) == found


def test_each_worker_of_a_restarted_training_has_its_own_sessions() -> None:
    by_worker = {
        "a": restarted(session(0, 200, START), session(200, 240, LATER), workers=("a",)),
        "b": restarted(
            session(0, 440, START, rate=0), session(440, 5, LATER + 5, rate=0), workers=("b",)
        ),
    }
    samples, _ = samples_of_workers({worker: run.samples for worker, run in by_worker.items()})
    starts = tuple(sorted(start for run in by_worker.values() for start in run.session_starts))
    run = make_run(samples, workers=("a", "b"), session_starts=starts)
    told = describe_run(run, by_worker=by_worker)
    for worker, own in by_worker.items():
        alone = as_json(answers(own, DEVICE)[1])
        (growing,) = [
            answer for answer in told["answers"][f"{worker}/CPU:0"] if answer["name"] == "growing"
        ]
        assert growing == {**alone, "device": f"{worker}/CPU:0"}
        assert growing["sentence"].replace("\u202f", " ") in format_run(run, by_worker=by_worker)
    assert told["answers"]["a/CPU:0"][1]["sentence"].startswith("+1.0 MiB/step since step 2")
    assert told["answers"]["b/CPU:0"][1]["sentence"] == "No growth over 440 steps (under 3.0 MiB)"
    (finding,) = sentences(findings(by_worker))
    assert finding.startswith(
        "a/CPU:0: memory in use at step end grows by 100 MiB every 100 steps since step 2"
    )


def test_a_leak_that_a_restart_mended_is_no_finding() -> None:
    run = restarted(session(0, 200, START), session(200, 240, LATER, rate=0))
    assert findings({"": run}) == [] and host_growth(run) is None
    assert answers(run, DEVICE)[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
