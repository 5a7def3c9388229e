"""What the wrapped methods of a model are called with."""

import types
from collections.abc import Iterator
from typing import Any

import keras
import pytest

import tb_memplugin
from tb_memplugin.recorder.automatic import recording as automatic
from tb_memplugin.recorder.automatic.model_calls import CALLBACK_METHODS, places
from tb_memplugin.recorder.automatic.recording import MAX_RUNS, AutomaticRecording
from tb_memplugin.recorder.automatic.wrapping import Wrapping


class Model:
    """The methods of a Keras model, which return what they were called with."""

    def fit(self, x: Any = None, epochs: int = 1, callbacks: Any = None) -> Any:
        return x, epochs, callbacks

    def evaluate(self, x: Any = None, callbacks: Any = None) -> Any:
        return callbacks

    def predict(self, x: Any, callbacks: Any = None) -> Any:
        return callbacks

    def train_on_batch(self, x: Any) -> Any:
        return x


def keras_with(model: type) -> types.ModuleType:
    package = types.ModuleType("keras")
    package.Model = model  # type: ignore[attr-defined]
    return package


class CallbackList:
    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = callbacks


class Recording(AutomaticRecording):
    """With objects in place of callbacks."""

    on = True

    def records(self) -> bool:
        return self.on

    def callback_for(self, model: Any) -> Any:
        return f"callback of {id(model)}"


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording("runs", "name")
    wrapping = Wrapping(recording)
    wrapping.models(keras_with(Model))
    yield recording
    wrapping.remove()


def test_a_callback_is_added_however_callbacks_are_passed(recording: Recording) -> None:
    model, given = Model(), ["theirs"]
    ours = f"callback of {id(model)}"
    assert model.fit(7) == (7, 1, [ours])
    assert model.fit(7, 2, given) == (7, 2, ["theirs", ours])
    assert model.fit(x=7, callbacks=("theirs",)) == (7, 1, ["theirs", ours])
    assert model.evaluate(callbacks=None) == [ours]
    assert model.predict(7, "theirs") == ["theirs", ours]
    assert given == ["theirs"]


def test_never_twice(recording: Recording, tmp_path: Any) -> None:
    theirs = tb_memplugin.MemoryCallback(tmp_path)
    assert Model().fit(callbacks=[theirs])[2] == [theirs]
    ready = CallbackList(theirs)
    assert Model().evaluate(callbacks=ready) is ready and not list(recording.notes())


def test_a_list_of_the_programs_own_is_left_alone_and_said(recording: Recording) -> None:
    ready = CallbackList("theirs")
    assert Model().fit(callbacks=ready)[2] is ready
    (note,) = recording.notes()
    assert note.startswith("1 call of `fit`") and "CallbackList" in note


def test_wrong_arguments_fail_as_before(recording: Recording) -> None:
    with pytest.raises(TypeError, match="wrong"):
        Model().fit(wrong=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"predict\(\) missing 1 required positional argument"):
        Model().predict()  # type: ignore[call-arg]


def test_a_fault_of_ours_changes_nothing(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(recording, "callback_for", fail)
    assert Model().fit(7, callbacks=["theirs"]) == (7, 1, ["theirs"])
    assert "could not be recorded" in next(recording.notes())


def test_while_the_program_records_itself_nothing_is_added(recording: Recording) -> None:
    recording.on = False
    assert Model().fit(7) == (7, 1, None) and Model().train_on_batch(8) == 8


def test_removal_restores_the_methods() -> None:
    before = dict(vars(Model))
    wrapping = Wrapping(Recording("runs", "name"))
    wrapping.models(keras_with(Model))
    wrapping.models(keras_with(Model))  # as tf_keras, where it is the same package
    assert vars(Model)["fit"].__wrapped__ is before["fit"]
    wrapping.remove()
    assert dict(vars(Model)) == before


def test_keras_has_the_methods() -> None:
    names = [name for _, name, _ in places(keras, AutomaticRecording("runs", "name"))]
    assert names == [*CALLBACK_METHODS, "train_on_batch"]


def test_each_model_has_a_run_until_there_are_too_many(tmp_path: Any) -> None:
    recording = AutomaticRecording(str(tmp_path), "name")
    runs = [recording._next_run() for _ in range(MAX_RUNS + 1)]
    assert runs[:2] == ["name", "name-2"] and runs[-1] is None
    assert recording._directory_of("name-2") == f"{tmp_path}/name-2"
    assert list(recording.notes()) == []


def test_the_calls_of_further_models_are_the_steps_of_one_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "MAX_RUNS", 1)
    recording = AutomaticRecording(str(tmp_path), "name")
    wrapping = Wrapping(recording)
    package = keras_with(type("Model", (Model,), dict(vars(Model))))
    wrapping.models(package)
    try:
        for _ in range(3):
            package.Model().fit(1)
    finally:
        wrapping.remove()
        recording.close()
    assert recording.names == ["name", "name-more"] and recording.latest == "name-more"
    assert "of run name-more" in next(recording.notes())
    assert tb_memplugin.load(tmp_path)["name-more"].samples.step.tolist() == [0, 1]
