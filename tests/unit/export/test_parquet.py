"""Parquet files: complete, incremental, resumed after a kill, and never fewer than before."""

import json
import multiprocessing
import os
import pathlib
import signal
import sys
import time
from typing import Any

import pytest
from reading_cases import event_files, make_samples, write_small_run
from worker_runs import top_bytes, top_step, write_workers

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import (
    TABLES,
    arrow_schema,
    export_parquet,
    export_units,
    rows_of_table,
    unit_tables,
)
from tb_memplugin.export import tables as module
from tb_memplugin.export.tables import STATE, arrow_table
from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.frames import tfrecord
from tb_memplugin.storage.write import RunWriter

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")


def read(to: pathlib.Path, table: str) -> list[dict[str, Any]]:
    """The rows of all files of a table, in order of the files' names."""
    from pyarrow import parquet

    return [
        row
        for path in sorted((to / table).rglob("*.parquet"))
        for row in parquet.read_table(path).to_pylist()
    ]


def states(to: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Each table's file to what changes if it is written again."""
    paths = sorted(to.glob("*/run-*/*.parquet"))
    return {
        str(path.relative_to(to)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths
    }


def test_files_have_the_rows_of_all_workers(tmp_path: pathlib.Path) -> None:
    write_workers(tmp_path / "logs" / "many", workers=3, devices=2, steps=20)
    write_small_run(tmp_path / "logs" / "a" / "small", allocator=True)
    exported = export_parquet(tmp_path / "logs", tmp_path / "tables")
    assert (exported.written, exported.unchanged, exported.failed) == (4, 0, 0)
    assert sorted(
        path.relative_to(tmp_path / "tables").as_posix()
        for path in tmp_path.rglob("samples/run-*/*")
    ) == [
        "samples/run-a%2Fsmall/part.parquet",
        *(f"samples/run-many/part-worker_{number}.parquet" for number in range(3)),
    ]
    peaks = {
        (row["worker"], row["device"]): row
        for row in read(tmp_path / "tables", "peaks")
        if row["run"] == "many"
    }
    assert {key: (row["peak_bytes"], row["step"]) for key, row in peaks.items()} == {
        (f"worker_{worker}", f"GPU:{device}"): (
            top_bytes(worker, device),
            top_step(worker, device, 20),
        )
        for worker in range(3)
        for device in range(2)
    }
    written = {table: len(read(tmp_path / "tables", table)) for table in TABLES}
    assert written == exported.rows
    assert (
        written["samples"] == 3 * 2 * 20 + 64
        and written["failures"] == 1
        and written["dead_letters"] == 0
    )


def test_a_second_call_writes_only_what_is_new(tmp_path: pathlib.Path) -> None:
    logs, to = tmp_path / "logs", tmp_path / "tables"
    write_workers(logs / "many", workers=2, devices=1, steps=10)
    write_small_run(logs / "small")
    export_parquet(logs, to)
    before = states(to)
    # WHEN nothing has changed THEN nothing is written
    again = export_parquet(logs, to)
    assert (again.written, again.unchanged, sum(again.rows.values())) == (0, 3, 0)
    assert states(to) == before
    # WHEN one worker goes on and a run is added THEN the files of others stay
    writer = RunWriter(logs / "many", worker="worker_1")
    writer.samples(make_samples([10], [1], device="GPU:0"))
    writer.close()
    write_small_run(logs / "added")
    more = export_parquet(logs, to)
    assert (more.written, more.unchanged) == (2, 2)
    after = states(to)
    assert {path for path in before if after[path] != before[path]} == {
        f"{table}/run-many/part-worker_1.parquet" for table in ("samples", "peaks")
    }
    assert {path.split("/")[1] for path in after.keys() - before.keys()} == {"run-added"}
    # AND the tables are those of an export from the beginning
    export_parquet(logs, tmp_path / "fresh")
    assert all(read(to, table) == read(tmp_path / "fresh", table) for table in TABLES)


def test_a_table_without_rows_can_be_read(tmp_path: pathlib.Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    (tmp_path / "logs").mkdir()
    export_parquet(tmp_path / "logs", tmp_path / "tables")
    for name, table in TABLES.items():
        found = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/tables/{name}/*/*.parquet')")
        assert found.columns == [column.name for column in table.columns] and found.fetchall() == []


def test_rows_of_deleted_runs_stay(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "logs" / "small")
    export_parquet(tmp_path / "logs", tmp_path / "tables")
    rows = read(tmp_path / "tables", "samples")
    for path in event_files(tmp_path / "logs"):
        path.unlink()
    assert export_parquet(tmp_path / "logs", tmp_path / "tables").written == 0
    assert read(tmp_path / "tables", "samples") == rows


def _export_slowly(logs: pathlib.Path, to: pathlib.Path) -> None:
    """Export with a pause before each file, so that the process can be killed between two files of
    a worker."""
    write = module._write

    def pauses(*arguments: Any) -> int:
        time.sleep(0.05)
        return write(*arguments)

    module._write = pauses
    export_parquet(logs, to)


def test_a_killed_export_resumes(tmp_path: pathlib.Path) -> None:
    logs, to = tmp_path / "logs", tmp_path / "tables"
    write_workers(logs / "many", workers=8, devices=1, steps=10)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_export_slowly, args=(logs, to))
    process.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(to.glob("peaks/run-*/*.parquet"))) < 3:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    # GIVEN an export that was killed, with half a line of its state
    done = (to / STATE).read_text().splitlines()
    assert 2 <= len(done) < 8
    with (to / STATE).open("a") as state:
        state.write('["many", "worker_7", "')
    from pyarrow import parquet

    assert all(parquet.read_table(path).num_rows for path in to.glob("*/run-*/*.parquet"))
    before = states(to)
    # WHEN it is called again THEN it continues with the workers that are missing
    exported = export_parquet(logs, to)
    assert (exported.unchanged, exported.written) == (len(done), 8 - len(done))
    finished = {f"samples/run-many/part-{json.loads(line)[1]}.parquet" for line in done}
    assert all(states(to)[path] == before[path] for path in finished)
    assert sorted(path.name for path in (to / "samples").glob("run-*/*")) == [
        f"part-worker_{number}.parquet" for number in range(8)
    ]
    assert export_parquet(logs, to).unchanged == 8


def test_a_full_disk_is_no_dead_letter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "logs" / "small")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tb_memplugin.export.tables._write", full)
        with pytest.raises(OSError, match="No space left"):
            export_parquet(tmp_path / "logs", tmp_path / "tables")
    assert export_parquet(tmp_path / "logs", tmp_path / "tables").written == 1


def test_names_that_are_no_file_names_are_kept_apart(tmp_path: pathlib.Path) -> None:
    names = ["a/b", "a%2Fb", "_x", "lr=0.1", "ü", "x" * 120 + "ü" * 60, "x" * 120 + "ü" * 61, "."]
    for name in names:
        write_small_run(tmp_path / "logs" / name)
    export_parquet(tmp_path / "logs", tmp_path / "tables")
    peaks = read(tmp_path / "tables", "peaks")
    assert sorted({row["run"] for row in peaks}) == sorted(names)
    files = list((tmp_path / "tables" / "peaks").glob("run-*/*.parquet"))
    assert len(files) == len(names) and all(
        len(os.fsencode(path.parent.name)) <= 255 for path in files
    )


def test_only_the_named_runs_are_exported(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "logs" / "one")
    write_small_run(tmp_path / "logs" / "two")
    assert export_parquet(tmp_path / "logs", tmp_path / "tables", runs=["two"]).written == 1
    assert {row["run"] for row in read(tmp_path / "tables", "samples")} == {"two"}
    with pytest.raises(NotFoundError, match="tow"):
        export_parquet(tmp_path / "logs", tmp_path / "tables", runs=["tow"])


def test_a_url_and_a_directory_in_use_are_errors(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "logs" / "small")
    with pytest.raises(RequestError, match=r"tb_memplugin\.beam"):
        export_parquet(tmp_path / "logs", "s3://bucket/tables")
    fcntl = pytest.importorskip("fcntl", reason="no locks on this system")
    (tmp_path / "tables").mkdir()
    with (tmp_path / "tables" / STATE).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="another export"):
            export_parquet(tmp_path / "logs", tmp_path / "tables")
    assert export_parquet(tmp_path / "logs", tmp_path / "tables").written == 1


def test_without_pyarrow_nothing_is_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_run(tmp_path / "logs" / "small")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequestError, match="pip install"):
        export_parquet(tmp_path / "logs", tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_what_cannot_be_read_keeps_its_rows_and_is_tried_again(tmp_path, monkeypatch) -> None:
    # GIVEN exported workers, and a store that says how long the file of one is and then does not
    # send it
    logs, to = tmp_path / "logs", tmp_path / "tables"
    for worker in ("w0", "w1"):
        write_small_run(logs / "exp", worker=worker)
    export_parquet(logs, to)
    rows = read(to, "samples")
    for path in event_files(logs):
        os.utime(path, ns=(1, 1))
    original = files.reader

    def reader(path: str) -> tfrecord.ReadAt:
        if "/w1/" in path:
            raise OSError("4017 of 8035 bytes at byte 0 were received")
        return original(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "reader", reader)
        exported = export_parquet(logs, to)
    # THEN the other worker is exported, and the reason is in the table
    assert (exported.written, exported.failed) == (1, 1) and "could not be read" in str(exported)
    (letter,) = read(to, "dead_letters")
    assert (letter["worker"], letter["exported"]) == ("w1", False)
    assert "cannot be read: 4017 of 8035 bytes" in letter["reason"] and read(to, "samples") == rows
    # AND once it can be read, it is, though its length is the same, and the reason goes
    again = export_parquet(logs, to)
    assert (again.written, again.unchanged, again.failed) == (1, 1, 0)
    assert read(to, "dead_letters") == [] and read(to, "samples") == rows


def test_arrow_has_the_values_of_the_rows(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small", allocator=True)
    (unit,) = export_units(str(tmp_path))
    tables, _ = unit_tables(unit)
    for name, table in TABLES.items():
        arrow = arrow_table(name, tables[name])
        arrow.validate(full=True)
        assert arrow.schema == arrow_schema(name)
        assert arrow.to_pylist() == list(rows_of_table(name, tables[name]))
        # only columns that may be NULL are declared so
        assert [field.nullable for field in arrow.schema] == [
            bool(column.unknown) for column in table.columns
        ]
