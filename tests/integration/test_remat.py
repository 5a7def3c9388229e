"""Training with `remat` against plain training in processes of their own: the same numbers, with a lower peak."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

CHILD = pathlib.Path(__file__).with_name("remat_child.py")


def trained(name: str, kind: str, mode: str = "graph", steps: int = 20) -> Any:
    done = subprocess.run(
        [sys.executable, str(CHILD), name, kind, str(steps), mode],
        cwd=CHILD.parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
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
    plain, recomputed = (trained(name, kind, steps=steps) for kind in ("plain", "remat"))
    assert recomputed["losses"] == plain["losses"]
    assert recomputed["variables"] == plain["variables"]
    assert recomputed["peak"] < share * plain["peak"]


@pytest.mark.long
def test_a_functional_transformer_differs_in_the_last_digit_alone() -> None:
    plain, recomputed = trained("transformer", "plain"), trained("transformer", "remat")
    assert recomputed["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert recomputed["peak"] < 0.5 * plain["peak"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["conv", "transformer"])
def test_compiled_by_xla_it_saves_memory_too(name: str) -> None:
    plain, recomputed = trained(name, "plain", "xla", 4), trained(name, "remat", "xla", 4)
    assert recomputed["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert recomputed["peak"] < 0.6 * plain["peak"]
