"""Follows the advice after real out-of-memory failures: every simulated fix is applied in a real training.

Each training records a few steps with a small batch, then fails with a large one. Prints one line for each fix, and
how close the advised batch size is to the largest one that passes, found by bisection.

usage: python tests/accuracy/failures.py [--cache DIR] [--bisect]
"""

import argparse
import dataclasses
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from measure import Trainings  # noqa: E402
from train import Training  # noqa: E402

import tb_memplugin  # noqa: E402
from tb_memplugin.schema import Fix  # noqa: E402

STEPS = 8
SIZES = {"Transformer": (4, 64), "Decoder": (2, 32), "MLP": (256, 8192), "Mixer": (4, 96), "LSTM": (8, 512)}
"""A small and a large batch size for each model. TensorFlow's convolutions crash on the CPU without memory."""
SHARES = (0.35, 0.5, 0.65, 0.8)
"""Capacities as shares of the predicted peak of the large batch."""


def applied(training: Training, fix: Fix) -> Training | None:
    """The training with a fix; None for a fix that is not applied here."""
    changed = dataclasses.replace(training, batches=training.batches[1:])
    if fix.kind == "batch" and fix.batch_size:
        return dataclasses.replace(changed, batches=(fix.batch_size,))
    if fix.kind == "accumulation" and fix.batch_size:
        return dataclasses.replace(changed, batches=(fix.batch_size,), accumulate=training.batches[1] // fix.batch_size)
    if fix.kind == "limit" and fix.capacity_bytes:
        return dataclasses.replace(changed, capacity_mib=fix.capacity_bytes >> 20)
    if fix.kind == "freezing":
        found = re.search(r"the first (\d+) trainable layers", fix.sentence)
        return dataclasses.replace(changed, freeze=int(found[1]) if found else 1)
    return None


def peak_mib(trainings: Trainings, training: Training) -> float:
    """Predicted peak of the large batch in MiB."""
    small, large = training.batches
    _, directory = trainings.run(dataclasses.replace(training, batches=(small,)), records=True)
    (run,) = tb_memplugin.load(directory).values()
    peak = tb_memplugin.what_if(run, batch_size=large).prediction.peak_bytes
    assert peak is not None, f"nothing is predicted for {training}"
    return peak / (1 << 20)


def follow(trainings: Trainings, training: Training) -> Iterator[tuple[str, bool]]:
    """(kind of the fix, whether the real training passes) of each fix that was simulated."""
    answer, directory = trainings.run(training, records=True)
    if answer["passed"]:
        print(f"{training.model} {training.capacity_mib} MiB: did not fail", flush=True)
        return
    (run,) = tb_memplugin.load(directory).values()
    if answer.get("crashed"):
        print("  TensorFlow crashed", flush=True)
    for oom in run.ooms:
        for sentence in oom.not_available:
            print(f"  note: {sentence}", flush=True)
        for fix in oom.fixes:
            changed = applied(training, fix) if fix.enough else None
            if changed is not None:
                passed = trainings.run(changed, records=False)[0]["passed"]
                print(f"  {'passes' if passed else 'FAILS'}: {fix.sentence}", flush=True)
                yield fix.kind, passed


def largest(trainings: Trainings, training: Training, advised: int) -> int:
    """The largest batch size that passes in a real training, to about 2 %."""

    def passes(size: int) -> bool:
        return bool(trainings.run(dataclasses.replace(training, batches=(size,)), records=False)[0]["passed"])

    least, most = 0, training.batches[1]
    guess = advised
    while most - least > max(1, round(0.02 * most)):
        if passes(guess):
            least = guess
            guess = min((least + most) // 2, max(least + 1, round(least * 1.06)))
        else:
            most = guess
            guess = max((least + most) // 2, round(most * 0.94)) if least == 0 else (least + most) // 2
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "accuracy")
    parser.add_argument("--bisect", action="store_true")
    options = parser.parse_args()
    trainings = Trainings(options.cache)
    results: list[tuple[str, bool]] = []
    for model, share in ((model, share) for model in SIZES for share in SHARES):
        training = Training(model, SIZES[model], steps=STEPS, optimizer="sgd" if share == SHARES[1] else "adam")
        training = dataclasses.replace(training, capacity_mib=round(share * peak_mib(trainings, training)))
        print(f"{model}, {training.optimizer}, {training.capacity_mib} MiB, {training.batches}", flush=True)
        results += follow(trainings, training)
        if options.bisect:
            (run,) = tb_memplugin.load(trainings.run(training, records=True)[1]).values()
            advised = [fix.batch_size for oom in run.ooms for fix in oom.fixes if fix.kind == "batch"]
            if advised and advised[0]:
                real = largest(trainings, training, advised[0])
                print(f"  advised {advised[0]}, largest that passes {real}", flush=True)
    for kind in dict.fromkeys(kind for kind, _ in results):
        passed = [one for other, one in results if other == kind]
        print(f"{kind}: {sum(passed)} of {len(passed)} pass")


if __name__ == "__main__":
    main()
