"""Isolates faults of the recorder from training: a part that fails is reported once and stops. The analysis of a step
may fail for that step only; it stops after three steps in a row."""

import logging
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tb_memplugin.recorder.base.due import changes

logger = logging.getLogger("tb_memplugin")

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

# An absolute path of at least two parts, with or without a drive: not ``/device:CPU:0`` and not ``a/b``. In quotation
# marks, as in the operating system's errors, it may contain spaces.
_START = r"(?<![\w/.])(?:[A-Za-z]:)?[\\/]"
_PATH = re.compile(rf"(?<='){_START}[^']*[\\/][^']*(?=')|{_START}[^\s'\":;,]*[\\/][^\s'\":;,]*")


def without_paths(sentence: str) -> str:
    """`sentence` with absolute paths replaced: run directories are shared and must name no person or machine."""
    return _PATH.sub("<path>", sentence)


MAX_FAILED_STEPS = 3  # steps in a row whose analysis may fail before it stops
MAX_STEP_NOTES = 5  # most steps that are reported for a part; further ones are logged at debug level only


class Faults:
    """Runs parts of the recorder; reports a part's first fault and does not run the part again. Any thread may call the
    methods. `report` gets one sentence per fault and may raise."""

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()
        self._failed_steps: dict[str, int] = {}  # in a row
        self._noted_steps: dict[str, int] = {}

    def run(
        self, part: str, job: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> _Result | None:
        """The job's result; None if its part has stopped, or stops now because the job raises. The part is a noun
        phrase for the user that completes "… stopped"."""
        if part in self._stopped:
            return None
        try:
            return job(*args, **kwargs)
        except Exception as error:
            self.stop(part, f"{type(error).__name__}: {error}")
            return None

    def run_step(
        self,
        part: str,
        step: int,
        job: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result | None:
        """As `run`, for the analysis of one step on the background thread. An exception costs this step.
        `MAX_FAILED_STEPS` of them in a row stop the part."""
        if part in self._stopped:
            return None
        try:
            result = job(*args, **kwargs)
        except Exception as error:
            self._step_failed(part, step, error)
            return None
        self._failed_steps[part] = 0
        return result

    def _step_failed(self, part: str, step: int, error: Exception) -> None:
        logger.debug("%s failed for step %d", part, step, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        failed = self._failed_steps[part] = self._failed_steps.get(part, 0) + 1
        noted = self._noted_steps[part] = self._noted_steps.get(part, 0) + 1
        if failed >= MAX_FAILED_STEPS:
            self.stop(part, reason)
        elif noted <= MAX_STEP_NOTES:
            self.warn(f"{part} failed for step {step}: {_line(reason)}; training is not affected")

    def clean_up(self, part: str, action: Callable[[], None]) -> None:
        """Call `action`, also if `part` has stopped: what a part has opened is closed in any case."""
        try:
            action()
        except Exception as error:
            self.stop(part, f"{type(error).__name__}: {error}")

    def stop(self, part: str, reason: str) -> None:
        if part in self._stopped:
            return
        self._stopped.add(part)
        changes.note()
        self.warn(f"{part} stopped: {_line(reason)}; training is not affected")

    def stopped(self, part: str) -> bool:
        return part in self._stopped

    def warn(self, sentence: str) -> None:
        """Log a warning and add it to the run's notes."""
        logger.warning("%s", sentence)
        if self._report is not None:
            try:
                self._report(without_paths(sentence))
            except Exception:  # the cause of the fault, such as a full disk, may break the report as well
                logger.debug("a fault could not be noted in the run", exc_info=True)


def _line(reason: str) -> str:
    return " ".join(reason.split())[:500]
