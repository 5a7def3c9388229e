"""Compares what a program's run says with the program's own objects, and with the program run
again. Pure but for that.

Every program runs four times, each time in a process of its own in which nothing but the CPU's
allocator class is set beforehand: as it is written, with twice the batch size, and with a fixed
seed and the graph as it was traced once with and once without the recorder.
"""

import collections
import dataclasses
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import tb_memplugin
from tb_memplugin.fit import reproduce
from tb_memplugin.schema import PHASES, Run

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "integration"))

from prepared_python import bare_environment, run_python  # noqa: E402

SETTLED = 2
"""Steps of a run before its peaks are those of an ordinary step."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of this directory.

    Attributes:
        name: Its file, without suffix.
        what: What it is.
        needs: Modules that it imports beside TensorFlow and Keras.
        trains: Whether it has training steps, of which predictions are made.
        backward_passes: Backward passes in a step. With several, a graph does not show what is
            saved at the same time.
    """

    name: str
    what: str
    needs: tuple[str, ...] = ()
    trains: bool = True
    backward_passes: int = 1

    @property
    def missing(self) -> list[str]:
        """Modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


PROGRAMS = (
    Program("arrays_sequential", "Sequential MLP, arrays"),
    Program("slices_dict", "functional, two inputs in a dictionary, from_tensor_slices"),
    Program("generator_cnn", "CNN with batch norm and dropout, Python generator, validation"),
    Program("cached_unet", "U-Net, map, cache, shuffle and prefetch"),
    Program("subclassed", "subclassed Transformer, arrays"),
    Program("custom_train_step", "variational autoencoder, its own train_step"),
    Program("eager_loop", "eager GradientTape loop"),
    Program("function_loop", "tf.function loop, residual CNN"),
    Program("two_models", "two models in a row, a callback each"),
    Program("tf_module", "tf.Module with its own tf.function, no Keras"),
    Program("keras2", "tf_keras, Sequential CNN", needs=("tf_keras",)),
    Program("kerashub_bert", "KerasHub BERT classifier", needs=("keras_hub",)),
    Program("kerashub_gpt2", "KerasHub GPT-2, cached slices, then generate", needs=("keras_hub",)),
    Program("kerashub_gemma_lora", "KerasHub Gemma with LoRA", needs=("keras_hub",)),
    Program("mixed_precision", "mixed_float16 CNN"),
    Program("accumulation_ema", "gradient accumulation with moving averages"),
    Program("steps_per_execution", "four steps per execution, cached slices"),
    Program("variable_length", "bidirectional GRU and LSTM, padded batches of varying length"),
    Program(
        "mirrored", "MirroredStrategy on two logical CPU devices, summed on one, steps asked for"
    ),
    Program("train_on_batch", "train_on_batch of a small model"),
    Program("evaluate_predict", "MobileNetV2, evaluate and predict only", trains=False),
    Program("gan", "GAN with two optimizers in one train_step", backward_passes=2),
    Program("diffusion", "denoising diffusion, U-Net with group norm"),
    Program("ctc", "speech model, CTC loss"),
    Program("recommender", "two-tower recommender, sparse embeddings"),
)


def drawn(seed: int) -> Program:
    """A program with a model, an optimizer, a precision and a feed that are drawn at random."""
    return Program(f"drawn:{seed}", "drawn at random")


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a program's run says, beside what it has to be. Sizes are bytes.

    Attributes:
        peak: Allocated at the peak of the last traced step.
        unattributed: Largest share of a traced step's allocated bytes.
        weights, slots: Bytes of the last breakdown's category, and of the program's own variables;
            slots are those of layers, without the optimizer's counters.
        saved: Most bytes that are saved for backward, and those that the traced graph's gradient
            ops read, without and with what may count; None if the graph does not tell.
        saved_as_traced: The same where TensorFlow runs the graph as it was traced.
        replayed: Allocations of traced steps at the recorded address, of all.
        predicted: Lowest, typical and highest predicted peak for twice the batch size; None if
            withheld.
        measured: Median of the steps' peaks in a real run with twice the batch size; None without
            training steps.
        spread: Highest minus lowest of these peaks, as a share of the median.
        same_losses: Whether losses and variables are those of the run without the recorder, to the
            bit.
        traced: Number of traced steps.
        notes: Notes of the run.
    """

    peak: int
    unattributed: float
    weights: tuple[int, int]
    slots: tuple[int, int]
    saved: tuple[int, int, int] | None
    saved_as_traced: tuple[int, int, int] | None
    replayed: tuple[int, int]
    predicted: tuple[int, int, int] | None
    measured: int | None
    spread: float
    same_losses: bool
    traced: int
    notes: tuple[str, ...]

    @property
    def saved_errors(self) -> tuple[float, float] | None:
        """Errors of the saved bytes, as written and as traced, between those without and with what
        may count."""
        if self.saved is None or self.saved_as_traced is None:
            return None
        return _error(*self.saved), _error(*self.saved_as_traced)

    @property
    def what_if_error(self) -> float | None:
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted[1] / self.measured - 1


def _error(found: int, low: int, high: int) -> float:
    return found / min(max(found, low), high) - 1


def measure(
    program: Program, directory: pathlib.Path, fresh: bool, compiled: bool = False
) -> Figures:
    """Runs a program and reads its runs.

    Args:
        program: The program.
        directory: Where its runs go.
        fresh: Whether each process imports TensorFlow itself; otherwise it forks from one that has.
        compiled: Whether Keras has the default of a GPU, which is to compile with XLA. The graph
            does not show then what is saved.
    """
    mode = ["--compiled"] if compiled else []
    answer = execute(program, directory / "verbatim", *mode, fresh=fresh)
    runs = list(tb_memplugin.load(str(directory / "verbatim" / "runs")).values())
    predicted = measured = None
    spread = 0.0
    if program.trains:
        execute(program, directory / "doubled", "--times", "2", *mode, fresh=fresh)
        doubled = list(tb_memplugin.load(str(directory / "doubled" / "runs")).values())
        peaks = step_peaks(doubled[-1])
        measured = int(statistics.median(peaks))
        spread = (max(peaks) - min(peaks)) / measured
        prediction = tb_memplugin.what_if(runs[-1], batch_size=2 * answer["batch"]).prediction
        if None not in (
            range_ := (prediction.low_bytes, prediction.peak_bytes, prediction.high_bytes)
        ):
            predicted = range_
    recorded, plain = (
        execute(
            program, directory / name, "--seed", "7", "--as-traced", *mode, *options, fresh=fresh
        )
        for name, options in (("recorded", ()), ("plain", ("--plain",)))
    )
    return Figures(
        **read(runs, answer),
        saved=None if compiled else _saved(program, directory / "verbatim", answer),
        saved_as_traced=None if compiled else _saved(program, directory / "recorded", recorded),
        predicted=predicted,
        measured=measured,
        spread=spread,
        same_losses=recorded["digest"] == plain["digest"],
    )


def _saved(
    program: Program, directory: pathlib.Path, answer: Mapping[str, Any]
) -> tuple[int, int, int] | None:
    """As in `Figures`, of one run of a program and what it printed."""
    if answer["saved"] is None or program.backward_passes > 1:
        return None
    (*_, run) = tb_memplugin.load(str(directory / "runs")).values()
    low, high = answer["saved"]
    return (
        max(sum(row.bytes for row in snapshot.saved_for_backward) for snapshot in run.snapshots),
        low,
        high,
    )


def execute(program: Program, directory: pathlib.Path, *options: str, fresh: bool) -> Any:
    """What `run.py` prints of a program."""
    directory.mkdir(parents=True)
    arguments = [str(HERE / "run.py"), program.name, "--directory", str(directory), *options]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = bare_environment(
        PYTHONPATH=path, TF_CPU_ALLOCATOR_USE_BFC="1", TF_CPP_MIN_LOG_LEVEL="2"
    )
    if fresh:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=280, check=False
        )
    else:
        done = run_python(arguments, environment=environment, timeout=280)
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert done.returncode == 0 and answers, (
        f"{program.name} ended with {done.returncode}:\n{done.stderr[-3000:]}"
    )
    return json.loads(answers[-1].removeprefix("ANSWER "))


def read(runs: list[Run], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a program's runs, of which the last one has the weights and slots of what is
    alive at the end."""
    snapshots = [snapshot for run in runs for snapshot in run.snapshots]
    assert snapshots, "no traced step"
    shares, totals, slots = [], collections.Counter[str](), 0
    layers = {layer.path for table in runs[-1].layer_tables for layer in table.layers}
    for snapshot in snapshots:
        assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes
        totals, slots = collections.Counter(), 0
        for row in snapshot.ledger:
            if row.layer is None or row.layer in layers:  # and not of an earlier model
                totals[row.category] += row.bytes
                slots += (
                    row.bytes if row.layer is not None and row.category == "optimizer_state" else 0
                )
        shares.append(totals["unattributed"] / snapshot.in_use_bytes)
    replays = [reproduce(requests) for run in runs for requests in run.requests]
    replayed = [(one.addresses, one.of) for one in replays]
    replayed += [
        (one.replay.addresses, one.replay.of_addresses)
        for one in snapshots
        if one.replay is not None
    ]
    return {
        "peak": snapshots[-1].in_use_bytes,
        "unattributed": max(shares),
        "weights": (totals["weights"], answer["weights"]),
        "slots": (slots, answer["slots"]),
        "replayed": (sum(same for same, _ in replayed), sum(of for _, of in replayed)),
        "traced": len(snapshots),
        "notes": tuple(note for run in runs for note in run.notes),
    }


def step_peaks(run: Run) -> list[int]:
    """Peaks of a run's training steps, without the first ones."""
    (figures,) = run.samples.devices.values()
    peaks: list[int] = figures.peak_bytes[run.samples.phase == PHASES.index("train")].tolist()
    return peaks[SETTLED:]
