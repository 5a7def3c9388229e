"""Training with `remat` against plain training in processes of their own: the same numbers, with a
lower peak."""

from typing import Any

import pytest
from child import run_file

pytestmark = pytest.mark.long


def trained(name: str, mode: str = "graph", steps: int = 20) -> list[Any]:
    """What a plain training prints, and one with `remat`."""
    roomy = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "6144"}
    kinds = ("plain", "remat")
    return [
        run_file("remat_child.py", name, kind, str(steps), mode, environment=roomy)
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *(("conv", 0.6), ("nested", 0.65), ("subclassed", 0.5), ("mlp", 0.8), ("mixed", 0.9)),
        *(("mobilenet_v2", 0.7), ("resnet50", 0.95)),
    ],
)
def test_training_is_bit_identical_and_its_peak_is_lower(name: str, share: float) -> None:
    """Losses, weights, statistics and seeds of 20 steps; the peak is the allocator's."""
    steps = 6 if name in ("mobilenet_v2", "resnet50") else 20
    plain, recomputed = trained(name, steps=steps)
    assert recomputed["losses"] == plain["losses"]
    assert recomputed["variables"] == plain["variables"]
    assert recomputed["peak"] < share * plain["peak"]


def test_a_functional_transformer_differs_in_the_last_digit_alone() -> None:
    plain, recomputed = trained("transformer")
    assert recomputed["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert recomputed["peak"] < 0.5 * plain["peak"]


@pytest.mark.parametrize("name", ["conv", "transformer"])
def test_compiled_by_xla_it_saves_memory_too(name: str) -> None:
    plain, recomputed = trained(name, "xla", 4)
    assert recomputed["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert recomputed["peak"] < 0.6 * plain["peak"]
