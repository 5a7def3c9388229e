"""The answer to a what-if question, as it is read."""

import dataclasses
import pathlib

import pytest
import requests_cases

import tb_memplugin
from tb_memplugin.model import Run
from tb_memplugin.model.units import format_bytes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory: pathlib.Path = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return tb_memplugin.load(directory)["traced"]


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
