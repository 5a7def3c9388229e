"""The layer table of a model: what each layer has and makes, and why the table is a new one."""

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.recorder.base import (
    asked,
    is_a,
    own,
    own_list,
)
from tb_memplugin.recorder.watch.layers import (
    is_trainable,
    metrics_variables,
    own_variables,
    trainable_state,
    variables_of,
    walk,
)
from tb_memplugin.recorder.watch.notes import call_notes
from tb_memplugin.recorder.watch.segments import cut_points, is_graph, segments_of
from tb_memplugin.recorder.watch.slots import all_variables, slots
from tb_memplugin.recorder.watch.variable_values import parameters, variable_bytes
from tb_memplugin.schema import DTYPE_BYTES, CompiledWith, Layer, LayerTable, first_of

Outputs: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
"""Shape (−1 for an unknown dimension) and dtype of each output of a layer's first call; empty if
unknown."""


def build_layer_table(
    model: Any, optimizer: Any, *, step: int, previous: LayerTable | None
) -> LayerTable:
    """The layer table of a model as of a step, without output sizes. Unbuilt layers have no
    weights."""
    nodes = walk(model)
    owned = own_variables(nodes)
    weights = list(itertools.chain(*owned.values()))
    owner_of = {id(variable): path for path, variables in owned.items() for variable in variables}
    slot_bytes: Counter[str | None] = Counter()
    for slot in asked(optimizer, slots, weights) or ():
        slot_bytes[owner_of.get(id(slot.of))] += variable_bytes(slot.variable)
    trainable_ids = {id(variable) for variable in variables_of(model, "trainable_variables")}
    units = _recomputable_units(model)
    layers = []
    for path, layer in nodes:
        own = owned[path]
        trainable = [weight for weight in own if id(weight) in trainable_ids]
        shape, dtype = next(iter(outputs_of(layer)), (None, None))
        exact = call_notes.recomputed.get(layer)
        layers.append(
            Layer(
                path=path,
                type=type(layer).__name__,
                trainable=bool(trainable) if own else is_trainable(layer),
                parameters=sum(map(parameters, own)),
                weight_bytes=sum(map(variable_bytes, own)),
                trainable_weight_bytes=sum(map(variable_bytes, trainable)),
                optimizer_bytes=slot_bytes[path],
                output_shape=shape,
                output_dtype=dtype,
                output_bytes=None,
                recomputed=None if exact is None else "exact" if exact else "resampled",
                unit=units.get(path.removeprefix(f"{nodes[0].path}/")),
            )
        )
    others = {
        id(one): one for one in (*variables_of(model, "variables"), *metrics_variables(model))
    }
    name = None if optimizer is None else type(optimizer).__name__
    compiled_with = asked(model, _compiled_with)
    return LayerTable(
        step=step,
        wall_time=time.time(),
        reason=_change(previous, tuple(layers), name),
        layers=tuple(layers),
        optimizer=name,
        other_optimizer_bytes=slot_bytes[None],
        other_state_bytes=sum(
            variable_bytes(one) for key, one in others.items() if key not in owner_of
        ),
        compiled_with=compiled_with,
    )


def _compiled_with(model: Any) -> CompiledWith | None:
    if own(model, "optimizer") is None:
        return "none"
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return "tf_keras" if "tf_keras" in packages else "keras" if "keras" in packages else None


def with_output_bytes(
    table: LayerTable, outputs: Mapping[str, Outputs], batch_size: int | None
) -> LayerTable:
    """`table` with the total output bytes of each layer's first call; None where a dimension is
    unknown. The batch size replaces an unknown first dimension."""
    layers = []
    for layer in table.layers:
        filled = [
            ((batch_size, *shape[1:]) if shape[:1] == (-1,) and batch_size else shape, dtype)
            for shape, dtype in outputs.get(layer.path, ())
        ]
        total = sum(math.prod(shape) * DTYPE_BYTES.get(dtype, 0) for shape, dtype in filled)
        is_known = filled and all(
            -1 not in shape and dtype in DTYPE_BYTES for shape, dtype in filled
        )
        layers.append(dataclasses.replace(layer, output_bytes=total if is_known else None))
    return dataclasses.replace(table, layers=tuple(layers))


def signature(model: Any, optimizer: Any) -> Hashable:
    """A value that changes whenever the layer table does; cheap enough to compute every few
    seconds."""
    recomputed = call_notes.recomputed  # those of other models come and go
    return (
        trainable_state(model),
        id(optimizer),
        len(all_variables(optimizer)),
        frozenset(id(node.layer) for node in walk(model) if node.layer in recomputed)
        if recomputed
        else frozenset(),
    )


def _change(previous: LayerTable | None, layers: tuple[Layer, ...], optimizer: str | None) -> str:
    if previous is None:
        return "recording began"
    before, after = ({layer.path: layer for layer in table} for table in (previous.layers, layers))
    both = [(before[path], layer) for path, layer in after.items() if path in before]
    # A layer without weights follows its model's flag, which changes no bytes.
    flags = {
        new.path: new.trainable
        for old, new in both
        if new.weight_bytes and old.trainable != new.trainable
    }
    again = [new.path for old, new in both if new.recomputed and not old.recomputed]
    changes = {
        "became trainable": [path for path, trainable in flags.items() if trainable],
        "became frozen": [path for path, trainable in flags.items() if not trainable],
        f"run{'' if len(again) > 1 else 's'} again in the backward pass": again,
        "appeared": [path for path in after if path not in before],
        "disappeared": [path for path in before if path not in after],
    }
    parts = [
        f"{first_of([path.rsplit('/', 1)[-1] for path in paths])} {change}"
        for change, paths in changes.items()
        if paths
    ]
    if parts:
        return "; ".join(parts)
    if sum(x.weight_bytes for x in layers) != sum(x.weight_bytes for x in previous.layers):
        return "weights were created"
    slots_changed = sum(x.optimizer_bytes for x in layers) != sum(
        x.optimizer_bytes for x in previous.layers
    )
    if previous.optimizer != optimizer or slots_changed:
        return f"optimizer {optimizer} was built" if optimizer else "the optimizer was removed"
    return "the model was compiled again"


def outputs_of(layer: Any) -> Outputs:
    return asked(layer, _outputs) or ()


def _outputs(layer: Any) -> Outputs:
    import keras

    nodes = own_list(layer, "_inbound_nodes")
    return tuple(
        (
            tuple(-1 if size is None else int(size) for size in one.shape),
            str(getattr(one.dtype, "name", one.dtype)),
        )
        for one in (keras.tree.flatten(nodes[0].outputs) if nodes else ())
    )


def _recomputable_units(model: Any) -> dict[str, int]:
    """Path of a layer inside the model to its number, as `Layer.unit` has it; empty if the layer
    graph is unknown. Numbers go on by one between neighbors that can be recomputed together, and by
    two where they cannot."""
    import keras

    if not is_a(model, keras.Model):
        return {}
    try:
        segments = segments_of(model, cut_points(model))
    except (MemoryPluginError, AttributeError, ImportError, TypeError, ValueError):
        return {}  # a graph of another version of Keras
    units: dict[str, int] = {}
    number, parent = -1, None
    for segment in segments:
        before, parent = parent, segment[0].rpartition("/")[0]
        number += 1 if parent == before and is_graph(model) else 2
        units.update(dict.fromkeys(segment, number))
    return units
