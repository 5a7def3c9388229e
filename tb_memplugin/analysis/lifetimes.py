"""Allocator events to chunks with a birth and a death."""

import dataclasses
import re
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.model import Integers
from tb_memplugin.trace import AllocationTrace

Booleans: TypeAlias = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Chunks that were born or died in a window; columns of equal length, births in order, then those that were there
    before.

    Attributes:
        address, allocated: Of the chunk.
        requested: Bytes asked for; -1 for chunks that were there before the window and whose deallocation does not say.
        birth: Number of the allocating event, -1 for chunks that were there before.
        death: Number of the freeing event, the number of events for chunks that outlive the window.
        strays: Deallocations that cannot be: of a chunk already freed, or of another size than was allocated.
    """

    address: Integers
    allocated: Integers
    requested: Integers
    birth: Integers
    death: Integers
    strays: int

    def __len__(self) -> int:
        return len(self.address)

    def live(self, event: int) -> Integers:
        """Chunks that are there after an event (-1: when the window opened), without those that no event speaks of."""
        return np.flatnonzero((self.birth <= event) & (self.death > event))


def chunks(trace: AllocationTrace) -> Chunks:
    """The chunks of a trace: each allocation with the next deallocation of its address."""
    count = len(trace)
    events = np.arange(count)
    by_address = np.lexsort((events, trace.address))
    address, kind, size = trace.address[by_address], trace.kind[by_address], trace.allocated[by_address]
    same_as_next = np.zeros(count, bool)
    same_as_next[:-1] = address[:-1] == address[1:]
    freed_next = same_as_next & (kind == 1)
    freed_next[:-1] &= kind[1:] == -1
    death = np.full(count, count)
    death[by_address[freed_next]] = by_address[np.flatnonzero(freed_next) + 1]
    after_alloc = np.zeros(count, bool)
    after_alloc[1:] = freed_next[:-1]
    first = np.ones(count, bool)
    first[1:] = ~same_as_next[:-1]
    before = (kind == -1) & first
    strays = int(((kind == -1) & ~after_alloc & ~first).sum())
    strays += int((freed_next[:-1] & (size[:-1] != size[1:])).sum())
    strays += int(((kind[:-1] == 1) & same_as_next[:-1] & (kind[1:] == 1)).sum())
    born, old = np.flatnonzero(trace.kind == 1), np.sort(by_address[before])
    both = np.concatenate([born, old])
    return Chunks(
        address=trace.address[both],
        allocated=trace.allocated[both],
        requested=trace.requested[both],
        birth=np.concatenate([born, np.full(len(old), -1)]),
        death=np.concatenate([death[born], old]),
        strays=strays,
    )


def readers(trace: AllocationTrace) -> Integers:
    """For each event, the op execution (row of `trace.ops`) that began last on the event's thread before it, -1 for
    none.

    TensorFlow's executor drops an op's inputs on the op's thread, right after it ran: for a deallocation, this is the
    last reader.
    """
    found = np.full(len(trace), -1)
    ops = trace.ops
    for thread in distinct(trace.thread):
        rows = np.flatnonzero(ops.thread == thread)
        events = np.flatnonzero(trace.thread == thread)
        if len(rows):
            place = np.searchsorted(ops.start_ps[rows], trace.time_ps[events], side="right") - 1
            found[events] = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
    return found


INPUT_THREAD = "tf_data"
"""What the names of the input pipeline's threads begin with."""
_INPUT_OPS = frozenset({"IteratorGetNext", "optional", "OptionalGetValue", "OptionalFromValue", "Iterator"})
_RECEIVED = "SameWorkerRecvDone"
"""What TensorFlow calls the copy of a tensor that another device's op sent."""
_SENT = ":_Send"
_DEALS = "MultiDeviceIterator"
_ARGUMENT = re.compile(r"placeholder(_\d+)?")


def input_events(trace: AllocationTrace) -> Booleans:
    """Which events are allocations of the input pipeline.

    Made on a tf.data thread, or by the op that takes a batch from it, or for a copy of what that op sent from another
    device: known where nothing else sent anything in the window.
    """
    threads = np.asarray([name.startswith(INPUT_THREAD) for name in trace.threads] or [False])
    names = np.zeros(len(trace.strings) + 1, bool)
    for index in distinct(trace.op).tolist():
        names[index] = index >= 0 and _takes_batch(trace.strings[index])
    if _RECEIVED in trace.strings and _sends_batches_only(trace):
        names[trace.strings.index(_RECEIVED)] = True
    found: Booleans = (threads[trace.thread] | names[trace.op]) & (trace.kind == 1)
    return found


def _takes_batch(name: str) -> bool:
    return name.rpartition("/")[2].rstrip("_0123456789") in _INPUT_OPS


def _sends_batches_only(trace: AllocationTrace) -> bool:
    """Whether all that was sent from device to device was a batch.

    It came from the op that takes one (``IteratorGetNext/_3``), or, where an iterator deals out batches to several
    devices, from the argument of the function in which it does (``placeholder_1/_5``).
    """
    ran = {trace.strings[index] for index in set(trace.ops.name.tolist())}
    senders = [name.removesuffix(_SENT).rpartition("/") for name in ran if name.endswith(_SENT)]
    names = [scope or name for scope, _, name in senders]
    deals = any(name.startswith(_DEALS) for name in ran)
    return bool(names) and all(_takes_batch(name) or (deals and _ARGUMENT.fullmatch(name)) for name in names)
