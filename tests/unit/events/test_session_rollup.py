"""What a session's roll-up says, against the history of the same run as the full reader reads it."""

import dataclasses
import pathlib

import numpy as np
import pytest
from reading_cases import MIB, make_oom, make_samples, make_snapshot
from rollup_cases import last_rollup, rollups_of, spans_of, spans_of_history

import tb_memplugin
from tb_memplugin.analysis.devices.worker_summary import summarize_worker
from tb_memplugin.analysis.steps.facts import device_facts
from tb_memplugin.events.run_writer import MAX_ROLLUP_BYTES, RunWriter
from tb_memplugin.model import Phase, Samples

DEVICES = ("GPU:0", "GPU:1")


def uneven(steps: range, epoch: int, phase: Phase = "train", seed: int = 0) -> Samples:
    """Samples of two devices whose peaks differ from step to step; the pool is measured at every seventh step."""
    parts = []
    for at, device in enumerate(DEVICES):
        random = np.random.default_rng([seed, steps[0], at])
        in_use = 200 * MIB + random.integers(0, 40, len(steps)) * 256
        peaks = in_use + (100 + 50 * at) * MIB + random.integers(0, 1000, len(steps)) * 4096
        pools = {step: (512 * MIB, 100 * MIB + step) for step in steps if step % 7 == 0}
        parts.append(
            make_samples(
                steps, peaks.tolist(), in_use=in_use.tolist(), epoch=epoch, phase=phase, device=device, pools=pools
            )
        )
    return dataclasses.replace(parts[0], devices={name: of for part in parts for name, of in part.devices.items()})


def write(directory: pathlib.Path, epochs: int = 3, steps: int = 90) -> RunWriter:
    """Trains and validates; some flushes end within an epoch, and two steps are traced."""
    writer = RunWriter(directory)
    for epoch in range(epochs):
        first = epoch * steps
        for begin in range(first, first + steps, 25):
            writer.samples(uneven(range(begin, min(begin + 25, first + steps)), epoch))
        validated = [first + steps - 1] * 5
        writer.samples(
            dataclasses.replace(
                uneven(range(first, first + 5), epoch, "validation", seed=1), step=np.asarray(validated, np.int64)
            )
        )
    for device in DEVICES:
        writer.snapshot(make_snapshot(10, device=device, activations=300 * MIB))
        writer.snapshot(make_snapshot(20, device=device, activations=250 * MIB))
    return writer


def finish(writer: RunWriter) -> None:
    writer.end()
    writer.close()


def test_spans_are_the_epochs_of_the_history(tmp_path: pathlib.Path) -> None:
    # GIVEN three epochs of training and validation
    finish(write(tmp_path / "run"))
    # THEN each is a span with the peak of all of its samples and its step
    rollup, run = last_rollup(tmp_path), tb_memplugin.load(tmp_path)["run"]
    assert spans_of(rollup) == spans_of_history(run, rollup)
    assert [span["phase"] for span in spans_of(rollup)["GPU:0"]] == ["train"] * 3 + ["validation"] * 3


@pytest.mark.parametrize("phase", ["train", "validation"])
def test_figures_of_devices_are_those_of_the_full_reader(tmp_path: pathlib.Path, phase: Phase) -> None:
    finish(write(tmp_path / "run"))
    rollup, run = last_rollup(tmp_path), tb_memplugin.load(tmp_path)["run"]
    summary = summarize_worker("", run, phase)
    for device, expected, facts in zip(rollup.devices, summary.devices, device_facts(run), strict=True):
        assert (device.name, device.capacity_bytes) == (expected.name, expected.capacity_bytes)
        of = device.phases[phase]
        assert of.in_use_bytes == expected.last_in_use_bytes
        assert of.pool_bytes == expected.pool_bytes
        assert of.steps == expected.rows
        # In training, what must fit is the highest peak of all phases.
        known = device.phases.values() if phase == "train" else [of]
        assert max((one.peak_bytes, -one.peak_step) for one in known) == (expected.peak_bytes, -expected.peak_step)
        highest = max(expected.traced, key=lambda one: one.peak_bytes, default=None)
        if highest is None:
            assert of.traced is None
        else:
            assert (of.traced.step, of.traced.peak_bytes) == (highest.step, highest.peak_bytes)
            assert list(of.traced.parts.items()) == list(highest.parts.items())
        assert device.snapshots == facts.snapshots
    assert (rollup.samples, rollup.first_step, rollup.last_step) == (
        summary.rows,
        summary.first_step,
        summary.last_step,
    )
    assert rollup.last_wall_time == summary.last_wall_time


def test_a_failed_step_has_its_breakdown_and_a_tolerated_one_does_not_count(tmp_path: pathlib.Path) -> None:
    # GIVEN a failure, and another that TensorFlow went on from
    oom = make_oom(4)
    writer = RunWriter(tmp_path / "run")
    writer.samples(make_samples(range(4), [MIB] * 4))
    writer.oom(oom)
    writer.oom(dataclasses.replace(oom, identifier="2", status="failing"))
    writer.oom(dataclasses.replace(oom, identifier="2", status="tolerated"))
    finish(writer)
    # THEN only the first is counted, and it is the step with the highest peak
    rollup, run = last_rollup(tmp_path), tb_memplugin.load(tmp_path)["run"]
    (device,), (expected,) = rollup.devices, summarize_worker("", run, "train").devices
    assert device.ooms == expected.ooms == len(run.ooms) == 1
    assert device.phases["train"].traced is not None
    assert device.phases["train"].traced.step == 4 == expected.traced[-1].step
    assert device.phases["train"].peak_bytes == expected.peak_bytes
    assert device.oom_in_use_bytes == oom.in_use_bytes


def test_outside_epochs_spans_are_ranges_of_steps(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for begin in range(0, 250, 50):
        part = uneven(range(begin, begin + 50), 0)
        writer.samples(dataclasses.replace(part, epoch=np.full(50, -(2**63))))
    finish(writer)
    steps = [span["steps"] for span in spans_of(last_rollup(tmp_path))["GPU:0"]]
    assert steps == [(0, 99), (100, 199), (200, 249)]


@pytest.mark.parametrize("devices", [1, 8, 24])
def test_a_roll_up_is_bounded_whatever_was_recorded(tmp_path: pathlib.Path, devices: int) -> None:
    # GIVEN many devices whose peaks are random, and more epochs than a roll-up can hold
    writer = RunWriter(tmp_path / "run")
    random = np.random.default_rng(3)
    epochs, steps = 200, 10
    for epoch in range(epochs):
        rows = range(epoch * steps, (epoch + 1) * steps)
        parts = [
            make_samples(rows, random.integers(1 << 33, 1 << 36, steps).tolist(), device=f"GPU:{at}", epoch=epoch)
            for at in range(devices)
        ]
        writer.samples(
            dataclasses.replace(parts[0], devices={name: of for part in parts for name, of in part.devices.items()})
        )
    finish(writer)
    # THEN the record is small, and neighboring epochs share a span, whose peak is exact
    ((_, size, rollup),) = rollups_of(tmp_path)
    assert size < MAX_ROLLUP_BYTES
    run = tb_memplugin.load(tmp_path)["run"]
    expected = spans_of_history(run, rollup)
    for device, spans in spans_of(rollup).items():
        assert [span["peak_bytes"] for span in spans] == [span["peak_bytes"] for span in expected[device]]
        assert [span["peak_step"] for span in spans] == [span["peak_step"] for span in expected[device]]
        assert spans[0]["steps"][0] == 0 and spans[-1]["steps"][1] == epochs * steps - 1
    assert len(rollup.levels.step) >= (36 if devices <= 8 else 1)  # 36 are enough for a trend


def test_many_devices_have_no_roll_up(tmp_path: pathlib.Path) -> None:
    # GIVEN more random peaks than four KiB can hold
    random = np.random.default_rng(1)
    parts = [make_samples(range(3), random.integers(1, 1 << 50, 3).tolist(), device=f"GPU:{at}") for at in range(200)]
    writer = RunWriter(tmp_path / "run")
    writer.samples(
        dataclasses.replace(parts[0], devices={name: of for part in parts for name, of in part.devices.items()})
    )
    finish(writer)
    # THEN there is none, and the history is whole
    assert rollups_of(tmp_path) == []
    assert len(tb_memplugin.load(tmp_path)["run"].samples.devices) == 200
