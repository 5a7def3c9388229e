"""The findings on a run: sentences on memory that grows, and on memory of what is no longer used. Pure."""

import collections
import dataclasses
from collections.abc import Callable, Mapping

from tb_memplugin.analysis.fit.recomputed_layers import recomputation_finding
from tb_memplugin.analysis.growth.device_growth import growth_of
from tb_memplugin.analysis.growth.session_growth import collector_finding, session_growth
from tb_memplugin.analysis.host.host_memory import host_findings
from tb_memplugin.analysis.steps.facts import device_names
from tb_memplugin.model import Run, Snapshot, full_device_name
from tb_memplugin.model.layers import former_name
from tb_memplugin.model.units import format_bytes

LEAST_SHARE = 0.01
"""Least share of the bytes in use for a finding."""
MAX_NAMES = 3
"""Most names in a finding, the largest ones."""


def former_bytes(snapshot: Snapshot) -> dict[str, int]:
    """Name of a former optimizer or model to its requested bytes in a breakdown, the largest first."""
    sums: collections.Counter[str] = collections.Counter()
    for row in snapshot.ledger:
        name = former_name(row.layer)
        if name is not None and row.category != "rounding":
            sums[name] += row.bytes
    return dict(sums.most_common())


def former_finding(run: Run, device: str, worker: str = "") -> str | None:
    """The finding on a device's last breakdown, of training if there is one; None if these bytes are few.

    Args:
        run: The run of one worker.
        device: The device.
        worker: The worker's name.
    """
    snapshot = max(
        (one for one in run.snapshots if one.device == device),
        key=lambda one: (one.phase == "train", one.step, one.wall_time),
        default=None,
    )
    sizes = {} if snapshot is None else former_bytes(snapshot)
    total = sum(sizes.values())
    if snapshot is None or not total or total < LEAST_SHARE * snapshot.in_use_bytes:
        return None
    names = [f"{name} ({format_bytes(size)})" for name, size in list(sizes.items())[:MAX_NAMES]]
    more = f" and {len(sizes) - MAX_NAMES} more" if len(sizes) > MAX_NAMES else ""
    phase = "" if snapshot.phase == "train" else f"{snapshot.phase} "
    share = f"{100 * total / snapshot.in_use_bytes:.0f} % of the peak of {phase}step {snapshot.step}"
    return (
        f"{full_device_name(worker, device)}: {format_bytes(total)} ({share}) belong to optimizers and models "
        f"that the program no longer uses: {', '.join(names)}{more}. "
        "TensorFlow keeps every function that it traced for an optimizer. `tb_memplugin.release_unused()`, called "
        "between two trainings, frees them."
    )


def former_findings(run: Run, worker: str = "") -> list[str]:
    """The findings on all devices of one worker's run."""
    return _on_devices(former_finding, run, worker)


def findings(by_worker: Mapping[str, Run]) -> list[str]:
    """The findings by device, and then on host memory by worker.

    Args:
        by_worker: Worker name to the run of that worker, with devices under their own names.
    """
    of_devices = [sentence for worker, run in by_worker.items() for sentence in device_findings(worker, run)]
    return of_devices + [sentence for run in by_worker.values() for sentence in host_findings(run)]


def device_findings(worker: str, run: Run) -> list[str]:
    """The findings on the devices of one worker."""
    return growth_findings(worker, run) + former_findings(run, worker) + recomputation_findings(run, worker)


def recomputation_findings(run: Run, worker: str = "") -> list[str]:
    """The findings on recomputed layers, on all devices of one worker's run."""
    return _on_devices(recomputation_finding, run, worker)


def _on_devices(finding: Callable[[Run, str, str], str | None], run: Run, worker: str) -> list[str]:
    found = (finding(run, device, worker) for device in device_names(run))
    return [sentence for sentence in found if sentence is not None]


def growth_findings(worker: str, run: Run) -> list[str]:
    """The findings on device memory of one worker that grows over the steps, or from one training of its process to the
    next, and on models that wait for Python's garbage collector."""
    found: list[str] = []
    for device in run.samples.devices:
        name = full_device_name(worker, device)
        growths = [growth for growth in (growth_of(run, device), session_growth(run, device)) if growth is not None]
        found += [dataclasses.replace(growth, device=name).sentence() for growth in growths]
        if not any(growth.cause is not None and growth.cause.kind == "models_unreachable" for growth in growths):
            found += filter(None, [collector_finding(run, device, name)])
    return found
