"""Counters of a program: what it built, traced, compiled and cached, over the steps of a session."""

import dataclasses
from typing import Literal, TypeAlias, get_args

from tb_memplugin.model.basics import Integers

CounterKind: TypeAlias = Literal[
    "models_built", "models_alive", "models_gone", "slots_without_model", "traces", "compiled_shapes", "dataset_caches"
]
"""Of a row:

- `models_built`: Keras models built so far; no name.
- `models_alive`: by device, models that exist, and the bytes of their variables and of their optimizers' slots.
- `models_gone`: by device, models that Python dropped while variables or slots of them are alive, and these bytes.
- `slots_without_model`: by device, optimizers that exist without their model, and the bytes of their slots.
- `traces`: by function, calls so far that traced a `tf.function`; the detail says why the last one did.
- `compiled_shapes`: by function, different signatures that a function with `jit_compile=True` was called with so far,
  for each of which XLA compiles it; the detail says how the last one differs.
- `dataset_caches`: datasets that are read and cached in memory, and the bytes that they cache for one batch until all
  of their elements are cached; no name.
"""
COUNTER_KINDS: tuple[CounterKind, ...] = get_args(CounterKind)


@dataclasses.dataclass(frozen=True)
class Counters:
    """Rows in the order of recording: one for each counter at the session's start and whenever it changed.

    Attributes:
        step: Training step at whose end the counter had the value, shape [rows].
        kind: Kinds of the counters.
        name: Device or function; None for other kinds.
        count: Shape [rows].
        bytes: Shape [rows]; `MISSING` for kinds without bytes, or if they are unknown.
        detail: A clause such as "argument `scale` changed from 1 to 2 (Python value)"; None without one.
        worker: Worker of the session in a merged run.
    """

    step: Integers
    kind: tuple[CounterKind, ...]
    name: tuple[str | None, ...]
    count: Integers
    bytes: Integers
    detail: tuple[str | None, ...]
    worker: str = ""

    def __len__(self) -> int:
        return len(self.step)
