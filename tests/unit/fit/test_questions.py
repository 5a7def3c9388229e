"""Questions as they are put, and their answers as they are read."""

import dataclasses
import pathlib
import re
import statistics
import time
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB

import tb_memplugin
from tb_memplugin.errors import RequestError
from tb_memplugin.fit import (
    Conditions,
    FailedRequest,
    Prediction,
    Predictor,
    Reproduced,
    capacity_bytes,
    checked_conditions,
    recorded_program,
)
from tb_memplugin.fit.conditions import globs_of, matching, refuse_unmatched
from tb_memplugin.fit.prediction import Enough, verdict_sentence
from tb_memplugin.schema import MISSING, Counters, Layer, Run, format_bytes

PATHS = ("net/block1/conv1", "net/block1/conv2", "net/block2/conv1", "net/Head", "net/block1")


def layers() -> list[Layer]:
    return [
        Layer(path, "Dense", True, 0 if path == "net/block1" else 10, 40, 40, 0, None, None, None)
        for path in PATHS
    ]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        ("*", PATHS[:4]),
        ("net/block1/*", PATHS[:2]),
        ("*/conv1", (PATHS[0], PATHS[2])),
        ("net/*1", (PATHS[0], PATHS[2])),  # * matches / as well
        ("net/block?/conv[1]", (PATHS[0], PATHS[2])),
        ("net/block2/*, net/Head", PATHS[2:4]),
        ("conv1", ()),
        ("net/head", ()),
        ("net/block1", ()),  # has no weights of its own
        (",", ()),
    ],
)
def test_globs_match_whole_paths_of_layers_with_weights(
    globs: str, expected: tuple[str, ...]
) -> None:
    assert tuple(layer.path for layer in matching(layers(), globs)) == expected


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        (
            Conditions(freeze="net/head"),
            "freeze: no layer with weights has a path like 'net/head'; the nearest is 'net/Head'",
        ),
        (Conditions(unfreeze="*, block2/*"), "like 'block2/*'; the nearest is 'net/block2/conv1'"),
        (Conditions(unfreeze="net/block1"), "the nearest is 'net/block1/conv1'"),
        (Conditions(freeze="?"), "the nearest is 'net/"),
    ],
)
def test_a_glob_without_a_layer_names_the_nearest(conditions: Conditions, named: str) -> None:
    with pytest.raises(RequestError) as raised:
        refuse_unmatched(conditions, layers())
    assert named in str(raised.value) and str(raised.value).startswith(
        f"{raised.value.parameter}: "
    )


def test_globs_with_layers_and_runs_without_layers_are_accepted() -> None:
    refuse_unmatched(Conditions(freeze="net/*", unfreeze="*/conv1,"), layers())
    refuse_unmatched(Conditions(freeze="x"), [])


def test_no_glob_takes_long() -> None:
    many = [
        Layer(f"{'a' * 300}{row}", "Dense", True, 1, 4, 4, 0, None, None, None)
        for row in range(1000)
    ]
    began = time.process_time()
    assert matching(many, "*a" * 250 + "b," + "*?[a-z]" * 70 + "b") == []
    with pytest.raises(RequestError):
        refuse_unmatched(Conditions(freeze="*a" * 250 + "b"), many)
    assert time.process_time() - began < 4


def test_globs_of_paths_match_these_paths_alone() -> None:
    paths = ("a[1]/conv*", "a1/conv2", "b")
    own = [Layer(path, "Dense", True, 10, 40, 40, 0, None, None, None) for path in paths]
    globs = globs_of(["a[1]/conv*", "b"])
    assert [layer.path for layer in matching(own, globs)] == ["a[1]/conv*", "b"]
    assert globs_of(["a,b"]) is None and globs_of(["x" * 600, "y" * 600]) is None


GIB = 1 << 30


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("8 GiB", 8 * GIB),
        (" 8.5gib ", 8 * GIB + GIB // 2),
        ("512MiB", 512 * MIB),
        ("900 B", 900),
        ("512 KiB", 512 << 10),
        (8, 8),  # in Python, numbers are bytes
        (np.int64(16 * GIB), 16 * GIB),
    ],
)
def test_a_capacity_has_a_unit_or_is_a_number_of_bytes(typed: int | str, size: int) -> None:
    assert capacity_bytes(typed) == size


@pytest.mark.parametrize(
    "typed", ["", "much", "-8", "0B", "2PiB", "8 GiB of memory", 0, -8, 8.5, True]
)
def test_other_texts_are_refused(typed: Any) -> None:
    said = (
        f"a capacity is a size with its unit, such as 24GiB, .* Received: {re.escape(repr(typed))}"
    )
    with pytest.raises(RequestError, match=said):
        capacity_bytes(typed)


@pytest.mark.parametrize("number", ["0", "24", "1048577", "1.5", " 8,000 "])
def test_a_number_alone_names_no_size(number: str) -> None:
    with pytest.raises(
        RequestError, match=re.escape(f"{number.strip()}: name a unit, for example 300MiB or 12GiB")
    ):
        capacity_bytes(number)


@pytest.mark.parametrize(
    ("typed", "size"),
    [("60%", 600), ("33.3 %", 333), ("150%", 1500), ("2KiB", 2048), (77, 77), ("0.1%", 1)],
)
def test_a_budget_is_a_size_or_a_share_of_the_capacity(typed: int | str, size: int) -> None:
    assert capacity_bytes(typed, "budget", 1000) == size


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="60%: the capacity is unknown"):
        capacity_bytes("60%")
    with pytest.raises(RequestError, match="a budget is a size"):
        capacity_bytes("0%", "budget", 1000)


@pytest.mark.parametrize(
    ("globs", "text"),
    [
        ("a/*", "a/*"),
        (["a/*"], "a/*"),
        (("a/*", "b,c"), "a/*,b,c"),
        ({"a"}, "a"),
        ([], None),
        ("", None),
        (None, None),
    ],
)
def test_globs_are_a_text_or_a_list_of_texts(globs: Any, text: str | None) -> None:
    assert (
        checked_conditions(freeze=globs).freeze
        == checked_conditions(unfreeze=globs).unfreeze
        == text
    )


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        ({"freeze": 3}, "freeze is a glob for paths of layers, or a list of globs. Received: 3"),
        (
            {"unfreeze": ["a", 3]},
            "unfreeze is a glob for paths of layers, or a list of globs. Received: ['a', 3]",
        ),
        ({"optimizer": ["adam"]}, "optimizer is one of sgd, "),
        ({"precision": 16}, "precision is one of float32, "),
        ({"batch_size": "64"}, "a batch size is an integer from 1 to 16,777,216. Received: '64'"),
        ({"batch_size": 2.5}, "a batch size is an integer"),
    ],
)
def test_what_is_of_another_type_is_named(conditions: Any, sentence: str) -> None:
    with pytest.raises(RequestError) as raised:
        checked_conditions(**conditions)
    assert str(raised.value).startswith(sentence) and raised.value.parameter == next(
        iter(conditions)
    )


def test_steps_that_were_each_traced_again_are_the_reason(run: Run) -> None:
    # GIVEN a run in which the program changed at each traced step
    anew = dataclasses.replace(
        run, requests=tuple(dataclasses.replace(one, first=True) for one in run.requests)
    )
    reason = (
        "Unknown: each traced training step is the first one after a change of the program, and "
        "so not typical."
    )
    assert tb_memplugin.what_if(anew).prediction.assumptions == (reason,)
    unknown = np.full(4, MISSING)
    names = ("step", "step", "loss", "step")
    counters = Counters(np.arange(4), ("traces",) * 4, names, np.asarray([1, 2, 1, 7]), unknown)
    counted = dataclasses.replace(anew, counters=(counters,))
    sentence = f"{reason} `step` was traced 7 times."
    assert tb_memplugin.what_if(counted).prediction.assumptions == (sentence,)
    assert tb_memplugin.plan(counted, budget="1GiB").sentences == (sentence,)
    assert "replay" not in str(tb_memplugin.what_if(counted)) and "replay" in str(
        tb_memplugin.what_if(run)
    )
    nothing = tb_memplugin.what_if(
        dataclasses.replace(run, requests=(), counters=(counters,))
    ).prediction.assumptions
    assert nothing[0].startswith("Unknown: the run has no traced training step with its requests.")


def test_the_figures_that_people_look_for_are_on_the_answer_and_in_one_short_line(run: Run) -> None:
    fitting = tb_memplugin.what_if(run)
    assert fitting.fits is True
    assert fitting.peak_bytes == max(
        snapshot.in_use_bytes for snapshot in run.snapshots if snapshot.step
    )
    assert tb_memplugin.what_if(run, capacity="2MiB").fits is False  # less than the weights
    compiled = dataclasses.replace(
        run, requests=tuple(dataclasses.replace(one, mode="xla") for one in run.requests)
    )
    unknown = tb_memplugin.what_if(compiled, batch_size=99)
    assert (unknown.fits, unknown.peak_bytes) == (None, None)
    answer = tb_memplugin.what_if(run, batch_size=8)
    assert repr(answer) == (
        f"<WhatIf CPU:0: <Prediction batch size 8, peak {format_bytes(answer.peak_bytes)} of 256 "
        f"MiB, fits=True, method={answer.prediction.method}>>"
    )


def test_a_notebook_shows_the_text_with_a_table_of_the_categories(run: Run) -> None:
    answer = tb_memplugin.what_if(run, batch_size=8)
    prediction = dataclasses.replace(answer.prediction, assumptions=("a <img src=x> sentence",))
    shown = dataclasses.replace(answer, prediction=prediction)._repr_html_()
    assert "a &lt;img src=x&gt; sentence" in shown and "<img" not in shown
    assert f"predicted peak: {format_bytes(answer.peak_bytes)}" in shown
    categories = {row.category.replace("_", " ") for row in answer.prediction.ledger if row.bytes}
    assert shown.count("<tr>") == 1 + len(categories)
    assert all(f">{category}</td>" in shown for category in categories)


FITS = Prediction(
    4, 512 * MIB, 484 * MIB, 470 * MIB, 500 * MIB, True, None, "replay", Reproduced(9, 9), ()
)
IN_PIECES = FailedRequest("net/conv1/Relu", "net/conv1", 61 * MIB, 3, 90 * MIB, 40 * MIB)
SHORT = dataclasses.replace(IN_PIECES, free_bytes=60 * MIB)
FAILED, RANGE = "batch size 4 failed", "Predicted peak: 470 MiB to 500 MiB"


def said(enough: Enough | None = None, **values: object) -> str:
    return verdict_sentence(dataclasses.replace(FITS, **values), enough)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "Fits: 484 MiB of 512 MiB"),
        ({"capacity_bytes": None}, "Fits: 484 MiB"),
        (
            {"fits": False, "fails_at": IN_PIECES, "enough": Enough(700 * MIB, 650 * MIB)},
            "Does not fit: 484 MiB of 512 MiB would be enough in one piece. No free chunk holds "
            "the 61.0 MiB requested by Relu, layer net/conv1. At 700 MiB it fits, with a reserve",
        ),
        (
            {"fits": False, "fails_at": IN_PIECES, "capacity_bytes": 400 * MIB},
            "Does not fit: 484 MiB needed, 400 MiB available. No free chunk holds the 61.0 MiB "
            "requested by Relu, layer net/conv1",
        ),
        (
            {
                "fits": False,
                "fails_at": SHORT,
                "capacity_bytes": 400 * MIB,
                "enough": Enough(600 * MIB, 550 * MIB),
            },
            "Does not fit: 484 MiB needed, 400 MiB available. 61.0 MiB requested by Relu, layer "
            "net/conv1, 60.0 MiB free. At 600 MiB it fits, with a reserve",
        ),
        # A recorded failure that the simulation does not show.
        (
            {"fits": False, "capacity_bytes": 400 * MIB},
            "Does not fit: 484 MiB needed, 400 MiB available",
        ),
        (
            {"fits": False, "assumptions": (f"Recorded: {FAILED}.",)},
            f"Does not fit: Recorded: {FAILED}",
        ),
        (
            {"fits": None, "capacity_bytes": 490 * MIB},
            f"Unknown: 490 MiB may not be enough. {RANGE}",
        ),
        # Why it may not be, if the peak is below.
        (
            {"fits": None},
            f"Unknown: 512 MiB may not be enough. {RANGE}; free memory may be in pieces",
        ),
        ({"fits": None, "capacity_bytes": None}, f"Unknown: the capacity is unknown. {RANGE}"),
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
    assert "\x1b" not in said(fits=False, fails_at=hostile) and "\n" not in said(
        fits=False, fails_at=hostile
    )


def test_an_untraced_step_before_a_partial_batch_counts_for_the_larger_one() -> None:
    # GIVEN a run whose last traced step had a partial batch, and an untraced step before it with
    # the highest peak
    run = tb_memplugin.load(pathlib.Path(__file__).parents[2] / "fixtures/runs")["out_of_memory"]
    steps = [one for one in run.requests if not one.planned]
    partial = dataclasses.replace(steps[-1], batch_size=2)
    traced = {one.step for one in steps}
    device, samples = partial.device, run.samples
    between = (samples.step > min(traced)) & (samples.step < partial.step)
    (untraced, *_) = (
        at for at in np.flatnonzero(between).tolist() if int(samples.step[at]) not in traced
    )
    figures = samples.devices[device]
    peaks = figures.peak_bytes.copy()
    peaks[untraced] = highest = int(peaks[: untraced + 1].max()) + (20 << 20)
    samples = dataclasses.replace(
        samples, devices={device: dataclasses.replace(figures, peak_bytes=peaks)}
    )
    own = dataclasses.replace(run, samples=samples, requests=(*steps[:-1], partial))
    # THEN the range of the full batch reaches to it, and that of the partial one does not
    for batch, reaches in ((4, True), (2, False)):
        answer = tb_memplugin.what_if(own, batch_size=batch).prediction
        assert answer.method == "recorded" and (answer.high_bytes == highest) is reaches
    # AND predictions for other batch sizes from the full one's steps are at least as wide
    larger_answer = tb_memplugin.what_if(own, batch_size=5)
    full, larger = tb_memplugin.what_if(own, batch_size=4).prediction, larger_answer.prediction
    assert (
        larger.method != "recorded"
        and larger.high_bytes >= larger.peak_bytes * highest // full.peak_bytes
    )
    # AND the run's batch size is the full one, with the median of its own traced steps
    program = recorded_program(own.requests, device)
    assert Predictor(program).batch_sizes == (2, 4)
    measured = [int(peaks[samples.step == one.step][0]) for one in steps[1:-1]]
    assert larger_answer.measured_peak_bytes == int(statistics.median(measured))


def test_the_peak_is_that_of_the_kind_of_steps_that_needs_most() -> None:
    # GIVEN a run of which the traced step with the highest peak makes requests of its own, as an
    # update does that follows batches whose gradients were only summed
    run = tb_memplugin.load(pathlib.Path(__file__).parents[2] / "fixtures/runs")["out_of_memory"]
    steps = [one for one in run.requests if not one.first and not one.planned]
    peaks = dict(
        zip(
            run.samples.step.tolist(),
            run.samples.devices[steps[0].device].peak_bytes.tolist(),
            strict=True,
        )
    )
    update = max(steps, key=lambda one: peaks[one.step])
    renamed = dataclasses.replace(update, ops=tuple(f"update/{op}" for op in update.ops))
    own = dataclasses.replace(
        run, requests=tuple(renamed if one is update else one for one in run.requests)
    )
    # THEN the peak of the run is not the median of all steps, but that of this one, and other
    # batches need more, too
    before, after = (tb_memplugin.what_if(one, batch_size=update.batch_size) for one in (run, own))
    assert (
        before.measured_peak_bytes
        < after.measured_peak_bytes
        == peaks[update.step]
        == after.prediction.peak_bytes
    )
    assert after.prediction.low_bytes == peaks[update.step] > before.prediction.low_bytes
    larger = [
        tb_memplugin.what_if(one, batch_size=2 * (update.batch_size or 0)).prediction
        for one in (run, own)
    ]
    assert larger[0].peak_bytes < larger[1].peak_bytes
