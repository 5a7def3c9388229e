"""What a run of many workers and devices costs: each route's answer cold (a fresh reader) and warm, in this process.

Prints seconds of the processor and by the clock, with their limits.

usage: python tests/benchmarks/bench_workers.py [--workers 64] [--devices 8] [--steps 10000] [--smallest]
"""

import pathlib
import tempfile
import time
from collections.abc import Mapping

from limits import finish, parser_of, print_limit
from worker_runs import top_bytes, write_workers

from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.responses import data_body
from tb_memplugin.server.routes import DATA_ROUTES
from tb_memplugin.storage.files.file_source import FileSource
from tb_memplugin.storage.run_reader import Reader

COLD_SECONDS = 1.0
WARM_MILLISECONDS = 100


def timed(handlers: Handlers, source: FileSource, route: str, values: Mapping[str, str]) -> tuple[float, float, int]:
    """Seconds by the clock and of the processor, and bytes of the answer."""
    wall, processor = time.perf_counter(), time.process_time()
    body, _ = data_body(DATA_ROUTES[route][1](handlers, source, values))
    return time.perf_counter() - wall, time.process_time() - processor, len(body)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    if options.smallest:
        options.workers, options.devices, options.steps = 3, 2, 200
    with tempfile.TemporaryDirectory() as folder:
        logdir = pathlib.Path(folder)
        write_workers(logdir / "run", options.workers, options.devices, options.steps)
        size = sum(path.stat().st_size for path in logdir.rglob("*") if path.is_file())
        print(f"{options.workers} workers x {options.devices} devices x {options.steps} steps: {size / 1e6:.1f} MB")
        device = {"run": "run", "device": f"worker_{options.workers - 1}/GPU:0"}
        for route, values in (("overview", device), ("answers", device), ("devices", {"run": "run"}), ("runs", {})):
            handlers, source = Handlers(Reader()), FileSource(logdir)
            cold, cold_processor, length = timed(handlers, source, route, values)
            warm = min(timed(handlers, source, route, values)[0] for _ in range(7))
            print(
                f"  {route:9} cold {1000 * cold:7.0f} ms ({1000 * cold_processor:.0f} of the processor)   "
                f"warm {1000 * warm:6.1f} ms   {length / 1024:6.0f} KiB"
            )
            print_limit(f"{route}, cold", cold_processor, COLD_SECONDS, "s of the processor", any_size=True)
            print_limit(f"{route}, warm", 1000 * warm, WARM_MILLISECONDS, "ms")
        told = handlers.comparing.devices(source, "run", "train")
        expected = sum(top_bytes(worker, at) for worker in range(options.workers) for at in range(options.devices))
        exact = told["sum_peak_bytes"] == expected
        print_limit("devices whose peaks are missing or wrong", 0 if exact else 1, 0, any_size=True)
    finish()


if __name__ == "__main__":
    main()
