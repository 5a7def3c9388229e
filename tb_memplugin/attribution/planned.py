"""An XLA module as a step: what the compiler planned, as a trace in which the arguments are there
before, and temporaries and results are allocated at its start.

Nothing of it is measured, except by whoever compares it with an allocator. The owners of arguments
come from the program, or from their names."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tb_memplugin.attribution.chunks import PLANNED
from tb_memplugin.attribution.scopes import LayerOf, facts_from_names, jax_scope
from tb_memplugin.attribution.step import AttributedStep
from tb_memplugin.attribution.window import layerless
from tb_memplugin.schema import (
    NO_INTERVALS,
    AllocationTrace,
    Argument,
    BatchFacts,
    Category,
    ChunkOwner,
    Module,
    OpFact,
    Phase,
    TensorFact,
    TraceFacts,
    VariableFact,
    format_bytes,
)

PLANNED_PS = 10**9
"""Length of a step whose time is unknown: 1 ms."""
_ALIGNMENT = 1 << 20  # of made-up addresses
_KEYS = re.compile(r"\['([^']+)'\]")
_KERAS = re.compile(r"state\[(\d)\]\[\d+\]")
_BY_WORD: dict[str, Category] = {
    **dict.fromkeys(("opt", "opts", "opt_state", "opt_states", "optimizer"), "optimizer_state"),
    **dict.fromkeys(("params", "weights", "model", "batch_stats"), "weights"),
    **dict.fromkeys(("rng", "rngs", "key", "seed", "step", "metrics"), "other_state"),
    **dict.fromkeys(("data", "batch", "x", "y", "inputs", "images", "labels", "mask"), "inputs"),
}
"""Words in the names of arguments by which programs that use JAX name them."""


def planned_step(
    module: Module,
    owners: Sequence[ChunkOwner],
    *,
    device: str,
    step: int,
    phase: Phase | None = None,
    wall_time: float,
    layer_of: LayerOf | None = None,
    trainable: Mapping[str, bool] | None = None,
    batch_size: int | None = None,
    capacity_bytes: int | None = None,
    notes: tuple[str, ...] = (),
) -> AttributedStep:
    """The step of a module with the owners of its arguments. Without a phase, it is training if a
    backward pass is in it. `layer_of` gives the layer that a scope is in; by default, the scope
    stands for it. `trainable` is by layer."""
    address = np.cumsum([0, *(_aligned(one.bytes) for one in module.arguments)]).tolist()
    variables, tensors = [], []
    for number, (one, owner) in enumerate(zip(module.arguments, owners, strict=True)):
        shape, dtype = ((), "") if one.shape is None else (one.shape.shape, one.shape.dtype)
        at, category = address[number] + _ALIGNMENT, owner.category
        if category in ("weights", "optimizer_state", "other_state"):
            name = f"{one.name}#{number}"
            known = owner.layer, owner.trainable, one.bytes, device, at, at, shape, dtype
            variables.append(VariableFact(name, category, *known))
        elif category in ("inputs", "held_tensors", "unattributed"):
            tensors.append(TensorFact(category, one.bytes, at, shape, dtype))
    named = zip(module.arguments, owners, strict=True)
    of_arguments = {one.name: OpFact(owner.layer, "other") for one, owner in named}
    trace = _trace(module, device, address[-1] + 2 * _ALIGNMENT)
    by_name = facts_from_names(trace, of_arguments, layer_of)
    facts = TraceFacts(
        mode="xla",
        trainable=trainable or {},
        graphs=by_name.graphs,
        variables=tuple(variables),
        tensors=tuple(tensors),
        batch=BatchFacts(batch_size, named=batch_size is not None),
        notes=(described_plan(module), *notes),
    )
    ops = by_name.graphs[0].ops.values()
    phase = phase or ("train" if any(one.pass_name == "backward" for one in ops) else "predict")
    return AttributedStep(
        trace, facts, step=step, phase=phase, wall_time=wall_time, capacity_bytes=capacity_bytes
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def described_plan(module: Module) -> str:
    figures = ", ".join(f"{name} {format_bytes(size)}" for name, size in plan_of(module).items())
    return f"Planned by XLA, not measured: module {module.name}, {figures}."


def plan_of(module: Module) -> dict[str, int]:
    """What XLA plans for a module: bytes by kind. Arguments and results in the same memory are
    aliases."""
    kept = [one.bytes for one in module.allocations if one.output]
    aliases = sum(one.bytes for one in module.arguments if one.returned)
    return {
        "arguments": sum(one.bytes for one in module.arguments if not one.constant),
        "results": sum(kept) + aliases,
        "aliases": aliases,
        "temporaries": sum(one.bytes for one in module.allocations) - sum(kept),
    }


def _trace(module: Module, device: str, base: int) -> AllocationTrace:
    sizes = [one.bytes for one in module.allocations]
    freed = [row for row, one in enumerate(module.allocations) if not one.output]
    before = sum(one.bytes for one in module.arguments)
    place = base + np.cumsum([0, *map(_aligned, sizes)], dtype=np.int64)[:-1]
    row = np.asarray([*range(len(sizes)), *freed], np.int64)
    kind = np.where(np.arange(len(row)) < len(sizes), 1, -1)
    size = np.asarray(sizes, np.int64)[row]
    none = np.full(len(row), -1)
    in_use = before + np.cumsum(kind * size)
    return AllocationTrace(
        device=device,
        allocator=PLANNED,
        time_ps=np.where(kind == 1, 0, PLANNED_PS),
        kind=kind,
        address=place[row],
        allocated=size,
        requested=size,
        op=none,
        region=none,
        shape=none,
        dtype=np.zeros(len(row), np.int64),
        in_use=in_use,
        available=np.zeros(len(row), np.int64),
        fragmentation=np.full(len(row), np.nan),
        thread=np.zeros(len(row), np.int64),
        strings=(),
        ops=NO_INTERVALS,
        calls=NO_INTERVALS,
        layers=NO_INTERVALS,
        threads=("",),
        start_in_use=before,
        missed=0,
        modules=(module,),
    )


def owners_by_name(module: Module) -> list[ChunkOwner]:
    """The owners of a module's arguments by the names that the program gave them, and by the layer
    whose forward ops read a weight, if only one does."""
    names = [name for one in module.arguments for name in one.readers]
    names += [name for one in module.allocations for buffer in one.buffers for name in buffer.ops]
    scopes = {jax_scope(name)[0] for name in names}
    return [_owner(one, scopes) for one in module.arguments]


def _owner(argument: Argument, scopes: set[str]) -> ChunkOwner:
    if argument.constant:
        return layerless("other_state")
    words = re.findall(r"[A-Za-z_]\w*", argument.name)
    keras = _KERAS.fullmatch(argument.name)
    trainable: bool | None = None
    category: Category = "unattributed"
    if keras is not None:  # trainable weights, others, slots, metrics
        known: tuple[Category, ...] = ("weights", "weights", "optimizer_state", "other_state")
        category = known[min(int(keras[1]), 3)]
        if category == "weights":
            if argument.shape is None or "float" in argument.shape.dtype:
                trainable = keras[1] == "0"
            else:  # a seed
                category = "other_state"
    else:
        category = next((_BY_WORD[word] for word in words if word in _BY_WORD), category)
    if category not in ("weights", "optimizer_state"):
        return layerless(category)
    layer = _layer_by_keys(_KEYS.findall(argument.name)[:-1], scopes)
    if layer is None and category == "weights":
        layer = _only(argument.readers)
    return ChunkOwner(layer, category, trainable)


def _layer_by_keys(keys: Sequence[str], scopes: set[str]) -> str | None:
    """The scope of a parameter's keys; the keys if several scopes, or none, end with them."""
    path = "/".join(keys)
    found = [one for one in scopes if one == path or one.endswith(f"/{path}")]
    return found[0] if len(found) == 1 and path else path or None


def _only(readers: Sequence[str]) -> str | None:
    found = set()
    for name in readers:
        scope, transforms = jax_scope(name)
        if "transpose" not in transforms and "jvp" in transforms:
            found.add(scope)
    return found.pop() or None if len(found) == 1 else None
