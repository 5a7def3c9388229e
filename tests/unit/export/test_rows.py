"""The rows of the tables, against what was written and against the tables that data frames have."""

import collections
import datetime
import pathlib

import numpy as np
import pytest
from reading_cases import (
    HELD_TENSORS,
    MEASURED,
    MIB,
    START,
    event_files,
    make_oom,
    make_samples,
    make_snapshot,
    make_table,
    write_small_run,
)
from worker_runs import top_bytes, top_step, write_workers

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.export import rows as module
from tb_memplugin.export.rows import rows_of, unit_tables
from tb_memplugin.export.schema import TABLES
from tb_memplugin.export.units import units_of

Records = dict[str, list[dict[str, object]]]


def exported(logdir: pathlib.Path) -> Records:
    """The rows of all units by table."""
    records: Records = {name: [] for name in TABLES}
    for unit in units_of(str(logdir)):
        tables, _ = unit_tables(unit)
        for name in TABLES:
            records[name] += rows_of(name, tables[name])
    return records


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Records:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "small", allocator=True)
    return exported(directory)


def test_every_row_has_the_columns_of_its_schema_and_null_only_where_allowed(small: Records) -> None:
    for name, table in TABLES.items():
        for row in small[name]:
            assert list(row) == [column.name for column in table.columns]
            assert [column.name for column in table.columns if row[column.name] is None and not column.unknown] == []


def test_samples_are_those_that_were_written(small: Records) -> None:
    rows = small["samples"]
    assert len(rows) == 64
    train = {row["step"]: row for row in rows if row["phase"] == "train"}
    assert {step: row["peak_bytes"] for step, row in train.items()} == {
        step: 700 * MIB if step == 41 else 200 * MIB + step for step in range(60)
    }
    start = datetime.datetime.fromtimestamp(START, datetime.timezone.utc).replace(tzinfo=None)
    assert all(row["time"] == start + datetime.timedelta(seconds=step / 2) for step, row in train.items())
    assert [row["epoch"] for row in train.values()] == [0] * 30 + [1] * 30
    assert {
        step: (row["pool_bytes"], row["largest_free_bytes"]) for step, row in train.items() if row["pool_bytes"]
    } == MEASURED
    assert all(row["driver_used_bytes"] is None and row["worker"] == "" and row["run"] == "small" for row in rows)


def test_peaks_are_the_highest_of_each_phase(small: Records) -> None:
    peaks = {row["phase"]: row for row in small["peaks"]}
    expected = {"train": (700 * MIB, 41, 60, 2), "validation": (150 * MIB, 59, 4, 0)}
    assert {
        phase: (row["peak_bytes"], row["step"], row["samples"], row["snapshots"]) for phase, row in peaks.items()
    } == expected
    assert peaks["train"]["time"] is not None and peaks["train"]["at_step_end"] is False


def test_the_ledger_sums_to_the_bytes_in_use(small: Records) -> None:
    sums: collections.Counter[object] = collections.Counter()
    for row in small["ledger"]:
        sums[row["step"], row["at_failure"]] += row["bytes"]  # type: ignore[operator]
    written = (make_snapshot(3), make_snapshot(41, frozen=0, trainable=4_002_000, activations=600 * MIB))
    assert sums == {(one.step, False): one.in_use_bytes for one in written} | {(59, True): make_oom(59).in_use_bytes}
    frozen = [row for row in small["ledger"] if row["step"] == 3 and row["trainable"] is False]
    assert [(row["layer"], row["category"], row["bytes"]) for row in frozen] == [
        ("model/backbone", "weights", 4_000_000)
    ]


def test_layers_held_tensors_and_failures_are_those_that_were_written(small: Records) -> None:
    tables = make_table(0, unfrozen=False), make_table(30, unfrozen=True)
    assert [(row["from_step"], row["position"], row["path"], row["optimizer_bytes"]) for row in small["layers"]] == [
        (table.step, position, layer.path, layer.optimizer_bytes)
        for table in tables
        for position, layer in enumerate(table.layers)
    ]
    assert small["layers"][0]["output_shape"] == [-1, 8, 8, 4]
    names = ("dtype", "count", "bytes", "held_by", "line", "retaining_path")
    assert [(row["shape"], *(row[name] for name in names)) for row in small["held_tensors"]] == [
        (list(group.shape), *(getattr(group, name) for name in names)) for group in HELD_TENSORS
    ]
    oom = make_oom(59)
    (failure,) = small["failures"]
    for name in ("step", "verdict", "requested_bytes", "in_use_bytes", "op", "layer", "reason"):
        assert failure[name] == getattr(oom, name)


def test_each_device_has_the_rows_of_its_own_worker(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "many", workers=3, devices=2, steps=12)
    records = exported(tmp_path)
    assert len(records["samples"]) == 3 * 2 * 12
    assert {(row["worker"], row["device"]): (row["peak_bytes"], row["step"]) for row in records["peaks"]} == {
        (f"worker_{worker}", f"GPU:{device}"): (top_bytes(worker, device), top_step(worker, device, 12))
        for worker in range(3)
        for device in range(2)
    }


def test_a_repeated_step_is_exported_once(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that was resumed at step 3
    for steps, peak, start in ((range(6), 1000, START), (range(3, 9), 2000, START + 600)):
        writer = RunWriter(tmp_path / "run")
        writer.samples(make_samples(steps, [peak] * 6, start=start))
        writer.close()
    rows = exported(tmp_path)["samples"]
    assert [(row["step"], row["peak_bytes"]) for row in rows] == [
        *((step, 1000) for step in range(3)),
        *((step, 2000) for step in range(3, 9)),
    ]


def test_a_damaged_file_is_a_dead_letter_and_the_rest_is_exported(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    path = max(event_files(tmp_path), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-40])
    records = exported(tmp_path)
    assert records["samples"] and records["dead_letters"]
    assert all(row["run"] == "small" and row["exported"] is True for row in records["dead_letters"])
    assert "small" in str(records["dead_letters"][0]["reason"])


def test_a_file_of_noise_is_a_dead_letter_without_rows(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "noise" / "memory"
    directory.mkdir(parents=True)
    (directory / "events.out.tfevents.1").write_bytes(bytes(range(256)) * 8)
    records = exported(tmp_path)
    assert [row["exported"] for row in records["dead_letters"]] == [False]
    assert not any(records[name] for name in TABLES if name != "dead_letters")


def test_what_fails_while_reading_is_a_dead_letter_without_the_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "small")

    def fails(unit: object) -> None:
        raise RuntimeError(f"cannot open {tmp_path}/small")

    monkeypatch.setattr(module, "read_unit", fails)
    (unit,) = units_of(str(tmp_path))
    tables, readable = unit_tables(unit)
    assert not readable
    assert [row["reason"] for row in rows_of("dead_letters", tables["dead_letters"])] == ["cannot open …/small"]


def test_impossible_times_are_unknown() -> None:
    times = module._times(np.asarray([0.0, 1.5, np.nan, np.inf, 1e300, -1e300]))
    assert times.tolist()[:2] == [0, 1_500_000]
    assert (times[2:] == module.MISSING).all()
