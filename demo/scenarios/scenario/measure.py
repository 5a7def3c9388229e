"""Figures of a recorded run, read with `tb_memplugin.load` alone."""

from collections.abc import Callable

from tb_memplugin import Run, Snapshot
from tb_memplugin.schema import CATEGORIES, PHASES


def device_of(run: Run) -> str:
    """The first GPU that was recorded, else ``CPU:0``."""
    return min(
        {one.device for one in run.snapshots}, key=lambda name: (not name.startswith("GPU"), name)
    )


def figures_of(snapshot: Snapshot) -> dict[str, int]:
    """Bytes by category at the peak of a traced step, their sum ``peak``, and
    ``saved_for_backward``, the forward results that are kept at the end of the forward pass."""
    figures = {"peak": snapshot.in_use_bytes, **dict.fromkeys(CATEGORIES, 0)}
    for row in snapshot.ledger:
        figures[row.category] += row.bytes
    figures["frozen_weights"] = sum(
        row.bytes for row in snapshot.ledger if row.category == "weights" and row.trainable is False
    )
    figures["saved_for_backward"] = sum(row.bytes for row in snapshot.saved_for_backward)
    return figures


def step_end(run: Run, device: str, phase: str, step: int) -> int:
    """Bytes in use at the end of a step."""
    samples = run.samples
    rows = (samples.step == step) & (samples.phase == PHASES.index(phase))
    return int(samples.devices[device].in_use_bytes[rows][-1])


def at_peak(run: Run) -> dict[str, int]:
    """Figures of the traced step with the highest peak on the first device."""
    device = device_of(run)
    return _figures(
        run,
        max(
            (one for one in run.snapshots if one.device == device), key=lambda one: one.in_use_bytes
        ),
    )


def of_step(step: int) -> Callable[[Run], dict[str, int]]:
    """A `Scenario.measure` that takes the traced training step `step`."""

    def measure(run: Run) -> dict[str, int]:
        device = device_of(run)
        (snapshot,) = [
            one
            for one in run.snapshots
            if (one.device, one.phase, one.step) == (device, "train", step)
        ]
        return _figures(run, snapshot)

    return measure


def _figures(run: Run, snapshot: Snapshot) -> dict[str, int]:
    figures = figures_of(snapshot)
    figures["step_end"] = step_end(run, snapshot.device, snapshot.phase, snapshot.step)
    return figures
