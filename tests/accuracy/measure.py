"""Compares predictions with real trainings on the CPU's BFC allocator, and writes docs/accuracy.md.

Each model trains at several batch sizes. Every recorded training predicts the peaks of the others,
which are measured with the allocator's own statistics. The same for another optimizer, for freezing
and for unfreezing, at the recorded batch size. Each plan is followed by five trainings. --sets
measures some of the sets only, and replaces their tables in the page.

With --small two models train at two batch sizes, and a prediction that is withheld or whose range
misses the measured peak is an error.

usage: python tests/accuracy/measure.py [--cache DIR] [--write docs/accuracy.md] [--small] [--sets
NAME …]
       python tests/accuracy/measure.py [--cache DIR] --plans-of MODEL …
"""

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from plans import Planned, of_plans, planned  # noqa: E402
from report import of_changes, of_sizes, replaced  # noqa: E402
from train import HUB_MODELS, MODELS, OTHER_MODELS, Training  # noqa: E402

import tb_memplugin  # noqa: E402
from tb_memplugin.fit import Conditions, Predictor  # noqa: E402
from tb_memplugin.schema import Run  # noqa: E402

SIZES = (4, 8, 16, 32)
SETTLED = 2
SMALL_MODELS, SMALL_SIZES = ("MobileNetV2", "Transformer"), (4, 16)
"""Models whose peaks are all within the predicted range in docs/accuracy.md."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One prediction and its truth.

    `spread` is half of the range of the real steps, as a share of `measured`. `rounding` are the
    bytes of rounding at the predicted peak and at that of the real traced steps, their median.
    """

    model: str
    kind: str
    recorded: tuple[int, ...]
    batch: int
    method: str
    predicted: int | None
    low: int | None
    high: int | None
    measured: int
    spread: float
    rounding: tuple[int, int] | None = None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclasses.dataclass(frozen=True)
class Changed:
    """A change of conditions between the recorded trainings and those that they predict.

    Attributes:
        kind: Its name.
        recorded, predicted: What the trainings before and after the change differ in from the
            default.
        conditions: The conditions of the prediction, from the runs before and after the change.
    """

    kind: str
    recorded: dict[str, Any]
    predicted: dict[str, Any]
    conditions: Callable[[Run, Run], Conditions]


class Trainings:
    """Runs trainings once and keeps their answers in a directory."""

    def __init__(self, cache: pathlib.Path) -> None:
        self._cache = cache

    def run(
        self, training: Training, records: bool, repetition: int = 0
    ) -> tuple[dict[str, Any], pathlib.Path]:
        """The answer of a training, and the directory of its run; another one for each
        `repetition`."""
        asked_for = [dataclasses.asdict(training), records, *([repetition] if repetition else [])]
        key = hashlib.sha256(json.dumps(asked_for).encode()).hexdigest()[:16]
        directory = self._cache / f"{training.model}-{'-'.join(map(str, training.batches))}-{key}"
        answer = directory / "answer.json"
        if not answer.exists():
            directory.mkdir(parents=True, exist_ok=True)
            asked = dataclasses.replace(training, run=str(directory / "run") if records else "")
            packages = os.environ.get("PYTHONPATH", "")
            environment = {**os.environ, "PYTHONPATH": f"{HERE.parent.parent}:{packages}"}
            if training.device == "CPU:0":
                environment["CUDA_VISIBLE_DEVICES"] = ""
            done = subprocess.run(
                [sys.executable, str(HERE / "train.py"), json.dumps(dataclasses.asdict(asked))],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
            # Without memory, TensorFlow's convolutions on the CPU can crash instead of raising an
            # error.
            crashed = done.returncode < 0 and not lines
            if not lines and not crashed:
                raise SystemExit(f"{training} failed:\n{done.stderr[-3000:]}")
            crash = json.dumps({"passed": False, "peaks": [], "crashed": True})
            answer.write_text(crash if crashed else lines[-1].removeprefix("ANSWER "))
            print(f"trained {training.model} {training.batches}", flush=True)
        return json.loads(answer.read_text()), directory / "run"


def predictions(
    trainings: Trainings,
    kind: str,
    models: Iterable[str],
    common: dict[str, Any],
    sizes: Sequence[int] = SIZES,
) -> list[Cell]:
    """Every batch size predicts every other one; compiled steps need two recorded batch sizes.

    What was recorded has to be answered as recorded.
    """
    cells = []
    for model in models:
        truth = {size: _measured(trainings, Training(model, (size,), **common)) for size in sizes}
        sources = (
            [tuple(sizes[:2]), tuple(sizes[2:])]
            if common.get("compiled")
            else [(size,) for size in sizes]
        )
        for source in sources:
            run = _run(trainings, Training(model, source, **common))
            predictor = Predictor.of(run, common.get("device", "CPU:0"))
            for size in source:
                assert predictor.predict(Conditions(batch_size=size)).method == "recorded", (
                    model,
                    kind,
                    size,
                )
            for size in sorted({*sizes} - {*source}):
                answer = predictor.predict(Conditions(batch_size=size))
                figures = (answer.method, answer.peak_bytes, answer.low_bytes, answer.high_bytes)
                cells.append(Cell(model, kind, source, size, *figures, *truth[size]))
    return cells


def changed_predictions(
    trainings: Trainings, models: Iterable[str], changes: Iterable[Changed]
) -> list[Cell]:
    """Every recorded training predicts the one with other conditions and the same batch size."""
    cells = []
    for model, change, size in (
        (model, change, size) for model in models for change in changes for size in SIZES
    ):
        before, after = (
            Training(model, (size,), **options) for options in (change.recorded, change.predicted)
        )
        runs = [_run(trainings, training) for training in (before, after)]
        answer = Predictor.of(runs[0], "CPU:0").predict(change.conditions(*runs))
        figures = (answer.method, answer.peak_bytes, answer.low_bytes, answer.high_bytes)
        predicted = sum(row.bytes for row in answer.ledger if row.category == "rounding")
        real = statistics.median(
            one.rounding_bytes for one in runs[1].snapshots if one.phase == "train"
        )
        measured = _measured(trainings, after)
        cells.append(
            Cell(model, change.kind, (size,), size, *figures, *measured, (predicted, int(real)))
        )
    return cells


def newly_frozen(before: Run, after: Run) -> tuple[str, ...]:
    """Paths of the layers that are trained in one run only, the first one."""
    trained = [
        {one.path for one in run.layer_tables[-1].layers if one.trainable_weight_bytes}
        for run in (before, after)
    ]
    assert trained[0] > trained[1], "the trainings do not differ in what is frozen"
    return tuple(sorted(trained[0] - trained[1]))


CHANGES = (
    Changed(
        "Adam to SGD", {}, {"optimizer": "sgd"}, lambda before, after: Conditions(optimizer="sgd")
    ),
    Changed(
        "SGD to Adam", {"optimizer": "sgd"}, {}, lambda before, after: Conditions(optimizer="adam")
    ),
    Changed(
        "first half frozen",
        {},
        {"frozen": 0.5},
        lambda before, after: Conditions(frozen=newly_frozen(before, after)),
    ),
    Changed(
        "first half unfrozen", {"frozen": 0.5}, {}, lambda before, after: Conditions(unfreeze="*")
    ),
)


def _run(trainings: Trainings, training: Training) -> Run:
    """The run of a recorded training."""
    _, directory = trainings.run(training, records=True)
    (run,) = tb_memplugin.load(directory).values()
    return run


def _measured(trainings: Trainings, training: Training) -> tuple[int, float]:
    """Median peak of the steps of a training, and half of their range as a share of it."""
    peaks = _run(trainings, training).samples.devices[training.device].peak_bytes[SETTLED:].tolist()
    median = int(statistics.median(peaks))
    return median, (max(peaks) - min(peaks)) / 2 / median


def small(trainings: Trainings) -> None:
    """The table of two models at two batch sizes; ends the process with an error if a prediction
    misses."""
    cells = predictions(trainings, "graph, Adam", SMALL_MODELS, {}, SMALL_SIZES)
    print(of_sizes(cells))
    missed = [
        cell
        for cell in cells
        if cell.low is None or cell.high is None or not cell.low <= cell.measured <= cell.high
    ]
    if missed:
        raise SystemExit("\n".join(f"not in range: {cell}" for cell in missed))


FEW = ("MobileNetV2", "Transformer", "U-Net")
DRAWN = tuple(f"drawn:{seed}" for seed in range(6))


def sizes(trainings: Trainings) -> str:
    cells = predictions(trainings, "graph, Adam", MODELS, {})
    cells += predictions(trainings, "graph, SGD", FEW, {"optimizer": "sgd"})
    cells += predictions(trainings, "graph, Adam, first half frozen", FEW, {"frozen": 0.5})
    cells += predictions(trainings, "XLA, Adam, two recorded sizes", FEW, {"compiled": True})
    return of_sizes(cells)


def _fed(trainings: Trainings, models: Iterable[str], feed: str) -> list[Cell]:
    return predictions(trainings, f"graph, Adam, {feed}", models, {"feed": feed})


def kerashub(trainings: Trainings) -> str:
    if importlib.util.find_spec("keras_hub") is None:
        return "Not measured: needs keras_hub.\n"
    return of_sizes(_fed(trainings, HUB_MODELS, "arrays"))


PLANNED = ("ResNet50", "MobileNetV2", "VGG16", "U-Net", "Transformer", "Decoder", "Mixer", "MLP")


def planned_of(trainings: Trainings, names: Iterable[str]) -> list[Planned]:
    """What plans of models are worth; without KerasHub its models are left out."""
    hub = importlib.util.find_spec("keras_hub") is not None
    # Of a subclassed model, the generator of batches does not know the inputs.
    return [
        cell
        for name in names
        if hub or name not in HUB_MODELS
        for cell in planned(trainings, (name,), **({} if name in MODELS else {"feed": "arrays"}))
    ]


SETS: dict[str, Callable[[Trainings], str]] = {
    "sizes": sizes,
    "feeds": lambda trainings: of_sizes(
        _fed(trainings, SMALL_MODELS, "arrays") + _fed(trainings, SMALL_MODELS, "slices")
    ),
    "drawn": lambda trainings: of_sizes(predictions(trainings, "graph, drawn", DRAWN, {})),
    "kerashub": kerashub,
    "changed": lambda trainings: of_changes(changed_predictions(trainings, ("MLP", *FEW), CHANGES)),
    "plans": lambda trainings: of_plans(
        planned_of(trainings, (*PLANNED, *OTHER_MODELS, *HUB_MODELS))
    ),
}
"""Name of a part of the page to what measures its table."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cache", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "accuracy"
    )
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument(
        "--plans-of", nargs="+", metavar="MODEL", help="print the plans of some models only"
    )
    options = parser.parse_args()
    trainings = Trainings(options.cache)
    if options.plans_of:
        return print(of_plans(planned_of(trainings, options.plans_of)))
    if options.small:
        return small(trainings)
    tables = {}
    for name in options.sets:
        tables[name] = SETS[name](trainings)
        print(f"{name}\n{tables[name]}", flush=True)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(replaced(page, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
