"""What a report leaves out of long runs, and what it says about that."""

import pathlib

import pytest
from reading_cases import make_samples, make_table

from tb_memplugin.commands.report import parts
from tb_memplugin.commands.report.contents import Contents, collect
from tb_memplugin.events.run_writer import RunWriter


def write_tables(directory: pathlib.Path, tables: int, worker: str = "") -> None:
    writer = RunWriter(directory, worker=worker)
    writer.samples(make_samples(range(tables), [1000] * tables))
    for step in range(tables):
        writer.layer_table(make_table(step, unfrozen=bool(step % 2)))
    writer.close()


def tables_in(found: Contents) -> list[str]:
    questions = [dict(answer.question.parameters) for answer in found.answers if answer.question.route == "layers"]
    return sorted(question["step"] for question in questions if "step" in question)


def test_the_layers_of_each_worker_are_in_a_report(tmp_path: pathlib.Path) -> None:
    for worker in range(2):
        write_tables(tmp_path / "run", 1 + worker, f"worker_{worker}")
    found = collect(tmp_path)
    answers = [answer.question.parameters for answer in found.answers if answer.question.route == "layers"]
    devices = [dict(parameters).get("device") for parameters in answers if "step" in dict(parameters)]
    assert devices == [None, "worker_0/CPU:0", "worker_1/CPU:0", "worker_1/CPU:0"]


@pytest.mark.parametrize(("tables", "left_out"), [(3, 0), (4, 0), (5, 1), (9, 5)])
def test_the_last_layer_tables_are_in_a_report(
    tables: int, left_out: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MAX_TABLES", 4)
    write_tables(tmp_path / "run", tables)
    found = collect(tmp_path)
    assert tables_in(found) == [str(step) for step in range(left_out, tables)]
    refused = [(question.parameters, why) for question, why in found.refusals if question.route == "layers"]
    assert len(refused) == left_out
    said = [sentence for sentence in found.absent if "layer tables" in sentence]
    assert said == (
        [f"{left_out} layer tables of run are not in this report: it contains the last 4."] if left_out else []
    )
