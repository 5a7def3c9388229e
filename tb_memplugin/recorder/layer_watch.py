"""Keeps an eye on the model that is trained: its layer table, and what each layer's operations are called."""

from typing import Any

from tb_memplugin.model import LayerTable
from tb_memplugin.recorder.faults import Faults
from tb_memplugin.recorder.layer_table import build_layer_table, signature
from tb_memplugin.recorder.observer import ModelObserver

TABLE = "the layer table"
OBSERVING = "attribution to layers"


class LayerWatch:
    """The watched model, its optimizer, and the table last taken of them."""

    def __init__(self, faults: Faults) -> None:
        self.observer = ModelObserver()
        self.last_step = -1
        self.batch_size: int | None = None
        self._faults = faults
        self._model: Any = None
        self._optimizer: Any = None
        self._table: LayerTable | None = None
        self._table_before: LayerTable | None = None
        self._signature: Any = None
        self._table_batch_size: int | None = None

    def install(self) -> None:
        """Begins to observe layer calls."""
        self._faults.run(OBSERVING, self.observer.install)

    def remove(self) -> None:
        """Stops observing."""
        self._faults.run(OBSERVING, self.observer.remove)

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Watches `model` from now on; a model that has no layers, or is none of Keras, is said so once."""
        if not hasattr(model, "_flatten_layers"):
            self._faults.stop(
                TABLE, f"model must be a Keras 3 model for its layers to be known. Received: {type(model).__name__}"
            )
            return
        self._model, self._optimizer = model, optimizer
        if not model._flatten_layers(include_self=False, recursive=False):
            self._faults.warn(f"model {model.name!r} has no layers: only figures of whole devices are recorded for it")

    def before_data(self) -> None:
        """No batch has been asked for yet: what is in use now is none."""
        self._faults.run(OBSERVING, self.observer.before_data)

    def forget_unseen_functions(self, model: Any) -> None:
        """Takes from the model the functions that it traced before it was observed; Keras makes them again when it
        needs them."""
        self._faults.run(OBSERVING, self._forget, model)

    def _forget(self, model: Any) -> None:
        if self.observer.needs_retrace(model):
            for name in ("train_function", "test_function", "predict_function"):
                setattr(model, name, None)

    @property
    def table(self) -> LayerTable | None:
        """The layer table last taken."""
        return self._table

    def changed_table(self, step: int) -> LayerTable | None:
        """The layer table, if the model is not what it was when the last one was returned."""
        if self._model is None:
            return None
        table: LayerTable | None = self._faults.run(TABLE, self._changed_table, step)
        return table

    def completed_table(self) -> LayerTable | None:
        """The last layer table with sizes of outputs, if `batch_size` was learned since it was returned."""
        if self._table is None or self.batch_size == self._table_batch_size or self._faults.stopped(TABLE):
            return None
        table: LayerTable | None = self._faults.run(TABLE, self._build, self._table.step)
        return table

    def _changed_table(self, step: int) -> LayerTable | None:
        model = self._model
        optimizer = self._optimizer if self._optimizer is not None else getattr(model, "optimizer", None)
        now = signature(model, optimizer)
        if now == self._signature:
            return None
        self._signature = now
        if self._table is not None and self._table.step < step:
            self._table_before = self._table
        # A second table of one step (its first run builds the optimizer) replaces the first one, so it tells
        # the whole change.
        table = self._build(step)
        self._faults.run(OBSERVING, self.observer.watch, model, optimizer)
        return table

    def _build(self, step: int) -> LayerTable:
        optimizer = self._optimizer if self._optimizer is not None else getattr(self._model, "optimizer", None)
        self._table_batch_size = self.batch_size
        self._table = build_layer_table(
            self._model, optimizer, step=step, previous=self._table_before, batch_size=self.batch_size
        )
        return self._table
