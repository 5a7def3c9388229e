"""A run as tables: every sample, ledger row, layer and held tensor, with unknown as unknown."""

import dataclasses
import itertools
import pathlib

import numpy as np
from reading_cases import HELD_TENSORS, write_small_run
from worker_runs import top_bytes, top_step, write_workers

import tb_memplugin
from tb_memplugin.analysis.steps.run_tables import run_tables
from tb_memplugin.model import MISSING, take_samples


def test_each_record_of_a_run_is_a_row(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    run = tb_memplugin.load(tmp_path)["small"]
    tables = run_tables(run)
    assert list(tables) == ["peaks", "ledger", "layers", "held_tensors"]
    for table in tables.values():
        assert len({len(column) for column in table.values()}) == 1
    peaks = tables["peaks"]
    figures = run.samples.devices["CPU:0"]
    assert len(peaks["step"]) == len(run.samples)
    assert peaks["step"].tolist() == run.samples.step.tolist()
    assert peaks["peak_bytes"].tolist() == figures.peak_bytes.tolist()
    assert set(peaks["device"]) == {"CPU:0"} and "train" in peaks["phase"]
    # AND the ledger's rows of a snapshot sum to its bytes in use
    ledger = tables["ledger"]
    for snapshot in run.snapshots:
        of_step = ledger["bytes"][ledger["step"] == snapshot.step]
        assert len(of_step) == len(snapshot.ledger) and of_step.sum() == snapshot.in_use_bytes
    # AND each layer table and each group of held tensors is there
    assert sorted(set(tables["layers"]["from_step"].tolist())) == [table.step for table in run.layer_tables]
    assert tables["layers"]["path"] == [layer.path for table in run.layer_tables for layer in table.layers]
    held = tables["held_tensors"]
    assert held["count"].tolist() == [group.count for group in HELD_TENSORS]
    assert held["shape"][0] == "[32, 10]" and None in held["held_by"]
    for name in ("line", "retaining_path"):
        assert held[name] == [getattr(group, name) for group in HELD_TENSORS]


def test_unknown_integers_are_missing(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    ledger = run_tables(tb_memplugin.load(tmp_path)["small"])["ledger"]
    at = ledger["category"].index("unattributed")
    assert ledger["rounding_bytes"].dtype == np.int64 and ledger["rounding_bytes"][at] == MISSING
    assert ledger["layer"][at] is None


def test_a_device_has_only_the_samples_of_its_own_worker(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "many", workers=2, devices=2, steps=10)
    peaks = run_tables(tb_memplugin.load(tmp_path)["many"])["peaks"]
    device = np.asarray(peaks["device"])
    assert len(device) == 4 * 10
    for worker, number in itertools.product(range(2), range(2)):
        rows = device == f"worker_{worker}/GPU:{number}"
        highest = int(np.argmax(peaks["peak_bytes"][rows]))
        assert peaks["peak_bytes"][rows][highest] == top_bytes(worker, number)
        assert peaks["step"][rows][highest] == top_step(worker, number, 10)


def test_an_empty_run_has_empty_tables(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    run = tb_memplugin.load(tmp_path)["small"]
    empty = dataclasses.replace(run, samples=take_samples(run.samples, []), snapshots=(), layer_tables=())
    assert all(len(column) == 0 for table in run_tables(empty).values() for column in table.values())
