"""The finding on layers that the recorded training itself runs again in the backward pass. Pure."""

from collections.abc import Collection, Iterator, Sequence

from tb_memplugin.model import GRADIENTS, Layer, Run, StepRequests, full_device_name
from tb_memplugin.model.units import counted, format_bytes

MAX_NAMES = 3
"""Most names of layers in a list, the first ones."""
_WITH_STATISTICS = "BatchNormalization"
_DRAWING = ("Dropout", "Noise")
"""In the names of the types of layers that draw random numbers in training."""


def recomputation_finding(run: Run, device: str, worker: str = "") -> str | None:
    """What `keras.RematScope` or `tf.recompute_grad` save, and what they change; None if no layer is in one.

    Layers that `remat` recomputes train as they would without it: there is nothing to find.

    Args:
        run: The run of one worker, with its requests.
        device: The device.
        worker: The worker's name.
    """
    table = run.layer_tables[-1].layers if run.layer_tables else ()
    anew = [layer for layer in table if layer.recomputed == "anew"]
    requests = next((one for one in reversed(run.requests) if (one.device, one.phase) == (device, "train")), None)
    if not anew or requests is None:
        return None
    paths = [layer.path for layer in anew]
    outermost = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    runs = f"{counted(len(outermost), 'layer')} run{'' if len(outermost) > 1 else 's'} again in the backward pass"
    first = f"{full_device_name(worker, device)}: {runs} ({_listed(outermost)}). {_saving(requests, paths)}"
    return " ".join([first, *_differences(anew)])


def _saving(requests: StepRequests, paths: Collection[str]) -> str:
    if requests.mode == "xla":
        return "XLA compiled the step and may have merged both runs: compare its peak with that of the plain model."
    size = sum(int(requests.requested[row]) for row in _repeated_rows(requests, paths))
    return f"{format_bytes(size)} of activations are not kept until then."


def _repeated_rows(requests: StepRequests, paths: Collection[str]) -> Iterator[int]:
    """Rows of the layers' results that the backward pass computes again."""
    birth = requests.birth.tolist()
    owners = [requests.owners[owner] for owner in requests.owner.tolist()]
    gradients = [birth[row] for row, owner in enumerate(owners) if owner.category in GRADIENTS]
    begin = min(gradients, default=requests.events)
    for row, owner in enumerate(owners):
        inside = owner.layer is not None and any(f"{owner.layer}/".startswith(f"{path}/") for path in paths)
        if inside and owner.category == "activations" and birth[row] > begin:
            yield row


def _differences(anew: Sequence[Layer]) -> list[str]:
    """In what a second run differs from the first one: sentences."""
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
