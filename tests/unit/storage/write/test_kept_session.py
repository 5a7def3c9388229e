"""What a session's roll-up says, against the history of the same run as the full reader reads it."""

import dataclasses
import pathlib

import numpy as np
import pytest
from reading_cases import MIB, equal, make_oom, make_samples, make_snapshot
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis import summarize_session
from tb_memplugin.schema import Phase, Samples, WorkerSummary
from tb_memplugin.storage.write import RunWriter
from tb_memplugin.storage.write.kept_session import MAX_ROWS, KeptSession

DEVICES = ("GPU:0", "GPU:1")


def uneven(steps: range, epoch: int, phase: Phase = "train", seed: int = 0) -> Samples:
    """Samples of two devices with uneven peaks; in training the pool is measured at every seventh step."""
    parts = []
    for at, device in enumerate(DEVICES):
        random = np.random.default_rng([seed, steps[0], at])
        in_use = 200 * MIB + random.integers(0, 40, len(steps)) * 256
        peaks = in_use + (100 + 50 * at) * MIB + random.integers(0, 1000, len(steps)) * 4096
        pools = {step: (512 * MIB, 100 * MIB + step) for step in steps if step % 7 == 0 and phase == "train"}
        figures = {"in_use": in_use.tolist(), "epoch": epoch, "phase": phase, "device": device, "pools": pools}
        parts.append(make_samples(steps, peaks.tolist(), **figures))  # type: ignore[arg-type]
    return dataclasses.replace(parts[0], devices={name: of for part in parts for name, of in part.devices.items()})


def of_history(directory: pathlib.Path) -> WorkerSummary:
    """The summary of the only run under a directory, of as many traced steps as a roll-up has."""
    summary = summarize_session(tb_memplugin.load(directory)["run"])
    devices = [
        dataclasses.replace(one, rows=None, traced=tuple(sorted(one.traced, key=lambda of: of.peak_bytes)[-1:]))
        for one in summary.devices
    ]
    return dataclasses.replace(summary, rows=None, devices=tuple(devices))


@pytest.mark.parametrize("steps", [90, 2 * MAX_ROWS])  # all samples are kept, or few of them
def test_a_roll_up_says_what_the_history_says(tmp_path: pathlib.Path, steps: int) -> None:
    # GIVEN three epochs of training and validation, with flushes within epochs, and traced steps
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    for epoch in range(3):
        first = epoch * steps
        for begin in range(first, first + steps, 25):
            writer.samples(uneven(range(begin, min(begin + 25, first + steps)), epoch))
        validation = uneven(range(first, first + 5), epoch, "validation", seed=1)
        writer.samples(dataclasses.replace(validation, step=np.full(5, first + steps - 1)))
    for device in DEVICES:
        for step, activations in ((10, 300), (20, 250)):
            writer.snapshot(make_snapshot(step, device=device, activations=activations * MIB))
    writer.end()
    writer.close()
    ((_, size, stored),) = rollups_of(tmp_path)
    expected = of_history(tmp_path)
    assert equal(stored, dataclasses.replace(expected, started=stored.started))
    assert len(stored.devices) == 4 and stored.devices[0].snapshots == 2 and size < 2048


def test_failed_steps_count_and_tolerated_failures_do_not(tmp_path: pathlib.Path) -> None:
    # GIVEN a failure, and another that TensorFlow went on from
    oom = make_oom(4)
    writer = RunWriter(tmp_path / "run", summarize=summarize_session)
    writer.samples(make_samples(range(4), [MIB] * 4))
    for one in (oom, *(dataclasses.replace(oom, identifier="2", status=status) for status in ("failing", "tolerated"))):
        writer.oom(one)
    writer.end()
    writer.close()
    ((_, _, stored),) = rollups_of(tmp_path)
    expected = of_history(tmp_path)
    assert equal(stored, dataclasses.replace(expected, started=stored.started))
    (device,) = stored.devices
    assert stored.status == "failed" and device.ooms == 1 and device.traced[0].step == device.peak_step == 4


def test_what_is_kept_is_bounded() -> None:
    kept, random = KeptSession(), np.random.default_rng(3)
    for begin in range(0, 20_000, 100):
        kept.add_samples(make_samples(range(begin, begin + 100), random.integers(MIB, 1 << 36, 100).tolist()))
    assert len(kept._samples) <= MAX_ROWS
