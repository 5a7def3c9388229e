"""Whether the replicas of a program have met: why a step of theirs can be traced, or not.

TensorFlow's profiler (up to 2.21) joins the two ends of an event through a pointer to one that it
may have copied and freed, if the event ended on another thread than it began on
(`SplitEventTracker` in traceme_recorder.cc); now and then, that crashes the process. The only such
event is that in which the replicas of a group find each other, once for each collective operation
(`BaseCollectiveExecutor::CompleteParamsAsync`). In one process, and in the first worker of several,
it ends where it began once the group has met: `CollectiveParamResolverLocal` lets only the replicas
that come before the last one wait, in the first operation of their group. Every other worker asks
the first one, and goes on in the thread that receives the answer, in every operation."""

from typing import Any

from tb_memplugin.recorder.base import asked, attribute
from tb_memplugin.recorder.watch.layers import variables_of
from tb_memplugin.recorder.watch.notes import call_notes
from tb_memplugin.recorder.watch.variable_values import replicas


class Replicas:
    """The replicas of a model, asked anew only after a change."""

    def __init__(self) -> None:
        self._most: tuple[Any, int] = None, 1  # values of a variable, by the model's signature
        self._met = (-1, False), False  # whether they have, by what that depends on

    def count(self, model: Any, signature: Any) -> int:
        """How many train, in or out of the scope of their strategy. A model that changes has
        another `signature`; None if it is unknown."""
        import tensorflow as tf

        if signature is None or self._most[0] != signature:
            variables = () if model is None else variables_of(model, "variables")
            counts = (len(asked(one, replicas) or ()) for one in variables)
            self._most = signature, max(counts, default=1)
        strategy = attribute(model, "distribute_strategy") or tf.distribute.get_strategy()
        in_sync: int = asked(strategy, getattr, "num_replicas_in_sync") or 1
        return max(in_sync, self._most[1])

    def met(self, traces: int, trains: bool) -> bool:
        """`replicas_met`, after so many traces of functions."""
        if self._met[0] != (traces, trains):
            self._met = (traces, trains), replicas_met(trains)
        return self._met[1]


def replicas_met(trains: bool) -> bool:
    """Whether no group of replicas can meet for the first time in a step of functions that all ran
    before; `trains` is whether such a step changes variables. All groups of one process are one, as
    `MirroredStrategy` names each of them 1."""
    certain: list[bool] = []
    for graph in list(call_notes.graphs):
        found = asked(graph, _operations)
        certain += [False] if found is None else found
    # Without an update, the function that has the operations may still be missing.
    return any(certain) or (not certain and (not trains or bool(call_notes.optimizers)))


def _operations(graph: Any) -> list[bool]:
    """Of each collective operation of a graph, whether it runs whenever its function does."""
    found = [op for op in graph.get_operations() if op.type.startswith("Collective")]
    return [not _in_branch(graph)] * len(found)


def _in_branch(graph: Any) -> bool:
    """Whether the ops of a graph need not have run, although its function did."""
    while graph is not None:
        if type(graph).__name__ == "CondBranchFuncGraph":
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
