"""Host RSS as the kernel counts it, and the figures of NVIDIA's driver, from a driver that answers as it does."""

import os
import re
import sys
from typing import Any
from unittest import mock

import pytest

from tb_memplugin.recorder.devices import samples as host
from tb_memplugin.recorder.devices.samples import ResidentMemory
from tb_memplugin.recorder.devices.statistics import Driver, DriverFigures
from tb_memplugin.schema import MISSING

BUSES = {"GPU:0": "0000:65:00.0", "GPU:1": "0000:17:00.0"}


def test_host_rss_is_what_the_kernel_states() -> None:
    memory = ResidentMemory()
    with open("/proc/self/status", "rb") as file:
        stated = re.search(rb"VmRSS:\s+(\d+) kB", file.read())
    assert stated is not None
    # The kernel counts pages for each thread and adds them up later.
    assert abs(memory.resident_bytes() - (int(stated[1]) << 10)) < 16 << 20
    memory.close()


def test_a_closed_reader_gives_nothing_until_it_is_opened_again() -> None:
    memory = ResidentMemory()
    descriptors = len(os.listdir("/proc/self/fd"))
    for act, opened in ((memory.open, 0), (memory.close, -1), (memory.close, -1), (memory.open, 0)):
        act()
        assert len(os.listdir("/proc/self/fd")) == descriptors + opened
        assert (memory.resident_bytes() == MISSING) is (opened < 0)
    memory.close()


def test_other_systems_have_no_host_rss(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    monkeypatch.setattr(host.os, "open", missing)
    memory = ResidentMemory()
    assert memory.resident_bytes() == MISSING
    memory.close()
    monkeypatch.delattr(host.os, "sysconf")
    ResidentMemory()


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


def test_the_driver_is_opened_once_and_again_after_closing_and_not_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
