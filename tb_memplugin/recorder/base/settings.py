"""The recorder's settings, checked before training starts."""

import dataclasses
import json
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tb_memplugin.environment import absolute
from tb_memplugin.errors import RecordingError

DEFAULT_LOG_DIR = "logs"  # the default of `keras.callbacks.TensorBoard`


@dataclasses.dataclass(frozen=True)
class Settings:
    """Checked arguments of `MemoryCallback` and `MemoryRecorder`."""

    log_dir: str  # an absolute local path or a URL that TensorFlow can write to
    overhead: float
    trace_steps: frozenset[int] | None  # None to choose automatically
    devices: tuple[str, ...] | None  # None for all GPUs, or the CPU if there is no GPU
    keep_profile: bool
    worker: str
    source_lines: bool = True
    scalars: bool = False
    batch_size: int | None = None  # of a training step as the program names it, for one replica
    # called as a failed allocation ends the program
    at_failure: Callable[[BaseException, str], object] | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments that give these settings, here or in another process. A worker's name that
        is from ``TF_CONFIG`` is left out: another process may be another worker."""
        arguments = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.worker == _worker_of_cluster():
            arguments["worker"] = None
        return arguments

    @property
    def follows(self) -> bool:
        """Whether several processes train, and this one is not the first of them, to which all
        others turn."""
        own, leader = _cluster()
        return own not in ("", leader)

    @property
    def traces(self) -> bool:
        return self.overhead > 0 if self.trace_steps is None else bool(self.trace_steps)

    @property
    def remote(self) -> bool:
        """Whether the run is on a file system that uploads the whole file at each flush."""
        return "://" in self.log_dir


def checked_settings(*arguments: Any, **options: Any) -> Settings:
    """Check the arguments of `Settings`; a `RecordingError` names an invalid one and the received
    value."""
    given = Settings(*arguments, **options)
    overhead, worker, devices, batch_size = (
        given.overhead,
        given.worker,
        given.devices,
        given.batch_size,
    )
    if (
        isinstance(overhead, bool)
        or not isinstance(overhead, (int, float))
        or not 0 <= overhead <= 1
    ):
        _refuse(
            "must be the share of run time that tracing may cost, from 0 (no tracing) to 1",
            overhead=overhead,
        )
    for name in ("keep_profile", "source_lines", "scalars"):
        if not isinstance(switch := getattr(given, name), bool):
            _refuse("must be True or False", **{name: switch})
    if given.at_failure is not None and not callable(given.at_failure):
        _refuse("must be a function of the exception and of log_dir", at_failure=given.at_failure)
    if batch_size is not None and not is_batch_size(batch_size):
        _refuse("must be an integer from 1 on", batch_size=batch_size)
    worker = _worker_of_cluster() if worker is None else worker
    if (
        not isinstance(worker, str)
        or worker.strip("./\\") != worker
        or "/" in worker
        or "\\" in worker
    ):
        _refuse("must be a plain directory name, such as 'worker_1'", worker=worker)
    names = [devices] if isinstance(devices, str) else devices
    named = isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names)
    if names is not None and not named:
        _refuse("must be a list of names, such as ['GPU:0']", devices=devices)
    return dataclasses.replace(
        given,
        log_dir=_check_log_dir(given.log_dir),
        overhead=float(overhead),
        trace_steps=_check_steps(given.trace_steps),
        devices=None if names is None else tuple(names),
        worker=worker,
        batch_size=None if batch_size is None else int(batch_size),
    )


def _refuse(rule: str, **received: Any) -> NoReturn:
    ((name, value),) = received.items()
    raise RecordingError(f"{name} {rule}. Received: {name}={value!r}") from None


def is_step(step: Any) -> bool:
    """Whether a value is a step, or an epoch: an integer from 0 to `MAX_STEP`."""
    # here: it imports NumPy, and `tb-memplugin run` imports this module
    from tb_memplugin.schema import MAX_STEP

    try:
        return not isinstance(step, bool) and 0 <= operator.index(step) <= MAX_STEP
    except TypeError:
        return False


def is_batch_size(size: Any) -> bool:
    return is_step(size) and size > 0


def _worker_of_cluster() -> str:
    """``<type>_<index>`` of this process if ``TF_CONFIG`` lists several that train; ""
    otherwise."""
    return _cluster()[0]


def _cluster() -> tuple[str, str]:
    """The same, and that of the worker that leads TensorFlow's collective operations."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        task, cluster = config.get("task") or {}, config.get("cluster") or {}
        training = [address for job in ("chief", "worker") for address in cluster.get(job) or ()]
        kind, index = str(task.get("type", "")), int(task.get("index", 0))
    except (AttributeError, TypeError, ValueError):  # TensorFlow itself refuses it
        return "", ""
    own = f"{kind}_{index}" if len(training) > 1 and kind.isidentifier() else ""
    return own, "chief_0" if cluster.get("chief") else "worker_0"


def _check_log_dir(log_dir: Any) -> str:
    """The directory as an absolute path, made if it is missing; a URL as it is."""
    path = os.fspath(log_dir) if isinstance(log_dir, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        _refuse("must be a path or URL of the run directory, such as 'runs/exp1'", log_dir=log_dir)
    if "://" in path:
        return path
    if os.path.exists(path) and not os.path.isdir(path):
        _refuse("must be a directory, but it is a file", log_dir=log_dir)
    try:
        os.makedirs(path, exist_ok=True)
        whole = absolute(path)  # raises if the working directory is gone
    except OSError as error:
        _refuse(f"cannot be created: {error.strerror}", log_dir=log_dir)
    if not os.access(path, os.W_OK | os.X_OK):
        received = f"Received: log_dir={log_dir!r}. Pass a directory that you can write to."
        raise RecordingError(f"log_dir is not writable. {received}")
    return whole


def _check_steps(trace_steps: Any) -> frozenset[int] | None:
    if trace_steps is None:
        return None
    try:
        steps = list(trace_steps)
    except TypeError:
        steps = [None]
    if not all(map(is_step, steps)):
        _refuse(
            "must be training steps, integers from 0 to 2**53 - 1, such as [10, 500]",
            trace_steps=trace_steps,
        )
    return frozenset(map(int, steps))
