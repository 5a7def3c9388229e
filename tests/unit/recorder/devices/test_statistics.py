"""Which devices are recorded, and the figures of NVIDIA's driver, from one that answers as it
does."""

import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tb_memplugin.environment import VARIABLE
from tb_memplugin.recorder.base import Due, changes
from tb_memplugin.recorder.devices import Driver, FastPath, SampleBuffer, samples
from tb_memplugin.recorder.devices import statistics as devices
from tb_memplugin.recorder.devices.samples import DROPPED, RESIDENT_SECONDS, ResidentMemory
from tb_memplugin.recorder.devices.statistics import DriverFigures
from tb_memplugin.schema import MISSING


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    devices.cpu_uses_bfc.cache_clear()
    yield
    devices.cpu_uses_bfc.cache_clear()
    devices.lost_peaks.clear()


@pytest.mark.parametrize("statistics", ["raise", "zero", "count"])
def test_only_an_allocator_that_counts_is_recorded(
    statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A CPU's plain allocator, of which TensorFlow has no statistics, one of oneDNN, or the BFC
    # allocator.
    def memory_info(device: str) -> tuple[int, int]:
        if statistics == "raise":
            raise ValueError(f"Allocator stats not available for device '{device}'")
        return (0, 0) if statistics == "zero" else (256, 512)

    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(devices, "memory_info", memory_info)
    chosen, sentences = devices.choose_devices(["CPU:0"])
    assert bool(chosen) == (statistics == "count")
    assert [sentence.startswith("Not recording CPU:0: ") for sentence in sentences] == [True] * (
        not chosen
    )


@pytest.mark.parametrize(
    ("limit", "group", "capacity"),
    [(None, "max", 23), (None, str(9 << 30), 9), ("2048", "max", 2), ("204800", "max", 23)],
)
def test_the_machines_memory_bounds_the_capacity_of_a_cpu(
    limit, group, capacity, monkeypatch, tmp_path
) -> None:
    # GIVEN a machine with 23 GiB, perhaps with a smaller limit of the process's control group, or
    # of the allocator
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(devices, "memory_info", lambda device: (256, 512))
    sysconf, known = os.sysconf, {"SC_PHYS_PAGES": 23 << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", lambda name: known.get(name) or sysconf(name))
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


def install(monkeypatch: pytest.MonkeyPatch, **processes: list[tuple[int, int | None]]) -> Any:
    """NVML as `pynvml` shows it, with GPUs by bus id, whose processes are (number, bytes)."""
    listed = {
        BUSES[name.replace("_", ":")].encode(): [
            mock.Mock(pid=pid, usedGpuMemory=size) for pid, size in found
        ]
        for name, found in processes.items()
    }
    library = mock.Mock(NVMLError=type("NVMLError", (Exception,), {}))

    def handle(bus: bytes) -> bytes:
        if bus not in listed:
            raise library.NVMLError
        return bus

    library.nvmlDeviceGetHandleByPciBusId.side_effect = handle
    library.nvmlDeviceGetMemoryInfo.return_value = mock.Mock(used=3 << 30, total=24 << 30)
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = listed.__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def calls(library: Any) -> tuple[int, int]:
    return library.nvmlInit.call_count, library.nvmlShutdown.call_count


def test_the_driver_gives_this_processs_bytes_and_those_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = os.getpid() + 1
    install(monkeypatch, GPU_0=[(others, 5), (os.getpid(), 7), (others, 9)], GPU_1=[])
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
    library = install(monkeypatch, GPU_0=[(os.getpid(), None)])
    driver = Driver(BUSES)
    driver.open()
    driver.read()
    # and GPU:1, which it does not know, is absent
    unknown = {"GPU:0": DriverFigures(MISSING, 3 << 30, 24 << 30)}
    assert driver.figures == unknown
    library.nvmlDeviceGetComputeRunningProcesses.side_effect = library.NVMLError
    driver.read()
    assert driver.figures == unknown
    library.nvmlDeviceGetMemoryInfo.side_effect = library.NVMLError
    driver.read()
    assert driver.figures == {"GPU:0": DriverFigures()}


def test_the_driver_is_opened_once_and_again_after_closing_and_not_without_a_gpu(
    monkeypatch,
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
def test_a_driver_that_is_missing_or_fails_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
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


NEVER = Due()


class System:
    """A clock, an allocator for each device and host RSS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *devices: str) -> None:
        self.now = 1000.0
        self.peaks = dict.fromkeys(devices, 100)
        self.resets: list[str] = []
        self.reads = 0
        self.rows: list[tuple[float, ...]] = []
        monkeypatch.setattr(samples, "time", self)
        self.steps = FastPath(devices, self, self.rows.append)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def resident_bytes(self) -> int:
        self.reads += 1
        return 7000 + self.reads

    def get(self, context: str, device: str) -> dict[str, int]:
        assert context == "context"
        return {"current": 50, "peak": self.peaks[device]}

    def reset(self, context: str, device: str) -> None:
        self.resets.append(device)

    def allow(self, step: int, due: Due = NEVER, behind: float = 0.0, **functions: Any) -> None:
        self.steps.begin(step, self.now + behind)
        get, reset = functions.get("get", self.get), functions.get("reset", self.reset)
        self.steps._keep = functions.get("keep", self.rows.append)
        self.steps.arm(changes.last, due, behind, self.now + behind, 7000, ("context", get, reset))

    def next(self, step: int, seconds: float = 0.01) -> bool:
        self.now += seconds
        return self.steps.next(step)


def test_a_step_ends_with_its_figures_and_the_next_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = System(monkeypatch, "GPU:0", "GPU:1")
    system.allow(5)
    system.peaks["GPU:1"] = 300
    assert system.next(6, 0.25) and system.next(7, 0.5)
    assert system.rows == [
        (1000.25, 5, 7001, 50, 100, 50, 300),
        (1000.75, 6, 7002, 50, 100, 50, 300),
    ]
    assert system.resets == ["GPU:0", "GPU:1"] * 2
    assert (system.steps.step, system.steps.began, system.steps.passed) == (7, 1000.75, 2)
    assert system.steps.drain() == (2, 0.75, 300)
    # AND from then on none begins here, until the next `allow`
    assert not system.next(8) and system.steps.drain() == (0, 0.0, 0) and len(system.rows) == 2


def test_host_rss_is_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0)
    seconds = RESIDENT_SECONDS / 2 + 0.001
    assert all(system.next(step, seconds) for step in range(1, 6))
    assert [row[2] for row in system.rows] == [7000, 7001, 7001, 7002, 7002]


@pytest.mark.parametrize(
    ("due", "passed"),
    [(Due(seconds=0.025), 2), (Due(step=4), 3), (Due(peak_bytes=99), 0), (Due(seconds=-1.0), 0)],
)
def test_what_is_due_ends_the_row_of_ordinary_steps(
    monkeypatch: pytest.MonkeyPatch, due: Due, passed: int
) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0, due)
    assert [system.next(step) for step in range(1, 6)] == [True] * passed + [False] * (5 - passed)
    # A step that ends on the other path is measured there: its peak was not reset.
    assert len(system.rows) == len(system.resets) == passed


def test_a_change_a_pause_and_a_clock_that_is_set_back_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0)
    assert system.next(1)
    changes.note()
    assert not system.next(2)
    system.allow(0)
    system.steps.disarm()
    assert not system.next(1)
    system.steps.drain()
    system.rows.clear()
    system.now = 1000.0
    system.allow(0, behind=60.0)
    assert system.next(1, 1.0) and system.rows[0][0] == 1061.0
    assert not system.next(2, -3600.0)


@pytest.mark.parametrize("part", ["get", "reset", "keep"])
def test_a_fault_is_left_to_the_other_path(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("broken on purpose")

    system = System(monkeypatch, "CPU:0")
    system.allow(0, **{part: broken})
    assert not system.next(1)
    assert system.rows == [] and (system.steps.step, system.steps.passed) == (0, 0)


@pytest.mark.parametrize("part", ["reset", "keep"])
def test_a_fault_after_a_reset_loses_no_peak(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    # GIVEN a step that ends here after the peak of the first device was reset, or of both
    monkeypatch.setattr(devices, "lost_peaks", {"GPU:1": 250})  # the program reset it before
    system = System(monkeypatch, "GPU:0", "GPU:1")

    def reset(context: str, device: str) -> None:
        if part == "reset" and device == "GPU:1":
            raise RuntimeError("broken on purpose")
        system.peaks[device] = 50

    system.peaks["GPU:0"] = 900
    system.allow(0, reset=reset, keep=system.rows.append if part == "reset" else None)
    assert not system.next(1)
    # THEN the other path samples the step with them
    monkeypatch.setattr(devices, "memory_info", lambda name: (50, system.peaks[name]))
    sampler = samples.Sampler([devices.Device(name, None, None) for name in system.peaks])
    assert sampler.sample(0.0, 0, "train", 0, None).peak_bytes == {"GPU:0": 900, "GPU:1": 250}


def test_a_clock_that_is_set_back_does_not_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a system clock that is set back by an hour, forward by a day, and back again
    system = iter([100.0, 101.0, -3499.0, -3498.0, 82902.0, 82903.0, -1.0, 0.0])
    monkeypatch.setattr(samples.time, "time", lambda: next(system))
    session = samples.Clock()
    # THEN steps keep their distances, except at the moment that it is set back
    assert [session.now() for _ in range(8)] == [100, 101, 101, 102, 86502, 86503, 86503, 86504]


COMMON = (0, MISSING, 300, 40, 50)


def row(step: int, *devices: tuple[int, ...]) -> tuple[int, ...]:
    figures = [(*device, 1 << 30, *[MISSING] * 5) for device in devices]
    return (step, *COMMON, *(size for device in figures for size in device))


def test_short_rows_are_like_the_row_that_they_follow() -> None:
    buffer = SampleBuffer(["GPU:0", "GPU:1"])
    buffer.append(1.0, row(0, (10, 20), (30, 40)))
    buffer.like(
        (
            1,
            2,
            8,
            300,
            40,
            50,
            0,
            0,
            1 << 30,
            5,
            6,
            7,
            MISSING,
            MISSING,
            0,
            0,
            1 << 31,
            3,
            4,
            5,
            MISSING,
            MISSING,
        )
    )
    buffer.keep((2.0, 1, 400, 11, 21, 31, 41))
    buffer.keep((3.0, 2, 500, 12, 22, 32, 42))
    # The numbers of rows go on, and the order stays.
    assert buffer.append(4.0, row(3, (13, 23), (33, 43))) == 3
    buffer.like(row(4, (0, 0), (0, 0)))
    buffer.keep((5.0, 4, 600, 14, 24, 34, 44))
    taken = buffer.take()
    assert (
        taken is not None
        and taken.step.tolist() == [0, 1, 2, 3, 4]
        and taken.wall_time.tolist() == [1, 2, 3, 4, 5]
    )
    assert taken.phase.tolist() == [0, 2, 2, 0, 0] and taken.epoch.tolist() == [
        MISSING,
        8,
        8,
        MISSING,
        MISSING,
    ]
    assert taken.host_resident_bytes.tolist() == [300, 400, 500, 300, 600]
    # Buffers in host memory are not read after ordinary steps.
    assert taken.tf_data_bytes.tolist() == [40, MISSING, MISSING, 40, MISSING]
    assert taken.pinned_pool_bytes.tolist() == [50, MISSING, MISSING, 50, MISSING]
    first, second = taken.devices.values()
    assert first.in_use_bytes.tolist() == [10, 11, 12, 13, 14] and second.peak_bytes.tolist() == [
        40,
        41,
        42,
        43,
        44,
    ]
    assert first.driver_process_bytes.tolist() == [MISSING, 5, 5, MISSING, MISSING]
    assert second.capacity_bytes.tolist() == [1 << 30, 1 << 31, 1 << 31, 1 << 30, 1 << 30]
    assert second.driver_total_bytes.tolist() == [MISSING, 5, 5, MISSING, MISSING]


def test_a_measurement_reaches_its_row_and_device() -> None:
    buffer = SampleBuffer(["GPU:0", "GPU:1"])
    numbers = [buffer.append(0.0, row(step, (1, 2), (3, 4))) for step in range(3)]
    assert buffer.measure(numbers[1], "GPU:1", 77, 66)
    taken = buffer.take()
    assert taken is not None
    assert taken.devices["GPU:1"].pool_bytes.tolist() == [MISSING, 77, MISSING]
    assert taken.devices["GPU:1"].largest_free_bytes.tolist() == [MISSING, 66, MISSING]
    assert taken.devices["GPU:1"].driver_total_bytes.tolist() == [MISSING] * 3
    assert taken.devices["GPU:0"].pool_bytes.tolist() == [MISSING] * 3
    # AND none reaches a row that was taken or is not there yet
    assert buffer.append(0.0, row(3, (1, 2), (3, 4))) == 3
    assert not buffer.measure(numbers[2], "GPU:0", 7, 6) and not buffer.measure(4, "GPU:0", 7, 6)
    taken = buffer.take()
    assert taken is not None and taken.devices["GPU:0"].pool_bytes.tolist() == [MISSING]


def test_a_row_that_waits_for_its_measurement_is_taken_with_it() -> None:
    buffer = SampleBuffer(["GPU:0"])
    numbers = [buffer.append(0.0, row(step, (1, 2)), waits=step in (1, 2)) for step in range(4)]
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0] and buffer.take() is None
    # THEN a later one is kept back for an earlier one, and each is measured
    assert buffer.measure(numbers[2], "GPU:0", 77, 66)
    buffer.release(numbers[2])
    assert buffer.take() is None
    buffer.release(numbers[1])
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [1, 2, 3]
    assert taken.devices["GPU:0"].pool_bytes.tolist() == [MISSING, 77, MISSING]


def test_rows_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_ROWS", 3)
    buffer = SampleBuffer(["GPU:0"])
    assert [buffer.append(0.0, row(step, (1, 2))) for step in range(5)] == [
        0,
        1,
        2,
        DROPPED,
        DROPPED,
    ]
    assert not buffer.measure(DROPPED, "GPU:0", 7, 6)
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [0, 1, 2]
    assert (buffer.take_dropped(), buffer.take_dropped()) == (2, 0)
    # The numbers of later rows go on.
    assert buffer.append(0.0, row(5, (1, 2))) == 3 and buffer.measure(3, "GPU:0", 7, 6)
    # AND so are short ones
    buffer.like(row(6, (1, 2)))
    for step in range(4):
        buffer.keep((0.0, step, 1, 2, 3))
    taken = buffer.take()
    assert taken is not None and taken.step.tolist() == [5, 0, 1] and buffer.take_dropped() == 2


def test_other_systems_have_no_host_rss(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    monkeypatch.setattr(samples.os, "open", missing)
    memory = ResidentMemory()
    assert memory.resident_bytes() == MISSING
    memory.close()
    monkeypatch.delattr(samples.os, "sysconf")
    ResidentMemory()
