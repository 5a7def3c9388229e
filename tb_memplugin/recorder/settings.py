"""What a recorder is asked to do, checked before training starts."""

import dataclasses
import os
from collections.abc import Collection, Sequence
from typing import Any

from tb_memplugin.errors import RecordingError


@dataclasses.dataclass(frozen=True)
class Settings:
    """Checked arguments of `MemoryCallback` and `MemoryRecorder`.

    Attributes:
        log_dir: Run directory, a local path or a URL that TensorFlow can write to.
        overhead: Share of run time that tracing may cost.
        trace_steps: Training steps to trace, None to choose automatically.
        devices: Names of the devices to record, None for all GPUs or, without any, the CPU.
        keep_profile: Whether raw profiles stay in the run for TensorBoard's profiler tab.
        worker: Name of this process among several that record into the same run.
    """

    log_dir: str
    overhead: float
    trace_steps: frozenset[int] | None
    devices: tuple[str, ...] | None
    keep_profile: bool
    worker: str

    @property
    def traces(self) -> bool:
        """Whether any step may be traced."""
        return self.overhead > 0 or bool(self.trace_steps)

    @property
    def remote(self) -> bool:
        """Whether the run is on a file system that uploads whole files at each flush."""
        return "://" in self.log_dir


def check(
    log_dir: Any,
    overhead: Any,
    trace_steps: Collection[int] | None,
    devices: Sequence[str] | None,
    keep_profile: Any,
    worker: Any,
) -> Settings:
    """The arguments as `Settings`.

    Raises:
        RecordingError: An argument cannot work; the message names it and what was received.
    """
    if isinstance(overhead, bool) or not isinstance(overhead, (int, float)) or not 0 <= overhead <= 1:
        raise RecordingError(
            f"overhead must be the share of run time that tracing may cost, from 0 (trace nothing) "
            f"to 1. Received: overhead={overhead!r}"
        )
    if not isinstance(keep_profile, bool):
        raise RecordingError(f"keep_profile must be True or False. Received: keep_profile={keep_profile!r}")
    if not isinstance(worker, str) or worker.strip("./\\") != worker or "/" in worker or "\\" in worker:
        raise RecordingError(f"worker must be a plain directory name, such as 'worker_1'. Received: worker={worker!r}")
    return Settings(
        _check_log_dir(log_dir),
        float(overhead),
        _check_steps(trace_steps),
        _check_devices(devices),
        keep_profile,
        worker,
    )


def _check_log_dir(log_dir: Any) -> str:
    try:
        path = os.fspath(log_dir)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise RecordingError(
            f"log_dir must be a directory for the run, such as 'runs/exp1'. Received: log_dir={log_dir!r}"
        )
    if "://" in path:
        return path
    if os.path.exists(path) and not os.path.isdir(path):
        raise RecordingError(f"log_dir must be a directory, but it is a file. Received: log_dir={log_dir!r}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"log_dir cannot be made ({error.strerror}). Received: log_dir={log_dir!r}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise RecordingError(
            f"log_dir cannot be written to. Received: log_dir={log_dir!r}; give a directory that you own"
        )
    return path


def _check_steps(trace_steps: Any) -> frozenset[int] | None:
    if trace_steps is None:
        return None
    try:
        steps = list(trace_steps)
    except TypeError:
        steps = [None]
    if any(isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0 for step in steps):
        raise RecordingError(
            f"trace_steps must be training steps, whole numbers from 0, such as [10, 500]. "
            f"Received: trace_steps={trace_steps!r}"
        )
    return frozenset(int(step) for step in steps)


def _check_devices(devices: Any) -> tuple[str, ...] | None:
    if devices is None:
        return None
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise RecordingError(f"devices must be a list of names, such as ['GPU:0']. Received: devices={devices!r}")
    return tuple(devices)
