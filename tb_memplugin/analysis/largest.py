"""The layer with the most bytes at the moment that is looked at first, with its largest tensors.
Pure."""

import dataclasses
from collections import Counter
from collections.abc import Collection

from tb_memplugin.schema import Oom, Phase, Run, Snapshot, TensorGroup, TensorShape, format_bytes

MAX_TENSORS = 10
"""Most groups of tensors that are named."""
LARGE_SHARE = 0.2
"""A sentence names groups of tensors with at least this share of the bytes that it is about."""
_NUMBERS = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


@dataclasses.dataclass(frozen=True)
class EqualTensors(TensorShape):
    """Tensors of one shape and dtype; `bytes` are the requested bytes of all of them, `layers`
    those that made them."""

    count: int
    bytes: int
    layers: tuple[str, ...]

    def text(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        number = _NUMBERS[self.count - 1] if 0 < self.count <= len(_NUMBERS) else f"{self.count:,}"
        return f"{number} tensor{'s' if self.count != 1 else ''} of ({sizes})"


@dataclasses.dataclass(frozen=True)
class LargestLayer:
    """The layer with the most bytes at the newest failure of a device, or else at its highest
    traced peak.

    Attributes:
        step, phase: Of the failure or the peak; None for a failure outside of steps.
        at_failure: Whether it is a failure.
        layer: Layer path.
        name: Its shortest end that no other layer has.
        bytes: All allocated bytes of the layer, without those of layers inside it.
        share: `bytes` as a share of the bytes in use.
        tensors: Its largest tensors with known shapes, the largest group first.
        sentence: Name, bytes, share and the largest tensors."""

    step: int | None
    phase: Phase | None
    at_failure: bool
    layer: str
    name: str
    bytes: int
    share: float
    tensors: tuple[EqualTensors, ...]
    sentence: str


def largest_layer(run: Run, device: str, phase: Phase) -> LargestLayer | None:
    """The largest layer on a device; None without a breakdown, or without a layer in it. Failures
    of each phase count, peaks of one."""
    failures = [oom for oom in run.ooms if oom.device == device and oom.ledger]
    traced = [
        one
        for one in run.snapshots
        if (one.device, one.phase, one.at_failure) == (device, phase, False)
    ]
    newest: Oom | Snapshot | None = max(failures, key=lambda oom: oom.wall_time, default=None)
    return _largest_at(
        newest or max(traced, key=lambda one: (one.in_use_bytes, -one.step), default=None)
    )


def largest_at_failure(run: Run) -> tuple[float, LargestLayer] | None:
    """Wall time and largest layer of the newest failure with a breakdown, on any device; None
    without one."""
    newest = max(
        (oom for oom in run.ooms if oom.ledger), key=lambda oom: oom.wall_time, default=None
    )
    found = _largest_at(newest)
    return None if newest is None or found is None else (newest.wall_time, found)


def _largest_at(moment: Oom | Snapshot | None) -> LargestLayer | None:
    if moment is None or not moment.in_use_bytes:
        return None
    sums: Counter[str] = Counter()
    for row in moment.ledger:
        if row.layer is not None:
            sums[row.layer] += row.bytes
    if not sums:
        return None
    ((layer, size),) = sums.most_common(1)
    tensors = equal_tensors([one for one in moment.largest_tensors if one.layer == layer])
    share = size / moment.in_use_bytes
    name = short_name(layer, sums)
    sentence = f"{name} {format_bytes(size)} ({share:.0%})".replace("%", " %")
    named = tensors_text(tensors, size)
    sentence += f": {named}" if named else ""
    place = moment.step, moment.phase, isinstance(moment, Oom)
    return LargestLayer(*place, layer, name, size, share, tensors, sentence)


@dataclasses.dataclass(frozen=True)
class RequestContents:
    """The largest tensors inside a failed request of a compiled module, and a sentence on them."""

    tensors: tuple[EqualTensors, ...]
    sentence: str


def request_contents(oom: Oom) -> RequestContents | None:
    """None for other requests, and if the shapes of their tensors are unknown."""
    tensors, size = equal_tensors(oom.request_tensors), oom.requested_bytes
    if not tensors or not size:
        return None
    text = f"{format_bytes(size)} requested; most of it: "
    text = text if 2 * tensors[0].bytes > size else text.replace("most of it", "the largest")
    owners = tensors[0].layers
    of = f" of {len(owners)} layers" if len(owners) > 1 else f" of {owners[0]}" if owners else ""
    return RequestContents(
        tensors, f"{text}{tensors[0].text()}{of}, {format_bytes(tensors[0].bytes)}."
    )


def equal_tensors(groups: Collection[TensorGroup]) -> tuple[EqualTensors, ...]:
    """The largest groups of equal shape and dtype, whatever their owners."""
    counts: Counter[TensorShape] = Counter()
    sizes: Counter[TensorShape] = Counter()
    layers: dict[TensorShape, dict[str, None]] = {}
    for one in groups:
        counts[TensorShape(one.shape, one.dtype)] += one.count
        sizes[TensorShape(one.shape, one.dtype)] += one.bytes
        if one.layer is not None:
            layers.setdefault(TensorShape(one.shape, one.dtype), {})[one.layer] = None
    most = sizes.most_common(MAX_TENSORS)
    return tuple(
        EqualTensors(same.shape, same.dtype, counts[same], size, tuple(layers.get(same, ())))
        for same, size in most
    )


def tensors_text(tensors: Collection[EqualTensors], whole_bytes: int) -> str:
    """The large tensors among those of `whole_bytes`, at most two groups; empty if none is
    large."""
    large = [one.text() for one in tensors if one.bytes >= LARGE_SHARE * whole_bytes]
    return " and ".join(large[:2])


def short_name(layer: str, layers: Collection[str]) -> str:
    """The shortest end of a layer path that no other path has."""
    parts = layer.split("/")
    ends = ("/".join(parts[at:]) for at in range(len(parts) - 1, 0, -1))
    return next(
        (end for end in ends if sum(f"/{one}".endswith(f"/{end}") for one in layers) == 1), layer
    )
