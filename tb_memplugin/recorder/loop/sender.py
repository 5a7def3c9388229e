"""`Sender`: what the background thread does for an open session. It has the steps analyzed by the
helper process, hands all that was recorded to the writer of the event file, and looks every few
seconds what the training waits for."""

import os

from tb_memplugin.recorder.base import Background, Faults, Job, Settings, submit
from tb_memplugin.recorder.failure import POLL_SECONDS
from tb_memplugin.recorder.helper import TRACING, TracedStep
from tb_memplugin.recorder.loop.run_file import RunFile
from tb_memplugin.recorder.loop.steps import DRIVER, POST_MORTEMS, Steps
from tb_memplugin.recorder.watch import TABLE, LayerWatch
from tb_memplugin.schema import SAMPLES
from tb_memplugin.storage.write import PackedRecord, RunWriter

FLUSH_SECONDS = 5.0
REMOTE_FLUSH_SECONDS = 45.0  # on a remote file system each flush uploads the whole file again

PROFILES = "keeping raw profiles"


class Sender:
    """Any thread calls `rest` and `wake`, which submit jobs; the background thread runs the other
    methods.

    Args:
        look: Called every few seconds on the background thread."""

    def __init__(
        self,
        settings: Settings,
        steps: Steps,
        file: RunFile,
        layers: LayerWatch,
        faults: Faults,
        look: Job,
    ) -> None:
        self.steps, self.file = steps, file
        self._settings, self._layers, self._faults = settings, layers, faults
        self._look = look
        self._has_breakdown = False
        self._polled: float | None = None  # when the step began that ran at the last poll
        seconds = REMOTE_FLUSH_SECONDS if settings.remote else FLUSH_SECONDS
        self._periodic = Background(self._tick, seconds), Background(self._poll, POLL_SECONDS)

    def rest(self, ends: bool) -> None:
        """Write what was recorded, optionally as the session's end, and close every file until
        `wake`."""
        submit(self._write_and_rest, ends)
        for one in self._periodic:
            one.set_ticking(False)

    def wake(self) -> None:
        submit(self.file.wake)
        submit(self._faults.run, DRIVER, self.steps.sampler.driver.open)
        for one in self._periodic:
            one.set_ticking(True)

    def analyze(self, traced: TracedStep) -> None:
        """Write the records of a traced step."""
        file, windows, is_first = self.file, self.steps.windows, not self._has_breakdown
        if is_first:
            # readers find nothing but this so far
            file.do(RunWriter.analyzing, traced.step)
        try:
            records = self._records(traced)
        finally:
            windows.release(traced)
        for record in records:
            file.do(RunWriter.traced, record)
        completed = self._faults.run_step(TABLE, traced.step, self._layers.completed_table)
        if completed is not None:
            file.do(RunWriter.layer_table, completed)
        if is_first:
            file.do(RunWriter.analyzing, None)
            self._has_breakdown = any(record.kept is not None for record in records)

    def _records(self, traced: TracedStep) -> list[PackedRecord]:
        """The records of a step, from the helper process. Its work counts as overhead."""
        windows, helper, settings = self.steps.windows, self.steps.windows.helper, self._settings
        before = helper.cost_seconds
        records = self._faults.run_step(TRACING, traced.step, helper.records, traced)
        windows.schedule.add_cost(helper.cost_seconds - before)
        if traced.phase == "train":
            sizes = (facts.batch.size for facts in traced.facts.values())
            self._layers.batch_size = next(sizes, None) or self._layers.batch_size
        if settings.keep_profile and not traced.only_learn:
            self._faults.run(PROFILES, _keep_profile, settings.log_dir, traced)
        return records or []

    def _tick(self) -> None:
        steps = self.steps
        self._faults.run("noticing interrupted trainings", self._look)
        self._faults.run(DRIVER, steps.sampler.driver.read)
        opened, ordinary = steps.open, steps.ordinary
        step, phase = (None, None) if opened is None else (ordinary.step, opened.phase)
        began = ordinary.began - steps.sampler.clock.behind if ordinary.passed else 0.0
        self._faults.run(POST_MORTEMS, steps.oom.tick, step, phase, began)
        self.file.write_out()

    def _poll(self) -> None:
        """Read the maps of a step that runs for as long as from one poll to the next."""
        began = None if self.steps.open is None else self.steps.ordinary.began
        before, self._polled = self._polled, began
        if began is not None and began == before:
            # an allocator without statistics is a fault of the samples
            self._faults.run(SAMPLES, self.steps.failure_maps.poll)

    def _write_and_rest(self, ends: bool) -> None:
        try:
            self.steps.sampler.buffer.release()  # of a step in which a fault was met
            self._tick()
            self.file.end_epoch()
            self.file.do(RunWriter.end if ends else RunWriter.roll_up)
        finally:
            self.file.rest()
            self._faults.clean_up(DRIVER, self.steps.sampler.driver.close)
            if ends:
                self.steps.windows.helper.close()


def _keep_profile(log_dir: str, traced: TracedStep) -> None:
    """Write a profile into the run, for TensorBoard's profiler tab."""
    import tensorflow as tf

    # The usual file name contains this machine's name.
    step = f"memory_{traced.phase}_step_{traced.step:08d}"
    directory = os.path.join(log_dir, "plugins", "profile", step)
    tf.io.gfile.makedirs(directory)
    with (
        open(traced.profile, "rb") as profile,
        tf.io.gfile.GFile(f"{directory}/memory.xplane.pb", "wb") as file,
    ):
        file.write(profile.read())
