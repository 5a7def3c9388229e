"""The rows of the tables, against what was written and against the tables that data frames have."""

import collections
import datetime
import pathlib
from typing import Any

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
from worker_runs import write_workers

from tb_memplugin.errors import NotFoundError
from tb_memplugin.export import TABLES, export_units, rows_of_table, unit_tables
from tb_memplugin.schema import Samples
from tb_memplugin.storage.write import RunWriter

Records = dict[str, list[dict[str, object]]]


def write(directory: pathlib.Path, *records: Samples) -> None:
    """A run of these samples."""
    writer = RunWriter(directory)
    for one in records:
        writer.samples(one)
    writer.close()


def exported(logdir: pathlib.Path) -> Records:
    """The rows of all units by table."""
    records: Records = {name: [] for name in TABLES}
    for unit in export_units(str(logdir)):
        tables, _ = unit_tables(unit)
        for name in TABLES:
            records[name] += rows_of_table(name, tables[name])
    return records


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Records:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "small", allocator=True)
    return exported(directory)


def test_every_row_has_the_columns_of_its_schema_and_null_only_where_allowed(
    small: Records,
) -> None:
    for name, table in TABLES.items():
        for row in small[name]:
            assert list(row) == [column.name for column in table.columns]
            assert [
                column.name
                for column in table.columns
                if row[column.name] is None and not column.unknown
            ] == []


def test_samples_are_those_that_were_written(small: Records) -> None:
    rows = small["samples"]
    assert len(rows) == 64
    train = {row["step"]: row for row in rows if row["phase"] == "train"}
    assert {step: row["peak_bytes"] for step, row in train.items()} == {
        step: 700 * MIB if step == 41 else 200 * MIB + step for step in range(60)
    }
    start = datetime.datetime.fromtimestamp(START, datetime.timezone.utc).replace(tzinfo=None)
    assert all(
        row["time"] == start + datetime.timedelta(seconds=step / 2) for step, row in train.items()
    )
    assert [row["epoch"] for row in train.values()] == [0] * 30 + [1] * 30
    assert {
        step: (row["pool_bytes"], row["largest_free_bytes"])
        for step, row in train.items()
        if row["pool_bytes"]
    } == MEASURED
    assert all(
        row["driver_used_bytes"] is None and row["worker"] == "" and row["run"] == "small"
        for row in rows
    )


def test_peaks_are_the_highest_of_each_phase(small: Records) -> None:
    peaks = {row["phase"]: row for row in small["peaks"]}
    expected = {"train": (700 * MIB, 41, 60, 2), "validation": (150 * MIB, 59, 4, 0)}
    assert {
        phase: (row["peak_bytes"], row["step"], row["samples"], row["snapshots"])
        for phase, row in peaks.items()
    } == expected
    assert peaks["train"]["time"] is not None and peaks["train"]["at_step_end"] is False


def test_the_ledger_sums_to_the_bytes_in_use(small: Records) -> None:
    sums: collections.Counter[object] = collections.Counter()
    for row in small["ledger"]:
        sums[row["step"], row["at_failure"]] += row["bytes"]  # type: ignore[operator]
    written = (
        make_snapshot(3),
        make_snapshot(41, frozen=0, trainable=4_002_000, activations=600 * MIB),
    )
    assert sums == {(one.step, False): one.in_use_bytes for one in written} | {
        (59, True): make_oom(59).in_use_bytes
    }
    frozen = [row for row in small["ledger"] if row["step"] == 3 and row["trainable"] is False]
    assert [(row["layer"], row["category"], row["bytes"]) for row in frozen] == [
        ("model/backbone", "weights", 4_000_000)
    ]


def test_layers_held_tensors_and_failures_are_those_that_were_written(small: Records) -> None:
    tables = make_table(0, unfrozen=False), make_table(30, unfrozen=True)
    assert [
        (row["from_step"], row["position"], row["path"], row["optimizer_bytes"])
        for row in small["layers"]
    ] == [
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


NOON = 1_790_035_200.0 - 12 * 3600
"""2026-09-21, 12:00 UTC."""
DAY = NOON - 12 * 3600
DAY_SECONDS = 86_400


def seconds(moment: Any) -> float:
    return float(moment.replace(tzinfo=datetime.timezone.utc).timestamp())


def test_each_day_has_its_own_peak(tmp_path: pathlib.Path) -> None:
    # GIVEN steps of half a second on two days, with the highest peak on the first, and a validation
    # on the second
    write(
        tmp_path / "run",
        make_samples(range(4), [10, 40, 20, 30], start=NOON),
        make_samples(range(4, 8), [15, 16, 35, 14], start=NOON + DAY_SECONDS),
        make_samples([7], [25], phase="validation", start=NOON + DAY_SECONDS + 10),
    )
    rows = {(one["phase"], seconds(one["day"])): one for one in exported(tmp_path)["peaks"]}
    assert {
        key: (one["peak_bytes"], one["step"], one["samples"], one["last_step"])
        for key, one in rows.items()
    } == {
        ("train", DAY): (40, 1, 4, 3),
        ("train", DAY + DAY_SECONDS): (35, 6, 4, 7),
        ("validation", DAY + DAY_SECONDS): (25, 7, 1, 7),
    }
    first = rows["train", DAY]
    assert (seconds(first["time"]), seconds(first["last_time"])) == (NOON + 0.5, NOON + 1.5)
    assert first["capacity_bytes"] == 2048 * MIB and first["at_step_end"] is False


def test_each_worker_of_each_run_is_a_unit_with_its_own_files(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "many", workers=3, devices=1, steps=5)
    write_small_run(tmp_path / "a" / "small")
    units = list(export_units(f"{tmp_path}/"))
    assert [(unit.run, unit.worker) for unit in units] == [
        ("a/small", ""),
        *(("many", f"worker_{number}") for number in range(3)),
    ]
    paths = [path for unit in units for paths in unit.files.values() for path in paths]
    assert sorted(paths) == sorted(map(str, event_files(tmp_path)))


def test_the_files_of_a_run_and_of_its_summary_writer_are_one_unit(tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose directory itself has event files, as of a summary writer
    write_small_run(tmp_path / "run")
    (tmp_path / "run" / "events.out.tfevents.1").write_bytes(b"")
    (unit,) = export_units(str(tmp_path))
    assert (unit.run, unit.worker, sorted(unit.files)) == ("run", "", ["run", "run/memory"])


def test_a_missing_directory_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFoundError, match="no directory"):
        list(export_units(str(tmp_path / "none")))
