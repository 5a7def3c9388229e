"""Real trainings with a seeded leak are named with its cause; healthy ones of 2,000 steps give no
finding."""

import functools
import tempfile
from typing import Any

import pytest
from child import run_file

LEAKS = (
    "changing_shapes",
    "python_scalars",
    "held_tensors",
    "dataset_cache",
    "kept_models",
    "rebuilt_models",
)
HEALTHY = ("fit", "custom_loop", "evaluate_in_between", "varying_shapes", "filled_cache")


@functools.cache
def recorded(*names: str) -> dict[str, Any]:
    """What the runs of the named trainings say, all of one process."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "2048"}
        told: dict[str, Any] = run_file("leak_child.py", directory, *names, environment=environment)
        return told


HOST, IN_USE = "Host RSS grows", "CPU:0: memory in use at step end grows"
SEEDED = {
    "changing_shapes": (
        HOST,
        "Cause: XLA compiled `compiled_step`",
        "for different arguments.",
        ": compilation of compiled_step",
    ),
    "python_scalars": (
        HOST,
        "Cause: `scaled_step` was traced",
        ".",
        ": retracing of scaled_step",
    ),
    "held_tensors": (
        *(
            IN_USE,
            ": held tensors, ",
            "kept alive by list `history` in module __main__.",
            ": held tensors",
        ),
    ),
    "kept_models": (
        IN_USE,
        "Cause: ",
        "kept alive by list `models` in module __main__.",
        "in list `models` in module __main__",
    ),
    "rebuilt_models": (
        IN_USE,
        "Cause: ",
        "that no longer exist but whose variables were not freed.",
        "not freed",
    ),
    "dataset_cache": (
        *(
            IN_USE,
            "Cause: the dataset is cached in memory",
            "128 KiB for each batch.",
            ": dataset cache",
        ),
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_named_with_its_cause(name: str) -> None:
    begin, middle, end, short = SEEDED[name]
    told = recorded(*LEAKS)[name]
    finding = told["findings"][0]
    assert finding.startswith(begin) and middle in finding and finding.endswith(end), told
    assert told["growing"].endswith(short) and told["notes"] == [], told


def test_the_counters_count_what_was_done() -> None:
    counted = recorded(*LEAKS)["rebuilt_models"]["counters"]
    assert counted["traces scaled_step"] == 100 and counted["compiled_shapes compiled_step"] == 60
    # One model of the held tensors, 60 that a list kept, 48 that were trained.
    assert counted["models_built"] == 109
    # The dataset does not exist any more.
    assert (
        recorded(*LEAKS)["dataset_cache"]["counters"]["dataset_caches"] == 1
        and "dataset_caches" not in counted
    )


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_gives_no_finding(name: str) -> None:
    told = recorded(*HEALTHY)[name]
    assert told["findings"] == [] and told["notes"] == [], told
    assert told["growing"] == "No growth over 2,000 steps (under 1.0 MiB)", told


@pytest.mark.long
def test_a_filled_cache_was_seen_while_it_grew() -> None:
    # GIVEN a cache of 6.3 MiB, filled in a tenth of the steps
    told = recorded(*HEALTHY)["filled_cache"]
    assert told["counters"]["dataset_caches"] == 1 and told["in_use"][1] - told["in_use"][0] > 6000
    assert told["in_use"][2] == told["in_use"][1]
