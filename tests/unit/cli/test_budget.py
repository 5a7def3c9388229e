"""Peaks against a budget: what passes, what violates it, and what cannot be decided."""

import dataclasses
from fractions import Fraction

import pytest
from reading_cases import make_oom, make_samples
from reading_cases import make_run as run_with

from tb_memplugin.cli.check import (
    Amount,
    Budget,
    BudgetCheck,
    check_workers,
    exit_status,
    measure,
)
from tb_memplugin.schema import MISSING, RECORDING, SAMPLES, WRONG_NUMBERS, Run, Samples

FIVE_PERCENT = Amount("5%", Fraction(5, 100), 0)
DAMAGE = "session s, samples: steps 3 to 7 are missing (1 record lost)"


def make_run(peaks: list[int], device: str = "GPU:0", **said: tuple[str, ...]) -> Run:
    return of_samples(make_samples(range(len(peaks)), peaks, device=device), **said)


def of_samples(samples: Samples, **said: tuple[str, ...]) -> Run:
    return run_with(samples, name="run", **said)  # type: ignore[arg-type]


def check_run(run: Run, budget: Budget, baseline: Run | None = None) -> list[BudgetCheck]:
    before = {} if baseline is None else {"": measure(baseline, budget)}
    return check_workers(run.name, {"": measure(run, budget)}, budget, before)


def limit(size: int) -> Budget:
    return Budget(Amount("", None, size))


def only(checks: list[BudgetCheck]) -> BudgetCheck:
    (check,) = checks
    return check


@pytest.mark.parametrize(
    ("regression", "baseline", "allowed"),
    [
        (FIVE_PERCENT, 1000, 1050),
        (Amount("29%", Fraction(29, 100), 0), 100, 129),  # 100 * 0.29 in floats is below 29
        (Amount("5%", Fraction(5, 100), 0), 19, 19),  # 19.95: never more than 5 %
        (Amount("0%", Fraction(0), 0), 1000, 1000),
        (Amount("7B", None, 7), 1000, 1007),
    ],
)
def test_a_regression_is_a_share_or_a_size(regression: Amount, baseline: int, allowed: int) -> None:
    budget = Budget(max_regression=regression)
    for peak, status in ((allowed, "within"), (allowed + 1, "violated")):
        check = only(check_run(make_run([peak]), budget, make_run([baseline])))
        assert (check.status, check.allowed_bytes, check.baseline_bytes) == (
            status,
            allowed,
            baseline,
        )
    assert (
        f"baseline {baseline:,} B".replace(",", "") in check.reason.replace(",", "")
        and regression.text in check.reason
    )


def test_a_run_that_ran_out_of_memory_violates_any_budget() -> None:
    failed = dataclasses.replace(
        make_run([100]), ooms=(dataclasses.replace(make_oom(59), device="GPU:0"),)
    )
    check = only(check_run(failed, limit(1 << 50)))
    assert (check.status, check.limit, check.step) == ("violated", "out_of_memory", 59)
    assert check.reason == "ran out of memory at step 59 (train): 8.0 MiB requested"
    check = only(check_run(make_run([100]), Budget(max_regression=FIVE_PERCENT), failed))
    assert check.status == "unchecked" and "the baseline ran out of memory" in check.reason
    check = only(check_run(failed, Budget(Amount("", None, 1 << 50), phases=("validation",))))
    assert check.status == "unchecked"


@pytest.mark.parametrize(
    "doubt",
    [
        {"damage": (DAMAGE,)},
        {"notes": (f"{SAMPLES} stopped: RuntimeError: no; training is not affected",)},
        {"notes": (f"worker_1: {RECORDING} stopped: it was closed; training is not affected",)},
        {
            "notes": (
                f"{WRONG_NUMBERS} stopped: steps must be integers from 0; training is not affected",
            )
        },
    ],
)
def test_a_lower_bound_never_passes_and_still_violates(doubt: dict[str, tuple[str, ...]]) -> None:
    run = make_run([700], **doubt)  # type: ignore[arg-type]
    check = only(check_run(run, limit(800)))
    assert check.status == "unchecked" and check.reason.startswith("peak at least 700 B")
    assert next(iter(doubt.values()))[0] in check.reason
    assert only(check_run(run, limit(699))).status == "violated"


def test_a_note_about_a_detail_is_no_doubt() -> None:
    note = "step 3 was not traced: only one profiler can run"
    assert only(check_run(make_run([700], notes=(note,)), limit(700))).status == "within"


def test_an_allocator_without_peaks_gives_a_lower_bound() -> None:
    samples = make_samples([0, 1], [MISSING, MISSING], device="GPU:0", in_use=[500, 400])
    check = only(check_run(of_samples(samples), limit(800)))
    assert check.status == "unchecked" and "keeps no peak" in check.reason
    assert only(check_run(of_samples(samples), limit(499))).status == "violated"


def test_a_damaged_baseline_proves_that_a_run_is_within_but_no_violation() -> None:
    budget, baseline = Budget(max_regression=FIVE_PERCENT), make_run([1000], damage=(DAMAGE,))
    assert only(check_run(make_run([1050]), budget, baseline)).status == "within"
    check = only(check_run(make_run([1051]), budget, baseline))
    assert check.status == "unchecked" and f"baseline: not read: {DAMAGE}" in check.reason


def test_a_device_that_was_not_recorded_is_said() -> None:
    note = "Not recording CPU:0: TensorFlow's plain CPU allocator keeps no statistics."
    nothing = of_samples(dataclasses.replace(make_samples([0], [1]), devices={}), notes=(note,))
    check = only(check_run(nothing, limit(800)))
    assert (check.status, check.reason) == ("unchecked", note)
    assert [one.status for one in check_run(make_run([1], notes=(note,)), limit(800))] == [
        "unchecked",
        "within",
    ]
    assert (
        only(
            check_run(
                make_run([1], notes=(note,)), Budget(Amount("", None, 800), devices=("GPU:0",))
            )
        ).status
        == "within"
    )


def checks_of(*statuses: str) -> list[BudgetCheck]:
    return [BudgetCheck("run", None, None, status, "") for status in statuses]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statuses", "allow_new", "expected"),
    [
        ((), False, "unchecked"),
        (("within", "within"), False, "within"),
        (("within", "new"), False, "unchecked"),
        (("within", "new"), True, "within"),
        (("within", "new", "unchecked"), True, "unchecked"),
        (("within", "unchecked", "violated"), True, "violated"),
    ],
)
def test_all_checks_together(statuses: tuple[str, ...], allow_new: bool, expected: str) -> None:
    assert exit_status(checks_of(*statuses), allow_new) == expected
