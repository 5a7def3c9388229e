"""What Keras's steps on JAX planned: the compiled modules of the process, with the owners of their
arguments, which are the model's variables. JAX's objects differ by version: each is asked for what
it has."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tb_memplugin.attribution import AttributedStep, planned_step
from tb_memplugin.importers import Totals, read_dumped_module
from tb_memplugin.recorder.watch import own_variables, slots, variable_bytes, variables_of, walk
from tb_memplugin.schema import Argument, ChunkOwner, Phase, TensorShape

STEPS: Mapping[Phase, str] = {
    "train": "jit_train_step",
    "validation": "jit_test_step",
    "predict": "jit_predict_step",
}
MAX_ARRAYS = 200
"""Most groups of other arrays with shapes of their own, the largest ones."""
_STATE = re.compile(r"state\[(\d+)\]\[(\d+)\]")
_LISTS = ("trainable_variables", "non_trainable_variables", "optimizer", "metrics_variables")


class Known(NamedTuple):
    """A variable of a model: what it is as an argument, and its owner."""

    argument: Argument
    owner: ChunkOwner


class Variables(NamedTuple):
    """The variables of a model by the place in a step's state, and its layers with what of them is
    trained."""

    lists: Mapping[str, Sequence[Known]]
    trainable: Mapping[str, bool]

    def of(self, phase: Phase) -> list[Sequence[Known]]:
        names = [one for one in _LISTS if phase == "train" or one != "optimizer"]
        return [self.lists[one] for one in (names[:2] if phase == "predict" else names)]


def variables_of_model(model: Any) -> Variables:
    nodes = walk(model)
    owned = own_variables(nodes)
    trained = {id(one) for one in variables_of(model, "trainable_variables")}
    owners = {
        id(one): ChunkOwner(path, "weights", id(one) in trained)
        for path, variables in owned.items()
        for one in variables
    }
    optimizer = model.optimizer
    for slot in slots(optimizer):
        served = owners.get(id(slot.of))
        layer = None if served is None else served.layer
        trainable = None if served is None else served.trainable
        owners[id(slot.variable)] = ChunkOwner(layer, "optimizer_state", trainable)
    other = ChunkOwner(None, "other_state", None)
    lists = {name: getattr(model, name) for name in _LISTS if name != "optimizer"}
    lists["optimizer"] = [] if optimizer is None else optimizer.variables
    return Variables(
        {
            name: [Known(_argument(one), owners.get(id(one), other)) for one in variables]
            for name, variables in lists.items()
        },
        {path: any(id(one) in trained for one in variables) for path, variables in owned.items()},
    )


def _argument(variable: Any) -> Argument:
    shape = TensorShape(tuple(map(int, variable.shape)), str(variable.dtype))
    return Argument(str(variable.path), variable_bytes(variable), shape)


class Compiled(NamedTuple):
    """A compiled function: its module as XLA dumps it, for a GPU without a buffer assignment, and
    XLA's totals."""

    data: bytes
    totals: Totals


class CompiledStep(NamedTuple):
    """A step's module, and what else was on the device then."""

    phase: Phase
    module: Compiled
    variables: Variables
    others: Sequence[Argument]


def compiled_steps(device: Any, seen: set[Any]) -> Iterator[tuple[Phase, Compiled]]:
    """The modules of Keras's steps that are not among those `seen`, which they are added to."""
    for one in device.client.live_executables():
        key = getattr(one, "fingerprint", None) or one.unsafe_executable_pointer()
        if key in seen:
            continue
        seen.add(key)
        (module,) = one.hlo_modules()
        phases = [phase for phase, name in STEPS.items() if name == module.name]
        if phases:
            yield phases[0], serialized(one)


def serialized(executable: Any) -> Compiled:
    (module,) = executable.hlo_modules()
    stats = executable.get_compiled_memory_stats()
    plan = stats.serialized_buffer_assignment_proto
    parts = ((1, module.as_serialized_hlo_module_proto()), (3, plan))  # by fields of an HloProto
    data = b"".join(_field(number, part) for number, part in parts if part)
    outside = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    live = getattr(stats, "peak_memory_in_bytes", 0) - outside
    return Compiled(data, Totals(stats.temp_size_in_bytes, live))


def _field(number: int, content: bytes) -> bytes:
    size, length = len(content), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def other_arrays(device: Any, state: Iterable[Any]) -> list[Argument]:
    """Live arrays on a device that are in no state of a step, by shape. JAX also lists those that
    wait for Python's collector, whose memory is in use, too: of each, only JAX's own device, shape,
    type and state are read."""
    import jax

    arrays = [one for one in jax.live_arrays() if one.devices() == {device}]
    known = {
        leaf.unsafe_buffer_pointer()
        for leaf in state
        if isinstance(leaf, jax.Array) and not leaf.is_deleted()
    }
    sizes: dict[TensorShape, int] = {}
    for one in arrays:
        if not one.is_deleted() and one.unsafe_buffer_pointer() not in known:
            shape = TensorShape(tuple(one.shape), str(one.dtype))
            sizes[shape] = sizes.get(shape, 0) + int(one.nbytes)
    largest = sorted(sizes.items(), key=lambda pair: -pair[1])
    return [Argument("", size, shape) for shape, size in largest[:MAX_ARRAYS] if size]


def plan(compiled: CompiledStep, device: str, **about: Any) -> AttributedStep | None:
    """The step of a module; None if its state is not that of the model."""
    module = read_dumped_module(*compiled.module)
    lists = compiled.variables.of(compiled.phase)
    owners: list[ChunkOwner] = []
    left = {(number, at): one for number, own in enumerate(lists) for at, one in enumerate(own)}
    for argument in module.arguments:
        place = _STATE.fullmatch(argument.name)
        if place is not None:
            known = left.pop((int(place[1]), int(place[2])), None)
            if known is None or known.argument.bytes != argument.bytes:
                return None
            owners.append(known.owner)
        elif argument.constant:
            owners.append(ChunkOwner(None, "other_state", None))
        else:
            is_data = argument.name.startswith("data")
            owners.append(ChunkOwner(None, "inputs" if is_data else "unattributed", None))
    inputs = [one for one in module.arguments if one.name.startswith("data")]
    shapes = [one.shape.shape for one in sorted(inputs, key=lambda one: -one.bytes) if one.shape]
    given = {one.shape for one in inputs}
    others = [one for one in compiled.others if one.shape not in given]  # its batch, still there
    outside = [*(one for one in left.values() if one.argument.bytes)]
    owners += [one.owner for one in outside]
    owners += [ChunkOwner(None, "held_tensors", None)] * len(others)
    arguments = (*module.arguments, *(one.argument for one in outside), *others)
    return planned_step(
        dataclasses.replace(module, arguments=arguments),
        owners,
        device=device,
        phase=compiled.phase,
        layer_of=_finder(compiled.variables.trainable),
        trainable=compiled.variables.trainable,
        batch_size=shapes[0][0] if shapes and shapes[0] else None,
        **about,
    )


def _finder(paths: Mapping[str, bool]) -> Callable[[str], str | None]:
    """The layer of the longest part of a scope that is a path inside the model; a nested call may
    put the model's own name before it."""
    inside = {path.partition("/")[2]: path for path in paths}

    def find(scope: str) -> str | None:
        parts = scope.split("/")
        for first in range(len(parts)):
            for end in range(len(parts), first, -1):
                if (path := inside.get("/".join(parts[first:end]))) is not None:
                    return path
        return None

    return find
