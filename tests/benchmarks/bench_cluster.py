"""What the comparison of a thousand workers costs from their roll-ups: cold, warm, and the server's
memory.

Writes a synthetic cluster with twelve planted faults (`--keep DIR` leaves it there and uses it
again), answers in a process of its own, and checks that every fault was found.

usage: python tests/benchmarks/bench_cluster.py [--workers 1000] [--devices 8] [--steps 10000]
[--seed 0] [--keep DIR]
       [--smallest]
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from limits import finish, parser_of, print_limit

COLD_SECONDS = 3.0
WARM_MILLISECONDS = 100
SERVER_MB = 300


def answer(logdir: pathlib.Path) -> None:
    """Answer cold, warm, and for one worker; print the figures as JSON."""
    from tb_memplugin.server import DATA_ROUTES, Handlers, data_body
    from tb_memplugin.storage import Reader
    from tb_memplugin.storage.files import FileSource

    handlers, source = Handlers(Reader()), FileSource(logdir, live=True)

    def timed(route: str, **values: str) -> tuple[float, bytes]:
        began = time.perf_counter()
        body, _ = data_body(DATA_ROUTES[route][1](handlers, source, {"run": "cluster", **values}))
        return time.perf_counter() - began, body

    processor = time.process_time()
    cold, body = timed("devices")
    processor = time.process_time() - processor
    told = json.loads(body)
    began, answers = time.process_time(), 5
    warm = [timed("devices")[0] for _ in range(answers)]
    warm_processor = (time.process_time() - began) / answers
    figures = {
        "cold": cold,
        "processor": processor,
        "warm": min(warm),
        "warm_processor": warm_processor,
    }
    figures["one"] = timed("overview", device=told["devices"][-1]["device"])[0]
    figures["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "bytes": len(body), "told": told}))


def not_found(told: dict, options: argparse.Namespace) -> list[str]:
    """The planted faults that the answer does not name."""
    from cluster_cases import findings, planted_faults

    faults = planted_faults(options.workers, options.devices, options.steps, options.seed)
    expected = findings(faults, options.steps)
    found = {(one["worker"], one["status"]) for one in told["workers"]}
    found |= {(one["worker"], one["stopped_early"]) for one in told["workers"]}
    return [f"{name}: {what}" for name, what in sorted(expected - found)]


def main() -> None:
    parser = parser_of(
        __doc__, workers=(1000, 80), devices=(8, 2), steps=(10_000, 400), seed=(0, 0)
    )
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--answer", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        return answer(options.answer)
    from cluster_cases import planted_faults, write_cluster

    with tempfile.TemporaryDirectory() as folder:
        logdir = options.keep or pathlib.Path(folder)
        if not (logdir / "cluster").exists():
            faults = planted_faults(options.workers, options.devices, options.steps, options.seed)
            write_cluster(
                logdir / "cluster", options.workers, options.devices, options.steps, faults
            )
        size = sum(path.stat().st_size for path in logdir.rglob("*") if path.is_file())
        print(
            f"{options.workers} workers x {options.devices} devices x {options.steps} steps: "
            f"{size / 1e6:.0f} MB"
        )
        command = [sys.executable, __file__, "--answer", str(logdir)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout)
    print(
        f"  devices: {figures['bytes'] / 1e6:.1f} MB, by the clock cold {figures['cold']:.2f} s, "
        f"warm {1000 * figures['warm']:.0f} ms, one worker {figures['one']:.2f} s"
    )
    print_limit(
        "devices, cold", figures["processor"], COLD_SECONDS, "s of the processor", any_size=True
    )
    print_limit(
        "devices, warm",
        1000 * figures["warm_processor"],
        WARM_MILLISECONDS,
        "ms of the processor",
        any_size=True,
    )
    print_limit("memory of the server", figures["rss"], SERVER_MB, "MB", any_size=True)
    missing = not_found(figures["told"], options)
    print("\n".join(missing))
    print_limit("planted faults that are not found", len(missing), 0, any_size=True)
    finish()


if __name__ == "__main__":
    main()
