"""Workers as units: which files they have, and what changes their fingerprint."""

import os
import pathlib

import pytest
from reading_cases import event_files, make_samples, write_small_run
from worker_runs import write_workers

from tb_memplugin.errors import NotFoundError
from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.export.units import export_units, fingerprint, read_unit


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


def test_a_unit_is_read_without_the_other_workers(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "many", workers=2, devices=2, steps=7)
    loaded = [read_unit(unit) for unit in export_units(str(tmp_path))]
    assert [tuple(one.by_worker) for one in loaded if one is not None] == [("worker_0",), ("worker_1",)]
    assert all(one is not None and len(one.run.samples) == 7 for one in loaded)


def test_files_of_other_plugins_are_no_data(tmp_path: pathlib.Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    (unit,) = export_units(str(tmp_path))
    assert read_unit(unit) is None


def test_the_fingerprint_follows_the_files(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small")
    (unit,) = export_units(str(tmp_path))
    before = fingerprint(unit)
    assert fingerprint(unit) == before
    # an appended session
    writer = RunWriter(tmp_path / "small")
    writer.samples(make_samples([60], [1]))
    writer.close()
    (unit,) = export_units(str(tmp_path))
    appended = fingerprint(unit)
    assert appended != before
    # a file of the same length, written again
    path = event_files(tmp_path)[0]
    os.utime(path, ns=(1, 1))
    assert fingerprint(unit) != appended


def test_a_missing_directory_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFoundError, match="no directory"):
        list(export_units(str(tmp_path / "none")))
