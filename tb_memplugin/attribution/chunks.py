"""Turns allocator events, and the memory map before them, into chunks with a birth and a death."""

import dataclasses
import re
from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator import rounded_bytes
from tb_memplugin.schema import IN_USE, AllocationTrace, Integers, TraceFacts, distinct

Booleans: TypeAlias = npt.NDArray[np.bool_]

PLANNED = "XLA's plan"
"""Allocator of a trace that is a compiler's plan: nothing is rounded in it."""
INPUT_THREAD = "tf_data"
"""Prefix of the names of the input pipeline's threads."""
_INPUT_OPS = frozenset(
    {"IteratorGetNext", "optional", "OptionalGetValue", "OptionalFromValue", "Iterator"}
)
_RECEIVED = "SameWorkerRecvDone"
"""TensorFlow's op name for the copy of a tensor that an op on another device sent."""
_SENT = ":_Send"
_DEALS = "MultiDeviceIterator"
_REMOTE = "RemoteCall"
_ARGUMENT = re.compile(r"placeholder(_\d+)?")


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Chunks of a window: columns of equal length, first the chunks allocated in it in order, then
    the older ones.

    Attributes:
        requested: Requested bytes; -1 for older chunks if the deallocation does not say.
        birth: Number of the allocating event, -1 for chunks allocated before the window.
        death: Number of the freeing event, the number of events for chunks that outlive the window.
        unmatched_frees: Deallocations of a chunk already freed, or with another size than was
            allocated."""

    address: Integers
    allocated: Integers
    requested: Integers
    birth: Integers
    death: Integers
    unmatched_frees: int

    def __len__(self) -> int:
        return len(self.address)

    def live(self, event: int) -> list[int]:
        """Chunks in use after an event (-1: when the window opened)."""
        live: list[int] = np.flatnonzero((self.birth <= event) & (self.death > event)).tolist()
        return live


def all_chunks(trace: AllocationTrace, facts: TraceFacts) -> Chunks:
    """The chunks of a trace, with those that stay in use throughout: from the memory map, or else
    from Python, with rounded requests."""
    base = event_chunks(trace)
    old = base.birth == -1
    if trace.start_map is None:
        left = trace.start_in_use - int(base.allocated[old].sum())
        round_up = rounded_bytes if trace.allocator != PLANNED else int
        permanent = _known_to_python(facts, set(base.address[old].tolist()), left, round_up)
    else:
        start = trace.start_map
        columns = np.stack([start.address, start.bytes, start.requested_bytes])
        listed = columns[:, start.state == IN_USE]
        place = np.searchsorted(listed[0], base.address[old])
        base.requested[old] = listed[2][place]  # not every deallocation has it
        permanent = np.delete(listed, place, axis=1)
    count = permanent.shape[1]
    address, allocated, requested = permanent
    return Chunks(
        address=np.append(base.address, address),
        allocated=np.append(base.allocated, allocated),
        requested=np.append(base.requested, requested),
        birth=np.append(base.birth, np.full(count, -1)),
        death=np.append(base.death, np.full(count, len(trace))),
        unmatched_frees=base.unmatched_frees,
    )


def _known_to_python(
    facts: TraceFacts, freed: set[int], left: int, round_up: Callable[[int], int]
) -> Integers:
    """Rows of address, allocated and requested bytes of variables and held tensors that the window
    does not free. What does not fit into the bytes `left`, which no event accounts for, is left
    out."""
    variables = {fact.start_address: fact.requested_bytes for fact in facts.variables}
    tensors = {fact.address: fact.requested_bytes for fact in facts.tensors}
    others = {address: size for address, size in tensors.items() if address not in variables}
    rows: list[tuple[int, int, int]] = []
    for known in (variables, others):
        more = [
            (address, round_up(size), size)
            for address, size in known.items()
            if address is not None and address not in freed and size
        ]
        total = sum(size for _, size, _ in more)
        if total <= left:
            rows += more
            left -= total
    columns: Integers = np.asarray(rows, np.int64).reshape(-1, 3).T
    return columns


def event_chunks(trace: AllocationTrace) -> Chunks:
    """The chunks that appear in events: each allocation with the next deallocation of its
    address."""
    count = len(trace)
    order = np.argsort(trace.address, kind="stable")
    address, kind, size = (one[order] for one in (trace.address, trace.kind, trace.allocated))
    # of each event but the last: whether the next one of its address is the next in this order
    same = address[:-1] == address[1:]
    freed_next = same & (kind[:-1] == 1) & (kind[1:] == -1)
    unmatched = same & ((kind[:-1] == kind[1:]) | (freed_next & (size[:-1] != size[1:])))
    death = np.full(count, count)
    death[order[:-1][freed_next]] = order[1:][freed_next]
    is_first = np.ones(count, bool)
    is_first[1:] = ~same
    born, old = np.flatnonzero(trace.kind == 1), np.sort(order[is_first & (kind == -1)])
    both = np.concatenate([born, old])
    return Chunks(
        address=trace.address[both],
        allocated=trace.allocated[both],
        requested=trace.requested[both],
        birth=np.concatenate([born, np.full(len(old), -1)]),
        death=np.concatenate([death[born], old]),
        unmatched_frees=int(unmatched.sum()),
    )


def peak_event(trace: AllocationTrace) -> int:
    """Number of the event after which most bytes are in use, -1 if that is before the first."""
    peak = int(np.argmax(trace.in_use)) if len(trace) else -1
    return peak if peak >= 0 and int(trace.in_use[peak]) > trace.start_in_use else -1


def readers(trace: AllocationTrace) -> Integers:
    """For each event, the op execution (row of `trace.ops`) that last began on its thread, -1 for
    none. For a deallocation this is the chunk's last reader: TensorFlow's executor drops an op's
    inputs on the op's thread right after the op ran."""
    reader = np.full(len(trace), -1)
    ops = trace.ops
    for thread in distinct(trace.thread):
        rows = np.flatnonzero(ops.thread == thread)
        events = np.flatnonzero(trace.thread == thread)
        if len(rows):
            place = np.searchsorted(ops.start_ps[rows], trace.time_ps[events], side="right") - 1
            reader[events] = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
    return reader


# --- the input pipeline
# -----------------------------------------------------------------------------------------------


def input_events(trace: AllocationTrace, arguments: Collection[str] = ()) -> Booleans:
    """Whether each event is an allocation of the input pipeline, shape [events]: made on a tf.data
    thread, by the op that takes a batch, or for a batch received from another device. A custom loop
    passes batches with `arguments`."""
    threads = np.asarray([name.startswith(INPUT_THREAD) for name in trace.threads] or [False])
    names = np.zeros(len(trace.strings) + 1, bool)
    for index in distinct(trace.op).tolist():
        names[index] = index >= 0 and _takes_batch(trace.strings[index])
    if _RECEIVED in trace.strings and _sends_batches_only(trace, arguments):
        names[trace.strings.index(_RECEIVED)] = True
    inputs: Booleans = (threads[trace.thread] | names[trace.op]) & (trace.kind == 1)
    return inputs


def _takes_batch(name: str) -> bool:
    return name.rpartition("/")[2].rstrip("_0123456789") in _INPUT_OPS


def _sends_batches_only(trace: AllocationTrace, arguments: Collection[str]) -> bool:
    """Whether only batches were sent between devices: else a received tensor may be anything.

    The sender of a batch is the op that takes it (``IteratorGetNext/_3``), an argument of the
    function that Python called (``images/_3``) or, with an iterator over several devices, of one
    that this function calls (``placeholder_1/_5``). Without any sender, it comes from the host
    through ``tf.data.experimental.prefetch_to_device``."""
    ran = {trace.strings[index] for index in set(trace.ops.name.tolist())}
    senders = [name.removesuffix(_SENT).rpartition("/") for name in ran if name.endswith(_SENT)]
    if not senders:
        return any(name.startswith(_REMOTE) for name in ran)
    deals = any(name.startswith(_DEALS) for name in ran)
    return all(
        _takes_batch(name) or name in arguments or (deals and _ARGUMENT.fullmatch(name))
        for name in (scope or name for scope, _, name in senders)
    )
