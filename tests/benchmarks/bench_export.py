"""What an export into Parquet costs, and the recipes of docs/export.md on it with DuckDB.

usage: python tests/benchmarks/bench_export.py [--workers 1000] [--devices 8] [--steps 1000]
[--smallest]
"""

import os
import pathlib
import re
import resource
import tempfile
import time

import duckdb
from limits import finish, parser_of, print_limit
from worker_runs import write_workers

from tb_memplugin.export import export_parquet

RUNS = 10
"""The workers are those of so many runs."""
ROWS_A_SECOND = 100_000
AGAIN_SECONDS = 1.0
MEMORY_MB = 300
RECIPE_SECONDS = 0.5
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "export.md"


def main() -> None:
    options = parser_of(__doc__, workers=(1000, 20), devices=(8, 2), steps=(1000, 100)).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logdir, to = pathlib.Path(folder, "runs"), pathlib.Path(folder, "tables")
        for run in range(RUNS):
            write_workers(
                logdir / f"run_{run}", options.workers // RUNS, options.devices, options.steps
            )
        began, processor = time.perf_counter(), time.process_time()
        exported = export_parquet(logdir, to)
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        rows = options.workers // RUNS * RUNS * options.devices * options.steps
        size = sum(path.stat().st_size for path in to.rglob("*.parquet"))
        print(
            f"{exported.written} workers, {rows:,} samples: {seconds:.1f} s ({processor:.1f} of "
            "the processor)"
        )
        print(f"  {size / 1e6:.0f} MB of Parquet")
        print_limit("samples that are missing", rows - exported.rows["samples"], 0, any_size=True)
        print_limit(
            "seconds of the processor for 100,000 samples",
            1e5 * processor / rows,
            1e5 / ROWS_A_SECOND,
            "s",
        )
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print_limit("memory of the process", highest, MEMORY_MB, "MB", any_size=True)
        began = time.perf_counter()
        again = export_parquet(logdir, to)
        print_limit(
            "a second call, nothing changed", time.perf_counter() - began, AGAIN_SECONDS, "s"
        )
        print_limit("workers that it wrote", again.written, 0, any_size=True)
        os.chdir(folder)
        lines = [f"run_{run},commit_{run},2026-09-{run + 1:02d}T00:00:00" for run in range(RUNS)]
        pathlib.Path("commits.csv").write_text(
            "\n".join(["run,commit,committed", *lines]), encoding="utf-8"
        )
        for number, code in enumerate(
            re.findall(r"```sql\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
        ):
            best = min(_seconds(code) for _ in range(3))
            print_limit(f"recipe {number + 1}", best, RECIPE_SECONDS, "s")
    finish()


def _seconds(code: str) -> float:
    began = time.perf_counter()
    duckdb.sql(code).fetchall()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
