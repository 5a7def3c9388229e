"""`LayerWatch`: what one recorder knows of the model that is trained and of the program around it.

Keras keeps a model's step functions from one `fit` to the next. The layers of a function that was
traced while nothing was observed are unknown, so it is made again before recording; Keras traces it
again, with the same result."""

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tb_memplugin.recorder.base import (
    ByIdentity,
    Faults,
    Kept,
    asked,
    own,
    unread,
)
from tb_memplugin.recorder.heap import (
    SourceLines,
)
from tb_memplugin.recorder.watch import layer_table, layers
from tb_memplugin.recorder.watch.batches import batch_notes
from tb_memplugin.recorder.watch.collectives import Replicas
from tb_memplugin.recorder.watch.counters import program_counters
from tb_memplugin.recorder.watch.datasets import DataPipelines, data_pipelines
from tb_memplugin.recorder.watch.graphs import graph_facts
from tb_memplugin.recorder.watch.held_tensors import DeviceFacts, HeldTensors
from tb_memplugin.recorder.watch.layers import variables_of
from tb_memplugin.recorder.watch.notes import call_notes, input_notes
from tb_memplugin.recorder.watch.sessions import session_variables
from tb_memplugin.recorder.watch.variable_values import bytes_in_use, short_device
from tb_memplugin.recorder.watch.variables import FormerOptimizer, Variables, former_variables
from tb_memplugin.recorder.watch.wrappers import hooks
from tb_memplugin.schema import (
    BatchFacts,
    GraphFacts,
    LayerTable,
    PipelineStage,
    TraceFacts,
    is_cpu,
)

TABLE = "the layer table"
OBSERVING = "attribution to layers"
STEP_FUNCTIONS = ("train_function", "test_function", "predict_function")  # attributes of a model


class ObservedWindow:
    """Variables and held tensors at the start and end of a profiler window; for the training's
    thread. Keeps no model alive. `finding` are further arguments of the `find` of `held`."""

    def __init__(self, variables: Variables, held: HeldTensors, **finding: Any) -> None:
        import tensorflow as tf

        self.variables = variables
        variables.begin()
        names = {short_device(device.name) for device in tf.config.list_logical_devices()}
        in_use = {name: bytes_in_use(name) for name in sorted(names)}
        self._start_in_use = {name: size for name, size in in_use.items() if size is not None}
        self._held = held
        self._tensors = held.find(self._start_in_use, variables.start_addresses(), **finding)
        unowned = [one for one in held.variables() if not variables.knows(one)]
        variables.add_unowned(unowned, {fact.address for _, fact in self._tensors})
        self._former = former_variables.facts(held.handles, variables.owner_of)
        self._tensors_at_end: DeviceFacts = ()
        self._finished = False

    def finish(self, graphs: Iterable[Any]) -> None:
        """Find new held tensors, and the holders of all, after the window has closed. Calling it
        again does nothing."""
        if not self._finished:
            self._finished = True
            self._tensors, self._tensors_at_end = self._held.finish(
                self.variables.read_end(), graphs
            )

    def facts(
        self, device: str, graphs: tuple[GraphFacts, ...], gradients: Iterable[tuple[int, int, Any]]
    ) -> TraceFacts:
        """All facts about the window on one device. Eager gradients are (address, bytes, weak
        reference)."""
        owners = [
            (address, size, self.variables.owner_of(reference()) or (None, None))
            for address, size, reference in gradients
        ]
        former = (fact for fact in self._former if fact.device == device)
        of_sessions = [
            one for one in session_variables(list(call_notes.graphs)) if one.device == device
        ]
        trained = {one.layer: True for one in of_sessions if one.layer and one.trainable}
        return TraceFacts(
            mode="eager" if self.variables.eager or not graphs else "graph",
            trainable={**self.variables.trainable, **trained},
            graphs=graphs,
            variables=(*self.variables.facts(device), *former, *of_sessions),
            tensors=tuple(fact for place, fact in self._tensors if place == device),
            tensors_at_end=tuple(fact for place, fact in self._tensors_at_end if place == device),
            start_in_use=self._start_in_use.get(device),
            gradients=tuple((address, size, layer) for address, size, (_, layer) in owners),
        )


class _StepFunctions:
    """Which of the step functions that Keras keeps of each model were made while it was
    observed."""

    def __init__(self) -> None:
        self._unseen = ByIdentity[bool]()
        self._seen = ByIdentity[ByIdentity[bool]]()  # by model
        self._recorded = ByIdentity[bool]()

    def _of(self, model: Any) -> list[Any]:
        functions = (unguarded(own(model, name)) for name in STEP_FUNCTIONS)
        return [function for function in functions if function is not None]

    def note_seen(self, model: Any) -> None:
        """Note that the model's current functions, except the unseen ones, were made while it was
        observed."""
        seen = self._seen.setdefault(model, ByIdentity())
        for function in self._of(model):
            if function not in self._unseen:
                seen.add(function)

    def find_unseen(self, model: Any) -> None:
        """Find the model's functions that were made while it was not observed, before Keras makes
        new ones."""
        spans = [span for notes in list(call_notes.graphs.values()) for span in notes.spans]
        if model in self._seen or not any(span.layer and span.layer() is model for span in spans):
            seen = self._seen.get(model, ())
            for function in self._of(model):
                if function not in seen:
                    self._unseen.add(function)

    def note_recorded(self, model: Any) -> None:
        """Note that a recording of the model's current functions ends."""
        self.note_seen(model)
        for function in self._seen.get(model, ()):
            self._recorded.add(function)

    def was_recorded(self, model: Any, name: str) -> bool:
        return unguarded(own(model, name)) in self._recorded

    def see(self, model: Any, name: str) -> bool:
        """Note a function that is about to be called, or a new one in its place if it was made
        unseen; return whether it is a new one."""
        is_unseen = unguarded(own(model, name)) in self._unseen
        if is_unseen:
            setattr(model, name, None)
            getattr(model, f"make_{name}")()
        self.note_seen(model)
        return is_unseen


_step_functions = _StepFunctions()


def unguarded(function: Any) -> Any:
    while (original := own(function, "tb_memplugin_original")) is not None:
        function = original
    return function


_last_graphs: list[tuple[Any, tuple[GraphFacts, ...]]] = []
"""The facts about the program's graphs that were read last, after what they depend on, also for the
next recording. They are dropped with the first of the graphs."""


def _noted(graph: Any) -> Any:
    """What facts depend on of a graph; equal for the same one."""
    return weakref.ref(graph, lambda _: _last_graphs.clear()), graph.version


def _nothing() -> None: ...


def _reference(item: Any) -> Callable[[], Any]:
    return _nothing if item is None else weakref.ref(item)


class LayerWatch:
    """Watches a model and its optimizer: keeps their last layer table, and knows the owners of the
    program's ops, variables and tensors, and the user's lines that call layers and ops, now and
    from window to window.

    The training's thread calls all methods except `completed` and `completed_table`, which the
    background thread calls; that thread also sets `batch_size`, and calls `remove` for a recorder
    that was dropped without `close`."""

    def __init__(self, faults: Faults, source_lines: bool = True) -> None:
        self.step_batch_size: int | None = None  # of the current step, as the program names it
        self.last_step = -1  # the last training step that ended, -1 for none
        # whether the function of the next steps was recorded before
        self.was_recorded = False
        self.remade = False  # whether the function of the running step was made again, to see it
        self.batch_size: int | None = None  # for the table
        self._installed = False
        self._lines = SourceLines() if source_lines else None
        # weak references to each model that was trained and its optimizer
        self._watched: list[tuple[Any, Any]] = []
        self._window: ObservedWindow | None = None
        self._batch: BatchFacts | None = None  # of the window that has ended
        self._stages: tuple[PipelineStage, ...] = ()  # when it began
        self._held = HeldTensors()
        self._variables = Kept[Variables]()
        self._unread = set(unread)  # classes of odd objects that were named
        self._replicas = Replicas()
        self.table: LayerTable | None = None
        self._observing = False
        self._faults = faults
        # Weak references: a recorder that is not closed must not keep a model that is not used any
        # more.
        self._model = self._optimizer = _reference(None)
        self._last_optimizer: FormerOptimizer | None = None
        self._table_before: LayerTable | None = None
        self._outputs: dict[str, layer_table.Outputs] = {}
        self._signature: Any = None
        self._table_batch_size: int | None = None

    def install(self) -> None:
        """Start observing functions that are traced from now on. Calling it again does nothing."""
        self._observing = True
        if not self._installed:
            self._faults.run(OBSERVING, hooks.acquire)
            self._installed = not self._faults.stopped(OBSERVING)

    def remove(self) -> None:
        model = self._model()
        if self._observing and model is not None:
            self._faults.run(OBSERVING, _step_functions.note_recorded, model)
        self._observing = False
        self._faults.clean_up(OBSERVING, self._remove)

    def _remove(self) -> None:
        if self._installed:
            self._installed = False
            window, self._window = self._window, None
            if input_notes.lines is self._lines:
                input_notes.lines = None
            # not another recorder's window
            if window is not None and call_notes.eager_paths is window.variables.paths:
                call_notes.end_window()
            hooks.release()

    def abandon(self) -> None:
        """Stop observing in a forked child; `hooks` restores the wrapped functions there."""
        self._observing, self._installed, self._window = False, False, None

    @property
    def traces(self) -> int:
        """A number that grows whenever a function is traced: if it grew during a step, that step
        compiled."""
        return call_notes.traced_calls

    def watch(
        self, model: Any, optimizer: Any = None, gone: Callable[[], None] = lambda: None
    ) -> None:
        """Warn once about a model without layers or of another framework. `gone` is called in a
        finalizer, on any thread, when the model does not exist any more."""
        of_keras, is_module = layers.is_layer(model), layers.is_module(model)
        if not of_keras and not is_module:
            received = f"Received: model of type {type(model).__name__}"
            self._faults.stop(
                TABLE, f"layers are known only for a Keras model or a tf.Module. {received}"
            )
            return
        self._model, self._optimizer = weakref.ref(model, lambda _: gone()), _reference(optimizer)
        if of_keras:
            program_counters.models.note(model)
        if not layers.children(model) and not (is_module and variables_of(model, "weights")):
            name = layers.name_of(model)
            self._faults.warn(f"Model {name!r} has no layers: only totals per device are recorded.")

    def find_unseen_functions(self, model: Any) -> None:
        self._faults.run(OBSERVING, _step_functions.find_unseen, model)

    def see_function(self, model: Any, name: str) -> None:
        known = self._faults.run(OBSERVING, _step_functions.was_recorded, model, name)
        self.was_recorded = bool(known)
        self.remade = bool(self._faults.run(OBSERVING, _step_functions.see, model, name))

    def begin_window(self, batches_since: float = -math.inf) -> None:
        """Read the variables' addresses before a profiler window opens; in eager mode, start
        marking layer calls."""
        known = self._held.known_models()
        watched = [(id(model()), id(optimizer())) for model, optimizer in self._watched]
        noted = [list(map(id, one)) for one in (call_notes.outermost_layers, call_notes.optimizers)]
        key = watched, noted, known, former_variables.changes
        variables = self._variables.get(key, self._found_variables)
        self._window = ObservedWindow(
            variables, self._held, graphs=list(call_notes.graphs), batches_since=batches_since
        )
        call_notes.eager_gradients = []
        call_notes.eager_paths, call_notes.eager_lines = variables.paths, self._lines
        input_notes.lines = self._lines
        self._batch = None
        self._stages = asked(data_pipelines, DataPipelines.stages) or ()
        models = [model() for model in variables.models]
        if self._held.known_models() != known:
            models = [model for model, _ in self._models()]
        batch_notes.begin(model for model in models if model is not None)
        self._name_unread()

    def _name_unread(self) -> None:
        """Name the classes of the program's objects that could not be read, each once."""
        for name in unread.keys() - self._unread:
            self._unread.add(name)
            self._faults.warn(f"{name} could not be read: its memory may be unattributed.")

    def end_window(self, device: str) -> TraceFacts:
        """Facts about `device` after the profiler window has closed. Call it for each device."""
        call_notes.eager_paths = call_notes.eager_lines = None
        window, gradients = self._window, call_notes.eager_gradients or ()
        if window is None:
            raise RuntimeError("end_window() was called before begin_window()")
        if self._batch is None:
            batch = batch_notes.end(self.step_batch_size)
            self._batch = dataclasses.replace(batch, replicas=self.replicas)
        window.finish(list(call_notes.graphs))
        noted, others = list(call_notes.graphs.items()), list(self._held.captures.graphs)
        variables, size = window.variables, self._batch.size
        key = (
            variables.signature(),
            [(*_noted(graph), len(notes.spans)) for graph, notes in noted],
            [_noted(graph) for graph in others],
            size,
            self._lines is None,
        )
        graphs = next((facts for known, facts in _last_graphs if known == key), None)
        if graphs is None:
            graphs = graph_facts(variables.paths, variables.owner_of, self._lines, others, size)
            _last_graphs[:] = [(key, graphs)]
        # an iterator's elements lie in host memory
        batch = dataclasses.replace(self._batch, stages=self._stages if is_cpu(device) else ())
        return dataclasses.replace(window.facts(device, graphs, gradients), batch=batch)

    def close_window(self) -> None:
        self._window = None

    def look(self, device: str, building: bool = False) -> tuple[TraceFacts, Mapping[int, str]]:
        """Facts about the program now, without a window, and the paths of its layers by their id;
        with `building`, also of layers that no model has yet."""
        variables = self._found_variables(layers.outermost() if building else ())
        window = ObservedWindow(variables, HeldTensors(), graphs=list(call_notes.graphs))
        paths, owner_of = window.variables.paths, window.variables.owner_of
        return window.facts(device, graph_facts(paths, owner_of, self._lines), ()), paths

    def calling_line(self, layer: Any = None) -> str | None:
        """The user's line on this thread's stack, given the running layer; None if lines are not
        recorded."""
        return None if self._lines is None else self._lines.calling(layer)

    def _found_variables(self, more: Iterable[Any] = ()) -> Variables:
        models = [*self._models(), *((layer, None) for layer in more)]
        return Variables(models, list(call_notes.optimizers))

    def _models(self) -> list[tuple[Any, Any]]:
        """Watched models with their optimizers, then other models: called outermost or found among
        Python's objects."""
        watched = ((model(), optimizer()) for model, optimizer in self._watched)
        models = {id(pair[0]): pair for pair in watched if pair[0] is not None}
        for model in (*call_notes.outermost_layers, *self._held.models()):
            models.setdefault(id(model), (model, None))
        return list(models.values())

    def model_bytes(self) -> dict[str, int]:
        return program_counters.models.bytes_of(self._model())

    @property
    def model_is_gone(self) -> bool:
        return self._model is not _nothing and self._model() is None

    @property
    def replicas(self) -> int:
        """How many replicas of the model train, in or out of the scope of their strategy."""
        model = self._model()
        if model is None:  # a program's own loop outside the scope: the models that it called
            model = next((found for found, _ in self._models()), None)
        return self._replicas.count(model, self._signature)

    def replicas_met(self, trains: bool) -> bool:
        """`Replicas.met` of the functions that have been traced by now."""
        return self._replicas.met(self.traces, trains)

    def completed_table(self) -> LayerTable | None:
        """The last layer table with output sizes, if `batch_size` changed. Reads no layer."""
        if self.table is None or self.batch_size == self._table_batch_size:
            return None
        return self.completed(self.table)

    def completed(self, table: LayerTable) -> LayerTable:
        """`table` with output sizes, as far as `batch_size` is known by now. On the thread that
        sets it: a table is written after the analysis of earlier steps, which may learn it."""
        self._table_batch_size = self.batch_size
        return layer_table.with_output_bytes(table, self._outputs, self.batch_size)

    def changed_table(self, step: int) -> LayerTable | None:
        model, optimizer = self._model(), self._optimizer()
        if model is None:
            return None
        optimizer = own(model, "optimizer") if optimizer is None else optimizer
        before, self._signature = self._signature, layer_table.signature(model, optimizer)
        if before == self._signature:
            return None
        self._faults.run(OBSERVING, self._note_owners, model, optimizer, step)
        if self.table is not None and self.table.step < step:
            self._table_before = self.table
        # A second table of one step replaces the first one, so its reason describes the whole
        # change: the first run of a step builds the optimizer.
        table = layer_table.build_layer_table(
            model, optimizer, step=step, previous=self._table_before
        )
        self._outputs = {
            node.path: layer_table.outputs_of(node.layer) for node in layers.walk(model)
        }
        self.table = table
        self._watched = [
            pair for pair in self._watched if pair[0]() is not None and pair[0]() is not model
        ]
        self._watched.append((weakref.ref(model), _reference(optimizer)))
        return table

    def _note_owners(self, model: Any, optimizer: Any, step: int) -> None:
        """Note the owners of the variables, which may stay in memory when model and optimizer are
        gone, and the step at which an optimizer takes over from another one."""
        now = None if optimizer is None else former_variables.optimizer(optimizer)
        Variables([(model, optimizer)], [])
        if self._last_optimizer is not None and self._last_optimizer is not now:
            self._last_optimizer.replaced_at = step
        self._last_optimizer = now
