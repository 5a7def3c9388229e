"""Compares plans under a budget with trainings on a GPU that follow them: peaks, times and losses.
Prints Markdown.

Trainings have a process of their own each, with a logical device of the stated capacity. Those that
are timed run one after the other. Takes about fifteen minutes on a machine with 16 cores.

usage: python tests/gpu/planned.py [--cache DIR] [--jobs 5] [--batch 32] [--capacity-mib 8192]
[MODEL ...]
"""

import argparse
import concurrent.futures
import functools
import pathlib
import sys
import tempfile

ACCURACY = pathlib.Path(__file__).parent.parent / "accuracy"
sys.path[:0] = [str(ACCURACY), str(ACCURACY.parent.parent)]

from measure import PLANNED, Trainings  # noqa: E402
from plans import of_plans, planned, prepare  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=PLANNED)
    parser.add_argument(
        "--cache", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "accuracy"
    )
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--capacity-mib", type=int, default=8192)
    options = parser.parse_args()
    common = {"device": "GPU:0", "batch": options.batch, "capacity_mib": options.capacity_mib}
    trainings = Trainings(options.cache)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(functools.partial(prepare, trainings, **common), options.models))
    cells = []
    for model in options.models:
        cells += planned(trainings, (model,), **common)
        if cells:
            print(of_plans(cells), flush=True)
    print(of_plans(cells))


if __name__ == "__main__":
    main()
