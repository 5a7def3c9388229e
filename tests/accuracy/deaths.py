"""Follows the advice after real out-of-memory failures: every fix marked as simulated is applied in a real training.

Each training records a few steps with a small batch, then fails with a large one. Prints one line for each fix, and
how close the advised batch size is to the largest one that passes, found by bisection.

usage: python tests/accuracy/deaths.py [--cache DIR] [--bisect]
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
from tb_memplugin.model import Fix  # noqa: E402

SMALL, LARGE, STEPS = 4, 48, 8
DEATHS = (
    *(
        ("MobileNetV2", mib, optimizer)
        for mib, optimizer in ((300, "adam"), (400, "sgd"), (520, "adam"), (450, "momentum"))
    ),
    *(
        ("ResNet50", mib, optimizer)
        for mib, optimizer in ((700, "adam"), (900, "adam"), (700, "sgd"), (800, "momentum"))
    ),
    *(("VGG16", mib, optimizer) for mib, optimizer in ((500, "adam"), (700, "adam"), (500, "sgd"), (600, "momentum"))),
    *(("U-Net", mib, optimizer) for mib, optimizer in ((200, "adam"), (300, "adam"), (250, "sgd"), (400, "adam"))),
    *(
        ("Transformer", mib, optimizer)
        for mib, optimizer in ((100, "adam"), (150, "adam"), (120, "sgd"), (200, "adam"))
    ),
)
"""Model, capacity in MiB and optimizer of each death."""


def applied(training: Training, fix: Fix) -> Training | None:
    """The training with a fix; None for a fix that is not applied here."""
    changed = dataclasses.replace(training, batches=(LARGE,))
    if fix.kind == "batch" and fix.batch_size:
        return dataclasses.replace(changed, batches=(fix.batch_size,))
    if fix.kind == "accumulation" and fix.batch_size:
        return dataclasses.replace(changed, batches=(fix.batch_size,), accumulate=LARGE // fix.batch_size)
    if fix.kind == "limit" and fix.capacity_bytes:
        return dataclasses.replace(changed, capacity_mib=fix.capacity_bytes >> 20)
    if fix.kind == "freezing":
        found = re.search(r"the first (\d+) trainable layers", fix.sentence)
        return dataclasses.replace(changed, freeze=int(found[1]) if found else 1)
    return None


def follow(trainings: Trainings, training: Training) -> Iterator[tuple[str, bool]]:
    """(kind of the fix, whether the real training passes) of each fix marked as simulated."""
    answer, directory = trainings.run(training, records=True)
    if answer["passed"]:
        print(f"{training.model} {training.capacity_mib} MiB: did not fail", flush=True)
        return
    (run,) = tb_memplugin.load(directory).values()
    for oom in run.ooms:
        for sentence in oom.not_available:
            print(f"  note: {sentence}", flush=True)
        for fix in oom.fixes:
            changed = applied(training, fix) if fix.simulated and fix.enough else None
            if changed is not None:
                passed = trainings.run(changed, records=False)[0]["passed"]
                print(f"  {'passes' if passed else 'FAILS'}: {fix.sentence}", flush=True)
                yield fix.kind, passed


def largest(trainings: Trainings, training: Training, advised: int) -> int:
    """The largest batch size that passes in a real training, to about 2 %."""

    def passes(size: int) -> bool:
        return bool(trainings.run(dataclasses.replace(training, batches=(size,)), records=False)[0]["passed"])

    least, most = 0, LARGE
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
    for model, mib, optimizer in DEATHS:
        training = Training(model, (SMALL, LARGE), capacity_mib=mib, optimizer=optimizer, steps=STEPS)
        print(f"{model}, {optimizer}, {mib} MiB, batch size {LARGE}", flush=True)
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
