"""The counters of the program: models, traces and dataset caches, as rows of (kind, name) with their values."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tb_memplugin.model import MISSING, CounterKind
from tb_memplugin.recorder.observe.dataset_caches import DatasetCaches
from tb_memplugin.recorder.observe.function_traces import FunctionTraces, TracedFunction
from tb_memplugin.recorder.observe.live_models import LiveModels


class CounterValue(NamedTuple):
    """The value of a counter; `value` is the count, other fields are as in `Counters`."""

    kind: CounterKind
    name: str | None
    value: int
    bytes: int = MISSING
    detail: str | None = None


class ProgramCounters:
    """Process-wide. Wrapped methods note what happens on any thread; the training's thread reads the values.

    Attributes:
        models, functions, datasets: Where the wrapped methods note.
    """

    def __init__(self) -> None:
        self.models = LiveModels()
        self.functions = FunctionTraces()
        self.datasets = DatasetCaches()

    def due_in(self) -> float:
        """Seconds until a value may have changed, unless a change is noted before."""
        return 0.0 if self.functions.changed or self.datasets.changed else self.models.due_in()

    def values(self) -> list[CounterValue]:
        """All values now. Takes as long as the models that are new have variables: about a microsecond for each."""
        self.functions.changed = self.datasets.changed = False
        return [*self._of_models(), *self._of_functions(), *self._of_datasets()]

    def _of_models(self) -> Iterator[CounterValue]:
        figures = self.models.figures()
        yield CounterValue("models_built", None, figures.built)
        by_kind: tuple[tuple[CounterKind, Any], ...] = (
            ("models_alive", figures.alive),
            ("models_gone", figures.gone),
            ("slots_without_model", figures.slots_without_model),
        )
        for kind, by_device in by_kind:
            for device, (count, size) in by_device.items():
                yield CounterValue(kind, device, count, size)

    def _of_functions(self) -> Iterator[CounterValue]:
        by_name: dict[str, list[TracedFunction]] = {}
        for function in list(self.functions.functions.values()):
            by_name.setdefault(function.name, []).append(function)
        for name, functions in by_name.items():
            most = max(functions, key=lambda function: (function.traces, function.signatures))
            yield CounterValue("traces", name, sum(one.traces for one in functions), detail=most.retraced)
            signatures = sum(one.signatures for one in functions)
            if signatures:
                yield CounterValue("compiled_shapes", name, signatures, detail=most.reshaped)

    def _of_datasets(self) -> Iterator[CounterValue]:
        caches, size = self.datasets.now()
        if caches:
            yield CounterValue("dataset_caches", None, caches, MISSING if size is None else size)


program_counters = ProgramCounters()
