"""Verdicts and the pages of the scenarios, from figures made by hand."""

import dataclasses
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "demo" / "scenarios"))

from scenario import FALLS, HALVES, RISES, STAYS, Advice, Comparison, Expected, Scenario, Variant
from scenario.declare import judged
from scenario.page import overview, topic

MIB = 1 << 20


def result(device: str, **peaks: int) -> dict:
    runs = {
        name: {"peak": peak, "weights": MIB, "activations": peak - MIB}
        for name, peak in peaks.items()
    }
    return {
        "device": device,
        "tensorflow": "2.21.0",
        "keras": "3.15.1",
        "date": "2026-01-01",
        "runs": runs,
    }


def scenario(verdict: str, comparisons: list[Comparison]) -> Scenario:
    advice = Advice(["“Do it.”"], verdict, "it is large. Otherwise not.", comparisons)
    runs = {
        "a": Variant(lambda run: None),
        "b": Variant(lambda run: None),
        "c": Variant(lambda run: None, gpus=2),
    }
    return Scenario(
        3, "Some advice", "/somewhere/some_advice.py", "First.\n\nSecond.", runs, [advice]
    )


@pytest.mark.parametrize(
    ("claim", "held", "not_held"),
    [
        (FALLS, (100, 90), (100, 99)),
        (RISES, (0, 1), (100, 101)),
        (STAYS, (0, 0), (100, 103)),
        (HALVES, (100, 54), (100, 56)),
    ],
)
def test_a_claim_holds_within_its_limits(claim, held, not_held) -> None:
    assert claim.holds(*held)
    assert not claim.holds(*not_held)


def test_the_verdict_follows_from_how_many_comparisons_hold() -> None:
    falls, stays = Comparison("a", "b"), Comparison("a", "a")
    figures = result("CPU", a=100, b=50)["runs"]
    for comparisons, verdict in (
        ([falls], "true"),
        ([falls, stays], "true only if"),
        ([stays], "not true"),
    ):
        assert judged(scenario(verdict, comparisons).advice[0], figures, "CPU") == verdict
    assert judged(scenario("true", [Comparison("a", "c")]).advice[0], figures, "CPU") is None


def test_a_comparison_can_be_of_one_kind_of_device() -> None:
    comparisons = [Comparison("a", "b", only="CPU"), Comparison("b", "a", "Backwards", only="GPU")]
    one = scenario("true", comparisons)
    one.advice[0] = dataclasses.replace(one.advice[0], on_gpu="Everything grows there.")
    figures = {"a": 8 * MIB, "b": 4 * MIB}
    results = {device: result(device, **figures) for device in ("CPU", "NVIDIA H200")}
    assert [judged(one.advice[0], found["runs"], device) for device, found in results.items()] == [
        "true",
        "not true",
    ]
    text = topic(one, results)
    assert "**True.** it is large. Otherwise not.\n" in text
    assert "**Not true** on NVIDIA H200. Everything grows there.\n" in text
    # Where nothing is compared, nothing holds.
    alone = topic(scenario("true", comparisons[:1]), results)
    assert "Not run on NVIDIA H200.\n" in alone and "True** on NVIDIA" not in alone
    on_cpu, on_gpu = text.split("Backwards:\n")
    assert "| at the peak | CPU: `a` | CPU: `b` | expected |" in on_cpu
    assert "| peak | 8.0 MiB | 4.0 MiB |  |" in on_cpu
    assert "| at the peak | H200: `b` | H200: `a` | expected |" in on_gpu
    assert "| peak | 4.0 MiB | 8.0 MiB |  |" in on_gpu


def test_a_deviation_from_the_arithmetic_is_named() -> None:
    before, after = {"weights": 1000}, {"weights": 1011}
    assert Expected("weights", 1000, 1000, "4 B × 250", 0.02).deviations(before, after) == []
    assert Expected("weights", None, 1011, "4 B × 250").deviations(before, after) == []
    (sentence,) = Expected("weights", 1000, 1000, "4 B × 250", 0.01).deviations(before, after)
    assert sentence == "weights after: 1,011 measured, 1,000 expected (4 B × 250)"


def test_the_page_says_what_was_measured_on_which_device() -> None:
    expected = [
        Expected("weights", MIB, MIB, "4 B × parameters"),
        Expected("activations", 7 * MIB, None, "batch × results", 0.05, cpu_only=True),
    ]
    one = scenario(
        "true only if",
        [Comparison("a", "b", "Large", expected=expected), Comparison("a", "a", "Small")],
    )
    results = {
        "CPU": result("CPU", a=8 * MIB, b=4 * MIB),
        "NVIDIA H200": result("NVIDIA H200", a=8 * MIB, b=8 * MIB),
    }
    text = topic(one, results)
    assert text.startswith("# Some advice\n\nFirst.\n\nRun `python demo/scenarios/some_advice.py`")
    assert (
        "Measured on the CPU with TensorFlow 2.21.0, Keras 3.15.1, 2026-01-01; "
        "NVIDIA H200 with TensorFlow 2.21.0, Keras 3.15.1, 2026-01-01.\n"
    ) in text
    assert "**True only if** it is large. Otherwise not.\n" in text
    assert "| peak | 8.0 MiB | 4.0 MiB | 8.0 MiB | 8.0 MiB |  |" in text
    # The reason was written for the CPU, and so was the arithmetic of its kernels.
    assert "**Not true** on NVIDIA H200.\n" in text
    activations = "7.0 MiB → – (± 5 %): batch × results, on the CPU"
    assert f"| activations | 7.0 MiB | 3.0 MiB | 7.0 MiB | 7.0 MiB | {activations} |" in text
    assert "localhost" not in text


def test_the_overview_has_the_verdict_on_each_device() -> None:
    one = scenario("true only if", [Comparison("a", "b", "Large"), Comparison("a", "a", "Small")])
    results = {
        device: {one.name: result(device, a=8 * MIB, b=b)}
        for device, b in (("CPU", 4 * MIB), ("NVIDIA H200", 8 * MIB))
    }
    text = overview([one], results)
    assert "\n| advice | CPU | H200 | measured |\n" in text
    changes = "Large: peak 8.0 MiB → 4.0 MiB; Small: peak 8.0 MiB → 8.0 MiB"
    assert f"| [“Do it.”](advice/some_advice.md) | true in part | not true | {changes} |" in text
    # What ran on a GPU alone is shown with its name.
    results["CPU"] = {}
    text = overview([one], results)
    # Both comparisons say the same there, so one is enough.
    assert "| not run | not true | Large: peak 8.0 MiB → 8.0 MiB (H200) |" in text


def test_a_comparison_that_needs_more_gpus_says_so() -> None:
    one = scenario("true", [Comparison("a", "c")])
    found = result("CPU", a=MIB)
    assert "Not run: needs 2 GPUs." in topic(one, {"CPU": found})
    assert "| [“Do it.”]" not in overview([one], {"CPU": {one.name: found}})
