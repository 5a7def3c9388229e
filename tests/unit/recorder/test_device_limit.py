"""Whether the peak of each device stays within a limit, and the sentences if it does not."""

from collections.abc import Iterator
from typing import Any

import pytest
from tensorflow.python.eager.context import Context

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder import device_limit
from tb_memplugin.recorder.device_limit import DeviceLimit

MIB = 1 << 20


class Allocators:
    """Statistics of devices, in place of TensorFlow's: (bytes in use, peak)."""

    def __init__(self, **devices: tuple[int, int]) -> None:
        self.info = {name.replace("_", ":"): info for name, info in devices.items()}
        self.reset: list[str] = []

    def memory_info(self, device: str) -> tuple[int, int]:
        return self.info[device]

    def reset_peak(self, device: str) -> None:
        in_use, _ = self.memory_info(device)
        self.info[device] = in_use, in_use
        self.reset.append(device)


def limited(monkeypatch: pytest.MonkeyPatch, allocators: Allocators, limit: Any) -> DeviceLimit:
    devices = [type("Named", (), {"name": name}) for name in allocators.info]
    monkeypatch.setattr(device_limit.allocator, "choose_devices", lambda names: (devices, []))
    monkeypatch.setattr(device_limit.allocator, "memory_info", allocators.memory_info)
    monkeypatch.setattr(device_limit.allocator, "reset_peak", allocators.reset_peak)
    return DeviceLimit(limit)


@pytest.fixture
def restored() -> Iterator[Any]:
    """TensorFlow's method that resets the statistics; the same one afterwards."""
    before = Context.reset_memory_stats
    yield before
    assert Context.reset_memory_stats is before


@pytest.mark.parametrize("limit", ["much", "", True, 0, -1, 1.5, None, "0"])
def test_a_limit_that_is_no_size_is_received(limit: Any) -> None:
    with pytest.raises(RecordingError, match="the limit is a size such as '512 MiB'") as raised:
        DeviceLimit(limit)
    assert f"Received: {limit!r}" in str(raised.value)


@pytest.mark.parametrize(("limit", "size"), [(1, 1), ("1 MiB", 1 << 20)])
def test_a_peak_of_the_given_size_is_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, restored: Any, limit: Any, size: int
) -> None:
    allocators = Allocators(GPU_0=(0, 0))
    within = limited(monkeypatch, allocators, limit)
    within.begin()
    allocators.info["GPU:0"] = 0, size
    assert within.exceeded() == []
    allocators.info["GPU:0"] = 0, size + 1
    assert len(within.exceeded()) == 1
    within.end()


@pytest.mark.parametrize(
    ("sentences", "said"),
    [([], "this process has no device to measure"), (["No GPU:7.", "It has CPU:0."], "No GPU:7. It has CPU:0.")],
)
def test_without_a_device_it_says_why(monkeypatch: pytest.MonkeyPatch, sentences: list[str], said: str) -> None:
    asked = []

    def none(names: Any) -> Any:
        asked.append(names)
        return [], sentences

    monkeypatch.setattr(device_limit.allocator, "choose_devices", none)
    with pytest.raises(RecordingError) as raised:
        DeviceLimit(1, "GPU:7")
    assert str(raised.value) == said
    with pytest.raises(RecordingError):
        DeviceLimit(1)
    assert asked == [["GPU:7"], None]


def test_each_device_above_the_limit_is_a_sentence(monkeypatch: pytest.MonkeyPatch, restored: Any) -> None:
    allocators = Allocators(GPU_0=(MIB, 9 * MIB), GPU_1=(MIB, MIB), GPU_2=(MIB, MIB))
    limit = limited(monkeypatch, allocators, "4 MiB")
    limit.begin()
    assert allocators.reset == ["GPU:0", "GPU:1", "GPU:2"]
    allocators.info.update({"GPU:0": (2 * MIB, 6 * MIB), "GPU:1": (MIB, 4 * MIB), "GPU:2": (3 * MIB, 5 * MIB)})
    assert limit.exceeded() == [
        "GPU:0: peak 6.0 MiB, limit 4.0 MiB; in use: 1.0 MiB before, 2.0 MiB afterwards",
        "GPU:2: peak 5.0 MiB, limit 4.0 MiB; in use: 1.0 MiB before, 3.0 MiB afterwards",
    ]
    limit.end()
    limit.end()


def test_a_peak_just_above_the_limit_is_given_in_bytes(monkeypatch: pytest.MonkeyPatch, restored: Any) -> None:
    allocators = Allocators(GPU_0=(0, 0))
    limit = limited(monkeypatch, allocators, MIB)
    limit.begin()
    allocators.info["GPU:0"] = (0, MIB + 1)
    (sentence,) = limit.exceeded()
    assert sentence.startswith("GPU:0: peak 1,048,577 B, limit 1,048,576 B; in use")
    limit.end()


def test_a_reset_by_someone_else_does_not_hide_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    allocators = Allocators(GPU_0=(MIB, MIB))

    def reset(context: Any, device: str) -> str:
        allocators.reset_peak(device)
        return "as before"

    monkeypatch.setattr(Context, "reset_memory_stats", reset)
    limit = limited(monkeypatch, allocators, 4 * MIB)
    limit.begin()
    assert limit.exceeded() == []
    # GIVEN a peak above the limit, and a reset before the measurement ends
    allocators.info["GPU:0"] = (2 * MIB, 8 * MIB)
    assert Context.reset_memory_stats(None, "GPU:0") == "as before"
    assert allocators.info["GPU:0"] == (2 * MIB, 2 * MIB)
    assert limit.exceeded() == ["GPU:0: peak 8.0 MiB, limit 4.0 MiB; in use: 1.0 MiB before, 2.0 MiB afterwards"]
    limit.end()
    assert Context.reset_memory_stats is reset


@pytest.mark.parametrize("failing", ["memory_info", "reset_peak"])
def test_an_allocator_without_statistics_is_named(monkeypatch: pytest.MonkeyPatch, restored: Any, failing: str) -> None:
    limit = limited(monkeypatch, Allocators(GPU_0=(0, 0)), MIB)

    def fail(device: str) -> Any:
        raise ValueError(f"Allocator stats\n not   available for {device}")

    monkeypatch.setattr(device_limit.allocator, failing, fail)
    with pytest.raises(RecordingError, match="the allocator of GPU:0 gives no statistics: Allocator stats not availa"):
        limit.begin()
