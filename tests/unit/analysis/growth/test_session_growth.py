"""Growth from one training of a process to the next, and models that wait for Python's garbage collector."""

from collections.abc import Sequence

import numpy as np
import pytest
from reading_cases import MIB, make_samples

from tb_memplugin.analysis.answers.questions import answers
from tb_memplugin.analysis.findings import growth_findings
from tb_memplugin.analysis.growth.session_growth import session_growth
from tb_memplugin.model import MISSING, CounterKind, Counters, Run
from unit.analysis.growth.test_device_growth import make_run

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
def test_other_series_are_no_growth(left: tuple[int, ...]) -> None:
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
    # AND nothing is said twice
    assert len(growth_findings("", run)) == 1


def test_models_that_wait_for_the_collector_are_a_finding_where_nothing_grows() -> None:
    (finding,) = growth_findings("", run_after(more=[("models_unreachable", 3, 40 * MIB)], in_use=100 * MIB))
    assert finding.startswith("CPU:0: 3 models (40.0 MiB) could no longer be reached at step 0")
    assert "`gc.collect()` frees 40.0 MiB" in finding


def test_no_more_is_freed_than_is_in_use() -> None:
    (finding,) = growth_findings("", run_after(more=[("models_unreachable", 9, 40 * MIB)], in_use=30 * MIB))
    assert "9 models (40.0 MiB)" in finding and "`gc.collect()` frees up to 30.0 MiB" in finding


@pytest.mark.parametrize("size", [MIB // 2, 4 * MIB, MISSING])
def test_few_bytes_that_wait_are_no_finding(size: int) -> None:
    assert growth_findings("", run_after(more=[("models_unreachable", 3, size)], in_use=100 * MIB)) == []
