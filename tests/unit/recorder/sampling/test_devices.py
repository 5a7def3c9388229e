"""Which devices are recorded."""

from collections.abc import Iterator

import pytest

from tb_memplugin.cpu_allocator import VARIABLE
from tb_memplugin.recorder.sampling import devices


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    devices.cpu_uses_bfc.cache_clear()
    yield
    devices.cpu_uses_bfc.cache_clear()


@pytest.mark.parametrize("statistics", ["raise", "zero", "count"])
def test_only_an_allocator_that_counts_is_recorded(statistics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a CPU's plain allocator, of which TensorFlow has no statistics, one of oneDNN, or the BFC allocator
    def memory_info(device: str) -> tuple[int, int]:
        if statistics == "raise":
            raise ValueError(f"Allocator stats not available for device '{device}'")
        return (0, 0) if statistics == "zero" else (256, 512)

    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(devices, "memory_info", memory_info)
    # THEN
    chosen, sentences = devices.choose_devices(["CPU:0"])
    assert bool(chosen) == (statistics == "count")
    assert [sentence.startswith("Not recording CPU:0: ") for sentence in sentences] == [True] * (not chosen)
