"""Peak memory and time of TensorBoard's server for every crafted directory, and of 20 clients with
200 requests each.

usage: PYTHONPATH=.:tests python tests/hostile/measure.py [--load-fast true] [--only NAME]
[--clients 20]
       [--requests 200]
"""

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

from crafted import CRAFTED, make
from reading_cases import write_small_run
from servers import start
from serving import ROUTES, ask, load_test


def measure_crafted(name: str, load_fast: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logdir = pathlib.Path(folder) / "runs"
        make(name, logdir)
        size = sum(path.stat().st_size for path in logdir.rglob("*tfevents*") if path.is_file())
        with start(logdir, pathlib.Path(folder), load_fast) as server:
            asked = ask(server)
    print(
        f"| {name} | {size / 1e6:.1f} MB | {asked.honest_seconds:.1f} s | "
        f"{asked.read_seconds:.1f} s | "
        f"{asked.views_seconds:.1f} s | {asked.memory_mb} MB |",
        flush=True,
    )


def measure_load(load_fast: str, clients: int, requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in "abc":
            write_small_run(pathlib.Path(folder) / "runs" / name, allocator=True)
        with start(pathlib.Path(folder) / "runs", pathlib.Path(folder), load_fast) as server:
            result = load_test(server, ROUTES, clients, requests)
    print(f"load_fast={load_fast}: {result}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load-fast", default="true", choices=("true", "false"))
    parser.add_argument("--only", choices=sorted(CRAFTED))
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    for name in [options.only] if options.only else CRAFTED:
        measure_crafted(name, options.load_fast)
    if not options.only and options.clients:
        measure_load(options.load_fast, options.clients, options.requests)


if __name__ == "__main__":
    main()
