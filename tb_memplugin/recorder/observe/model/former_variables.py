"""Variables that are gone in Python but not in memory: slots of earlier optimizers, weights of earlier models.

A traced function captures the resource handles of its variables. TensorFlow keeps functions that nobody can call any
more, and a handle keeps its variable's memory after the variable is gone in Python. Keras's optimizers are replaced at
each `compile`, so their slots stay behind, and with them earlier models.
"""

import dataclasses
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from tb_memplugin.model.layers import replaced_optimizer, unused
from tb_memplugin.model.trace import VariableFact, VariableRole
from tb_memplugin.recorder.observe.model.addresses import short_device, tensor_address

_NUMBERED = re.compile(r"_\d+$")
EARLIER_MODEL = "earlier model"
"""Name of models that were gone before they were observed."""


@dataclasses.dataclass(eq=False)
class FormerOptimizer:
    """An optimizer, which may be gone; `replaced_at` is the step at which another one took over, None if none did."""

    name: str
    replaced_at: int | None = None


@dataclasses.dataclass(frozen=True)
class _Owner:
    """The last known owner of a variable: a model, and for a slot its optimizer."""

    role: VariableRole
    layer: str | None
    model: Callable[[], Any]  # a weak reference
    model_name: str | None
    optimizer: FormerOptimizer | None

    def path(self) -> str | None:
        """Layer path in breakdowns, when the variable is gone in Python."""
        if self.model_name is not None and self.model() is None:
            inside = (self.layer or "").partition("/")[2]  # without a number behind the model's name
            return _joined(unused(self.model_name), inside or None)
        if self.optimizer is None:
            return self.layer
        step, name = self.optimizer.replaced_at, self.optimizer.name
        return _joined(unused(name) if step is None else replaced_optimizer(name, step), self.layer)


class FormerVariables:
    """Process-wide notes on who owned each variable. The training's thread calls the methods."""

    def __init__(self) -> None:
        self._owners: dict[int, tuple[Any, _Owner]] = {}  # by id of the handle; with a weak reference to it
        self._optimizers: weakref.WeakKeyDictionary[Any, FormerOptimizer] = weakref.WeakKeyDictionary()

    def note(self, handle: Any, role: VariableRole, layer: str | None, model: Any, optimizer: Any) -> None:
        """Note the owner of a variable.

        Args:
            handle: The variable's resource handle.
            role, layer: As in `VariableFact`.
            model: Its model, None if unknown.
            optimizer: Its optimizer if it is a slot, else None.
        """
        known = self._owners.get(id(handle))
        if known is not None and known[0]() is handle and known[1].model() is model and known[1].layer == layer:
            return
        owners, key = self._owners, id(handle)

        def gone(reference: Any) -> None:
            if key in owners and owners[key][0] is reference:
                del owners[key]

        of = None if optimizer is None else self.optimizer(optimizer)
        name, reference = (None, _nothing) if model is None else (str(model.name), weakref.ref(model))
        self._owners[key] = weakref.ref(handle, gone), _Owner(role, layer, reference, name, of)

    def optimizer(self, optimizer: Any) -> FormerOptimizer:
        """The note on an optimizer, whose `replaced_at` the caller may set."""
        return self._optimizers.setdefault(optimizer, FormerOptimizer(type(optimizer).__name__))

    def facts(self, handles: Iterable[Any]) -> list[VariableFact]:
        """Facts about the variables of `former_handles`."""
        return [fact for handle in handles if (fact := self._fact(handle)) is not None]

    def _fact(self, handle: Any) -> VariableFact | None:
        import tensorflow as tf

        data = getattr(handle, "_handle_data", None)
        if data is None or not data.is_set or len(data.shape_and_type) != 1:
            return None
        shape, dtype = tf.TensorShape(data.shape_and_type[0].shape), tf.as_dtype(data.shape_and_type[0].dtype)
        address = _address(handle, dtype)
        if address is None or not shape.is_fully_defined():
            return None
        role, layer = self._role_and_layer(handle, shape, dtype)
        return VariableFact(
            name=f"{handle._name}#{id(handle)}",
            role=role,
            layer=layer,
            trainable=None,
            requested_bytes=int(shape.num_elements()) * int(dtype.size),
            device=short_device(handle.device),
            start_address=address,
            end_address=address,  # nobody assigns to it
            shape=tuple(shape.as_list()),
            dtype=dtype.name,
        )

    def _role_and_layer(self, handle: Any, shape: Any, dtype: Any) -> tuple[VariableRole, str | None]:
        reference, owner = self._owners.get(id(handle), (None, None))
        if owner is not None and reference is not None and reference() is handle:
            return owner.role, owner.path()
        return _named(str(handle._name).partition(":")[0], is_array=bool(shape.rank) and dtype.is_floating)


def former_handles(handles: Iterable[Any]) -> list[Any]:
    """Those resource handles of variables whose variable does not exist any more in Python."""
    return [handle for handle in handles if _variable_is_gone(handle)]


def _variable_is_gone(handle: Any) -> bool:
    variable = getattr(handle, "_parent_trackable", None)
    return isinstance(variable, weakref.ref) and variable() is None


def _address(handle: Any, dtype: Any) -> int | None:
    """Address of a variable's value; None if it is not initialized."""
    import tensorflow as tf

    try:
        with tf.init_scope(), tf.device(handle.device):
            return tensor_address(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
    except Exception:
        return None


def _named(name: str, is_array: bool) -> tuple[VariableRole, str | None]:
    """Role and layer by the name that Keras gives to slots, ``adam/dense_kernel_momentum``, and weights."""
    import keras

    first, _, rest = name.partition("/")
    if not rest or not is_array:
        return "other_state", None
    optimizers = {
        kind.__name__.lower(): kind.__name__ for kind in vars(keras.optimizers).values() if isinstance(kind, type)
    }
    optimizer = optimizers.get(_NUMBERED.sub("", first).replace("_", ""))
    if optimizer is not None:
        return "optimizer_state", f"{unused(optimizer)}/{rest}"
    return "weights", f"{unused(EARLIER_MODEL)}/{name.rpartition('/')[0]}"


def _nothing() -> None:
    """A weak reference to nothing."""


def _joined(name: str, layer: str | None) -> str:
    return name if layer is None else f"{name}/{layer}"


former_variables = FormerVariables()
