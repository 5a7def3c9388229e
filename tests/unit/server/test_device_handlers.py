"""The comparison of the devices of many workers, from roll-ups: it says what their histories say."""

import pathlib
from typing import Any

import pytest
from cluster_cases import Fault, NotingSource, findings, name_of, planted_faults, write_cluster
from reading_cases import MIB, event_files, make_samples, write_samples

from tb_memplugin.server import device_handlers
from tb_memplugin.server.handlers import Handlers, Stretch
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.files.limits import MANY_WORKERS, MAX_WORKERS
from tb_memplugin.storage.run_reader import Reader


def devices_of(source: FileSource, run: str = "run") -> dict[str, Any]:
    return Handlers(Reader()).comparing.devices(source, run, "train")


def test_all_planted_faults_of_many_workers_are_found_and_nothing_else(tmp_path: pathlib.Path) -> None:
    # GIVEN more workers than are compared by their histories, with twelve faults
    workers, devices, steps = MANY_WORKERS + 6, 2, 400
    faults = planted_faults(workers, devices, steps, seed=4)
    write_cluster(tmp_path / "run", workers, devices, steps, faults, flush_steps=40)
    source = NotingSource(tmp_path)
    told = devices_of(source)
    assert len(told["workers"]) == workers and len(told["devices"]) == workers * devices
    found = {(one["worker"], one["status"]) for one in told["workers"] if one["status"] != "ok"}
    found |= {(one["worker"], one["stopped_early"]) for one in told["workers"] if one["stopped_early"]}
    assert found == findings(faults, steps)
    # AND only the histories of the workers that stopped were read, which say where exactly
    assert source.asked == {name_of(fault.worker) for fault in faults if fault.stops is not None}
    assert source.listed == 0 and told["damage"] == []
    # AND nothing over the steps, of which their roll-ups do not tell all
    assert told["steps"]["step"] == [] and told["steps"]["sum_in_use_bytes"] is None


@pytest.mark.parametrize(
    "faults",
    [[Fault(1, leak_mib=500), Fault(2, stops=75), Fault(3, oom=90)], [Fault(at, restarts=60) for at in range(8)], []],
)
def test_roll_ups_say_what_the_histories_say(tmp_path, monkeypatch, faults) -> None:
    write_cluster(tmp_path / "run", 8, 2, 120, faults, flush_steps=25)
    whole = devices_of(FileSource(tmp_path))
    monkeypatch.setattr(device_handlers, "MANY_WORKERS", 4)
    told = devices_of(FileSource(tmp_path))
    assert (whole["rolled_up"], told["rolled_up"]) == (False, True)
    for name in ("most_loaded", "imbalance", "sum_peak_bytes", "phase", "run"):
        assert told[name] == whole[name]
    # Only the histories tell the number of rows and the offsets of clocks.
    unknown = {"rows": None, "clock_offset_seconds": None}
    for name in ("devices", "workers"):
        assert [{**one, **unknown} for one in told[name]] == [{**one, **unknown} for one in whole[name]]


def test_a_damaged_roll_up_falls_back_to_the_history_and_says_so(tmp_path, monkeypatch) -> None:
    write_cluster(tmp_path / "run", 6, 1, 100, [], flush_steps=25)
    whole = devices_of(FileSource(tmp_path))
    monkeypatch.setattr(device_handlers, "MANY_WORKERS", 4)
    (path,) = event_files(tmp_path / "run" / "memory" / name_of(3))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"rollups/") + 60] ^= 1
    path.write_bytes(data)
    source = NotingSource(tmp_path)
    told = devices_of(source)
    assert [{**one, "rows": None} for one in told["devices"]] == [{**one, "rows": None} for one in whole["devices"]]
    assert source.asked == {name_of(3)}
    assert told["damage"] == [
        "the history of 1 worker was read instead of a roll-up (its newest roll-up is damaged): stage_3_worker_0"
    ]


def test_histories_are_read_up_to_a_limit(tmp_path: pathlib.Path) -> None:
    for worker in range(MAX_WORKERS + 3):
        write_samples(tmp_path / "run", make_samples([0], [MIB]), worker=f"worker_{worker:03}")
    told = devices_of(FileSource(tmp_path))
    assert len(told["workers"]) == MAX_WORKERS
    assert told["damage"][0].startswith(
        f"the history of {MAX_WORKERS} workers was read instead of a roll-up (it has no"
    )
    assert told["damage"][1:] == [
        f"3 workers without a roll-up are not shown: only {MAX_WORKERS} histories are read",
    ]


def test_one_worker_of_many_is_read_alone(tmp_path: pathlib.Path) -> None:
    # GIVEN more workers than views of whole runs show
    workers = MAX_WORKERS + 2
    write_cluster(tmp_path / "run", workers, 1, 10, [])
    source, handlers = NotingSource(tmp_path), Handlers(Reader())
    device = f"{name_of(workers - 1)}/GPU:0"
    # THEN the details of any of them are there, without an index of the others
    view = handlers.overview(source, "run", Stretch(device, "train", None, None, 1500))
    assert len(view.columns["step"]) == 10
    (fits, *_) = handlers.answers(source, "run", device, "train")["answers"]
    assert fits["device"] == device
    assert source.asked == {name_of(workers - 1)} and source.listed == 0
