"""What the recorder says of memory growth on GPUs: TensorFlow's settings, and nothing where they are not known."""

from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder.sampling import devices


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A card as TensorFlow's configuration would tell it."""
    told: dict[str, Any] = {"growth": None, "parts": None}
    for name in ("TF_GPU_ALLOCATOR", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["card"])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda card: told["parts"])
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", lambda card: told["growth"])
    return told


@pytest.mark.parametrize(("growth", "grows"), [(None, False), (False, False), (True, True)])
def test_the_configuration_tells(one_gpu: dict[str, Any], growth: bool | None, grows: bool) -> None:
    one_gpu["growth"] = growth
    assert devices._gpu_grows() is grows


def test_logical_devices_with_limits_do_not_grow(one_gpu: dict[str, Any]) -> None:
    one_gpu.update(parts=["a part"], growth=True)
    assert devices._gpu_grows() is False


@pytest.mark.parametrize(("value", "grows"), [("true", True), ("false", False), ("perhaps", False)])
def test_the_environment_wins(
    one_gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str, grows: bool
) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", value)
    assert devices._gpu_grows() is grows


def test_another_allocator_or_an_unknown_tensorflow_is_not_known(
    one_gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", None)
    assert devices._gpu_grows() is None
    monkeypatch.setenv("TF_GPU_ALLOCATOR", "cuda_malloc_async")
    assert devices._gpu_grows() is None
