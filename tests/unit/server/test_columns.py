"""Columns of host memory and of the pool, compared with the run that they are made of."""

import dataclasses
import pathlib

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, make_samples, write_small_run

from tb_memplugin.analysis.pool.pool_steps import pool_steps
from tb_memplugin.analysis.steps.overview import overview
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import MISSING, PHASES, Run
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server.columns import host_columns, pool_columns


def read(logdir: pathlib.Path) -> Run:
    return Reader().run(FileSource(logdir), "exp").run


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    write_small_run(tmp_path / "exp")
    return read(tmp_path)


def test_host_memory_has_a_row_for_each_step_and_a_summary(run: Run) -> None:
    answer = host_columns({"run": "exp"}, run, "train", None, None, 1000)
    train = run.samples.phase == PHASES.index("train")
    assert answer.fields["run"] == "exp" and answer.fields["worker"] == ""
    assert answer.fields["total_rows"] == int(train.sum()) == len(answer.columns["step"])
    recorded = run.samples.host_resident_bytes[train]
    assert answer.columns["host_resident_bytes"].tolist() == recorded.tolist()
    assert answer.fields["summary"]["peak_bytes"] == int(run.samples.host_resident_bytes.max())
    fewer = host_columns({}, run, "train", 10, 19, 1000)
    assert fewer.columns["step"].tolist() == list(range(10, 20)) and fewer.fields["total_rows"] == 10


def test_host_memory_that_was_never_measured_has_no_summary(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "exp", versions={})
    samples = make_samples(range(20), [MIB] * 20)
    writer.samples(dataclasses.replace(samples, host_resident_bytes=np.full(20, MISSING)))
    writer.close()
    run = read(tmp_path)
    answer = host_columns({}, run, "train", None, None, 1000)
    assert answer.fields["summary"] is None
    assert {len(column) for column in answer.columns.values()} == {0}


def test_the_pool_is_told_at_the_rows_of_the_overview(run: Run) -> None:
    view = overview(run, DEVICE, "train", None, None, 1000)
    pool = pool_steps(run, DEVICE, view)
    answer = pool_columns({"run": "exp"}, view, pool)
    assert answer.fields["total_rows"] == 60 and len(answer.columns["step"]) == 60
    assert {len(column) for column in answer.columns.values()} == {60}
    peak = answer.columns["peak_bytes"]
    assert int(peak[answer.columns["step"] == 41][0]) >= 600 * MIB
    named = [answer.fields["sources"][source] for source in answer.columns["pool_source"].tolist()]
    assert {"measured", "traced"} <= set(named)
    assert len(answer.fields["growths"]) == len(pool.growths) and answer.fields["sentences"] == list(pool.sentences)
