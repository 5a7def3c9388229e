"""Builds the layer table of a Keras model and detects when it changes."""

import dataclasses
import itertools
import time
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.model import Layer, LayerTable
from tb_memplugin.model.layers import Recomputed
from tb_memplugin.recorder.observe.graph.call_notes import call_notes
from tb_memplugin.recorder.observe.graph.keras_packages import dtype_name
from tb_memplugin.recorder.observe.model.layers import own_variables, variable_bytes, variables_of, walk
from tb_memplugin.recorder.observe.model.optimizer import all_variables, slots

Outputs: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
"""Shape (−1 for an unknown dimension) and dtype of each output of a layer's first call."""


def build_layer_table(model: Any, optimizer: Any, *, step: int, previous: LayerTable | None) -> LayerTable:
    """The current layer table of `model`, without output sizes (`with_output_bytes` adds them).

    Args:
        model: A Keras model; unbuilt layers have no weights.
        optimizer: Its optimizer, if any.
        step: First step for which the table holds.
        previous: The table that it replaces; the table's reason describes the change.
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
            recomputed=_recomputed(node.layer),
        )
        for node in nodes
    )
    weights = {id(variable) for variables in owned.values() for variable in variables}
    other_state = sum(
        variable_bytes(variable) for variable in variables_of(model, "variables") if id(variable) not in weights
    )
    other_state += sum(variable_bytes(variable) for variable in _metric_variables(model))
    return LayerTable(
        step=step,
        wall_time=time.time(),
        reason=describe_change(previous, layers, type(optimizer).__name__ if optimizer is not None else None),
        layers=layers,
        optimizer=None if optimizer is None else type(optimizer).__name__,
        other_optimizer_bytes=other_optimizer,
        other_state_bytes=other_state,
    )


def _recomputed(layer: Any) -> Recomputed | None:
    exact = call_notes.recomputed.get(layer)
    return None if exact is None else "exact" if exact else "anew"


def _recomputed_ids(model: Any) -> frozenset[int]:
    """Identities of the model's layers that are recomputed; those of other models come and go."""
    known = call_notes.recomputed
    return frozenset(id(node.layer) for node in walk(model) if node.layer in known) if known else frozenset()


def outputs_by_layer(model: Any) -> dict[str, Outputs]:
    """Outputs of each layer by its path; empty if Keras does not know them."""
    return {node.path: _outputs(node.layer) for node in walk(model)}


def with_output_bytes(table: LayerTable, outputs: Mapping[str, Outputs], batch_size: int | None) -> LayerTable:
    """`table` with the total output bytes of each layer's first call; None where a dimension is unknown.

    Args:
        table: A table of the model.
        outputs: The model's `outputs_by_layer`.
        batch_size: Replaces an unknown first dimension.
    """
    layers = tuple(
        dataclasses.replace(layer, output_bytes=_output_bytes(outputs.get(layer.path, ()), batch_size))
        for layer in table.layers
    )
    return dataclasses.replace(table, layers=layers)


def signature(model: Any, optimizer: Any) -> Hashable:
    """A value that changes whenever the layer table does; cheap enough to compute every few seconds."""
    return (
        id(model),
        tuple(id(variable) for variable in variables_of(model, "weights")),
        frozenset(id(variable) for variable in variables_of(model, "trainable_variables")),
        id(optimizer),
        0 if optimizer is None else len(all_variables(optimizer)),
        _recomputed_ids(model),
    )


def describe_change(previous: LayerTable | None, layers: tuple[Layer, ...], optimizer: str | None) -> str:
    """What changed since the previous table, such as "conv became trainable"."""
    if previous is None:
        return "recording began"
    before = {layer.path: layer for layer in previous.layers}
    after = {layer.path: layer for layer in layers}
    unfrozen = [path for path in after if path in before and _became(before[path], after[path], True)]
    frozen = [path for path in after if path in before and _became(before[path], after[path], False)]
    parts = []
    if unfrozen:
        parts.append(f"{_list(unfrozen)} became trainable")
    if frozen:
        parts.append(f"{_list(frozen)} became frozen")
    again = [path for path in after if path in before and after[path].recomputed and not before[path].recomputed]
    if again:
        parts.append(f"{_list(again)} run{'' if len(again) > 1 else 's'} again in the backward pass")
    if set(after) - set(before):
        parts.append(f"{_list([path for path in after if path not in before])} appeared")
    if set(before) - set(after):
        parts.append(f"{_list([path for path in before if path not in after])} disappeared")
    if not parts and sum(x.weight_bytes for x in layers) != sum(x.weight_bytes for x in previous.layers):
        parts.append("weights were created")
    if not parts and (previous.optimizer != optimizer or _slot_bytes(previous.layers) != _slot_bytes(layers)):
        parts.append(f"optimizer {optimizer} was built" if optimizer else "the optimizer was removed")
    return "; ".join(parts) or "the model was compiled again"


def _became(before: Layer, after: Layer, trainable: bool) -> bool:
    # A layer without weights follows its model's flag, which changes no bytes.
    return after.weight_bytes > 0 and before.trainable != after.trainable and after.trainable == trainable


def _slot_bytes(layers: tuple[Layer, ...]) -> int:
    return sum(layer.optimizer_bytes for layer in layers)


def _list(paths: list[str]) -> str:
    names = [path.rsplit("/", 1)[-1] for path in paths]
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    )


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


def _metric_variables(model: Any) -> list[Any]:
    known = {id(variable) for variable in variables_of(model, "variables")}
    variables = []
    for metric in getattr(model, "metrics", ()):
        for variable in metric.variables:
            if id(variable) not in known:
                known.add(id(variable))
                variables.append(variable)
    return variables


def _layer(path: str, layer: Any, own: list[Any], trainable_ids: set[int], optimizer_bytes: int) -> Layer:
    trainable = [weight for weight in own if id(weight) in trainable_ids]
    outputs = _outputs(layer)
    shape, dtype = outputs[0] if outputs else (None, None)
    return Layer(
        path=path,
        type=type(layer).__name__,
        trainable=bool(trainable) if own else bool(getattr(layer, "trainable", True)),
        parameters=sum(_elements(tuple(weight.shape)) for weight in own),
        weight_bytes=sum(variable_bytes(weight) for weight in own),
        trainable_weight_bytes=sum(variable_bytes(weight) for weight in trainable),
        optimizer_bytes=optimizer_bytes,
        output_shape=shape,
        output_dtype=dtype,
        output_bytes=None,
    )


def _outputs(layer: Any) -> Outputs:
    import keras

    nodes = getattr(layer, "_inbound_nodes", None)
    if not nodes:
        return ()
    return tuple(
        (tuple(-1 if size is None else int(size) for size in output.shape), dtype_name(output.dtype))
        for output in keras.tree.flatten(nodes[0].outputs)
    )


def _output_bytes(outputs: Outputs, batch_size: int | None) -> int | None:
    total = 0
    for shape, dtype in outputs:
        filled = [batch_size if at == 0 and size == -1 and batch_size else size for at, size in enumerate(shape)]
        if -1 in filled:
            return None
        total += _elements(tuple(filled)) * _item_bytes(dtype)
    return total if outputs else None


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _item_bytes(dtype: str) -> int:
    import numpy as np

    return {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(dtype) or np.dtype(dtype).itemsize


def recomputable_units(model: Any) -> dict[str, int]:
    """Path of a layer inside the model to its number, as `Layer.unit` has it; empty if the layer graph is unknown.

    Numbers go on by one between neighbors that can be recomputed together, and by two where they cannot.
    """
    import keras

    if not isinstance(model, keras.Model):
        return {}
    try:
        from tb_memplugin.recomputation.segments import cut_points, is_graph, segments_between

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
