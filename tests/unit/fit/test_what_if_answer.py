"""The answer to a what-if question, as it is read."""

import dataclasses
from typing import Any

import pytest
from reading_cases import MIB

import tb_memplugin
from tb_memplugin.fit import FailedRequest, Prediction, Reproduced
from tb_memplugin.fit.prediction import Enough, verdict_sentence
from tb_memplugin.schema import Run, format_bytes


def test_the_figures_that_people_look_for_are_on_the_answer(run: Run) -> None:
    fitting = tb_memplugin.what_if(run)
    assert fitting.fits is True
    assert fitting.peak_bytes == max(snapshot.in_use_bytes for snapshot in run.snapshots if snapshot.step)
    assert tb_memplugin.what_if(run, capacity="2MiB").fits is False  # less than the weights
    compiled = dataclasses.replace(run, requests=tuple(dataclasses.replace(one, mode="xla") for one in run.requests))
    unknown = tb_memplugin.what_if(compiled, batch_size=99)
    assert (unknown.fits, unknown.peak_bytes) == (None, None)


def test_repr_is_one_short_line(run: Run) -> None:
    answer = tb_memplugin.what_if(run, batch_size=8)
    assert repr(answer) == (
        f"<WhatIf CPU:0: <Prediction batch size 8, peak {format_bytes(answer.peak_bytes)} of 256 MiB, "
        f"fits=True, method={answer.prediction.method}>>"
    )


def test_a_notebook_shows_the_text_with_a_table_of_the_categories(run: Run) -> None:
    answer = tb_memplugin.what_if(run, batch_size=8)
    hostile = dataclasses.replace(
        answer, prediction=dataclasses.replace(answer.prediction, assumptions=("a <img src=x> sentence",))
    )
    shown = hostile._repr_html_()
    assert "a &lt;img src=x&gt; sentence" in shown and "<img" not in shown
    assert f"predicted peak: {format_bytes(answer.peak_bytes)}" in shown
    categories = {row.category.replace("_", " ") for row in answer.prediction.ledger if row.bytes}
    assert shown.count("<tr>") == 1 + len(categories)
    assert all(f">{category}</td>" in shown for category in categories)


FITS = Prediction(4, 512 * MIB, 484 * MIB, 470 * MIB, 500 * MIB, True, None, "replay", Reproduced(9, 9), ())
IN_PIECES = FailedRequest("net/conv1/Relu", "net/conv1", 61 * MIB, 3, 90 * MIB, 40 * MIB)
SHORT = dataclasses.replace(IN_PIECES, free_bytes=60 * MIB)


def said(enough: Enough | None = None, **values: object) -> str:
    return verdict_sentence(dataclasses.replace(FITS, **values), enough)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "Fits: 484 MiB of 512 MiB"),
        ({"capacity_bytes": None}, "Fits: 484 MiB"),
        (
            {"fits": False, "fails_at": IN_PIECES, "enough": Enough(700 * MIB, 650 * MIB)},
            "Does not fit: 484 MiB of 512 MiB would be enough, but no free chunk holds the 61.0 MiB requested by Relu, "
            "layer net/conv1. At 700 MiB it fits: 650 MiB with free memory in pieces, and a reserve",
        ),
        (
            {"fits": False, "fails_at": IN_PIECES, "capacity_bytes": 400 * MIB},
            "Does not fit: 484 MiB needed, 400 MiB available, and no free chunk holds the 61.0 MiB requested by Relu, "
            "layer net/conv1",
        ),
        (
            {"fits": False, "fails_at": SHORT, "capacity_bytes": 400 * MIB, "enough": Enough(600 * MIB, 550 * MIB)},
            "Does not fit: 484 MiB needed, 400 MiB available. 61.0 MiB requested by Relu, layer net/conv1, 60.0 MiB "
            "free. At 600 MiB it fits: 550 MiB with free memory in pieces, and a reserve",
        ),
        # A recorded failure that the simulation does not show.
        ({"fits": False, "capacity_bytes": 400 * MIB}, "Does not fit: 484 MiB needed, 400 MiB available"),
        (
            {"fits": False, "assumptions": ("Recorded: batch size 4 failed.",)},
            "Does not fit: Recorded: batch size 4 failed",
        ),
        (
            {"fits": None, "capacity_bytes": 490 * MIB},
            "Unknown: 490 MiB may not be enough; predicted peak 470 MiB to 500 MiB",
        ),
        # Why it may not be, if the peak is below.
        (
            {"fits": None},
            "Unknown: 512 MiB may not be enough; predicted peak 470 MiB to 500 MiB, because free memory may be in "
            "pieces",
        ),
        ({"fits": None, "capacity_bytes": None}, "Unknown: the capacity is unknown; predicted peak 470 MiB to 500 MiB"),
        ({"peak_bytes": None, "assumptions": ("Unknown: no steps.",)}, "Unknown: no steps."),
        ({"peak_bytes": None}, "Unknown: there is no prediction."),
    ],
)
def test_the_answer_in_words(values: dict[str, Any], sentence: str) -> None:
    assert said(**values) == sentence


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"op": None}, " by layer net/conv1,"),
        ({"layer": None}, " by Relu,"),
        ({"op": None, "layer": None}, " 61.0 MiB requested, 60.0"),
        # The allocator rounds requests up to 256 bytes.
        ({"requested_bytes": 61 * MIB - 255, "free_bytes": 61 * MIB - 1}, "requested by"),
    ],
)
def test_the_failed_request_in_words(part: dict[str, Any], words: str) -> None:
    assert words in said(fits=False, fails_at=dataclasses.replace(SHORT, **part))


def test_names_from_a_run_are_cleaned() -> None:
    hostile = dataclasses.replace(SHORT, op="a/\x1b[31mRelu", layer="x\ny")
    assert "\x1b" not in said(fits=False, fails_at=hostile) and "\n" not in said(fits=False, fails_at=hostile)
