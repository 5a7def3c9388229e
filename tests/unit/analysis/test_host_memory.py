"""Host memory: the parts sum to RSS, and growth names its part."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import MIB, make_run, make_samples

from tb_memplugin.analysis import (
    PART_NAMES,
    host_findings,
    host_growth,
    host_steps,
    host_summaries,
    host_summary,
)
from tb_memplugin.schema import MISSING, Run

STEPS = 2000


def run_with(
    resident: npt.NDArray[np.int64],
    on_cpu: int = MISSING,
    worker: str = "",
    **columns: dict[int, int],
) -> Run:
    rows = len(resident)
    samples = make_samples(range(rows), [MISSING] * rows, in_use=[on_cpu] * rows)
    read = {
        name: np.asarray([known.get(step, MISSING) for step in range(rows)])
        for name, known in columns.items()
    }
    samples = dataclasses.replace(samples, host_resident_bytes=resident.astype(np.int64), **read)
    return make_run(samples, workers=(worker,))


def growing(per_step: int) -> npt.NDArray[np.int64]:
    return 600 * MIB + np.arange(STEPS) * per_step


def parts_of(run: Run) -> dict[str, npt.NDArray[Any]]:
    columns = host_steps(run, "train", None, None, limit=10_000)[1]
    return {name: columns[name] for name in PART_NAMES}


def test_the_parts_sum_to_rss_and_unknown_ones_lie_in_the_others() -> None:
    run = run_with(growing(0), 100 * MIB, tf_data_bytes={3: 7, 500: MIB}, pinned_pool_bytes={3: 5})
    parts = {name: column[[3, 4, 500]].tolist() for name, column in parts_of(run).items()}
    assert parts == {
        "pinned_pool_bytes": [5, MISSING, MISSING],
        "tf_data_bytes": [7, MISSING, MIB],
        "cpu_bytes": [100 * MIB - 7, MISSING, 99 * MIB],  # the buffers lie there
        "other_bytes": [500 * MIB - 5, MISSING, 500 * MIB],
    }
    summary = host_summary(run)
    assert summary is not None and summary.state is not None and summary.state.step == 500
    assert sum(summary.state.parts.values()) == summary.state.resident_bytes == 600 * MIB
    assert "pinned_pool_bytes" not in summary.state.parts


@pytest.mark.parametrize(
    ("on_cpu", "columns", "known"),
    [
        (MISSING, {}, 0),
        (100 * MIB, {}, STEPS),  # a recorded CPU is known at every step
        (600 * MIB + 1, {}, 0),  # allocated, but not resident
        (MISSING, {"tf_data_bytes": {1: 0, 5: 601 * MIB}}, 1),
        (MISSING, {"pinned_pool_bytes": {1: 0}}, 1),
    ],
)
def test_parts_are_known_together_where_they_fit(
    on_cpu: int, columns: dict[str, Any], known: int
) -> None:
    parts = parts_of(run_with(growing(0), on_cpu, **columns))
    assert (parts["other_bytes"] != MISSING).sum() == known
    assert all(
        (column[parts["other_bytes"] == MISSING] == MISSING).all() for column in parts.values()
    )


@pytest.mark.parametrize("name", ["tf_data_bytes", "pinned_pool_bytes"])
def test_growth_is_found_and_its_part_named(name: str) -> None:
    resident = growing(MIB // 4)
    found = host_growth(
        run_with(
            resident, **{name: {step: int(resident[step]) - 500 * MIB for step in (10, 1000, 1990)}}
        )
    )
    assert found.trend.bytes_per_step == pytest.approx(MIB // 4, rel=0.02)
    assert (found.first_step, found.last_step) == (1000, 1990)
    assert found.parts == {name: 990 * MIB // 4, "other_bytes": 0}
    sentence = found.sentence()
    assert sentence.startswith("Host RSS grows by 25.0 MiB every 100 steps since step ")
    assert sentence.endswith(
        f"largest growth from step 1000 to step 1990: {PART_NAMES[name]}, 248 MiB."
    )


def test_a_jump_is_named_and_its_part_is_not_what_grows() -> None:
    # GIVEN 0.25 MiB of other memory more at each step, and 800 MiB that tf.data buffers after step
    # 900
    resident = growing(MIB // 4) + np.where(np.arange(STEPS) > 900, 800 * MIB, 0)
    found = host_growth(
        run_with(resident, tf_data_bytes={500: 0, 1000: 800 * MIB, 1990: 800 * MIB})
    )
    assert (found.first_step, found.last_step) == (1000, 1990)
    assert found.parts == {"tf_data_bytes": 0, "other_bytes": 990 * MIB // 4}
    assert found.jumps == ((901, 800 * MIB),)
    assert "(including jumps of 800 MiB); largest growth" in found.sentence()
    # A part that only one step knows hides what grows.
    read = {"tf_data_bytes": {500: MIB, 1990: MIB}, "pinned_pool_bytes": {1990: MIB}}
    assert host_growth(run_with(growing(MIB // 4), **read)).parts == {}
    # Read once on either side of the jump, what grows is not known.
    found = host_growth(run_with(resident, tf_data_bytes={500: 0, 1990: 800 * MIB}))
    assert found.parts == {} and found.first_step is None


def test_no_growth_is_said_with_its_bound_and_short_runs_are_unknown() -> None:
    healthy, short = (host_summary(run_with(one)) for one in (growing(512), growing(MIB)[:20]))
    assert healthy is not None and healthy.state is None
    assert healthy.sentence == "Host RSS: no growth of 6.0 MiB or more in 2,000 steps."
    assert short is not None and short.steps == 0 and short.sentence.startswith("Unknown")
    assert host_summary(run_with(np.full(9, MISSING))) is None


def test_each_worker_has_a_finding_of_its_own_and_without_parts_it_names_none() -> None:
    by_worker = {"a": run_with(growing(0), worker="a"), "b": run_with(growing(MIB), worker="b")}
    assert list(host_summaries(by_worker)) == ["a", "b"] and host_findings(by_worker["a"]) == []
    (found,) = host_findings(by_worker["b"])
    assert (found.kind, found.worker, found.device) == ("host_growth", "b", None)
    assert found.share is None and not found.minor
    sentence = found.sentence
    assert (
        sentence.startswith("b: host RSS grows by 100 MiB every 100 steps")
        and "largest growth" not in sentence
    )
    # The samples of several workers tell nobody's RSS.
    together = dataclasses.replace(by_worker["b"], workers=("a", "b"))
    assert host_findings(together) == [] and host_summary(together) is None


def test_rows_keep_the_extremes_and_known_parts() -> None:
    resident = growing(1024)
    resident[777] = 2000 * MIB
    run = run_with(resident, tf_data_bytes={5: MIB, 1200: MIB})
    total, view = host_steps(run, "train", None, None, limit=100)
    assert total == STEPS and len(view["step"]) <= 210
    assert {5, 777, 1200} <= set(view["step"].tolist())
    known = view["other_bytes"] != MISSING
    assert view["step"][known].tolist() == [5, 1200]
    parts = sum(np.where(view[name] == MISSING, 0, view[name]) for name in PART_NAMES)
    assert (np.asarray(parts)[known] == view["host_resident_bytes"][known]).all()
    total, zoomed = host_steps(run, "train", 1000, 1300, limit=100_000)
    assert (zoomed["step"][0], zoomed["step"][-1], total) == (1000, 1300, 301)
    assert host_steps(run, "validation", None, None, limit=100)[0] == 0
