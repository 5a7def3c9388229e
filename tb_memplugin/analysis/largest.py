"""The layer with the most bytes at the moment that is looked at first, or else the category, with
its largest tensors. Pure."""

import dataclasses
from collections.abc import Collection, Iterable

from tb_memplugin.analysis.composition import snapshots_of
from tb_memplugin.schema import (
    Finding,
    FindingKind,
    Oom,
    Phase,
    Run,
    Snapshot,
    TensorGroup,
    TensorShape,
    format_bytes,
    full_device_name,
    sums_by,
)

MAX_TENSORS = 10
"""Most groups of tensors that are named."""
RELEVANT_SHARE = 0.05
"""Less than this share of the bytes in use explains nothing: no layer with less is named, but the
largest category, and no change by less is a cause or a waste."""
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
    traced peak; the category with the most bytes if no layer has the `RELEVANT_SHARE`.

    Attributes:
        step, phase: Of the failure or the peak; None for a failure outside of steps.
        at_failure: Whether it is a failure.
        layer: Layer path; None for a category.
        name: Its shortest end that no other layer has, or the category.
        bytes: All allocated bytes of the layer, without those of layers inside it; or of the
            category.
        share: `bytes` as a share of the bytes in use.
        tensors: Its largest tensors with known shapes, the largest group first.
        sentence: Name, bytes, share and the largest tensors."""

    step: int | None
    phase: Phase | None
    at_failure: bool
    layer: str | None
    name: str
    bytes: int
    share: float
    tensors: tuple[EqualTensors, ...]
    sentence: str


def largest_layer(run: Run, device: str, phase: Phase) -> LargestLayer | None:
    """The largest layer on a device; None without a breakdown, or without a layer in it. Failures
    of each phase count, peaks of one."""
    traced = [one for one in snapshots_of(run, device, phase) if not one.at_failure]
    highest = max(traced, key=lambda one: (one.in_use_bytes, -one.step), default=None)
    return _largest_at(_newest(oom for oom in run.ooms if oom.device == device) or highest)


def largest_at_failure(run: Run) -> tuple[float, LargestLayer] | None:
    """Wall time and largest layer of the newest failure with a breakdown, on any device; None
    without one."""
    newest = _newest(run.ooms)
    found = _largest_at(newest)
    return None if newest is None or found is None else (newest.wall_time, found)


def _newest(ooms: Iterable[Oom]) -> Oom | None:
    """The newest failure with a breakdown."""
    return max((oom for oom in ooms if oom.ledger), key=lambda oom: oom.wall_time, default=None)


def _largest_at(moment: Oom | Snapshot | None) -> LargestLayer | None:
    if moment is None or not moment.in_use_bytes:
        return None
    sums = sums_by(moment.ledger, lambda row: row.layer)
    del sums[None]
    if not sums:
        return None
    layer: str | None
    ((layer, size),) = sums.most_common(1)
    name, largest = short_name(layer, sums), moment.largest_tensors
    tensors = equal_tensors([one for one in largest if one.layer == layer])
    if size < RELEVANT_SHARE * moment.in_use_bytes:
        layer, categories = None, sums_by(moment.ledger, lambda row: row.category)
        ((category, size),) = categories.most_common(1)
        name = category.replace("_", " ")
        tensors = equal_tensors([one for one in largest if one.category == category])
    share = size / moment.in_use_bytes
    sentence = f"{name} {format_bytes(size)} ({share:.0%})".replace("%", " %")
    named = tensors_text(tensors, size)
    sentence += f": {named}" if named else ""
    place = moment.step, moment.phase, isinstance(moment, Oom)
    return LargestLayer(*place, layer, name, size, share, tensors, sentence)


def finding(
    kind: FindingKind,
    sentence: str,
    worker: str,
    device: str | None = None,
    since_step: int | None = None,
    step: int | None = None,
    size: float | None = None,
    peak_bytes: int | None = None,
) -> Finding:
    """A finding on a device by its worker's name for it, on so many bytes of a peak. The sentence
    begins with the device's name."""
    share = None if size is None or not peak_bytes else size / peak_bytes
    return Finding(
        kind,
        worker,
        None if device is None else full_device_name(worker, device),
        since_step,
        step,
        None if size is None else round(size),
        share,
        minor=share is not None and share < RELEVANT_SHARE,
        sentence=sentence,
    )


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
    largest, owners = tensors[0], tensors[0].layers
    part = "most of it" if 2 * largest.bytes > size else "the largest"
    of = f" of {len(owners)} layers" if len(owners) > 1 else "".join(f" of {one}" for one in owners)
    found = f"{largest.text()}{of}, {format_bytes(largest.bytes)}"
    return RequestContents(tensors, f"{format_bytes(size)} requested; {part}: {found}.")


def equal_tensors(groups: Collection[TensorGroup]) -> tuple[EqualTensors, ...]:
    """The largest groups of equal shape and dtype, whatever their owners."""
    alike: dict[tuple[tuple[int, ...], str], list[TensorGroup]] = {}
    for one in groups:
        alike.setdefault((one.shape, one.dtype), []).append(one)
    equal = [
        EqualTensors(
            *same,
            count=sum(one.count for one in own),
            bytes=sum(one.bytes for one in own),
            layers=tuple(dict.fromkeys(one.layer for one in own if one.layer is not None)),
        )
        for same, own in alike.items()
    ]
    return tuple(sorted(equal, key=lambda one: -one.bytes)[:MAX_TENSORS])


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
