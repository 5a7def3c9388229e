"""Answers on a run of several workers: each reads only the workers that it needs, and says the
same; of many, roll-ups say what their histories say."""

import dataclasses
import pathlib
from typing import Any

import pytest
from cluster_cases import Fault, NotingSource, name_of, planted_faults, write_cluster
from cluster_cases import findings as cluster_findings
from handlers import Handlers
from reading_cases import (
    DEVICE,
    MIB,
    START,
    event_files,
    make_layer,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
    write_records,
    write_small_run,
)
from worker_runs import CAPACITY, top_bytes, top_step, write_workers

from tb_memplugin import load
from tb_memplugin.analysis import device_facts, findings, phases, step_range
from tb_memplugin.errors import NotFoundError
from tb_memplugin.export import Selection, describe_run, format_run, predictor_of
from tb_memplugin.server import Stretch
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import MANY_WORKERS, MAX_WORKERS, FileSource
from tb_memplugin.storage.write import RunWriter


def test_every_device_of_a_wide_run_has_its_own_figures(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "run", 11, 3, 400)
    handlers, source = Handlers(Reader()), NotingSource(tmp_path)
    told = handlers.devices(source, "run", "train")
    named = [(worker, at) for worker in range(11) for at in range(3)]
    columns = ("device", "peak_bytes", "peak_step", "headroom_bytes")
    tops = [
        (f"worker_{worker}/GPU:{at}", top_bytes(worker, at), top_step(worker, at, 400))
        for worker, at in named
    ]
    assert [tuple(one[name] for name in columns) for one in told["devices"]] == [
        (device, peak, step, CAPACITY - peak) for device, peak, step in tops
    ]
    assert told["sum_peak_bytes"] == sum(top_bytes(*one) for one in named)
    assert told["imbalance"]["bytes"] == top_bytes(10, 2) - top_bytes(0, 0)
    assert told["most_loaded"] == "worker_10/GPU:2"
    # The steps of the highest peaks are those of the formula.
    highest = dict(zip(told["steps"]["step"], told["steps"]["max_peak_bytes"], strict=True))
    assert highest[top_step(10, 2, 400)] == top_bytes(10, 2)
    (run,) = handlers.runs(source)["runs"]
    assert {one["device"]: one["peak_bytes"] for one in run["devices"]} == {
        one["device"]: one["peak_bytes"] for one in told["devices"]
    }
    assert (
        run["most_loaded"] == told["most_loaded"]
        and run["steps"] == 400
        and len(run["workers"]) == 11
    )


def test_the_overview_of_a_device_reads_its_worker_alone(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "run", 12, 2, 300)
    handlers, source = Handlers(Reader()), NotingSource(tmp_path)
    view = handlers.overview(source, "run", Stretch("worker_1/GPU:1", "train", None, None, 1500))
    assert view.columns["peak_bytes"].max() == top_bytes(1, 1)
    handlers.pool(source, "run", Stretch("worker_1/GPU:1", "train", None, None, 1500))
    answers = handlers.answers(source, "run", "worker_1/GPU:1", "train")["answers"]
    assert (
        answers[0]["figures"]["peak_bytes"] == top_bytes(1, 1)
        and answers[0]["device"] == "worker_1/GPU:1"
    )
    assert source.asked == {"worker_1"}
    # A device that is not there is one of none of them.
    for ask in (
        lambda: handlers.overview(
            source, "run", Stretch("worker_1/GPU:7", "train", None, None, 1500)
        ),
        lambda: handlers.answers(source, "run", "worker_1/GPU:7", "train"),
    ):
        with pytest.raises(NotFoundError, match="no device 'worker_1/GPU:7'; available: worker_"):
            ask()


def test_only_workers_that_recorded_since_are_read_again(tmp_path: pathlib.Path) -> None:
    writers = [RunWriter(tmp_path / "run", worker=name) for name in ("a", "b")]
    for writer in writers:
        writer.samples(make_samples(range(5), [MIB] * 5))
        writer.flush()
    handlers, source = Handlers(Reader()), NotingSource(tmp_path)
    handlers.runs(source)
    handlers.devices(source, "run", "train")
    source.asked.clear()
    writers[1].samples(make_samples(range(5, 9), [2 * MIB] * 4))
    for writer in writers:
        writer.close()
    told = handlers.devices(source, "run", "train")
    assert [one["peak_bytes"] for one in told["devices"]] == [MIB, 2 * MIB]
    assert handlers.runs(source)["runs"][0]["last_step"] == 8
    assert source.asked == {"b"}


def test_failures_have_the_index_that_they_have_in_the_whole_run(tmp_path: pathlib.Path) -> None:
    # GIVEN failures of two workers whose identifiers are the same, that of the second worker first
    for name, step in (("a", 9), ("b", 4)):
        write_records(
            tmp_path / "run", make_samples(range(step), [MIB] * step), make_oom(step), worker=name
        )
    handlers, source = Handlers(Reader()), FileSource(tmp_path)
    listed = [one["device"] for one in handlers.oom(source, "run")["ooms"]]
    assert listed == [f"b/{DEVICE}", f"a/{DEVICE}"]
    for name, index in (("a", 1), ("b", 0)):
        device = f"{name}/{DEVICE}"
        view = handlers.overview(source, "run", Stretch(device, "train", None, None, 1500))
        assert [one["oom"] for one in view.fields["failures"]] == [index]
        fits = handlers.answers(source, "run", device, "train")["answers"][0]
        assert fits["status"] == "failed" and fits["evidence"]["oom"] == index
    told = handlers.devices(source, "run", "train")
    assert [(one["ooms"], one["headroom_bytes"]) for one in told["devices"]] == [
        (1, None),
        (1, None),
    ]


def test_a_run_read_worker_by_worker_is_described_as_a_whole(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "run", worker="a")
    write_small_run(tmp_path / "run", worker="b", start=START + 5)
    writer = RunWriter(tmp_path / "run", worker="c")
    writer.note("no step is traced")
    writer.samples(make_samples(range(58, 70), [MIB] * 12))
    writer.traced(make_snapshot(60))
    writer.close()
    source = FileSource(tmp_path)
    (told,) = Handlers(Reader()).runs(source)["runs"]
    whole = Reader().run(source, "run")
    steps = step_range(whole.run)
    assert (
        (told["steps"], told["first_step"], told["last_step"])
        == (70, 0, 69)
        == dataclasses.astuple(steps)
    )
    assert told["devices"] == [dataclasses.asdict(one) for one in device_facts(whole.run)]
    assert told["phases"] == phases(whole.run)
    assert told["findings"] == [vars(one) for one in findings(whole.by_worker)]
    assert told["workers"] == list(whole.run.workers) and told["sessions"] == 3
    assert told["notes"] == list(whole.run.notes) and told["damage"] == list(whole.run.damage)
    assert told["started"] == whole.sessions[0].started


def test_steps_of_a_run_are_counted_up_to_a_limit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN workers whose steps differ
    for worker in range(3):
        samples = make_samples(range(100 * worker, 100 * worker + 100), [MIB] * 100)
        write_records(tmp_path / "run", samples, worker=f"w{worker}")
    (run,) = Handlers(Reader()).runs(FileSource(tmp_path))["runs"]
    assert (run["steps"], run["last_step"], run["damage"]) == (300, 299, [])
    monkeypatch.setattr("tb_memplugin.server.run_list.MAX_STEPS", 250)
    (run,) = Handlers(Reader()).runs(FileSource(tmp_path))["runs"]
    assert (run["steps"], run["last_step"]) == (250, 249)
    assert run["damage"] == ["steps after step 249 are not counted: only 250 are"]


def test_figures_over_steps_of_very_many_workers_are_left_out_and_named(
    tmp_path, monkeypatch
) -> None:
    write_workers(tmp_path / "run", 4, 2, 400)
    source = FileSource(tmp_path)
    whole = Handlers(Reader()).devices(source, "run", "train")
    assert whole["damage"] == [] and len(whole["steps"]["step"]) == 400
    # GIVEN room for the figures of two of four workers
    monkeypatch.setattr(
        "tb_memplugin.server.devices.MAX_SERIES_BYTES", 400 * (56 + 2 * 16) + 400 * (16 + 2 * 16)
    )
    reader = Reader()
    handlers = Handlers(reader)
    told = handlers.devices(source, "run", "train")
    # THEN every device has its peak, and nothing says what only some workers did
    assert told["devices"] == whole["devices"] and told["sum_peak_bytes"] == whole["sum_peak_bytes"]
    assert told["imbalance"] == whole["imbalance"] and told["most_loaded"] == whole["most_loaded"]
    columns = {name: values for name, values in told["steps"].items() if values is not None}
    assert columns == {"step": [], "max_peak_bytes": [], "min_peak_bytes": []}
    assert [worker["clock_offset_seconds"] for worker in told["workers"]] == [0.0, 0.0, None, None]
    assert len(told["damage"]) == 1 and told["damage"][0].endswith(
        "with those of worker_2, worker_3"
    )
    # AND the same is said once the answer is gone from the cache
    reader.cache.put(("devices", "run", "train"), None, None, 0)
    assert handlers.devices(source, "run", "train") == told
    monkeypatch.setattr("tb_memplugin.server.devices.MAX_SERIES_BYTES", 1 << 20)
    reader.cache.put(("devices", "run", "train"), None, None, 0)
    assert handlers.devices(source, "run", "train") == whole


def test_each_worker_has_the_layers_of_its_own_model(tmp_path: pathlib.Path) -> None:
    """As in a pipeline of stages: each worker trains other layers."""
    for worker in ("stage_0", "stage_1"):
        tables = [
            dataclasses.replace(
                make_table(at, unfrozen=True),
                layers=(make_layer(f"{worker}/layer_{at}", True, 100),),
            )
            for at in (0, 5)
        ]
        write_records(
            tmp_path / "run", *tables, make_samples(range(10), [100 * MIB] * 10), worker=worker
        )
    handlers, source = Handlers(Reader()), NotingSource(tmp_path)
    for worker in ("stage_1", "stage_0"):
        source.asked.clear()
        for step in (0, 5):
            told = handlers.layers(source, "run", f"{worker}/{DEVICE}", step)
            assert [layer["path"] for layer in told["layers"]] == [f"{worker}/layer_{step}"]
        assert source.asked <= {worker}
    assert handlers.layers(source, "run", None, None)["layers"][0]["path"] == "stage_0/layer_5"
    with pytest.raises(NotFoundError, match="stage_2"):
        handlers.layers(source, "run", f"stage_2/{DEVICE}", None)
    # AND what is told of a device alone has its worker's layers
    run = load(tmp_path)["run"]
    device = f"stage_1/{DEVICE}"
    assert run.layer_tables[-1].layers[0].path == "stage_0/layer_5"
    assert predictor_of(run, device).layers[0].path == "stage_1/layer_5"
    described = describe_run(run, Selection(device=device), run.by_worker)
    assert [layer["path"] for layer in described["layers"]] == ["stage_1/layer_5"]
    whole = format_run(run, by_worker=run.by_worker)
    assert all(f"{worker}: layers from step 5 on" in whole for worker in run.by_worker)


def devices_of(source: FileSource, run: str = "run") -> dict[str, Any]:
    return Handlers(Reader()).devices(source, run, "train")


def test_all_planted_faults_of_many_workers_are_found_and_nothing_else(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN more workers than are compared by their histories, with twelve faults
    workers, devices, steps = MANY_WORKERS + 6, 2, 400
    faults = planted_faults(workers, devices, steps, seed=4)
    write_cluster(tmp_path / "run", workers, devices, steps, faults, flush_steps=40)
    source = NotingSource(tmp_path)
    told = devices_of(source)
    assert len(told["workers"]) == workers and len(told["devices"]) == workers * devices
    found = {(one["worker"], one["status"]) for one in told["workers"] if one["status"] != "ok"}
    found |= {
        (one["worker"], one["stopped_early"]) for one in told["workers"] if one["stopped_early"]
    }
    assert found == cluster_findings(faults, steps)
    # AND only the histories of the workers that stopped were read, which say where exactly
    assert source.asked == {name_of(fault.worker) for fault in faults if fault.stops is not None}
    assert source.listed == 0 and told["damage"] == []
    # AND the details of any of them are there, without an index of the others
    source.asked.clear()
    handlers, device = Handlers(Reader()), f"{name_of(workers - 1)}/GPU:0"
    view = handlers.overview(source, "run", Stretch(device, "train", None, None, 1500))
    assert len(view.columns["step"]) == steps
    assert handlers.answers(source, "run", device, "train")["answers"][0]["device"] == device
    assert source.asked == {name_of(workers - 1)} and source.listed == 0
    # AND nothing over the steps, of which their roll-ups do not tell all
    assert told["steps"]["step"] == [] and told["steps"]["sum_in_use_bytes"] is None


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(1, leak_mib=500), Fault(2, stops=75), Fault(3, oom=90)],
        [Fault(at, restarts=60) for at in range(8)],
        [],
    ],
)
def test_roll_ups_say_what_the_histories_say(tmp_path, monkeypatch, faults) -> None:
    write_cluster(tmp_path / "run", 8, 2, 120, faults, flush_steps=25)
    whole = devices_of(FileSource(tmp_path))
    monkeypatch.setattr("tb_memplugin.server.devices.MANY_WORKERS", 4)
    told = devices_of(FileSource(tmp_path))
    assert (whole["rolled_up"], told["rolled_up"]) == (False, True)
    for name in ("most_loaded", "imbalance", "sum_peak_bytes", "phase", "run"):
        assert told[name] == whole[name]
    # Only the histories tell the number of rows and the offsets of clocks.
    unknown = {"rows": None, "clock_offset_seconds": None}
    for name in ("devices", "workers"):
        assert [{**one, **unknown} for one in told[name]] == [
            {**one, **unknown} for one in whole[name]
        ]


def test_a_damaged_roll_up_falls_back_to_the_history_and_says_so(tmp_path, monkeypatch) -> None:
    write_cluster(tmp_path / "run", 6, 1, 100, [], flush_steps=25)
    whole = devices_of(FileSource(tmp_path))
    monkeypatch.setattr("tb_memplugin.server.devices.MANY_WORKERS", 4)
    (path,) = event_files(tmp_path / "run" / "memory" / name_of(3))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"rollups/") + 60] ^= 1
    path.write_bytes(data)
    source = NotingSource(tmp_path)
    told = devices_of(source)
    assert [{**one, "rows": None} for one in told["devices"]] == [
        {**one, "rows": None} for one in whole["devices"]
    ]
    assert source.asked == {name_of(3)}
    assert told["damage"] == [
        "the history of 1 worker was read instead of a roll-up (its newest roll-up is damaged): "
        "stage_3_worker_0"
    ]


def test_histories_are_read_up_to_a_limit(tmp_path: pathlib.Path) -> None:
    for worker in range(MAX_WORKERS + 3):
        write_records(tmp_path / "run", make_samples([0], [MIB]), worker=f"worker_{worker:03}")
    told = devices_of(FileSource(tmp_path))
    assert len(told["workers"]) == MAX_WORKERS
    assert told["damage"][0].startswith(
        f"the history of {MAX_WORKERS} workers was read instead of a roll-up (it has no"
    )
    assert told["damage"][1:] == [
        f"3 workers without a roll-up are not shown: only {MAX_WORKERS} histories are read",
    ]
