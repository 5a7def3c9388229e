"""The allocations of the input pipeline among a trace's events. Pure."""

import re
from collections.abc import Collection
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.model.basics import distinct
from tb_memplugin.model.trace import AllocationTrace

Booleans: TypeAlias = npt.NDArray[np.bool_]

INPUT_THREAD = "tf_data"
"""Prefix of the names of the input pipeline's threads."""
_INPUT_OPS = frozenset({"IteratorGetNext", "optional", "OptionalGetValue", "OptionalFromValue", "Iterator"})
_RECEIVED = "SameWorkerRecvDone"
"""TensorFlow's op name for the copy of a tensor that an op on another device sent."""
_SENT = ":_Send"
_DEALS = "MultiDeviceIterator"
_REMOTE = "RemoteCall"
_ARGUMENT = re.compile(r"placeholder(_\d+)?")


def input_events(trace: AllocationTrace, arguments: Collection[str] = ()) -> Booleans:
    """Whether each event is an allocation of the input pipeline, shape [events].

    Such an allocation is made on a tf.data thread, by the op that takes a batch, or for a batch received from another
    device. The last is known only if nothing but batches was sent in the window.

    Args:
        trace: The window's trace.
        arguments: `TraceFacts.arguments`, with which a custom loop passes batches.
    """
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
    """Whether only batches were sent between devices.

    The sender of a batch is the op that takes it (``IteratorGetNext/_3``), an argument of the function that Python
    called (``images/_3``) or, with an iterator over several devices, of one that this function calls
    (``placeholder_1/_5``). Without any sender, the batch comes from the host through
    ``tf.data.experimental.prefetch_to_device``.
    """
    ran = {trace.strings[index] for index in set(trace.ops.name.tolist())}
    senders = [name.removesuffix(_SENT).rpartition("/") for name in ran if name.endswith(_SENT)]
    names = [scope or name for scope, _, name in senders]
    if not names:
        return any(name.startswith(_REMOTE) for name in ran)
    deals = any(name.startswith(_DEALS) for name in ran)
    return all(_takes_batch(name) or name in arguments or (deals and _ARGUMENT.fullmatch(name)) for name in names)
