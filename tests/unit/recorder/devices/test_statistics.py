"""Which devices are recorded, and the figures of NVIDIA's driver, from one that answers as it does."""

import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tb_memplugin.environment import VARIABLE
from tb_memplugin.recorder.devices import Driver
from tb_memplugin.recorder.devices import statistics as devices
from tb_memplugin.recorder.devices.statistics import DriverFigures
from tb_memplugin.schema import MISSING


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
def test_the_machines_memory_bounds_the_capacity_of_a_cpu(limit, group, capacity, monkeypatch, tmp_path) -> None:
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


BUSES = {"GPU:0": "0000:65:00.0", "GPU:1": "0000:17:00.0"}


class Memory:
    used, total = 3 << 30, 24 << 30


class Process:
    def __init__(self, pid: int, bytes_: int | None) -> None:
        self.pid, self.usedGpuMemory = pid, bytes_


def install(monkeypatch: pytest.MonkeyPatch, **processes: list[Process]) -> Any:
    """NVML as `pynvml` shows it, with GPUs by bus id."""
    listed = {BUSES[name.replace("_", ":")].encode(): found for name, found in processes.items()}
    library = mock.Mock(NVMLError=type("NVMLError", (Exception,), {}))
    handles = {bus: bus for bus in listed}
    library.nvmlDeviceGetHandleByPciBusId.side_effect = lambda bus: handles.get(bus) or _raise(library.NVMLError)
    library.nvmlDeviceGetMemoryInfo.return_value = Memory
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = listed.__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def _raise(error: type[Exception]) -> Any:
    raise error


def calls(library: Any) -> tuple[int, int]:
    return library.nvmlInit.call_count, library.nvmlShutdown.call_count


def test_the_driver_gives_this_processs_bytes_and_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    others = os.getpid() + 1
    install(monkeypatch, GPU_0=[Process(others, 5), Process(os.getpid(), 7), Process(others, 9)], GPU_1=[])
    driver = Driver(BUSES)
    assert not driver.answers
    driver.open()
    assert driver.answers
    driver.read()
    assert driver.figures == {
        "GPU:0": DriverFigures(7, 3 << 30, 24 << 30),
        "GPU:1": DriverFigures(MISSING, 3 << 30, 24 << 30),
    }


def test_a_process_whose_bytes_the_driver_hides_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(monkeypatch, GPU_0=[Process(os.getpid(), None)])
    driver = Driver(BUSES)
    driver.open()
    driver.read()
    unknown = {"GPU:0": DriverFigures(MISSING, 3 << 30, 24 << 30)}  # and GPU:1, which it does not know, is absent
    assert driver.figures == unknown
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = library.NVMLError
    driver.read()
    assert driver.figures == unknown
    library.nvmlDeviceGetMemoryInfo.side_effect = library.NVMLError
    driver.read()
    assert driver.figures == {"GPU:0": DriverFigures()}


def test_the_driver_is_opened_once_and_again_after_closing_and_not_without_a_gpu(monkeypatch) -> None:
    library = install(monkeypatch, GPU_0=[])
    driver = Driver(BUSES)
    for _ in range(2):
        driver.open()
    assert calls(library) == (1, 0)
    for _ in range(2):
        driver.close()
    assert calls(library) == (1, 1) and not driver.answers
    driver.open()
    assert calls(library) == (2, 1) and driver.answers
    library = install(monkeypatch, GPU_0=[])
    driver = Driver({})
    driver.open()
    driver.close()
    assert calls(library) == (0, 0)


@pytest.mark.parametrize("installed", [False, True])
def test_a_driver_that_is_missing_or_fails_answers_nothing(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    if installed:
        library = install(monkeypatch, GPU_0=[])
        library.nvmlInit.side_effect = library.NVMLError
    else:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    driver = Driver(BUSES)
    driver.open()
    driver.read()
    driver.close()
    assert not driver.answers and driver.figures == {}
