"""The finding on layers that the recorded training itself runs again in the backward pass. Pure."""

import statistics
from collections.abc import Collection, Sequence

import numpy as np

from tb_memplugin.schema import (
    GRADIENT_OPS,
    GRADIENTS,
    RESULTS,
    Layer,
    Run,
    Snapshot,
    StepRequests,
    Timeline,
    counted,
    format_bytes,
    full_device_name,
    owned,
)

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
