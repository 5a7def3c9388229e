"""Layers by name scopes alone: with the passes for a profile that was made without the recorder,
and for XLA modules, whose op names are those of TensorFlow or JAX; and for programs without layers,
such as samplers and graphs of `tf.compat.v1.Session`."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tb_memplugin.attribution.names import buffers_of, op_name, texts
from tb_memplugin.schema import AllocationTrace, GraphFacts, OpFact, Pass, TraceFacts

NOTE = (
    "Layer paths are unknown: the profile was made without the recorder. TensorFlow's name scopes "
    "are shown instead; they can bear another layer's name."
)
_CALL = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_GRADIENT = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")
_LOOP = re.compile(r"(?:^|(?<=/))(?:while|cond)(?:_\d+)?(?:/|$)")
_OPTIMIZERS = re.compile(
    r"^(?:adam|adamw|adamax|adagrad|adadelta|adafactor|nadam|sgd|rmsprop|ftrl|lion|lamb|muon|loss_scale_optimizer)(?:_\d+)?/",
    re.IGNORECASE,
)
_NO_LAYER = re.compile(r"^(?:compile_loss|loss|metrics|Iterator|cond|while)\b")
_JAX = re.compile(r"^p?(?:jit|map)\(")
_TRANSFORMED = re.compile(r"(\w+)\((.*)\)")
_CALLS = re.compile(
    r"(?:while|body|cond|scan|checkpoint|remat|closed_call|core_call|eval_jaxpr|branch_\d+_fun|"
    r"custom_[jv][vj]p_call(?:_jaxpr)?)?"
)
"""Parts of a JAX name that are no scope of the program: control flow and calls of functions."""
_RECOMPUTED = "rematted_computation"

LayerOf = Callable[[str], str | None]
"""The path of the layer that a scope is in; None without one."""


def facts_from_names(
    trace: AllocationTrace,
    arguments: Mapping[str, OpFact] | None = None,
    layer_of: LayerOf | None = None,
) -> TraceFacts:
    """Layers and passes of a trace's ops, by their names. `arguments` are the facts of the names of
    a module's arguments; by default, a layer is the scope itself."""
    names = texts(trace, trace.op).union(map(op_name, texts(trace, trace.ops.name)))
    for buffer in buffers_of(*trace.modules):
        names.update((*buffer.ops, *buffer.readers, *buffer.arguments))
    scopes = {_scope(_CALL.sub("", name)) for name in names if not in_gradient_scope(name)}
    is_training = any(_JAX.match(name) and "transpose(jvp(" in name for name in names)
    ops = {}
    for name in names:
        if _JAX.match(name):
            ops[name] = _jax_fact(name, is_training, layer_of)
        else:
            ops[name] = _fact(_CALL.sub("", name), scopes)
    graph = GraphFacts("", ops | dict(arguments or {}), {}, True)
    return TraceFacts(
        mode="eager" if len(trace.layers) else "graph",
        graphs=(graph,),
        notes=() if arguments is not None else (NOTE,),
    )


def named_by_scope(
    graphs: Sequence[GraphFacts], known: Collection[str | None]
) -> Iterator[GraphFacts]:
    """The graphs of a program without layers, with the name scopes of ops as layers: below a
    `known` scope, which has variables, the latter."""
    names = (name for graph in graphs for name in graph.ops)
    scopes = {_scope(name) for name in names if not in_gradient_scope(name)}
    for graph in graphs:
        ops = {name: _in_scope(name, fact, scopes, known) for name, fact in graph.ops.items()}
        yield dataclasses.replace(graph, ops=ops, by_scope=True)


def _in_scope(
    name: str, fact: OpFact, scopes: Collection[str], known: Collection[str | None]
) -> OpFact:
    if fact.layer is not None or fact.pass_name == "update":
        return fact
    whole = scope = _LOOP.sub("", _forward_scope(name, scopes)).rstrip("/")
    while scope and scope not in known:
        scope = _scope(scope)
    return dataclasses.replace(fact, layer=scope or whole or None)


def in_gradient_scope(name: str) -> bool:
    """Whether TensorFlow made an op for a gradient, by its name."""
    return _GRADIENT.search(name) is not None


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _forward_scope(name: str, scopes: Collection[str]) -> str:
    """The name scope of an op; of a gradient's op that of the forward op which its name has."""
    gradient = _GRADIENT.search(name)
    if gradient is None:
        return _scope(name)
    scope = name[gradient.end() :]
    while scope and scope not in scopes:
        scope = _scope(scope)
    return scope


def _fact(name: str, scopes: set[str]) -> OpFact:
    if _OPTIMIZERS.match(name):
        return OpFact(None, "update")
    of_gradient = in_gradient_scope(name)
    scope = _forward_scope(name, scopes)
    pass_name: Pass = "backward" if of_gradient else "forward"
    if not scope or _NO_LAYER.match(scope):
        return OpFact(None, pass_name if of_gradient or scope else "other")
    return OpFact(scope, pass_name)


def _jax_fact(name: str, is_training: bool, layer_of: LayerOf | None) -> OpFact:
    """Facts of ``jit(train_step)/transpose(jvp(block))/dense/dot_general``: scope and primitive,
    the scopes within the transformations that were applied."""
    scope, transforms = jax_scope(name)
    is_backward = "transpose" in transforms or _RECOMPUTED in transforms
    pass_name: Pass = "backward" if is_backward else "forward"
    if _OPTIMIZERS.match(f"{scope}/"):
        return OpFact(None, "update")
    if not scope and is_training and "jvp" not in transforms:
        return OpFact(None, "update")
    if layer_of is not None:
        layer = layer_of(scope)
    else:
        layer = None if _NO_LAYER.match(scope) else scope or None
    return OpFact(layer, pass_name, gradient_free=_RECOMPUTED in transforms)


def jax_scope(name: str) -> tuple[str, set[str]]:
    """The scope of a name, such as ``block/dense``, and the transformations and calls in it."""
    scopes: list[str] = []
    transforms = set()
    for part in name.split("/")[:-1]:
        while transformed := _TRANSFORMED.fullmatch(part):
            transforms.add(transformed[1])
            # the name of a jitted function is no scope
            part = "" if _JAX.match(part) else transformed[2]
        if part == _RECOMPUTED:
            transforms.add(part)
        # an einsum's equation; a recomputed function repeats the scope that it is in
        elif not (_CALLS.fullmatch(part) or "," in part or "->" in part or part in scopes[:1]):
            scopes.append(part)
    return "/".join(scopes), transforms
