"""`MemoryRecorder`: the recorder for training loops of one's own."""

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tb_memplugin.environment import without_own_frames
from tb_memplugin.recorder.base import DEFAULT_LOG_DIR, checked_settings
from tb_memplugin.recorder.loop.session import Session
from tb_memplugin.schema import Phase


class MemoryRecorder:
    """Records the device memory of a training run: a sample of every step, layer tables, and traced
    steps.

    ```python
    with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
        for step, batch in enumerate(dataset):
            with recorder.step(step):
                train_step(batch)
    ```

    Create it before the training functions are traced, so that it can observe which operations each
    layer makes. A fault while recording never ends training or changes its result: the part that
    fails is logged once and stops.

    A background thread writes the run. The same thread closes a recorder that is dropped without
    `close`; one that still exists when the process ends is closed then.

    Args:
        log_dir: Directory of the run (one run in TensorBoard), local or a URL that TensorFlow can
            write to.
        model: Keras model or `tf.Module` that is trained; without it there are no layers.
        optimizer: Its optimizer; by default the one that the model was compiled with.
        overhead: Share of run time that tracing may cost; 0 traces nothing.
        trace_steps: Trace exactly these training steps instead.
        devices: Names of the devices to record; by default all GPUs, or the CPU if there is none.
        keep_profile: Keep the raw profile of each traced step in the run, for TensorBoard's
            profiler tab.
        worker: Name of this process if several record into the same run; by default from
            ``TF_CONFIG``.
        source_lines: Store the line of your code that called each layer and op: name of the file
            and number.
        scalars: Also write peaks as scalars for TensorBoard's Scalars and HParams dashboards.
        batch_size: Examples in the batch of a training step, for one replica, where the tensors of
            a step do not show it: if they begin with different numbers, for example with that of
            time steps.

    Raises:
        RecordingError: An argument is invalid."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = DEFAULT_LOG_DIR,
        model: Any = None,
        optimizer: Any = None,
        *,
        overhead: float = 0.005,
        trace_steps: Collection[int] | None = None,
        devices: Sequence[str] | None = None,
        keep_profile: bool = False,
        worker: str | None = None,
        source_lines: bool = True,
        scalars: bool = False,
        batch_size: int | None = None,
    ) -> None:
        settings = checked_settings(
            log_dir,
            overhead,
            trace_steps,
            devices,
            keep_profile,
            worker,
            source_lines,
            scalars,
            batch_size,
        )
        self._recording = Session(settings)
        if model is not None:
            self.watch(model, optimizer)

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self._recording.closed

    def start(self) -> None:
        """Begin the session, as entering a `with` block does. Calling it again does nothing."""
        self._recording.start()

    def close(self) -> None:
        """End an open step, write everything and end the session; waits until everything is
        written.

        It waits for 5 s at most while the background thread does nothing, and for 60 s while it
        works.

        Calling it again does nothing."""
        self._recording.close()

    def flush(self) -> None:
        """Wait, as `close` does, until everything recorded so far is in the event file."""
        self._recording.drain()

    def __enter__(self) -> "MemoryRecorder":
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Set the model that is trained from now on, and its optimizer (by default the one it was
        compiled with)."""
        self._recording.watch(model, optimizer)

    def set_epoch(self, epoch: int | None) -> None:
        """Set the epoch of the following steps; None for no epoch."""
        self._recording.set_epoch(epoch)

    @contextlib.contextmanager
    def step(
        self, step: int, phase: Phase = "train", batch_size: int | None = None
    ) -> Iterator[None]:
        """Record the block as one step; in other phases than `train`, as a batch after training
        step `step`.

        In a run without training steps, number the batches. `batch_size` names the step's own."""
        self.begin_step(step, phase, batch_size)
        self._recording.failures.enter()
        try:
            yield
        except BaseException as error:
            without_own_frames(error.__traceback__)
            raise
        finally:
            self._recording.failures.leave()
            self.end_step()

    def begin_step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> None:
        """Begin a step and end the open one. Pair it with `end_step` where a `with` block does not
        fit."""
        self._recording.begin_step(step, phase, batch_size)

    def end_step(self, error: BaseException | None = None) -> None:
        """End the open step and keep its sample.

        Args:
            error: Exception that ended the step. It need not be passed: a failed allocation is seen
                as it is raised."""
        self._recording.end_step()
