"""The stand-ins offer what the recorder offers, and do nothing."""

import copy
import functools

import keras
import pytest

import tb_memplugin
from tb_memplugin import MemoryCallback, MemoryRecorder, RecordingError, environment, off
from tb_memplugin.environment import SWITCH


def own_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_stand_in_has_the_names_of_the_original() -> None:
    assert own_names(off.MemoryRecorder) == own_names(MemoryRecorder)
    assert own_names(off.MemoryCallback) == own_names(MemoryCallback)
    assert {
        name
        for name in vars(MemoryCallback)
        if name.startswith(("_implements", "_supports", "_chief"))
    } == {
        name
        for name in vars(off.MemoryCallback)
        if name.startswith(("_implements", "_supports", "_chief"))
    }


@pytest.mark.parametrize("name", tb_memplugin._OFF)
def test_the_package_gives_the_stand_in_while_it_is_off(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(tb_memplugin, name) is not getattr(off, name)
    monkeypatch.setenv(SWITCH, "0")
    assert getattr(tb_memplugin, name) is getattr(off, name)


def test_a_recorder_runs_the_steps() -> None:
    ran = []
    with off.MemoryRecorder("nowhere", model=7, overhead="wrong") as recorder:
        for step in range(2):
            with recorder.step(step, phase="train"):
                ran.append(step)
        recorder.begin_step(2)
        recorder.end_step(ValueError())
        with pytest.raises(KeyError), recorder.step(3):
            raise KeyError
        assert not recorder.closed
    assert ran == [0, 1] and recorder.closed


def test_a_callback_has_no_hook_of_its_own() -> None:
    callback = copy.deepcopy(off.MemoryCallback("nowhere", scalars=True))
    hooks = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]
    assert hooks and all(
        getattr(type(callback), name) is getattr(keras.callbacks.Callback, name)
        for name in [*hooks, "set_model"]
    )
    callback.close()


def test_measurements_say_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert "TB_MEMPLUGIN=0 is set" in str(off.memory_summary(None))
    with pytest.raises(RecordingError, match="TB_MEMPLUGIN=0 is set"):
        off.probe(None, None)


def test_with_another_backend_the_package_gives_the_stand_ins_which_say_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(environment, "keras_backend", lambda _: "torch")
    environment._warn.cache_clear()
    assert all(getattr(tb_memplugin, name) is getattr(off, name) for name in tb_memplugin._OFF)
    for make in (off.MemoryCallback, off.MemoryCallback, off.MemoryRecorder):
        make("nowhere")
    (said,) = caplog.messages
    assert said.startswith(
        "Keras runs on torch: so far, nothing can be recorded or measured with this backend"
    )
    assert said in str(off.memory_summary(None))
    for ask in (off.probe, functools.partial(tb_memplugin.plan, budget=1)):
        with pytest.raises(RecordingError) as refused:
            ask(None, (1,))
        assert str(refused.value) == said
    # AND the switch is not said: the user has set it
    monkeypatch.setenv(SWITCH, "0")
    off.MemoryCallback()
    assert len(caplog.messages) == 1 and environment.why_unrecorded() == environment.SENTENCE


def test_with_jax_only_some_names_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "keras_backend", lambda _: "jax")
    stand_ins = {
        name for name in tb_memplugin._OFF if getattr(tb_memplugin, name) is getattr(off, name)
    }
    assert {*tb_memplugin._OFF} - stand_ins == {"MemoryCallback", "largest_batch_size", "probe"}
    assert environment.why_unrecorded(on_jax=True) is None
    with pytest.raises(RecordingError, match="MemoryCallback, tb-memplugin run, probe"):
        off.probe(None, None)
