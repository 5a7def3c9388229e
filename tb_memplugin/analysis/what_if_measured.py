"""What was measured of a run, to be compared with its prediction. Pure."""

from collections.abc import Sequence
from typing import Any

from tb_memplugin.analysis.what_if_answer import describe_rows
from tb_memplugin.model import Run, Snapshot


def measured_snapshot(run: Run, device: str, steps: Sequence[int]) -> Snapshot | None:
    """The training snapshot with the highest peak among those of the recorded steps of a device.

    If none of these steps has a snapshot, the one nearest to the last of them; None without snapshots or steps.
    """
    candidates = [one for one in run.snapshots if one.device == device and one.phase == "train" and not one.at_failure]
    if not candidates or not steps:
        return None
    recorded = [one for one in candidates if one.step in steps]
    if recorded:
        return max(recorded, key=lambda one: one.in_use_bytes)
    return min(candidates, key=lambda one: (abs(one.step - steps[-1]), -one.in_use_bytes))


def describe_measured(snapshot: Snapshot | None) -> dict[str, Any] | None:
    """The step, the peak and the ledger of a snapshot as a JSON object."""
    if snapshot is None:
        return None
    return {
        "step": snapshot.step,
        "in_use_bytes": snapshot.in_use_bytes,
        "ledger": describe_rows(snapshot.ledger),
    }
