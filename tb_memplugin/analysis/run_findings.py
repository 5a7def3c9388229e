"""The findings on a run: sentences on memory that grows, on memory of what is no longer used, and on data sets,
constants and dense gradients that take much of it. Pure.

The finding on layers that the recorded training itself runs again in the backward pass. Pure."""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tb_memplugin.analysis.facts import device_names
from tb_memplugin.analysis.growth import collector_finding, growth_of, session_growth
from tb_memplugin.analysis.host import host_findings
from tb_memplugin.schema import (
    DATA_SET,
    GRADIENT_OPS,
    GRADIENTS,
    MADE_DENSE,
    RESULTS,
    HeldTensorGroup,
    Layer,
    Run,
    Snapshot,
    StepRequests,
    Timeline,
    counted,
    format_bytes,
    former_name,
    full_device_name,
    is_gpu,
    owned,
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


MAX_NAMES = 3
"""Most names of layers in a list, the first ones."""
_WITH_STATISTICS = "BatchNormalization"
_DRAWING = ("Dropout", "Noise")
"""In the names of the types of layers that draw random numbers in training."""


def recomputation_finding(run: Run, device: str, worker: str = "") -> str | None:
    """What `keras.RematScope` or `tf.recompute_grad` save and change in a worker's run; None if no layer is in one.

    Layers that `remat` recomputes train as they would without it: there is nothing to find, unless XLA has merged the
    second run with the first.
    """
    table = run.layer_tables[-1].layers if run.layer_tables else ()
    again = [layer for layer in table if layer.recomputed is not None]
    anew = [layer for layer in again if layer.recomputed == "anew"]
    requests = next((one for one in reversed(run.requests) if (one.device, one.phase) == (device, "train")), None)
    if not again or requests is None:
        return None
    kept = _merged_bytes(run, requests, [layer.path for layer in again])
    if not anew and not kept:
        return None
    paths = [layer.path for layer in (again if kept else anew)]
    outermost = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    name, layers = full_device_name(worker, device), counted(len(outermost), "layer")
    if kept:
        first = (
            f"{name}: {layers} should run again in the backward pass ({_listed(outermost)}), but XLA merged both runs: "
            f"{format_bytes(kept)} of their activations are kept until then. Compile the model with jit_compile=False."
        )
    else:
        runs = f"{layers} run{'' if len(outermost) > 1 else 's'} again in the backward pass"
        first = f"{name}: {runs} ({_listed(outermost)}). {_saving(run, requests, paths)}"
    return " ".join([first, *_differences(anew)])


def _saving(run: Run, requests: StepRequests, paths: Collection[str]) -> str:
    costs = ""
    if requests.mode != "xla":
        size = int(requests.requested[_repeated_rows(requests, paths)].sum())
        steps = [one for one in run.requests if (one.device, one.phase) == (requests.device, requests.phase)]
        shares = [share for one in steps if (share := _share_of_time(run, one, paths)) is not None]
        if shares:
            costs = f"; the second run takes about {statistics.median(shares):.0%} of the step's time"
    elif not (size := _planned_again(run, requests, paths) or 0):
        return "XLA compiled the step and may have merged both runs: compare its peak with that of the plain model."
    return f"{format_bytes(size)} of activations are not kept until then{costs}."


def _share_of_time(run: Run, requests: StepRequests, paths: Collection[str]) -> float | None:
    """Share of a step's time in which layers' results are computed again; None if the step's times are unknown.

    A result's request begins its op. The second run of some layers ends when the next gradient is requested.
    """
    line = next((one for one in run.timelines if _same_step(one, requests)), None)
    rows = _repeated_rows(requests, paths)
    if line is None or line.duration_ns <= 0 or not rows:
        return None
    of_gradients = owned(requests, lambda owner: owner.category in GRADIENTS)
    gradients = np.append(np.sort(requests.birth[of_gradients]), requests.events)
    begins = np.sort(requests.birth[rows])
    ends, first = np.unique(gradients[np.searchsorted(gradients, begins)], return_index=True)
    taken = line.seconds_at(ends) - line.seconds_at(begins[first])
    return float(taken.sum()) * 1e9 / line.duration_ns


def _merged_bytes(run: Run, requests: StepRequests, paths: Collection[str]) -> int:
    """Bytes of layers' results that a compiled step keeps for its backward pass, where it computes none of them again.

    0 if that is unknown, and for steps that are not compiled.
    """
    if requests.mode != "xla" or _planned_again(run, requests, paths) != 0:
        return 0
    rows = (row for one in run.snapshots if _same_step(one, requests) for row in one.saved_for_backward)
    return sum(row.bytes for row in rows if _is_inside(row.layer, paths))


def _planned_again(run: Run, requests: StepRequests, paths: Collection[str]) -> int | None:
    """Bytes of layers' results that the buffer assignment of a compiled step has in the backward pass a second time.

    Their buffers bear names of the forward pass. None if the step's passes are unknown.
    """
    line = next((one for one in run.timelines if _same_step(one, requests)), None)
    begin = None if line is None else next((band.start for band in line.bands if band.name == "backward"), None)
    if line is None or begin is None:
        return None
    names = ("", *line.ops)
    rows = [
        row
        for row in np.flatnonzero(line.start >= begin).tolist()
        if (owner := line.owners[int(line.owner[row])]).category in RESULTS
        and GRADIENT_OPS not in names[int(line.op[row]) + 1]
        and _is_inside(owner.layer, paths)
    ]
    return int((line.bytes[rows] - np.maximum(line.rounding_bytes[rows], 0)).sum())


def _same_step(one: Snapshot | Timeline, requests: StepRequests) -> bool:
    return (one.step, one.phase, one.device) == (requests.step, requests.phase, requests.device)


def _is_inside(layer: str | None, paths: Collection[str]) -> bool:
    return layer is not None and any(f"{layer}/".startswith(f"{path}/") for path in paths)


def _repeated_rows(requests: StepRequests, paths: Collection[str]) -> list[int]:
    """Rows of the layers' results that the backward pass computes again."""
    gradients = owned(requests, lambda owner: owner.category in GRADIENTS)
    begin = int(requests.birth[gradients].min(initial=requests.events))
    results = owned(requests, lambda owner: owner.category == "activations" and _is_inside(owner.layer, paths))
    found: list[int] = np.flatnonzero(results & (requests.birth > begin)).tolist()
    return found


def _differences(anew: Sequence[Layer]) -> list[str]:
    norms = [layer.path for layer in anew if layer.type == _WITH_STATISTICS]
    drawing = [layer.path for layer in anew if any(part in layer.type for part in _DRAWING)]
    sentences = []
    if norms:
        sentences.append(f"Each step updates the moving statistics of {_listed(norms)} twice.")
    if drawing:
        sentences.append(f"The second run of {_listed(drawing)} draws other random numbers, so gradients are wrong.")
    if sentences:
        sentences.append("`tb_memplugin.remat` recomputes layers without that.")
    return sentences


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMES} more" if len(paths) > MAX_NAMES else ""
    return f"{', '.join(paths[:MAX_NAMES])}{more}"
