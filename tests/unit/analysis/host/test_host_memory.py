"""Host memory: the parts sum to RSS, growth is found and its part is named, and healthy runs give no finding."""

import pathlib
import re

import numpy as np
import numpy.typing as npt
import pytest
from reading_cases import MIB, empty_activations, make_samples

from tb_memplugin.analysis.host.host_memory import host_findings, host_growths, host_summaries
from tb_memplugin.analysis.host.host_parts import PART_NAMES, host_steps
from tb_memplugin.model import HOST_BYTES, HOST_PARTS, MISSING, HostMemory, HostSamples, Run, Samples

STEPS = 2000


def samples_with(resident: npt.NDArray[np.int64]) -> Samples:
    import dataclasses

    samples = make_samples(range(len(resident)), [900 * MIB] * len(resident))
    return dataclasses.replace(samples, host_resident_bytes=resident.astype(np.int64))


def parts_of(samples: Samples, steps: list[int], **columns: list[int]) -> HostSamples:
    """Parts at `steps`, `MISSING` unless given."""
    rows: dict[str, object] = {name: [MISSING] * len(steps) for name in HOST_BYTES}
    rows.update(
        step=samples.step[steps],
        phase=samples.phase[steps],
        wall_time=samples.wall_time[steps],
        resident_bytes=samples.host_resident_bytes[steps],
    )
    return HostSamples.of({**rows, **columns})


def run_of(host: dict[str, HostMemory]) -> Run:
    samples = next(iter(host.values())).samples
    return Run("r", ("s",), tuple(host), (), samples, empty_activations(), (), (), (), host=host)


def growing(per_step: int) -> npt.NDArray[np.int64]:
    return 600 * MIB + np.arange(STEPS) * per_step


def test_the_parts_and_the_remainder_sum_to_rss() -> None:
    samples = samples_with(growing(0))
    parts = parts_of(
        samples, [3, 500], file_bytes=[300 * MIB] * 2, shared_memory_bytes=[0] * 2, cpu_pool_bytes=[7, MISSING]
    )
    assert parts.other_bytes().tolist() == [300 * MIB - 7, 300 * MIB]
    summary = host_summaries(run_of({"": HostMemory(samples, parts)}))[""]
    assert summary.state is not None and summary.state.step == 500
    assert sum(summary.state.parts.values()) == summary.state.resident_bytes == 600 * MIB
    assert "cpu_pool_bytes" not in summary.state.parts  # unknown: in the remainder


def test_growth_is_found_and_its_part_named() -> None:
    samples = samples_with(growing(MIB // 4))
    at = [10, 1000, 1990]
    resident = samples.host_resident_bytes[at]
    heap = (resident - 500 * MIB).tolist()
    parts = parts_of(samples, at, file_bytes=[300 * MIB] * 3, shared_memory_bytes=[0] * 3, c_heap_bytes=heap)
    (found,) = host_growths(run_of({"": HostMemory(samples, parts)}))
    assert found.trend.bytes_per_step == pytest.approx(MIB // 4, rel=0.02)
    assert (found.first_step, found.last_step) == (1000, 1990)
    assert found.parts["other_bytes"] == found.allocated["c_heap_bytes"] == 990 * MIB // 4
    assert found.parts["file_bytes"] == 0
    sentence = found.sentence()
    assert sentence.startswith("Host RSS grows by 25.0 MiB every 100 steps since step ")
    assert sentence.endswith(
        "largest growth from step 1000 to step 1990: other memory, 248 MiB (C heap: 248 MiB more)."
    )


def test_allocated_memory_that_only_one_step_knows_hides_no_other() -> None:
    samples = samples_with(growing(MIB // 4))
    parts = parts_of(samples, [500, 1990], c_heap_bytes=[MIB, 373 * MIB], tf_data_bytes=[MISSING, 5])
    (found,) = host_growths(run_of({"": HostMemory(samples, parts)}))
    assert found.allocated == {"c_heap_bytes": 372 * MIB} and "(C heap: 372 MiB more)" in found.sentence()


def test_the_page_calls_the_parts_the_same() -> None:
    words = pathlib.Path(__file__).parents[4] / "frontend" / "src" / "model" / "words.ts"
    labels = dict(re.findall(r'^  (\w+): \{\s*label: "([^"]+)"', words.read_text("utf-8"), re.MULTILINE))
    assert {name: labels[name] for name in PART_NAMES} == PART_NAMES


def test_a_jump_is_named_and_its_part_is_not_what_grows() -> None:
    # GIVEN 0.25 MiB of other memory more at each step, and 800 MiB of files that are mapped after step 900
    jump = np.where(np.arange(STEPS) > 900, 800 * MIB, 0)
    samples = samples_with(growing(MIB // 4) + jump)
    at = [500, 1000, 1990]
    files = [300 * MIB, 1100 * MIB, 1100 * MIB]
    parts = parts_of(samples, at, file_bytes=files, shared_memory_bytes=[0] * 3)
    (found,) = host_growths(run_of({"": HostMemory(samples, parts)}))
    assert (found.first_step, found.last_step) == (1000, 1990)
    assert found.parts["file_bytes"] == 0 and found.parts["other_bytes"] == 990 * MIB // 4
    (jumped,) = found.jumps
    assert jumped == (901, 800 * MIB) and "(including jumps of 800 MiB); largest growth" in found.sentence()
    # Measured once on either side of the jump, what grows is not known.
    parts = parts_of(samples, [500, 1990], file_bytes=[300 * MIB, 1100 * MIB], shared_memory_bytes=[0] * 2)
    (found,) = host_growths(run_of({"": HostMemory(samples, parts)}))
    assert found.parts == {} and found.first_step is None


def test_without_measured_parts_growth_is_found_and_no_part_named() -> None:
    samples = samples_with(growing(MIB // 4))
    (sentence,) = host_findings(run_of({"": HostMemory(samples, HostSamples.none())}))
    assert "largest growth" not in sentence


@pytest.mark.parametrize(
    "resident",
    [
        growing(0),
        600 * MIB + (np.arange(STEPS) * 7919 % 13) * MIB // 4,  # noise
        600 * MIB + np.minimum(np.arange(STEPS), 60) * MIB,  # warm-up
        600 * MIB + (np.arange(STEPS) > 900) * 80 * MIB,  # one late allocation
        growing(0) + np.arange(STEPS) * 512,  # below the bound
        np.full(STEPS, MISSING),
    ],
    ids=["flat", "noise", "warm-up", "late", "bound", "unknown"],
)
def test_a_healthy_run_gives_no_finding(resident: npt.NDArray[np.int64]) -> None:
    assert host_findings(run_of({"": HostMemory(samples_with(resident), HostSamples.none())})) == []


def test_no_growth_is_said_with_its_bound_and_short_runs_are_unknown() -> None:
    healthy = host_summaries(run_of({"": HostMemory(samples_with(growing(0)), HostSamples.none())}))[""]
    assert healthy.sentence() == "Host RSS: no growth of 6.0 MiB or more in 2,000 steps."
    short = host_summaries(run_of({"": HostMemory(samples_with(growing(MIB)[:20]), HostSamples.none())}))[""]
    assert short.steps == 0 and short.sentence().startswith("Unknown")
    assert host_summaries(run_of({"": HostMemory(samples_with(np.full(9, MISSING)), HostSamples.none())})) == {}


def test_each_worker_has_a_finding_of_its_own() -> None:
    leaking = HostMemory(samples_with(growing(MIB)), HostSamples.none())
    healthy = HostMemory(samples_with(growing(0)), HostSamples.none())
    (sentence,) = host_findings(run_of({"worker_0": healthy, "worker_1": leaking}))
    assert sentence.startswith("worker_1: host RSS grows by 100 MiB every 100 steps")


def test_rows_keep_the_extremes_and_measured_parts() -> None:
    resident = growing(1024)
    resident[777] = 2000 * MIB
    samples = samples_with(resident)
    parts = parts_of(samples, [5, 1200], file_bytes=[MIB] * 2, shared_memory_bytes=[0] * 2)
    view = host_steps(HostMemory(samples, parts), "train", None, None, limit=100)
    assert view.total_rows == STEPS and len(view.step) <= 210
    assert {5, 777, 1200} <= set(view.step.tolist())
    known = view.figures["other_bytes"] != MISSING
    assert view.step[known].tolist() == [5, 1200]
    total = sum(np.where(view.figures[name] == MISSING, 0, view.figures[name]) for name in (*HOST_PARTS, "other_bytes"))
    assert (np.asarray(total)[known] == view.host_resident_bytes[known]).all()
    zoomed = host_steps(HostMemory(samples, parts), "train", 1000, 1300, limit=100_000)
    assert (zoomed.step[0], zoomed.step[-1], zoomed.total_rows) == (1000, 1300, 301)
    assert not len(host_steps(HostMemory(samples, parts), "validation", None, None, limit=100).step)
