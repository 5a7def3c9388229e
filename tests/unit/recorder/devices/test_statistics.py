"""Which devices are recorded."""

import os
import pathlib
from collections.abc import Iterator

import pytest

from tb_memplugin.environment import VARIABLE
from tb_memplugin.recorder.devices import statistics as devices


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


@pytest.mark.parametrize(
    ("limit", "group", "capacity"),
    [(None, "max", 23), (None, str(9 << 30), 9), ("2048", "max", 2), ("204800", "max", 23)],
)
def test_the_machines_memory_bounds_the_capacity_of_a_cpu(
    limit: str | None, group: str, capacity: int, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    # GIVEN a machine with 23 GiB, perhaps with a smaller limit of the process's control group, or of the allocator
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(devices, "memory_info", lambda device: (256, 512))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 23 << 18, "SC_PAGE_SIZE": 4096}.__getitem__)
    (tmp_path / "memory.max").write_text(group)
    monkeypatch.setattr(devices, "_GROUP_LIMIT", str(tmp_path / "memory.max"))
    monkeypatch.delenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", raising=False)
    if limit is not None:
        monkeypatch.setenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", limit)
    # THEN the smallest counts
    ((device,), sentences) = devices.choose_devices(["CPU:0"])
    assert (device.capacity_bytes, sentences) == (capacity << 30, [])
    assert device.total_bytes == (9 if group != "max" else 23) << 30
