"""Follows the advice after real out-of-memory failures: every simulated fix is applied in a real
training."""

import dataclasses
import re
from collections.abc import Iterator

from measure import Trainings
from train import Training

import tb_memplugin
from tb_memplugin.schema import Fix


def applied(training: Training, fix: Fix) -> Training | None:
    """The training with a fix; None for a fix that is not applied here."""
    changed = dataclasses.replace(training, batches=training.batches[1:])
    if fix.kind == "batch" and fix.batch_size:
        return dataclasses.replace(changed, batches=(fix.batch_size,))
    if fix.kind == "accumulation" and fix.batch_size:
        return dataclasses.replace(
            changed, batches=(fix.batch_size,), accumulate=training.batches[1] // fix.batch_size
        )
    if fix.kind == "limit" and fix.capacity_bytes:
        return dataclasses.replace(changed, capacity_mib=fix.capacity_bytes >> 20)
    if fix.kind == "freezing":
        found = re.search(r"the first (\d+) trainable layers", fix.sentence)
        return dataclasses.replace(changed, freeze=int(found[1]) if found else 1)
    return None


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
