"""The list of runs of a run with many workers, from roll-ups: it says what their histories say."""

import pathlib
from typing import Any

import pytest
from cluster_cases import Fault, write_cluster

from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.limits import MAX_WORKERS
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server import run_facts
from tb_memplugin.server.handlers import Handlers


def listed(directory: pathlib.Path) -> dict[str, Any]:
    (run,) = Handlers(Reader()).runs(FileSource(directory))["runs"]
    return run


@pytest.mark.parametrize(
    "faults", [[], [Fault(2, oom=90), Fault(3, leak_mib=600)], [Fault(1, restarts=60), Fault(4, stops=20)]]
)
def test_the_key_figures_are_those_of_the_histories(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]
) -> None:
    write_cluster(tmp_path / "run", 8, 2, 120, faults, flush_steps=25)
    whole = listed(tmp_path)
    monkeypatch.setattr(run_facts, "MANY_WORKERS", 4)
    told = listed(tmp_path)
    differ = {name for name in whole if told[name] != whole[name]}
    # Only the sentences on growth are shorter.
    assert differ <= {"findings"}
    assert len(told["findings"]) == (1 if any(fault.leak_mib for fault in faults) else 0)
    assert bool(whole["findings"]) == bool(told["findings"])


def test_all_of_many_workers_are_listed(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", MAX_WORKERS + 4, 2, 20, [])
    run = listed(tmp_path)
    assert len(run["workers"]) == MAX_WORKERS + 4 and len(run["devices"]) == 2 * (MAX_WORKERS + 4)
    assert run["steps"] == 20 and run["damage"] == []
