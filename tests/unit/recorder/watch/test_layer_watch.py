"""Which model is watched: whether several replicas of it train. Tables and calls are in the tests of their modules."""

from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.base.isolation import Faults
from tb_memplugin.recorder.watch.observer import LayerWatch


class Model:
    """Stands for a model: its strategy has `count` replicas, -1 for no strategy, and a variable `parts` parts."""

    name = "model"

    def __init__(self, count: int, parts: int) -> None:
        part = SimpleNamespace(handle=object())
        one = SimpleNamespace(values=(part,) * parts) if parts > 1 else part
        self.variables = [SimpleNamespace(handle=object()), one]
        if count >= 0:
            self.distribute_strategy = SimpleNamespace(num_replicas_in_sync=count)


def watching(model: Any) -> LayerWatch:
    watch = LayerWatch(Faults())
    watch._model = lambda: model
    return watch


@pytest.mark.parametrize(
    ("count", "parts", "replicated"),
    [(1, 1, False), (-1, 1, False), (2, 1, True), (1, 2, True), (-1, 2, True), (4, 4, True)],
)
def test_replicas_are_known_by_the_strategy_and_by_the_variables(count: int, parts: int, replicated: bool) -> None:
    assert watching(Model(count, parts)).replicated is replicated


def test_without_a_model_the_scope_of_the_loop_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    assert not watching(None).replicated
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: SimpleNamespace(num_replicas_in_sync=2))
    assert watching(None).replicated
    # AND a strategy that says no number of replicas is none
    model = Model(-1, 1)
    model.distribute_strategy = SimpleNamespace()
    assert not watching(model).replicated
