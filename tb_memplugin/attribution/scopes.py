"""Layers and passes by name scopes alone, for a profile that was made without the recorder."""

import re

from tb_memplugin.attribution.names import buffers_of, op_name, texts
from tb_memplugin.schema import AllocationTrace, GraphFacts, OpFact, Pass, TraceFacts

NOTE = (
    "Layer paths are unknown: the profile was made without the recorder. TensorFlow's name scopes "
    "are shown instead; they can bear another layer's name."
)
_CALL = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_GRADIENT = re.compile(r"(?:^|/)gradient(?:_tape|s)/")
_OPTIMIZERS = re.compile(
    r"^(?:adam|adamw|adamax|adagrad|adadelta|adafactor|nadam|sgd|rmsprop|ftrl|lion|lamb|muon|loss_scale_optimizer)(?:_\d+)?/",
    re.IGNORECASE,
)
_NO_LAYER = re.compile(r"^(?:compile_loss|loss|metrics|Iterator|cond|while)\b")


def facts_from_names(trace: AllocationTrace) -> TraceFacts:
    """Layers and passes of a trace's ops, by their names."""
    names = texts(trace, trace.op).union(map(op_name, texts(trace, trace.ops.name)))
    for buffer in buffers_of(*trace.modules):
        names.update((*buffer.ops, *buffer.readers))
    scopes = {_scope(_CALL.sub("", name)) for name in names if not _GRADIENT.search(name)}
    ops = {name: _fact(_CALL.sub("", name), scopes) for name in names}
    graph = GraphFacts("", ops, {}, True)
    return TraceFacts(
        mode="eager" if len(trace.layers) else "graph", graphs=(graph,), notes=(NOTE,)
    )


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _fact(name: str, scopes: set[str]) -> OpFact:
    if _OPTIMIZERS.match(name):
        return OpFact(None, "update")
    gradient = _GRADIENT.search(name)
    pass_name: Pass = "forward"
    scope = _scope(name)
    if gradient:
        pass_name, scope = "backward", name[gradient.end() :]
        while scope and scope not in scopes:
            scope = _scope(scope)
    if not scope or _NO_LAYER.match(scope):
        return OpFact(None, pass_name if gradient or scope else "other")
    return OpFact(scope, pass_name)
