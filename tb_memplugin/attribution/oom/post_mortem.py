"""A failed allocation and its post-mortem: verdict and memory at failure. Pure."""

import dataclasses

from tb_memplugin.allocator import fit as bfc
from tb_memplugin.attribution.results import ledger_of
from tb_memplugin.schema import FailedDuring, MemoryMap, Oom, OomStatus, Phase, Verdict, format_bytes


@dataclasses.dataclass(frozen=True)
class OomEvent:
    """A failed allocation; fields as in `Oom`.

    Attributes:
        uncertain_bytes: By how much the actual request may be larger or smaller than `requested_bytes`.
        compiled: Whether a compiled module made the request, for all its layers at once.
        in_use_bytes, capacity_bytes: The allocator's figures, for a failure without its chunks.
    """

    identifier: str
    status: OomStatus
    device: str
    wall_time: float
    step: int | None = None
    phase: Phase | None = None
    requested_bytes: int | None = None
    op: str | None = None
    layer: str | None = None
    shape: str | None = None
    line: str | None = None
    uncertain_bytes: int = 0
    compiled: bool = False
    in_use_bytes: int | None = None
    capacity_bytes: int | None = None
    notes: tuple[str, ...] = ()
    during: FailedDuring | None = None


_SAME = (
    *("identifier", "status", "step", "phase", "during", "device", "wall_time", "requested_bytes"),
    *("op", "layer", "shape", "line"),
)


def post_mortem(
    event: OomEvent, memory_map: MemoryMap | None, batch_size: int | None = None, needed_bytes: int | None = None
) -> Oom:
    """The post-mortem of a failed allocation.

    The map has the chunks at the failure, with known owners. `needed_bytes` are what the step needs at least at once,
    even if free memory is in one piece.
    """
    if memory_map is None:
        in_use, pool_bytes, capacity = event.in_use_bytes, None, event.capacity_bytes
    else:
        in_use, pool_bytes, capacity = memory_map.in_use_bytes, memory_map.pool_bytes, memory_map.capacity_bytes
    pool = None if memory_map is None else bfc.pool_at(memory_map)
    free = None if in_use is None or capacity is None else max(0, capacity - in_use)
    verdict, reason = (None, "") if memory_map is None else _verdict(memory_map, event)
    if verdict == "fragmentation" and needed_bytes and capacity and needed_bytes > capacity:
        verdict = "capacity"
        needed = f"the step needs {format_bytes(needed_bytes)} of {format_bytes(capacity)}"
        reason += f" Even with free memory in one piece, {needed}."
    if pool is None and free is not None:
        verdict, reason = _verdict_by_limit(event, free)
    return Oom(
        **{name: getattr(event, name) for name in _SAME},
        free_bytes=free if pool is None else pool.free_bytes,
        # Chunks may be missing from an incomplete map.
        largest_free_bytes=pool.largest_free_bytes if pool and memory_map and memory_map.complete else None,
        in_use_bytes=in_use,
        pool_bytes=pool_bytes,
        capacity_bytes=capacity,
        verdict=verdict,
        reason=reason,
        ledger=() if memory_map is None else ledger_of(memory_map),
        map=memory_map,
        not_available=_not_available(event, memory_map),
        batch_size=batch_size,
    )


def _not_available(event: OomEvent, memory_map: MemoryMap | None) -> tuple[str, ...]:
    notes = [*event.notes, *(() if memory_map is None else memory_map.not_available)]
    if event.compiled:
        notes.append(
            "The request's layer is unknown: a compiled module requests the memory of all its layers in one piece."
        )
    if event.uncertain_bytes:
        notes.append(
            "The exact size of the request is unknown: TensorFlow's message rounds it, by at most "
            f"{format_bytes(event.uncertain_bytes)}."
        )
    if event.requested_bytes is None:
        notes.append("The size of the request is unknown: TensorFlow did not report it.")
    return tuple(dict.fromkeys(notes))


def _verdict_by_limit(event: OomEvent, free: int) -> tuple[Verdict | None, str]:
    """The verdict by the bytes of the limit that are not in use, for a failure without a known pool."""
    if event.requested_bytes is None:
        return None, f"The verdict is unknown: so is the size of the request, with {format_bytes(free)} free."
    figures = f"{format_bytes(event.requested_bytes)} requested; {format_bytes(free)} free."
    if event.requested_bytes - event.uncertain_bytes > free:
        return "capacity", figures
    return None, f"The verdict is unknown: the free chunks are. {figures}"


def _verdict(memory_map: MemoryMap, event: OomEvent) -> tuple[Verdict | None, str]:
    if event.requested_bytes is not None:
        least, most = (event.requested_bytes + sign * event.uncertain_bytes for sign in (-1, 1))
        verdict, reason = bfc.verdict(memory_map, event.requested_bytes)
        if bfc.verdict(memory_map, least)[0] == bfc.verdict(memory_map, most)[0]:
            return verdict, reason
        return None, f"The verdict is unknown: the request is not known exactly enough. {reason}"
    sizes = bfc.free_sizes(memory_map)
    largest = int(sizes.max()) if len(sizes) else 0
    if memory_map.complete and largest == int(sizes.sum()) and not bfc.unreserved_bytes(memory_map):
        return "capacity", (
            f"The size of the request is unknown, but more than the {format_bytes(largest)} free, which are a single "
            "chunk."
        )
    return None, (
        "The verdict is unknown: so is the size of the request, but it is more than the largest free chunk of "
        f"{format_bytes(largest)}, with {format_bytes(int(sizes.sum()))} free in total."
    )
