"""The findings on a run: sentences on memory that grows, on memory of what is no longer used, and on data sets,
constants and dense gradients that take much of it. Pure."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tb_memplugin.analysis.device_growth import collector_finding, growth_of, session_growth
from tb_memplugin.analysis.facts import device_names
from tb_memplugin.analysis.host_memory import host_findings
from tb_memplugin.analysis.recomputed_layers import recomputation_finding
from tb_memplugin.schema import (
    DATA_SET,
    MADE_DENSE,
    HeldTensorGroup,
    Run,
    Snapshot,
    format_bytes,
    former_name,
    full_device_name,
    is_gpu,
)

LEAST_SHARE = 0.01
"""Least share of the bytes in use for a finding on what is no longer used."""
LARGE_SHARE = 0.1
"""Least share of the bytes in use for a finding on what is used, but could take less."""
MIN_DATA_SET_BYTES = 16 << 20
"""Smallest data set with a finding: on the device, a small one costs little and is fast."""
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
    """The finding on a device's last breakdown, of training if there is one; None if these bytes are few."""
    snapshot = _last_breakdown(run, device)
    sizes = {} if snapshot is None else former_bytes(snapshot)
    total = sum(sizes.values())
    if snapshot is None or not total or total < LEAST_SHARE * snapshot.in_use_bytes:
        return None
    names = [f"{name} ({format_bytes(size)})" for name, size in list(sizes.items())[:MAX_NAMES]]
    more = f" and {len(sizes) - MAX_NAMES} more" if len(sizes) > MAX_NAMES else ""
    share = f"{100 * total / snapshot.in_use_bytes:.0f} % of the peak of {_step(snapshot)}"
    return (
        f"{full_device_name(worker, device)}: {format_bytes(total)} ({share}) belong to optimizers and models "
        f"that the program no longer uses: {', '.join(names)}{more}. "
        "TensorFlow keeps every function that it traced for an optimizer. `tb_memplugin.release_unused()`, called "
        "between two trainings, frees them."
    )


def tensor_findings(run: Run, worker: str = "") -> list[str]:
    """The findings on data sets, constants and dense gradients in the last breakdowns of one worker's run."""
    found = []
    for device in device_names(run):
        snapshot = _last_breakdown(run, device)
        for name, text in _TENSOR_FINDINGS.items():
            groups = [] if snapshot is None else [one for one in snapshot.held_tensors if _kind(one) == name]
            total = sum(group.bytes for group in groups)
            least = MIN_DATA_SET_BYTES if name == "data set" else 1
            if snapshot is None or total < max(least, LARGE_SHARE * snapshot.in_use_bytes):
                continue
            share = f"{100 * total / snapshot.in_use_bytes:.0f} % of the peak of {_step(snapshot)}"
            inputs = sum(row.bytes for row in snapshot.ledger if row.category == "inputs")
            sentence = text.format(
                size=f"{format_bytes(total)} ({share})",
                batches=format_bytes(inputs - total),
                names=", ".join(_places(groups)),
                on_gpu=_ON_GPU if is_gpu(device) else "",
            )
            found.append(f"{full_device_name(worker, device)}: {sentence}")
    return found


_TENSOR_FINDINGS = {
    "data set": "{size} are the data set, which lies on the device as a whole; batches take {batches}. Read it in "
    "batches from host memory: with a generator, `keras.utils.PyDataset` or files{on_gpu}.",
    "constants": "{size} are constants of functions: {names}. TensorFlow keeps a copy of each array for each function "
    "that uses it. Pass data as an argument, and put a large array into a variable.",
    "dense gradients": "{size} are dense gradients that were made of sparse ones: {names}. Optimizers with slots, such "
    "as Adam, and `global_clipnorm` do this. SGD without momentum updates only the rows of the batch.",
}


_ON_GPU = ', or make the data set under `tf.device("CPU:0")`'


def _kind(group: HeldTensorGroup) -> str:
    if group.held_by == DATA_SET:
        return "data set"
    if group.category == "weight_gradients":
        return "dense gradients"
    return "constants" if (group.held_by or "").startswith("constant ") else ""


def _places(groups: Sequence[HeldTensorGroup]) -> list[str]:
    """Holders of groups, with their size and line, the largest first."""
    sums: collections.Counter[str] = collections.Counter()
    for group in groups:
        name = (group.held_by or "").removesuffix(MADE_DENSE)
        sums[name if group.line is None else f"{name} at {group.line}"] += group.bytes
    named = [f"{name} ({format_bytes(size)})" for name, size in sums.most_common(MAX_NAMES)]
    return [*named, f"{len(sums) - MAX_NAMES} more"] if len(sums) > MAX_NAMES else named


def _step(snapshot: Snapshot) -> str:
    return f"{'' if snapshot.phase == 'train' else f'{snapshot.phase} '}step {snapshot.step}"


def _last_breakdown(run: Run, device: str) -> Snapshot | None:
    return max(
        (one for one in run.snapshots if one.device == device),
        key=lambda one: (one.phase == "train", one.step, one.wall_time),
        default=None,
    )


def former_findings(run: Run, worker: str = "") -> list[str]:
    return _on_devices(former_finding, run, worker)


def findings(by_worker: Mapping[str, Run]) -> list[str]:
    """The findings by device, and then on host memory by worker; devices of a worker's run have their own names."""
    of_devices = [sentence for worker, run in by_worker.items() for sentence in device_findings(worker, run)]
    return of_devices + [sentence for run in by_worker.values() for sentence in host_findings(run)]


def device_findings(worker: str, run: Run) -> list[str]:
    return (
        growth_findings(worker, run)
        + former_findings(run, worker)
        + tensor_findings(run, worker)
        + recomputation_findings(run, worker)
    )


def recomputation_findings(run: Run, worker: str = "") -> list[str]:
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
