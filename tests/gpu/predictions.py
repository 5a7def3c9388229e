"""Compares predictions with real trainings on a GPU, and follows the advice after its out-of-memory
failures.

Trainings run several at a time, each in a process of its own with a logical device of the stated
capacity. Prints Markdown. Takes about ten minutes on a machine with 16 cores.

usage: python tests/gpu/predictions.py [--cache DIR] [--jobs 8] [predictions|failures]
"""

import argparse
import concurrent.futures
import dataclasses
import math
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

ACCURACY = pathlib.Path(__file__).parent.parent / "accuracy"
sys.path[:0] = [str(ACCURACY), str(ACCURACY.parent.parent)]

import numpy as np  # noqa: E402
from failures import follow  # noqa: E402
from measure import Cell, Trainings, predictions  # noqa: E402
from report import of_sizes  # noqa: E402
from train import Training  # noqa: E402

import tb_memplugin  # noqa: E402
from tb_memplugin.fit import RECORDED, Predictor, recorded_program  # noqa: E402

SIZES = (16, 32, 64, 128)
ON_GPU = {"device": "GPU:0", "capacity_mib": 8192}
MODELS = (
    "ResNet50",
    "MobileNetV2",
    "VGG16",
    "U-Net",
    "Transformer",
    "Decoder",
    "LSTM",
    "MLP",
    "Mixer",
)
FEW = ("ResNet50", "U-Net", "Transformer")
KINDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "graph, Adam": (MODELS, ON_GPU),
    "graph, SGD, memory growth": (FEW, {**ON_GPU, "optimizer": "sgd", "grows": True}),
    "graph, Adam, arrays": (FEW, {**ON_GPU, "feed": "arrays"}),
    "XLA, Adam, two recorded sizes": (FEW, {**ON_GPU, "compiled": True}),
}
FAILING = {**dict.fromkeys(("ResNet50", "Decoder"), (16, 256)), "U-Net": (8, 256)}
FAILING |= {"Transformer": (16, 512), "Mixer": (16, 1024)}
SHARES = (0.4, 0.7)


def together(jobs: int, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """The results of some work on each item, several at a time; failures are printed."""

    def contained(item: Any) -> Any:
        try:
            return work(item)
        except (SystemExit, Exception) as fault:
            print(f"{item}: {type(fault).__name__}: {str(fault)[-600:]}", flush=True)
            return None

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(contained, items))


def predicted(trainings: Trainings, jobs: int) -> list[Cell]:
    """Every prediction and its truth."""
    wanted = []
    for models, common in KINDS.values():
        sources: list[tuple[int, ...]] = [(size,) for size in SIZES]
        sources += [SIZES[:2], SIZES[2:]] if common.get("compiled") else []
        wanted += [Training(model, source, **common) for model in models for source in sources]
    together(jobs, lambda training: trainings.run(training, records=True), wanted)
    parts = [(kind, model, common) for kind, (models, common) in KINDS.items() for model in models]
    cells = together(
        1, lambda part: predictions(trainings, part[0], [part[1]], part[2], SIZES), parts
    )
    return [cell for some in cells if some for cell in some]


def recorded_sizes(trainings: Trainings) -> str:
    """How far the simulated peaks of the recorded steps are from the measured ones, as a table."""
    lines = [
        "| trainings | recorded | median deviation | 90th percentile | largest |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, (models, common) in KINDS.items():
        shares = []
        for training in (Training(model, (size,), **common) for model in models for size in SIZES):
            (run,) = tb_memplugin.load(trainings.run(training, records=True)[1]).values()
            peaks = run.samples.devices["GPU:0"].peak_bytes[2:]
            # Without the run's evidence, which answers recorded conditions as measured.
            simulated = (
                Predictor(recorded_program(run.requests, "GPU:0")).predict(RECORDED).peak_bytes
            )
            shares.append(
                math.nan
                if simulated is None
                else abs(simulated / float(np.median(peaks)) - 1) * 100
            )
        known = [share for share in shares if not math.isnan(share)]
        figures = (np.median(known), np.percentile(known, 90), max(known))
        lines.append(
            f"| {kind} | {len(known)} of {len(shares)} | "
            + " | ".join(f"{one:.2f} %" for one in figures)
            + " |"
        )
    return "\n".join(lines)


def failures(trainings: Trainings, jobs: int) -> None:
    """Trainings that run out of memory, and trainings with each simulated fix."""

    def one(case: tuple[str, float]) -> list[tuple[str, bool]]:
        model, share = case
        training = Training(model, FAILING[model], steps=8, **ON_GPU)
        small = dataclasses.replace(training, batches=training.batches[:1])
        (run,) = tb_memplugin.load(trainings.run(small, records=True)[1]).values()
        peak = tb_memplugin.what_if(run, batch_size=training.batches[1]).prediction.peak_bytes
        if peak is None:
            print(f"{model}: nothing is predicted", flush=True)
            return []
        training = dataclasses.replace(training, capacity_mib=round(share * peak / (1 << 20)))
        print(f"{model}, {training.capacity_mib} MiB, {training.batches}", flush=True)
        followed = list(follow(trainings, training))
        (run,) = tb_memplugin.load(trainings.run(training, records=True)[1]).values()
        for fix in (
            fix for oom in run.ooms for fix in oom.fixes if fix.kind == "batch" and fix.batch_size
        ):
            larger = dataclasses.replace(
                training, batches=(max(fix.batch_size + 1, round(fix.batch_size * 1.06)),)
            )
            passed = trainings.run(larger, records=False)[0]["passed"]
            text = "passes" if passed else "fails"
            print(f"  {model}: advised {fix.batch_size}; {larger.batches[0]} {text}", flush=True)
        return followed

    results = [
        one
        for some in together(jobs, one, [(m, s) for m in FAILING for s in SHARES])
        if some
        for one in some
    ]
    for kind in dict.fromkeys(kind for kind, _ in results):
        passed = [one for other, one in results if other == kind]
        print(f"{kind}: {sum(passed)} of {len(passed)} pass", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("predictions", "failures"))
    parser.add_argument(
        "--cache", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "accuracy"
    )
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    trainings = Trainings(options.cache)
    if options.part == "failures":
        failures(trainings, options.jobs)
        return
    cells = predicted(trainings, options.jobs)
    print(recorded_sizes(trainings))
    for cell in cells:
        print(dataclasses.astuple(cell), flush=True)
    print(of_sizes(cells))


if __name__ == "__main__":
    main()
