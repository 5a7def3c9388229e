"""The transform for Apache Beam gives the rows of the single-process export.

`make test-beam` installs Beam, which the environment of the other tests does not have.
"""

import multiprocessing
import os
import pathlib
import signal
import time

import pytest
from export_cases import write_weeks
from reading_cases import event_files, write_small_run
from worker_runs import write_workers

from tb_memplugin.export import TABLES, export_parquet

beam = pytest.importorskip("apache_beam", reason="needs the extra beam")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")

pytestmark = pytest.mark.long

MODES = {"one": [], "several": ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]}


def tables_of(folder: pathlib.Path, pattern: str) -> dict[str, list[str]]:
    """Table to the rows of its files, in an order that does not depend on the runner."""
    files = {name: (folder / name).glob(pattern) for name in TABLES}
    return {
        name: sorted(
            repr(row) for path in paths for row in parquet.ParquetFile(path).read().to_pylist()
        )
        for name, paths in files.items()
    }


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Workers, sessions, failures, damaged files and files of other plugins."""
    directory = tmp_path_factory.mktemp("runs")
    write_workers(directory / "many", workers=6, devices=2, steps=30)
    write_weeks(directory)
    write_small_run(directory / "a" / "small", allocator=True)
    write_small_run(directory / "damaged")
    path = max(event_files(directory / "damaged"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-40])
    noise = directory / "noise" / "memory"
    noise.mkdir(parents=True)
    (noise / "events.out.tfevents.1").write_bytes(bytes(range(256)) * 8)
    (directory / "events.out.tfevents.2").write_bytes(b"")
    return directory


def write_with_beam(logdirs: list[str], to: pathlib.Path, options: list[str]) -> None:
    """Write the tables as the page shows it."""
    from tb_memplugin.beam import ReadRuns, arrow_schema

    with beam.Pipeline(
        options=beam.options.pipeline_options.PipelineOptions(["--runner=DirectRunner", *options])
    ) as p:
        tables = p | beam.Create(logdirs) | ReadRuns()
        for name, rows in tables.items():
            path = str(to / name / "part")
            rows | f"Write {name}" >> beam.io.WriteToParquet(
                path, arrow_schema(name), file_name_suffix=".parquet"
            )


@pytest.mark.parametrize("mode", MODES)
def test_the_rows_are_those_of_the_single_process_export(
    logdir: pathlib.Path, tmp_path: pathlib.Path, mode: str
) -> None:
    exported = export_parquet(logdir, tmp_path / "single")
    write_with_beam([str(logdir)], tmp_path / "beam", MODES[mode])
    single = tables_of(tmp_path / "single", "*/*.parquet")
    assert {name: len(rows) for name, rows in single.items()} == exported.rows
    assert all(single.values()), "each table must have rows for the comparison"
    assert tables_of(tmp_path / "beam", "*.parquet") == single


def test_a_killed_pipeline_is_run_again(tmp_path: pathlib.Path) -> None:
    # GIVEN a thousand runs of one to three workers with one or two devices; of each fiftieth a file
    # is damaged
    thousand, to = tmp_path / "thousand", tmp_path / "beam"
    for at in range(1000):
        run = thousand / f"group{at % 7}" / f"run{at}"
        write_workers(run, workers=1 + at % 3, devices=1 + at % 2, steps=10 + at % 40)
        if at % 50 == 0:
            path = event_files(run)[0]
            path.write_bytes(path.read_bytes()[:-30])
    rows = export_parquet(thousand, tmp_path / "single").rows
    exported = tables_of(tmp_path / "single", "*/*.parquet")
    assert {name: len(of_table) for name, of_table in exported.items()} == rows
    assert rows["samples"] > 50_000 and rows["dead_letters"] > 0
    # AND a pipeline that was killed while it wrote
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=write_with_beam, args=([str(thousand)], to, MODES["several"]))
    process.start()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not any(
        path.stat().st_size for path in to.rglob("*") if path.is_file()
    ):
        time.sleep(0.02)
    assert process.is_alive() and process.pid is not None
    for pid in [*descendants(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.join()
    assert not list(to.glob("*/*.parquet"))
    # WHEN it is run again THEN no row is missing, and none is there twice
    write_with_beam([str(thousand)], to, MODES["several"])
    assert tables_of(to, "*.parquet") == exported


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    children = [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]
    return [one for child in children for one in (*descendants(child), child)]


def test_a_directory_that_does_not_exist_is_a_dead_letter(
    logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    write_with_beam([str(tmp_path / "none"), str(logdir / "a")], tmp_path / "beam", [])
    tables = tables_of(tmp_path / "beam", "*.parquet")
    assert len(tables["dead_letters"]) == 1 and "no directory" in tables["dead_letters"][0]
    assert len(tables["samples"]) == 64
