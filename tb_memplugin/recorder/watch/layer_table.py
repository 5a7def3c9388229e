"""Builds the layer table of a Keras model and detects when it changes."""

import dataclasses
import itertools
import math
import time
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.recorder.watch.call_notes import call_notes
from tb_memplugin.recorder.watch.layers import (
    all_variables,
    item_bytes,
    own_variables,
    slots,
    variable_bytes,
    variables_of,
    walk,
)
from tb_memplugin.schema import Layer, LayerTable

Outputs: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
"""Shape (−1 for an unknown dimension) and dtype of each output of a layer's first call; empty if unknown."""


def build_layer_table(model: Any, optimizer: Any, *, step: int, previous: LayerTable | None) -> LayerTable:
    """The layer table of a model as of a step, without output sizes (`with_output_bytes` adds them).

    Unbuilt layers have no weights. The table's reason describes the change from the `previous` one.
    """
    nodes = walk(model)
    owned = own_variables(nodes)
    by_layer, other_optimizer = _optimizer_bytes(optimizer, owned)
    trainable_ids = {id(variable) for variable in variables_of(model, "trainable_variables")}
    units = recomputable_units(model)
    root = f"{nodes[0].path}/" if nodes else ""
    layers = tuple(
        dataclasses.replace(
            _layer(node.path, node.layer, owned[node.path], trainable_ids, by_layer.get(node.path, 0)),
            unit=units.get(node.path.removeprefix(root)),
        )
        for node in nodes
    )
    variables = variables_of(model, "variables")
    metrics = [variable for metric in getattr(model, "metrics", ()) for variable in metric.variables]
    others = {id(variable): variable for variable in (*variables, *metrics)}
    for weight in itertools.chain(*owned.values()):
        others.pop(id(weight), None)
    name = None if optimizer is None else type(optimizer).__name__
    return LayerTable(
        step=step,
        wall_time=time.time(),
        reason=describe_change(previous, layers, name),
        layers=layers,
        optimizer=name,
        other_optimizer_bytes=other_optimizer,
        other_state_bytes=sum(map(variable_bytes, others.values())),
    )


def outputs_by_layer(model: Any) -> dict[str, Outputs]:
    return {node.path: _outputs(node.layer) for node in walk(model)}


def with_output_bytes(table: LayerTable, outputs: Mapping[str, Outputs], batch_size: int | None) -> LayerTable:
    """`table` with the total output bytes of each layer's first call; None where a dimension is unknown.

    `outputs` are the model's `outputs_by_layer`; the batch size replaces an unknown first dimension.
    """
    layers = tuple(
        dataclasses.replace(layer, output_bytes=_output_bytes(outputs.get(layer.path, ()), batch_size))
        for layer in table.layers
    )
    return dataclasses.replace(table, layers=layers)


def signature(model: Any, optimizer: Any) -> Hashable:
    """A value that changes whenever the layer table does; cheap enough to compute every few seconds."""
    recomputed = call_notes.recomputed  # those of other models come and go
    return (
        id(model),
        tuple(id(variable) for variable in variables_of(model, "weights")),
        frozenset(id(variable) for variable in variables_of(model, "trainable_variables")),
        id(optimizer),
        0 if optimizer is None else len(all_variables(optimizer)),
        frozenset(id(node.layer) for node in walk(model) if node.layer in recomputed) if recomputed else frozenset(),
    )


def describe_change(previous: LayerTable | None, layers: tuple[Layer, ...], optimizer: str | None) -> str:
    """What changed since the previous table, such as "conv became trainable"."""
    if previous is None:
        return "recording began"
    before = {layer.path: layer for layer in previous.layers}
    after = {layer.path: layer for layer in layers}
    both = [(before[path], layer) for path, layer in after.items() if path in before]
    # A layer without weights follows its model's flag, which changes no bytes.
    flags = [(new.path, new.trainable) for old, new in both if new.weight_bytes and old.trainable != new.trainable]
    again = [new.path for old, new in both if new.recomputed and not old.recomputed]
    changes = (
        ([path for path, trainable in flags if trainable], "became trainable"),
        ([path for path, trainable in flags if not trainable], "became frozen"),
        (again, f"run{'' if len(again) > 1 else 's'} again in the backward pass"),
        ([path for path in after if path not in before], "appeared"),
        ([path for path in before if path not in after], "disappeared"),
    )
    parts = [f"{_list(paths)} {change}" for paths, change in changes if paths]
    if not parts and sum(x.weight_bytes for x in layers) != sum(x.weight_bytes for x in previous.layers):
        parts.append("weights were created")
    slots_changed = sum(x.optimizer_bytes for x in layers) != sum(x.optimizer_bytes for x in previous.layers)
    if not parts and (previous.optimizer != optimizer or slots_changed):
        parts.append(f"optimizer {optimizer} was built" if optimizer else "the optimizer was removed")
    return "; ".join(parts) or "the model was compiled again"


def _list(paths: list[str]) -> str:
    names = [path.rsplit("/", 1)[-1] for path in paths]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _optimizer_bytes(optimizer: Any, owned: Mapping[str, list[Any]]) -> tuple[dict[str, int], int]:
    """(slot bytes by layer path, bytes of the optimizer's other variables)."""
    owner_of = {id(variable): path for path, variables in owned.items() for variable in variables}
    by_layer: dict[str, int] = {}
    other = 0
    for slot in slots(optimizer, itertools.chain(*owned.values())) if optimizer is not None else ():
        size = variable_bytes(slot.variable)
        path = owner_of.get(id(slot.of))
        if path is None:
            other += size
        else:
            by_layer[path] = by_layer.get(path, 0) + size
    return by_layer, other


def _layer(path: str, layer: Any, own: list[Any], trainable_ids: set[int], optimizer_bytes: int) -> Layer:
    trainable = [weight for weight in own if id(weight) in trainable_ids]
    outputs = _outputs(layer)
    shape, dtype = outputs[0] if outputs else (None, None)
    exact = call_notes.recomputed.get(layer)
    return Layer(
        path=path,
        type=type(layer).__name__,
        trainable=bool(trainable) if own else bool(getattr(layer, "trainable", True)),
        parameters=sum(math.prod(weight.shape) for weight in own),
        weight_bytes=sum(map(variable_bytes, own)),
        trainable_weight_bytes=sum(map(variable_bytes, trainable)),
        optimizer_bytes=optimizer_bytes,
        output_shape=shape,
        output_dtype=dtype,
        output_bytes=None,
        recomputed=None if exact is None else "exact" if exact else "anew",
    )


def _outputs(layer: Any) -> Outputs:
    import keras

    nodes = getattr(layer, "_inbound_nodes", None)
    return tuple(
        (
            tuple(-1 if size is None else int(size) for size in output.shape),
            str(getattr(output.dtype, "name", output.dtype)),
        )
        for output in (keras.tree.flatten(nodes[0].outputs) if nodes else ())
    )


def _output_bytes(outputs: Outputs, batch_size: int | None) -> int | None:
    total = 0
    for shape, dtype in outputs:
        filled = (batch_size, *shape[1:]) if shape[:1] == (-1,) and batch_size else shape
        if -1 in filled:
            return None
        total += math.prod(filled) * item_bytes(dtype)
    return total if outputs else None


def recomputable_units(model: Any) -> dict[str, int]:
    """Path of a layer inside the model to its number, as `Layer.unit` has it; empty if the layer graph is unknown.

    Numbers go on by one between neighbors that can be recomputed together, and by two where they cannot.
    """
    import keras

    if not isinstance(model, keras.Model):
        return {}
    try:
        from tb_memplugin.recorder.watch.segments import cut_points, is_graph, segments_between

        segments = segments_between(model, cut_points(model))
    except (MemoryPluginError, AttributeError, ImportError, TypeError, ValueError):
        return {}  # a graph of another version of Keras
    joins = is_graph(model)
    units: dict[str, int] = {}
    number, parent = -1, None
    for segment in segments:
        inside = segment[0].rpartition("/")[0]
        number += 1 if joins and inside == parent else 2
        parent = inside
        units.update(dict.fromkeys(segment, number))
    return units
