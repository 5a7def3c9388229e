"""`LayerWatch`: the layer table of the model that is trained, and the observer of its calls.

Keras keeps a model's step functions from one `fit` to the next. The layers of a function that was traced while nothing
was observed are unknown, so it is made again before recording; Keras traces it again, with the same result.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tb_memplugin.recorder.base import Faults, uncounted
from tb_memplugin.recorder.program.observer import ModelObserver
from tb_memplugin.recorder.watch import (
    FormerOptimizer,
    Outputs,
    Variables,
    build_layer_table,
    children,
    former_variables,
    is_layer,
    is_module,
    outputs_by_layer,
    program_counters,
    replicas,
    signature,
    tf_variable,
    variables_of,
    with_output_bytes,
)
from tb_memplugin.schema import LayerTable

TABLE = "the layer table"
OBSERVING = "attribution to layers"
STEP_FUNCTIONS = ("train_function", "test_function", "predict_function")
"""Attributes of a model that hold its step functions, one per phase."""

logger = logging.getLogger("tb_memplugin")

_unseen: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Step functions that were made while their model was not observed."""
_seen: "weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]]" = weakref.WeakKeyDictionary()
"""Model to those that were made while it was."""


def unguarded(function: Any) -> Any:
    """The step function that a guard wraps, or the function itself."""
    return getattr(function, "tb_memplugin_original", function)


def _step_functions(model: Any) -> list[Any]:
    functions = (unguarded(getattr(model, name, None)) for name in STEP_FUNCTIONS)
    return [function for function in functions if function is not None]


def _note_seen(model: Any) -> None:
    """Note that the model's current functions, except the unseen ones, were made while it was observed."""
    seen = _seen.setdefault(model, weakref.WeakSet())
    seen.update(function for function in _step_functions(model) if function not in _unseen)


def _see(model: Any, name: str) -> None:
    function = unguarded(getattr(model, name, None))
    if function is not None and function in _unseen:
        setattr(model, name, None)
        getattr(model, f"make_{name}")()
    _note_seen(model)


class LayerWatch:
    """Watches a model and its optimizer, and keeps their last layer table.

    The training's thread calls all methods except `completed_table`, which the background thread calls; that thread
    also sets `batch_size`, and calls `remove` for a recorder that was dropped without `close`. `last_step` is the last
    training step that ended, -1 for none.
    """

    def __init__(self, faults: Faults, source_lines: bool = True) -> None:
        self.observer = ModelObserver(source_lines)
        self.last_step = -1
        self.batch_size: int | None = None
        self.table: LayerTable | None = None
        self._observing = False
        self._faults = faults
        # Weak references: a recorder that is not closed must not keep a model that is not used any more.
        self._model: Callable[[], Any] = _nothing
        self._optimizer: Callable[[], Any] = _nothing
        self._last_optimizer: FormerOptimizer | None = None
        self._table_before: LayerTable | None = None
        self._outputs: dict[str, Outputs] = {}
        self._signature: Any = None
        self._lock = threading.Lock()  # for the table
        self._table_batch_size: int | None = None

    @uncounted
    def install(self) -> None:
        self._observing = True
        self._faults.run(OBSERVING, self.observer.install)

    @uncounted
    def remove(self) -> None:
        model = self._model()
        if self._observing and model is not None:
            self._faults.run(OBSERVING, _note_seen, model)
        self._observing = False
        self._faults.clean_up(OBSERVING, self.observer.remove)

    def abandon(self) -> None:
        self._observing = False
        self.observer.abandon()

    @uncounted
    def watch(self, model: Any, optimizer: Any = None, gone: Callable[[], None] = lambda: None) -> None:
        """Watch `model` from now on. Warn once about a model without layers or of another framework.

        Model and optimizer are referenced weakly; `gone` is called in a finalizer, on any thread, when the model does
        not exist any more.
        """
        if not is_layer(model) and not is_module(model):
            self._faults.stop(
                TABLE,
                "layers are known only for a Keras model or a tf.Module. Received: model of type "
                f"{type(model).__name__}",
            )
            return
        self._model = weakref.ref(model, lambda _: gone())
        if is_layer(model):
            program_counters.models.note(model)
        self._optimizer = _nothing if optimizer is None else weakref.ref(optimizer)
        if not children(model) and not (is_module(model) and variables_of(model, "weights")):
            self._faults.warn(f"Model {model.name!r} has no layers: only totals per device are recorded.")

    @uncounted
    def find_unseen_functions(self, model: Any) -> None:
        """Find the model's step functions that were made while it was not observed, before Keras makes new ones."""
        self._faults.run(OBSERVING, self._find_unseen, model)

    def _find_unseen(self, model: Any) -> None:
        if model in _seen or not self.observer.has_seen(model):
            seen = _seen.get(model, ())
            _unseen.update(function for function in _step_functions(model) if function not in seen)

    def see_function(self, model: Any, name: str) -> None:
        """Note a step function that is about to be called, or a new one in its place if it was made unseen."""
        self._faults.run(OBSERVING, _see, model, name)

    def model_bytes(self) -> dict[str, int]:
        """Bytes of the model's variables and of its optimizer's slots by device, as far as they are known."""
        return program_counters.models.bytes_of(self._model())

    @property
    def model_is_gone(self) -> bool:
        return self._model is not _nothing and self._model() is None

    @property
    def replicated(self) -> bool:
        """Whether several replicas of the model train, in or out of the scope of their strategy."""
        model = self._model()
        try:
            import tensorflow as tf

            strategy = getattr(model, "distribute_strategy", None) or tf.distribute.get_strategy()
            variables = model.variables if model is not None else ()
            return strategy.num_replicas_in_sync > 1 or any(len(replicas(tf_variable(one))) > 1 for one in variables)
        except Exception:
            logger.debug("whether replicas train could not be read", exc_info=True)
            return False

    def changed_table(self, step: int) -> LayerTable | None:
        """The layer table, if it changed since the last call."""
        return self._faults.run(TABLE, self._changed_table, step)

    def completed_table(self) -> LayerTable | None:
        """The last layer table with output sizes, if `batch_size` changed since it was returned.

        Reads no layer, so the background thread may call it.
        """
        with self._lock:
            if self.table is None or self.batch_size == self._table_batch_size:
                return None
            return self._complete(self.table)

    def _changed_table(self, step: int) -> LayerTable | None:
        model, optimizer = self._model(), self._optimizer()
        if model is None:
            return None
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        now = signature(model, optimizer)
        if now == self._signature:
            return None
        self._signature = now
        self._faults.run(OBSERVING, self._note_owners, optimizer, step)
        if self.table is not None and self.table.step < step:
            self._table_before = self.table
        # A second table of one step replaces the first one, so its reason describes the whole change: the first run of
        # a step builds the optimizer.
        table = build_layer_table(model, optimizer, step=step, previous=self._table_before)
        with self._lock:
            self._outputs = outputs_by_layer(model)
            table = self._complete(table)
        self._faults.run(OBSERVING, self.observer.watch, model, optimizer)
        return table

    def _note_owners(self, optimizer: Any, step: int) -> None:
        """Note the owners of the variables, and the step at which an optimizer takes over from another one.

        Variables may stay in memory when both are gone.
        """
        now = None if optimizer is None else former_variables.optimizer(optimizer)
        # Notes the owner of each variable, which names it when it stays in memory.
        Variables([(self._model(), optimizer)], [], addresses=False)
        if self._last_optimizer is not None and self._last_optimizer is not now:
            self._last_optimizer.replaced_at = step
        self._last_optimizer = now

    def _complete(self, table: LayerTable) -> LayerTable:
        self._table_batch_size = self.batch_size
        self.table = with_output_bytes(table, self._outputs, self.batch_size)
        return self.table


def _nothing() -> None:
    """A weak reference to nothing."""
