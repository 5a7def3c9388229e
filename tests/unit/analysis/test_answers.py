"""The four answers of recorded runs and of runs with known histories: sentences, how they are
known, and evidence; the status of runs and their order; runs of evaluators, and runs without
training."""

import dataclasses
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import (
    DEVICE,
    MIB,
    START,
    make_oom,
    make_run,
    make_samples,
    make_snapshot,
    make_table,
)

from tb_memplugin import what_if
from tb_memplugin.analysis import (
    QUESTIONS,
    Answer,
    AnswerEvidence,
    answers,
    describe_devices,
    device_facts,
    device_phase,
    findings,
    growth_of,
    largest_layer,
    main_phase,
    phases,
    run_status,
    with_ranks,
    worst,
)
from tb_memplugin.export import describe_run, format_run
from tb_memplugin.schema import (
    MISSING,
    HeldTensorGroup,
    LedgerRow,
    Oom,
    OomStatus,
    Phase,
    Run,
    Samples,
    Snapshot,
    TensorGroup,
)
from tb_memplugin.storage import join_samples, samples_of_workers

STEPS = np.arange(240)
FLAT = np.full(240, 900 * MIB)


def by_name(run: Run, device: str | None = DEVICE, phase: Phase = "train") -> dict[str, Answer]:
    found = answers(run, device, phase)
    assert [answer.name for answer in found] == list(QUESTIONS)
    return {answer.name: answer for answer in found}


def sentences(run: Run, device: str | None = DEVICE, phase: Phase = "train") -> list[str]:
    return [answer.sentence for answer in by_name(run, device, phase).values()]


def run_of(peaks: npt.NDArray[np.int64], **parts: object) -> Run:
    values = peaks.tolist()
    return make_run(
        make_samples(range(len(values)), values, in_use=[300 * MIB] * len(values)), **parts
    )


def test_a_healthy_run() -> None:
    run = run_of(
        FLAT + STEPS % 7, snapshots=(make_snapshot(3), make_snapshot(41, activations=200 * MIB))
    )
    found = by_name(run)
    assert sentences(run) == [
        "900 MiB of 2.0 GiB at peak, 1.1 GiB headroom",
        "No growth over 240 steps (under 3.0 MiB)",
        "308 MiB free at peak, largest 128 MiB",
        "No changes in 240 steps",
    ]
    nothing = {(answer.sentence, answer.status) for answer in by_name(run, None).values()}
    assert nothing == {("No allocator data recorded", "unknown")}
    assert [answer.status for answer in found.values()] == ["ok", "ok", "ok", "fact"]
    assert {answer.source for answer in found.values()} == {"measured"}
    assert found["fits"].evidence == AnswerEvidence("overview", step=6, phase="train")
    sizes = {
        "peak_bytes": 900 * MIB + 6,
        "capacity_bytes": 2048 * MIB,
        "headroom_bytes": 1148 * MIB - 6,
    }
    assert found["fits"].figures == sizes
    # The snapshot with the highest peak, not the first one.
    assert found["fragmented"].evidence == AnswerEvidence("fragmentation", step=41, phase="train")
    in_use = run.snapshots[1].in_use_bytes
    assert found["fragmented"].figures["free_bytes"] == 512 * MIB - in_use


def test_the_peak_is_that_of_the_devices_table_in_any_phase() -> None:
    training = make_samples(range(10), [500 * MIB] * 10)
    validation = make_samples([9], [700 * MIB], phase="validation")
    run = make_run(join_samples([training, validation])[0])
    assert (
        by_name(run)["fits"].figures["peak_bytes"] == device_facts(run)[0].peak_bytes == 700 * MIB
    )
    assert by_name(run)["fits"].evidence == AnswerEvidence("overview", step=9, phase="validation")
    assert by_name(run, phase="validation")["fits"].figures["peak_bytes"] == 700 * MIB
    assert by_name(run, phase="predict")["fits"].status == "unknown"


def fits_of(peak: int = 900 * MIB, device: str = DEVICE, **figures: int) -> Answer:
    run = run_of(np.full(40, peak))
    changed = {name: np.full(40, size) for name, size in figures.items()}
    samples = dataclasses.replace(run.samples.devices[DEVICE], **changed)  # type: ignore[arg-type]
    run = dataclasses.replace(
        run, samples=dataclasses.replace(run.samples, devices={device: samples})
    )
    return by_name(run, device)["fits"]


def test_headroom_needs_a_capacity_and_a_peak_and_little_of_it_is_a_warning() -> None:
    assert fits_of(2000 * MIB).status == "warning"
    above, unlimited = fits_of(2100 * MIB), fits_of(capacity_bytes=MISSING)
    assert (above.status, above.sentence) == (
        "unknown",
        "Peak 2.1 GiB, above the capacity of 2.0 GiB",
    )
    assert (unlimited.status, unlimited.sentence) == ("unknown", "Peak 900 MiB, capacity unknown")
    assert unlimited.figures == {"peak_bytes": 900 * MIB}
    at_end = fits_of(peak_bytes=MISSING)  # an allocator without peaks gives a lower bound
    assert (at_end.status, at_end.sentence) == (
        "unknown",
        "At least 300 MiB of 2.0 GiB: peak unknown",
    )
    # The machine's memory is no limit that was set.
    for device, words in (("CPU:0", "no limit is set"), ("GPU:0", "1.1 GiB headroom")):
        assert fits_of(device=device, driver_total_bytes=2048 * MIB).sentence.endswith(
            f" of 2.0 GiB at peak, {words}"
        )


def leaking(rate: int = MIB // 4, **parts: object) -> Run:
    grown = np.maximum(STEPS - 40, 0) * rate
    samples = make_samples(
        range(240), (900 * MIB + grown).tolist(), in_use=(300 * MIB + grown).tolist()
    )
    return make_run(samples, **parts)


def test_a_leak_names_what_grows_since_when() -> None:
    snapshots = tuple(
        make_snapshot(step, unattributed=max(0, step - 40) * (MIB // 4)) for step in (3, 60, 220)
    )
    run = leaking(snapshots=snapshots)
    growing = by_name(run)["growing"]
    growth = growth_of(run, DEVICE)
    since = growth.trend.since_step
    assert (
        growing.sentence == f"+256 KiB/step since step {since}: unattributed"
        and abs(since - 40) < 10
    )
    assert (growing.status, growing.source) == ("warning", "measured")
    evidence = AnswerEvidence(
        "overview", step=239, phase="train", category="unattributed", zoom=(since, 239)
    )
    assert growing.evidence == evidence
    assert growing.figures["bytes_per_step"] == growth.trend.bytes_per_step
    # Growth is no jump.
    assert by_name(run)["changed"].sentence == "No changes in 240 steps"


@pytest.mark.parametrize(
    ("held_by", "line", "origin"),
    [
        (
            "list `history` in module __main__",
            None,
            ", kept alive by list `history` in module __main__",
        ),
        (
            "list `kept` in module a",
            "a.py:3",
            ", kept alive by list `kept` in module a, made at a.py:3",
        ),
        (None, "a.py:3", ", made at a.py:3"),
        (None, None, ""),
    ],
)
def test_a_leak_of_held_tensors_names_their_holder_and_line(
    held_by: str | None, line: str | None, origin: str
) -> None:
    def traced(step: int) -> Snapshot:
        size = max(1, step - 40) * (MIB // 4)
        held = (HeldTensorGroup((4,), "float32", 1, size, held_by, line),)
        snapshot = make_snapshot(step, held_tensors=held)
        ledger = (*snapshot.ledger, LedgerRow(None, "held_tensors", None, size, 0))
        return dataclasses.replace(
            snapshot, ledger=ledger, in_use_bytes=snapshot.in_use_bytes + size
        )

    growing = by_name(leaking(snapshots=tuple(map(traced, (3, 60, 220)))))["growing"]
    assert growing.sentence.endswith(": held tensors")
    # From step 60 to 220, 256 KiB at each.
    assert growing.details == (f"Held tensors +40.0 MiB since step 60{origin}.",)


def test_a_leak_says_when_memory_runs_out() -> None:
    # GIVEN peaks of 900 MiB that grow by 4 MiB a step from step 40 on, in a capacity of 2 GiB
    found = by_name(leaking(4 * MIB))
    # THEN step 40 + (2048 - 900) / 4 = 327 is the first that does not fit
    said = re.fullmatch(r"Full by step (\d+): 1\.7 of 2\.0 GiB", found["fits"].sentence)
    assert said is not None and int(said.group(1)) == pytest.approx(327, abs=3)
    assert found["fits"].details == ("At the rate of the growth, earlier with fragmentation.",)
    # AND what still fits is no reason to go on
    assert (found["fits"].status, found["fits"].figures["capacity_step"]) == (
        "warning",
        int(said.group(1)),
    )
    # AND the line to the capacity begins at the last peak
    figures = [
        found["growing"].figures[name]
        for name in ("last_step", "last_peak_bytes", "capacity_bytes")
    ]
    assert figures == [239, pytest.approx((900 + 199 * 4) * MIB, rel=0.01), 2048 * MIB]


@pytest.mark.parametrize(("requested", "status"), [(900, "failed"), (1200, "warning")])
def test_a_leak_without_which_the_failed_request_had_room_is_the_cause(
    requested: int, status: str
) -> None:
    # GIVEN 1,900 MiB of 2 GiB in use, 796 MiB of which leaked
    failure = dataclasses.replace(
        make_oom(239), requested_bytes=requested * MIB, in_use_bytes=1900 * MIB
    )
    found = by_name(
        leaking(4 * MIB, ooms=(dataclasses.replace(failure, capacity_bytes=2048 * MIB),))
    )
    assert (found["fits"].status, found["growing"].status) == ("failed", status)


def test_a_leak_of_unknown_origin_says_how_much_and_a_category_that_grows_little_is_not_named() -> (
    None
):
    little = tuple(make_snapshot(step, unattributed=step * 1000) for step in (60, 220))
    unknown, named = (
        by_name(leaking(snapshots=snapshots))["growing"] for snapshots in ((), little)
    )
    # 199 steps of 256 KiB above 300 MiB
    assert unknown.details == ("From 300 MiB to 350 MiB at step 239.",)
    assert unknown.sentence == named.sentence and named.sentence.startswith(
        "+256 KiB/step since step "
    )
    assert ":" not in named.sentence


def test_too_few_steps_have_no_trend() -> None:
    growing = by_name(run_of(FLAT[:20]))["growing"]
    assert (growing.sentence, growing.status) == ("Too few steps: 20", "unknown")
    varied = FLAT[:16].copy()
    varied[8:] += 50 * MIB
    assert by_name(run_of(varied))["changed"].sentence == "Too few steps to compare: 16"


def test_an_unfreezing_has_its_effect_and_its_comparison() -> None:
    tables = (
        make_table(0, unfrozen=False),
        make_table(120, unfrozen=True, reason="model/backbone became trainable"),
    )
    run = run_of(FLAT + (STEPS >= 120) * 75 * MIB, layer_tables=tables)
    changed = by_name(run)["changed"]
    assert changed.sentence == "Step 120: unfroze backbone, +75.0 MiB"
    assert changed.evidence == AnswerEvidence("compare", step=100, phase="train", other_step=120)
    sizes = {"delta_bytes": 75 * MIB, "peak_before_bytes": 900 * MIB, "peak_after_bytes": 975 * MIB}
    assert changed.figures == {"step": 120, **sizes}
    frozen_again = (*tables, make_table(180, unfrozen=False))
    lower = run_of(FLAT + ((STEPS >= 120) & (STEPS < 180)) * 75 * MIB, layer_tables=frozen_again)
    # Of equal effects the latest counts.
    assert by_name(lower)["changed"].sentence == "Step 180: froze backbone, −75.0 MiB"


@pytest.mark.parametrize(
    ("step", "requested", "status"), [(239, 200, "failed"), (239, 250, "fact"), (119, 200, "fact")]
)
def test_a_change_without_which_the_failed_request_had_room_is_the_cause(
    step: int, requested: int, status: str
) -> None:
    # GIVEN an unfreezing that adds 75 MiB at step 120, and a failed request with 1,900 MiB of 2 GiB
    # in use
    tables = (make_table(0, unfrozen=False), make_table(120, unfrozen=True))
    sizes = {
        "requested_bytes": requested * MIB,
        "in_use_bytes": 1900 * MIB,
        "capacity_bytes": 2048 * MIB,
    }
    failure = dataclasses.replace(make_oom(step), **sizes)
    found = by_name(run_of(FLAT + (STEPS >= 120) * 75 * MIB, layer_tables=tables, ooms=(failure,)))
    # THEN it is the cause if it came before, and without it the request had room
    assert found["changed"].status == status


@pytest.mark.parametrize(("added", "status"), [(400, "failed"), (20, "fact")])
def test_what_a_step_added_that_failed_is_the_cause_though_its_request_is_unknown(
    added: int, status: str
) -> None:
    tables = (make_table(0, unfrozen=False), make_table(239, unfrozen=True))
    sizes = {"requested_bytes": None, "in_use_bytes": 1900 * MIB, "capacity_bytes": 2048 * MIB}
    failure = dataclasses.replace(make_oom(239), **sizes)
    peaks = FLAT + (STEPS >= 239) * added * MIB
    found = by_name(run_of(peaks, layer_tables=tables, ooms=(failure,)))
    assert found["changed"].status == status


def test_tables_that_change_nothing_are_no_change_and_many_layers_are_counted() -> None:
    for names, words in ((["m/a", "m/b", "m/c"], "3 layers"), (["m/" + 200 * "x"], "1 layer")):
        tables = [make_table(step, unfrozen=step > 0) for step in (0, 120)]
        layers = [
            tuple(dataclasses.replace(one.layers[0], path=name) for name in names) for one in tables
        ]
        named = tuple(
            dataclasses.replace(one, layers=own) for one, own in zip(tables, layers, strict=True)
        )
        assert (
            by_name(run_of(FLAT, layer_tables=named))["changed"].sentence
            == f"Step 120: unfroze {words}, +0 B"
        )
    built = make_table(1, unfrozen=False, reason="optimizer Adam was built")
    compiled = make_table(100, unfrozen=False, reason="the model was compiled again")
    run = run_of(FLAT, layer_tables=(make_table(0, unfrozen=False), built, compiled))
    assert by_name(run)["changed"].sentence == "No changes in 240 steps"
    grown = run_of(FLAT + (STEPS >= 100) * 36 * MIB, layer_tables=run.layer_tables)
    assert by_name(grown)["changed"].sentence == "Step 100: the model was compiled again, +36.0 MiB"


def test_a_lasting_jump_without_a_table_is_a_change() -> None:
    random = np.random.default_rng(3)
    peaks = FLAT + (STEPS >= 150) * 60 * MIB + random.integers(0, 3 * MIB, 240)
    peaks[::37] += 200 * MIB
    changed = by_name(run_of(peaks))["changed"]
    assert changed.sentence.startswith("Step 150: peak +") and changed.evidence.view == "compare"
    before, after = changed.evidence.step, changed.evidence.other_step
    assert before is not None and after is not None and before < 150 <= after
    # The effect is exactly the difference of the two steps that the comparison shows.
    assert (
        changed.figures["delta_bytes"]
        == peaks[after] - peaks[before]
        == pytest.approx(60 * MIB, abs=3 * MIB)
    )


@pytest.mark.parametrize("seed", range(20))
def test_noise_single_peaks_and_uneven_growth_are_no_jump(seed: int) -> None:
    random = np.random.default_rng(seed)
    noise = random.integers(0, 40 * MIB, 240)
    noise[random.integers(0, 240, 5)] += 300 * MIB
    # Peaks of a leak come in lumps of some steps where the allocator does not split chunks.
    lumps = np.repeat(np.cumsum(random.integers(0, 12 * MIB, 60)), 4) + random.integers(
        0, 4 * MIB, 240
    )
    for peaks in (noise, lumps):
        assert by_name(run_of(FLAT + peaks))["changed"].sentence == "No changes in 240 steps"


def test_a_jump_is_found_in_a_growing_run_and_in_a_long_one() -> None:
    run = run_of(FLAT + STEPS * MIB + (STEPS >= 130) * 90 * MIB)
    assert by_name(run)["changed"].sentence.startswith("Step 130: peak +")
    run = run_of(np.full(70_000, 900 * MIB) + (np.arange(70_000) >= 45_000) * 60 * MIB)
    sentence = by_name(run)["changed"].sentence
    assert (
        sentence.endswith(": peak +60.0 MiB") and abs(int(sentence.split()[1][:-1]) - 45_000) <= 4
    )


def test_a_failure_by_fragmentation() -> None:
    failure = make_oom(239)
    found = by_name(run_of(FLAT, ooms=(make_oom(12), failure)))
    assert failure.verdict == "fragmentation"
    assert found["fits"].sentence == "OOM at step 239: 8.0 MiB requested"
    assert (found["fits"].status, found["fragmented"].status) == ("failed", "failed")
    assert found["fragmented"].sentence == "8.0 MiB free at the failure, largest 6.0 MiB"
    # The newest failure of two, and no headroom.
    evidence = AnswerEvidence("oom", step=239, phase="train", oom=1)
    assert found["fits"].evidence == found["fragmented"].evidence == evidence
    assert "headroom_bytes" not in found["fits"].figures
    sizes = ("requested_bytes", "free_bytes", "largest_free_bytes")
    assert all(found["fits"].figures[name] == getattr(failure, name) for name in sizes)


def failed_at(step: int, status: OomStatus) -> Oom:
    return dataclasses.replace(make_oom(step), status=status, wall_time=START + step / 2 - 0.25)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_run_that_went_on_after_a_failure_fits_since_then(restarts: bool) -> None:
    failure = failed_at(99, "failed" if restarts else "survived")
    peaks = np.where(STEPS < 100, 1900 * MIB, 900 * MIB)
    snapshots = (
        make_snapshot(3, activations=1500 * MIB),
        make_snapshot(141, activations=200 * MIB),
    )
    run = run_of(
        peaks,
        ooms=(failure,),
        snapshots=snapshots,
        session_starts=(START, START + 49.75)[: 1 + restarts],
    )
    found = by_name(run)
    # THEN the peak is that of the steps after it: the failed step's own sample, which is later too,
    # does not count
    assert found["fits"].sentence == "Since step 100: 900 MiB of 2.0 GiB at peak, 1.1 GiB headroom"
    assert found["fits"].details == ("Before: OOM at step 99: 8.0 MiB requested.",)
    assert found["fits"].status == "warning" and found["fits"].evidence.view == "overview"
    assert found["fragmented"].evidence.step == 141
    # AND a phase without later steps has the failure
    assert by_name(run, phase="validation")["fits"].status == "failed"


@pytest.mark.parametrize(
    ("step", "phase", "status", "answer"),
    [
        (238, "train", "survived", "warning"),
        (239, "train", "survived", "failed"),
        (239, None, "survived", "failed"),  # a callback failed before the step's end
        # an input pipeline failed, then a step, then its error ended the program
        (238, "train", "failed", "failed"),
    ],
)
def test_only_steps_that_show_that_the_training_went_on_count(step, phase, status, answer) -> None:
    failure = dataclasses.replace(failed_at(step, status), phase=phase)
    assert by_name(run_of(FLAT, ooms=(failure,)))["fits"].status == answer


def test_a_failure_of_another_device_and_one_about_which_little_is_known() -> None:
    run = run_of(
        FLAT, ooms=(dataclasses.replace(make_oom(59), phase="validation", device="GPU:1"),)
    )
    assert sentences(run)[0].endswith("headroom")
    said = ["OOM at step 59 (validation): 8.0 MiB requested", "Bytes in use were not sampled"]
    said += ["8.0 MiB free at the failure, largest 6.0 MiB", "Bytes in use were not sampled"]
    assert sentences(run, "GPU:1") == said
    unknown = dict.fromkeys(
        ("step", "phase", "requested_bytes", "free_bytes", "largest_free_bytes", "verdict")
    )
    run = run_of(FLAT, ooms=(dataclasses.replace(make_oom(239), **unknown),))  # type: ignore[arg-type]
    assert sentences(run)[0] == "OOM" and by_name(run)["fragmented"].status == "unknown"


@pytest.mark.parametrize(("capacity", "status"), [(512, "warning"), (2048, "ok")])
def test_scattered_free_memory_is_a_warning_if_the_pool_cannot_grow(
    capacity: int, status: str
) -> None:
    snapshot = dataclasses.replace(
        make_snapshot(3),
        capacity_bytes=capacity * MIB,
        largest_free_bytes=100 * MIB,
        in_use_bytes=104 * MIB,
    )
    run = run_of(FLAT, snapshots=(snapshot,))
    assert by_name(run)["fragmented"].status == status
    assert run_status(run, grows=False) == ("fragmented" if status == "warning" else "ok")


def test_a_measured_pool_is_that_of_the_step_end() -> None:
    samples = make_samples(
        range(240), FLAT.tolist(), in_use=[300 * MIB] * 240, pools={100: (512 * MIB, 200 * MIB)}
    )
    fragmented = by_name(make_run(samples))["fragmented"]
    assert fragmented.sentence == "212 MiB free at step end, largest 200 MiB"
    assert fragmented.evidence.step == 100


def test_free_memory_of_another_step_than_that_of_the_peak_names_its_step() -> None:
    # GIVEN the highest peak at a step that was not traced, and whose pool was not measured
    peaks = FLAT + 0
    peaks[105] = 960 * MIB
    pools = {100: (512 * MIB, 200 * MIB)}
    samples = make_samples(range(240), peaks.tolist(), in_use=[300 * MIB] * 240, pools=pools)
    # THEN the free memory is not called that of the peak
    assert sentences(run_of(peaks, snapshots=(make_snapshot(41),)))[2].startswith(
        "408 free at step 41,"
    )
    assert "212 free at the end of step 100," in sentences(make_run(samples))[2]


def test_a_damaged_run_is_not_ok_and_its_peak_is_a_lower_bound() -> None:
    damaged = flat(damage=("s.pb: 13 steps are missing",))
    fits = by_name(damaged)["fits"]
    assert (fits.sentence, fits.status) == ("At least 900 MiB of 2.0 GiB at peak", "unknown")
    assert by_name(flat(notes=("memory recording stopped: disk full",)))["fits"].status == "unknown"
    assert by_name(flat())["fits"].status == "ok"
    assert worst([run_status(damaged, grows=False)], True) == "unknown"
    assert worst(["ok", "growing"], True) == "growing"


def flat(**parts: Any) -> Run:
    return make_run(make_samples(range(40), [900 * MIB] * 40), **parts)


def test_the_worst_condition_of_a_run_is_its_status() -> None:
    assert run_status(flat(), grows=False) == "ok"
    assert run_status(flat(), grows=True) == "growing"
    assert run_status(flat(ooms=(make_oom(39),)), grows=True) == "failed"
    assert (
        run_status(flat(ooms=(dataclasses.replace(make_oom(12), status="survived"),)), grows=False)
        == "ok"
    )
    assert run_status(make_run(make_samples([], [])), grows=False) == "unknown"
    # A run of several workers has the worst status of them.
    found = [
        worst(statuses, False)
        for statuses in (["ok", "fragmented", "growing"], ["unknown", "ok"], [])
    ]
    assert found == ["growing", "ok", "unknown"]


def entry(status: str, started: float, device: bool = True, **more: Any) -> dict[str, Any]:
    devices = ["CPU:0"] if device else []
    return {
        "status": status,
        "started": started,
        "devices": devices,
        "ended": True,
        "recorded_until": started,
        **more,
    }


def test_failed_runs_come_first_then_growing_then_fragmented_then_the_newest() -> None:
    statuses = (
        ("ok", 9.0),
        ("fragmented", 1.0),
        ("growing", 2.0),
        ("failed", 3.0),
        ("failed", 4.0),
    )
    runs = [*(entry(*one) for one in statuses), entry("ok", 10.0, device=False), entry("ok", 8.0)]
    ranked = with_ranks(runs, now=1e9)
    assert [run["rank"] for run in ranked] == [4, 3, 2, 1, 0, 6, 5]
    assert [run["status"] for run in ranked] == [run["status"] for run in runs]
    # A healthy run that recorded just now and is not closed is training.
    told = (("ok", False), ("ok", True), ("growing", False))
    runs = [entry(status, 0.0, ended=ended, recorded_until=100.0) for status, ended in told]
    assert [run["status"] for run in with_ranks(runs, now=130.0)] == ["training", "ok", "growing"]
    assert [run["status"] for run in with_ranks(runs, now=161.0)] == ["ok", "ok", "growing"]


LEAK = 300 * MIB + STEPS * MIB


def samples_of(phase: Phase, leaks: bool, peak: int = 900 * MIB) -> Samples:
    in_use = LEAK if leaks else LEAK * 0 + 300 * MIB
    samples = make_samples(
        STEPS.tolist(), [peak] * 240, in_use=in_use.tolist(), phase=phase, device="GPU:0"
    )
    return dataclasses.replace(samples, host_resident_bytes=in_use)


def run_by(samples: Samples, worker: str = "") -> Run:
    return make_run(samples, workers=(worker,), session_starts=(START,))


def merged(by_worker: dict[str, Run]) -> Run:
    samples, _ = samples_of_workers({worker: run.samples for worker, run in by_worker.items()})
    return make_run(samples, workers=tuple(by_worker), session_starts=(START, START))


@pytest.fixture
def by_worker() -> dict[str, Run]:
    """A trainer whose memory stays, and an evaluator, whose memory and host RSS grow."""
    return {
        "evaluator": run_by(samples_of("validation", leaks=True), "evaluator"),
        "trainer": run_by(samples_of("train", leaks=False), "trainer"),
    }


def test_an_evaluators_memory_is_that_of_its_validation_steps(by_worker: dict[str, Run]) -> None:
    run = merged(by_worker)
    assert main_phase(run) == "train" and device_phase(run, "evaluator/GPU:0") == "validation"
    fits, growing, _, _ = answers(run, "evaluator/GPU:0")
    assert fits.figures["peak_bytes"] == 900 * MIB
    assert growing.evidence.phase == "validation" and growing.sentence.startswith(
        "+1.0 MiB/step since step "
    )
    # Rows of the evaluator lie between those of the trainer, which leaks as well in another run.
    leaking = {**by_worker, "trainer": run_by(samples_of("train", leaks=True), "trainer")}
    alone = answers(leaking["trainer"], "GPU:0")[1]
    assert answers(merged(leaking), "trainer/GPU:0")[1].figures == alone.figures
    # The page reads the evaluator alone.
    assert answers(by_worker["evaluator"], "GPU:0")[1].sentence == growing.sentence
    assert answers(run, "trainer/GPU:0")[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
    found = [one.sentence.split(" grows")[0] for one in findings(by_worker)]
    assert found == ["evaluator/GPU:0: memory in use at step end", "evaluator: host RSS"]


def test_in_a_run_without_training_the_peak_is_that_of_all_phases() -> None:
    validated = samples_of("validation", leaks=False)
    predicted = samples_of("predict", leaks=False, peak=1200 * MIB)
    run = run_by(join_samples([validated, predicted])[0])
    (device,) = describe_devices({"": run}, "validation")["devices"]
    assert (
        device["peak_bytes"]
        == answers(run, "GPU:0", "validation")[0].figures["peak_bytes"]
        == 1200 * MIB
    )
    assert device["rows"] == 240
    (device,) = describe_devices({"": run}, "predict")["devices"]
    assert (
        device["peak_bytes"]
        == answers(run, "GPU:0", "predict")[0].figures["peak_bytes"]
        == 1200 * MIB
    )


def in_phase(phase: Phase, **parts: object) -> Run:
    """240 steps of one phase with a peak of 900 MiB, and 300 MiB in use at their ends."""
    pools = dict.fromkeys((5, 100), (2000 * MIB, 1000 * MIB))
    return make_run(
        make_samples(
            STEPS.tolist(), FLAT.tolist(), in_use=[300 * MIB] * 240, phase=phase, pools=pools
        ),
        **parts,
    )


@pytest.mark.parametrize("phase", ["validation", "predict"])
def test_the_four_answers_are_about_the_recorded_phase(phase: Phase) -> None:
    run = in_phase(phase)
    assert (main_phase(run), phases(run)) == (phase, [phase])
    fits, growing, fragmented, changed = answers(run, DEVICE)
    assert (fits.sentence, fits.evidence.phase) == (
        "900 MiB of 2.0 GiB at peak, 1.1 GiB headroom",
        phase,
    )
    assert (growing.sentence, growing.status) == ("No growth over 240 steps (under 3.0 MiB)", "ok")
    assert growing.evidence.phase == phase
    assert fragmented.status != "unknown" and fragmented.evidence.phase == phase
    assert changed.sentence == "No changes in 240 steps"


@pytest.mark.parametrize(
    "steps", [240 + STEPS, np.full(240, 239)], ids=["steps of its own", "batches of one step"]
)
def test_a_phase_after_training_has_a_trend_of_its_own(steps: npt.NDArray[np.int64]) -> None:
    training = make_samples(STEPS.tolist(), FLAT.tolist(), in_use=[300 * MIB] * 240)
    grown = (300 * MIB + STEPS * (MIB // 4)).tolist()
    predicting = make_samples(steps.tolist(), FLAT.tolist(), in_use=grown, phase="predict")
    run = make_run(join_samples([training, predicting])[0])
    assert answers(run, DEVICE)[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
    # Batches after one training step have its number, and are no trend.
    growing = answers(run, DEVICE, "predict")[1]
    assert growing.sentence.startswith("+256 KiB/step since step ") == (steps[0] == 240)


def test_the_terminal_and_json_show_the_pool_of_the_phase() -> None:
    run = in_phase("predict", layer_tables=(make_table(0, unfrozen=False),))
    text = format_run(run)
    assert "240 steps (0 to 239)" in text and f"{DEVICE}, pool over predict steps:" in text
    assert "(unknown)" not in text and "training" not in text
    described = describe_run(run)
    assert described["pool"][DEVICE]["spans"] and described["steps"] == 240
    assert described["answers"][DEVICE][1]["sentence"] == "No growth over 240 steps (under 3.0 MiB)"


def test_what_if_says_why_it_predicts_nothing() -> None:
    assert what_if(in_phase("predict")).prediction.assumptions == (
        "Unknown: predictions come from training steps, and this run has only predict steps.",
    )


SCORES = TensorGroup(
    "model/block1/attention", "activations", (8, 4, 256, 256), "float32", 1, 8 * MIB
)
OTHERS = (
    dataclasses.replace(SCORES, category="workspace"),
    dataclasses.replace(SCORES, layer="model/block2/attention"),
    dataclasses.replace(SCORES, shape=(8, 256, 128), count=3, bytes=3 * MIB),
    TensorGroup("model/head", "weights", (128, 2), "float32", 1, 1024),
)


def traced(step: int, *tensors: TensorGroup, other: int = 0) -> Snapshot:
    """A snapshot of nothing but these tensors, and of other bytes that are not tied to a layer."""
    rows = [LedgerRow(one.layer, one.category, True, one.bytes, 0) for one in tensors]
    ledger = (*rows, LedgerRow(None, "held_tensors", None, other, 0))
    whole = sum(row.bytes for row in ledger)
    return dataclasses.replace(
        make_snapshot(step), in_use_bytes=whole, ledger=ledger, largest_tensors=tensors
    )


def test_the_largest_layer_is_that_at_the_highest_peak_with_its_largest_tensors() -> None:
    run = make_run(
        snapshots=(
            traced(1, OTHERS[1]),
            traced(2, SCORES, *OTHERS, other=4 * MIB),
            traced(3, OTHERS[3]),
        )
    )
    found = largest_layer(run, DEVICE, "train")
    # Two layers are named "attention": the shortest name that tells them apart. A fifth of its
    # bytes is large.
    assert found is not None and found.sentence == (
        "block1/attention 19.0 MiB (61 %): two tensors of (8, 4, 256, 256)"
    )
    assert (found.step, found.phase, found.at_failure, found.bytes) == (2, "train", False, 19 * MIB)
    assert found.share == found.bytes / run.snapshots[1].in_use_bytes
    assert [(one.shape, one.count, one.bytes) for one in found.tensors] == [
        ((8, 4, 256, 256), 2, 16 * MIB),
        ((8, 256, 128), 3, 3 * MIB),
    ]
    assert largest_layer(run, DEVICE, "validation") is None
    assert largest_layer(make_run(snapshots=(traced(1, other=MIB),)), DEVICE, "train") is None


def test_no_layer_is_named_that_holds_next_to_nothing_but_the_largest_category() -> None:
    # GIVEN a layer with 4 % of the bytes, and one with 5 %
    def named(other: int) -> tuple[str | None, str]:
        snapshot = traced(1, dataclasses.replace(OTHERS[0], bytes=4 * MIB), other=other)
        found = largest_layer(make_run(snapshots=(snapshot,)), DEVICE, "train")
        assert found is not None
        return found.layer, found.sentence

    assert named(96 * MIB) == (None, "held tensors 96.0 MiB (96 %)")
    assert named(76 * MIB)[0] == "model/block1/attention"


def test_the_largest_layer_is_that_at_a_failure() -> None:
    oom = make_oom(7)
    run = make_run(snapshots=(traced(2, SCORES),), ooms=(oom,))
    found = largest_layer(run, DEVICE, "train")
    assert found is not None and (found.step, found.at_failure) == (7, True)
    sizes = {
        layer: sum(row.bytes for row in oom.ledger if row.layer == layer)
        for layer in {"model/head", found.layer}
    }
    # its tensors are unknown
    assert found.bytes == max(sizes.values()) and found.sentence.count(":") == 0
    assert describe_run(run)["largest_layer"][DEVICE]["sentence"] == found.sentence
