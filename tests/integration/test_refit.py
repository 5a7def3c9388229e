"""A training that ran out of memory passes with the line that the post-mortem offers."""

import pathlib

import pytest
from child import run_file

import tb_memplugin


def child(*arguments: str) -> str:
    said: str = run_file(
        "refit_child.py", *arguments, environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": "60"}
    )
    return said


@pytest.mark.long
def test_recomputing_as_advised_lets_the_failed_training_pass(tmp_path: pathlib.Path) -> None:
    # GIVEN a batch that runs out of memory, with and without the recorder
    assert child("record", str(tmp_path / "run")) == "ran out of memory"
    assert child("train", "") == "ran out of memory"
    # WHEN the advised line recomputes segments
    (run,) = tb_memplugin.load(tmp_path / "run").values()
    (oom,) = run.ooms
    (fix,) = (one for one in oom.fixes if one.kind == "recompute")
    assert fix.enough is True and fix.code is not None and fix.sentence.startswith("Recompute ")
    # THEN the same batch trains within the same capacity
    assert child("train", fix.code).startswith("loss ")
    # AND the plan for the fix's budget recomputes segments too
    plan = tb_memplugin.plan(run, budget=fix.budget_bytes)
    assert plan.fits and plan.segments and plan.batch_size == oom.batch_size
