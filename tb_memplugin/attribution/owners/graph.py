"""Graph mode: op names tell which op requested a chunk, and which ran when it was freed."""

import bisect
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.trace.window import Window
from tb_memplugin.model import Integers
from tb_memplugin.model.trace import OpFact, Pass


class LayerRun(NamedTuple):
    """One execution of an op of a layer, or one of its allocations; `name` is an index, times are in picoseconds."""

    pass_name: Pass
    name: int
    begin_ps: int
    end_ps: int


class GraphExecution:
    """Makers and passes of the chunks of one window, by op names.

    Attributes:
        forward_ends: Times in picoseconds at which a forward pass ended.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._has_layers: bool | None = None
        self._makers: dict[int, OpFact | None] = {}
        self.forward_ends: Integers = self._find_forward_ends()
        self._ends: list[int] = sorted(self.forward_ends.tolist())

    def _find_forward_ends(self) -> Integers:
        return _ends(self.layer_runs(allocating=True))

    def maker(self, chunk: int) -> OpFact | None:
        """Facts of the op that made a chunk: the requesting op, or the one that was running on the thread."""
        if chunk not in self._makers:
            self._makers[chunk] = self._find_maker(chunk)
        return self._makers[chunk]

    def _find_maker(self, chunk: int) -> OpFact | None:
        window = self._window
        birth, name = window.birth[chunk], window.op_name(chunk)
        if birth < 0:
            return None
        fact = None if name is None else window.names.fact(name)
        return self._running(birth) if fact is None else fact

    def _running(self, birth: int) -> OpFact | None:
        trace, names = self._window.trace, self._window.names
        running = self._window.reader[birth]
        if running < 0 or trace.ops.end_ps[running] < trace.time_ps[birth]:
            return None
        return names.fact(names.executed[int(trace.ops.name[running])])

    def requested_by_op(self, chunk: int) -> bool:
        """Whether an op of the program requested a chunk, and not one of TensorFlow's own, e.g. a sum over replicas."""
        name = self._window.op_name(chunk)
        return name is not None and self._window.names.fact(name) is not None

    def freed_by_backward(self, chunk: int) -> bool:
        """Whether a chunk's last reader is in the backward pass."""
        return self._window.last_reader_pass(chunk) == "backward"

    def kept_by_tape(self, chunk: int) -> bool:
        """Whether a GradientTape keeps a forward result beyond its backward pass; graph mode has no such tape."""
        return False

    def lives_at_forward_end(self, chunk: int) -> bool:
        """Whether a chunk that was allocated and freed in the window was in use when a forward pass ended."""
        window = self._window
        if window.outlives(chunk):
            return False
        end = self.next_forward_end(window.birth[chunk])
        return end is not None and end < window.time[window.death[chunk]]

    def next_forward_end(self, event: int) -> int | None:
        """When the first forward pass ended that ended at an event or after it; None if none did."""
        place = bisect.bisect_left(self._ends, self._window.time[event])
        return self._ends[place] if place < len(self._ends) else None

    def layer_runs(self, allocating: bool = False) -> list[LayerRun]:
        """Executions of layers' ops, in order.

        The host does not see executions on an accelerator: there, the ops' allocations stand for them.

        Args:
            allocating: Whether ops that request no memory may be missing; of these, only updates count at all.
        """
        trace, names = self._window.trace, self._window.names
        executed = {
            index: self._layer_pass(name)
            for index, name in names.executed.items()
            if not allocating or name in self._window.allocating
        }
        passes = {index: name for index, name in executed.items() if name is not None}
        if any(name != "update" for name in passes.values()):
            ops = trace.ops
            rows = np.flatnonzero(np.isin(ops.name, list(passes)))
            rows = rows[np.argsort(ops.start_ps[rows], kind="stable")]
            columns = (ops.name[rows].tolist(), ops.start_ps[rows].tolist(), ops.end_ps[rows].tolist())
            return self._timely(LayerRun(passes[name], *row) for name, *row in zip(columns[0], *columns, strict=True))
        allocated = {index: self._layer_pass(trace.strings[index]) for index in set(self._window.op) if index >= 0}
        born = np.flatnonzero((trace.kind == 1) & (trace.op >= 0))
        times = zip(trace.op[born].tolist(), trace.time_ps[born].tolist(), strict=True)
        runs = ((allocated[name], name, time) for name, time in times)
        return self._timely(
            LayerRun(pass_name, name, time, time) for pass_name, name, time in runs if pass_name is not None
        )

    def _timely(self, runs: Iterable[LayerRun]) -> list[LayerRun]:
        """The runs without those of the loss that began in the backward pass, such as the sum over the examples.

        Without layers the loss cannot be told from the model. There, an op of the backward pass that needs nothing of
        the forward pass may come first.
        """
        if not self._forward_has_layers():
            return list(runs)
        timely: list[LayerRun] = []
        returned = False
        for run in runs:
            of_loss = run.pass_name == "forward" and self._is_loss(run.name)
            if of_loss and returned:
                continue
            if run.pass_name != "update":
                returned = run.pass_name == "backward"
            timely.append(run)
        return timely

    def _is_loss(self, name: int) -> bool:
        """Whether a forward op belongs to no layer, by the index of its execution or of its own name."""
        names = self._window.names
        fact = names.fact(names.executed.get(name, self._window.trace.strings[name]))
        return fact is not None and fact.layer is None

    def _forward_has_layers(self) -> bool:
        """Whether an op of the forward pass that requests memory belongs to a layer."""
        if self._has_layers is None:
            facts = map(self._window.names.fact, self._window.allocating)
            self._has_layers = any(fact and fact.pass_name == "forward" and fact.layer for fact in facts)
        return self._has_layers

    def _layer_pass(self, name: str) -> Pass | None:
        """Pass of an op of a layer or the loss; None for other ops, and for those that may run long before their pass.

        The backward pass reads what ops of the loss make, and not what those of metrics do. In a program without
        layers, such as a `tf.Module`, every op counts.
        """
        fact = self._window.names.fact(name)
        if fact is None or fact.relayout or fact.early or fact.pass_name == "other":
            return None
        of_loss = fact.pass_name == "forward" and fact.saved_for_backward
        if fact.layer is None and not of_loss and self._forward_has_layers():
            return None
        return fact.pass_name if fact.pass_name == "update" or name in self._window.allocating else None


def _ends(runs: Iterable[LayerRun]) -> Integers:
    """Times at which the last forward op before backward ops ended; runs are in the order in which they begin.

    A forward op that no backward op waits for (e.g. a moving average's) may still run, or be suspended, during the
    backward pass: then the forward pass ended when that began. The op's own end counts too, as backward ops need not
    have waited for the others.
    """
    times: list[int] = []
    last: int | None = None
    overlapped = False
    for run in runs:
        if run.pass_name == "forward":
            last, overlapped = run.end_ps if last is None else max(last, run.end_ps), False
        elif run.pass_name == "backward" and last is not None:
            if last <= run.begin_ps:
                times.append(last)
                last, overlapped = None, False
            elif not overlapped:
                times.append(run.begin_ps)
                overlapped = True
    return np.asarray(times, dtype=np.int64)
