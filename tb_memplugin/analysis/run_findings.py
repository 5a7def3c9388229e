"""The findings on a run: on memory that grows, on memory of what is no longer used, on
data sets, constants and dense gradients that take much of it, and on layers that the training
itself runs again in the backward pass. Pure.
"""

import collections
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis.composition import snapshots_of
from tb_memplugin.analysis.facts import device_names
from tb_memplugin.analysis.growth import growth_findings
from tb_memplugin.analysis.host import host_findings
from tb_memplugin.analysis.largest import finding
from tb_memplugin.schema import (
    DATA_SET,
    GRADIENT_OPS,
    GRADIENTS,
    MADE_DENSE,
    RESULTS,
    Finding,
    FindingKind,
    HeldTensorGroup,
    Layer,
    Run,
    Snapshot,
    StepRequests,
    Timeline,
    counted,
    first_of,
    format_bytes,
    former_name,
    full_device_name,
    is_gpu,
    owned,
    sums_by,
)

LEAST_SHARE = 0.01  # of the bytes in use for a finding on what is no longer used
MIN_READY = 2  # so many batches that wait in a stage are no finding
LARGE_SHARE = 0.1  # of the bytes in use for a finding on what is used, but could take less
MIN_DATA_SET_BYTES = 16 << 20  # on the device, a smaller data set costs little and is fast


def findings(by_worker: Mapping[str, Run]) -> list[Finding]:
    """The findings by device, and then on host memory by worker; devices of a worker's run have
    their own names."""
    found = []
    for worker, run in by_worker.items():
        found += growth_findings(worker, run)
        for find in (_former, _tensors, _recomputation):
            found += _on_devices(find, run, worker)
    return found + [one for run in by_worker.values() for one in host_findings(run)]


def former_findings(run: Run, worker: str = "") -> list[Finding]:
    return _on_devices(_former, run, worker)


def recomputation_findings(run: Run, worker: str = "") -> list[Finding]:
    return _on_devices(_recomputation, run, worker)


_Found: TypeAlias = tuple[FindingKind, str, int, int | None, int | None]
"""Kind and text of a finding on a device, its step, and its bytes of the peak of that step."""


def _on_devices(
    find: Callable[[Run, str], Iterator[_Found]], run: Run, worker: str
) -> list[Finding]:
    names = ((device, full_device_name(worker, device)) for device in device_names(run))
    return [
        finding(kind, f"{name}: {text}", worker, device, None, *figures)
        for device, name in names
        for kind, text, *figures in find(run, device)
    ]


def _former(run: Run, device: str) -> Iterator[_Found]:
    snapshot = _last_breakdown(run, device)
    if snapshot is None:
        return
    rows = (row for row in snapshot.ledger if row.category != "rounding")
    sums = sums_by(rows, lambda row: former_name(row.layer))
    del sums[None]
    total = sums.total()
    if not total or total < LEAST_SHARE * snapshot.in_use_bytes:
        return
    why = "Functions that TensorFlow traced refer to them, or they wait for the garbage collector."
    if any(row.category == "optimizer_state" for row in snapshot.ledger):
        why = "TensorFlow keeps every function that it traced for an optimizer."
    text = (
        f"{_of_peak(total, snapshot)} belong to optimizers and models that the program no longer "
        f"uses: {first_of(_largest(sums))}. {why} `tb_memplugin.release_unused()`, called between "
        "two trainings, frees them."
    )
    yield "unused", text, snapshot.step, total, snapshot.in_use_bytes


def _largest(sums: collections.Counter[Any]) -> list[str]:
    return [f"{name} ({format_bytes(size)})" for name, size in sums.most_common()]


def _of_peak(size: int, snapshot: Snapshot) -> str:
    phase = "" if snapshot.phase == "train" else f"{snapshot.phase} "
    share = f"{100 * size / snapshot.in_use_bytes:.0f} %"
    return f"{format_bytes(size)} ({share} of the peak of {phase}step {snapshot.step})"


def _tensors(run: Run, device: str) -> Iterator[_Found]:
    """The findings on data sets, constants and dense gradients in the last breakdown, and on
    batches that wait in the highest one: their number varies."""
    last = _last_breakdown(run, device)
    if last is None:
        return
    highest = max(snapshots_of(run, device, last.phase), key=lambda one: one.in_use_bytes)
    for name, text in _TENSOR_FINDINGS.items():
        snapshot = highest if name == "ready_batches" else last
        groups = [one for one in snapshot.held_tensors if _kind(one) == name]
        total = sum(group.bytes for group in groups)
        least = MIN_DATA_SET_BYTES if name == "data_set" else 1
        if total >= max(least, LARGE_SHARE * snapshot.in_use_bytes):
            inputs = sum(row.bytes for row in snapshot.ledger if row.category == "inputs")
            filled = text.format(
                size=_of_peak(total, snapshot),
                batches=format_bytes(inputs - total),
                names=_places(groups),
                on_gpu=_ON_GPU if is_gpu(device) else "",
            )
            yield name, filled, snapshot.step, total, snapshot.in_use_bytes


_ON_GPU = ', or make the data set under `tf.device("CPU:0")`'
_TENSOR_FINDINGS: Mapping[FindingKind, str] = {
    "data_set": "{size} are the data set, which lies on the device as a whole; batches take "
    "{batches}. Read it in batches from host memory: with a generator, "
    "`keras.utils.PyDataset` or files{on_gpu}.",
    "constants": "{size} are constants of functions: {names}. TensorFlow keeps a copy of each "
    "array for each function that uses it. Pass data as an argument, and put a large "
    "array into a variable.",
    "ready_batches": "{size} are batches that wait in the input pipeline: {names}. `prefetch(2)` "
    "keeps two ready; a parallel `map` has as many as its `num_parallel_calls`.",
    "dense_gradients": "{size} are dense gradients that were made of sparse ones: {names}. "
    "Optimizers with slots, such as Adam, and `global_clipnorm` do this. SGD "
    "without momentum updates only the rows of the batch.",
}


def _kind(group: HeldTensorGroup) -> FindingKind | None:
    if group.held_by == DATA_SET:
        return "data_set"
    if group.category == "weight_gradients":
        return "dense_gradients"
    if (group.held_by or "").startswith(("prefetch(", "parallel_map", "map_and_batch")):
        return "ready_batches" if group.count > MIN_READY else None
    return "constants" if (group.held_by or "").startswith("constant ") else None


def _places(groups: Sequence[HeldTensorGroup]) -> str:
    def place(group: HeldTensorGroup) -> str:
        name = (group.held_by or "").removesuffix(MADE_DENSE)
        return name if group.line is None else f"{name} at {group.line}"

    return first_of(_largest(sums_by(groups, place)))


def _last_breakdown(run: Run, device: str) -> Snapshot | None:
    return max(
        (one for one in run.snapshots if one.device == device),
        key=lambda one: (one.phase == "train", one.step, one.wall_time),
        default=None,
    )


_WITH_STATISTICS = "BatchNormalization"
# in the names of the types of layers that draw random numbers in training
_DRAWING = ("Dropout", "Noise")


def _recomputation(run: Run, device: str) -> Iterator[_Found]:
    """What `keras.RematScope` or `tf.recompute_grad` save and change.

    Layers that `remat` recomputes train as they would without it: there is nothing to find, unless
    XLA has merged the second run with the first."""
    table = run.layer_tables[-1].layers if run.layer_tables else ()
    again = [layer for layer in table if layer.recomputed is not None]
    resampled = [layer for layer in again if layer.recomputed == "resampled"]
    requests = next(
        (one for one in reversed(run.requests) if (one.device, one.phase) == (device, "train")),
        None,
    )
    if not again or requests is None:
        return
    every, kept = [layer.path for layer in again], 0
    traced = next((one for one in run.snapshots if _same_step(one, requests)), None)
    if requests.mode == "xla" and _planned_again(run, requests, every) == 0:
        # XLA computes none of them again, and keeps their results for the backward pass.
        saved = () if traced is None else traced.saved_for_backward
        kept = sum(row.bytes for row in saved if _is_inside(row.layer, every))
    if not resampled and not kept:
        return
    paths = [layer.path for layer in (again if kept else resampled)]
    outermost = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    layers = counted(len(outermost), "layer")
    if kept:
        first = (
            f"{layers} should run again in the backward pass ({first_of(outermost)}), but XLA "
            f"merged both runs: {format_bytes(kept)} of their activations are kept until then. "
            "Compile the model with jit_compile=False."
        )
    else:
        runs = f"{layers} run{'' if len(outermost) > 1 else 's'} again in the backward pass"
        first = f"{runs} ({first_of(outermost)}). {_saving(run, requests, paths)}"
    text = " ".join([first, *_differences(resampled)])
    peak = None if traced is None else traced.in_use_bytes
    yield "recomputed", text, requests.step, kept or None, peak


def _saving(run: Run, requests: StepRequests, paths: Collection[str]) -> str:
    costs = ""
    if requests.mode != "xla":
        size = int(requests.requested[_repeated_rows(requests, paths)].sum())
        place = requests.device, requests.phase
        steps = [one for one in run.requests if (one.device, one.phase) == place]
        found = (_share_of_time(run, one, paths) for one in steps)
        shares = [share for share in found if share is not None]
        if shares:
            share = f"{statistics.median(shares):.0%}"
            costs = f"; the second run takes about {share} of the step's time"
    elif not (size := _planned_again(run, requests, paths) or 0):
        return (
            "XLA compiled the step and may have merged both runs: compare its peak with that of "
            "the plain model."
        )
    return f"{format_bytes(size)} of activations are not kept until then{costs}."


def _share_of_time(run: Run, requests: StepRequests, paths: Collection[str]) -> float | None:
    """Share of a step's time in which layers' results are computed again; None if the step's times
    are unknown.

    A result's request begins its op. The second run of some layers ends when the next gradient is
    requested."""
    line = _timeline_of(run, requests)
    rows = _repeated_rows(requests, paths)
    if line is None or line.duration_ns <= 0 or not rows:
        return None
    of_gradients = owned(requests, lambda owner: owner.category in GRADIENTS)
    gradients = np.append(np.sort(requests.birth[of_gradients]), requests.events)
    begins = np.sort(requests.birth[rows])
    ends, first = np.unique(gradients[np.searchsorted(gradients, begins)], return_index=True)
    taken = line.seconds_at(ends) - line.seconds_at(begins[first])
    return float(taken.sum()) * 1e9 / line.duration_ns


def _planned_again(run: Run, requests: StepRequests, paths: Collection[str]) -> int | None:
    """Bytes of layers' results that the buffer assignment of a compiled step has in the backward
    pass a second time.

    Their buffers bear names of the forward pass. None if the step's passes are unknown."""
    line = _timeline_of(run, requests)
    bands = () if line is None else line.bands
    begins = [band.start for band in bands if band.name == "backward"]
    if line is None or not begins:
        return None
    names = ("", *line.ops)
    rows = [
        row
        for row in np.flatnonzero(line.start >= begins[0]).tolist()
        if (owner := line.owners[int(line.owner[row])]).category in RESULTS
        and GRADIENT_OPS not in names[int(line.op[row]) + 1]
        and _is_inside(owner.layer, paths)
    ]
    return int((line.bytes[rows] - np.maximum(line.rounding_bytes[rows], 0)).sum())


def _timeline_of(run: Run, requests: StepRequests) -> Timeline | None:
    return next((one for one in run.timelines if _same_step(one, requests)), None)


def _same_step(one: Snapshot | Timeline, requests: StepRequests) -> bool:
    return (one.step, one.phase, one.device) == (requests.step, requests.phase, requests.device)


def _is_inside(layer: str | None, paths: Collection[str]) -> bool:
    return layer is not None and any(f"{layer}/".startswith(f"{path}/") for path in paths)


def _repeated_rows(requests: StepRequests, paths: Collection[str]) -> list[int]:
    """Rows of the layers' results that the backward pass computes again."""
    gradients = owned(requests, lambda owner: owner.category in GRADIENTS)
    begin = int(requests.birth[gradients].min(initial=requests.events))
    results = owned(
        requests, lambda owner: owner.category == "activations" and _is_inside(owner.layer, paths)
    )
    found: list[int] = np.flatnonzero(results & (requests.birth > begin)).tolist()
    return found


def _differences(resampled: Sequence[Layer]) -> list[str]:
    norms = [layer.path for layer in resampled if layer.type == _WITH_STATISTICS]
    drawing = [layer.path for layer in resampled if any(part in layer.type for part in _DRAWING)]
    sentences = []
    if norms:
        sentences.append(f"Each step updates the moving statistics of {first_of(norms)} twice.")
    if drawing:
        sentences.append(
            f"The second run of {first_of(drawing)} draws other random numbers, so gradients are "
            "wrong."
        )
    if sentences:
        sentences.append("`tb_memplugin.remat` recomputes layers without that.")
    return sentences
