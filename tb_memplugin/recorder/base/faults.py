"""Isolates faults of the recorder from training: a part that fails is reported once and stops.

The analysis of a step may fail for that step only; it stops after three steps in a row.
"""

import logging
import re
from collections.abc import Callable, Set

from tb_memplugin.recorder.base.due import changes

logger = logging.getLogger("tb_memplugin")


# An absolute path of at least two parts, with or without a drive: not ``/device:CPU:0`` and not ``a/b``. In quotation
# marks, as in the operating system's errors, it may contain spaces.
_START = r"(?<![\w/.])(?:[A-Za-z]:)?[\\/]"
_PATH = re.compile(rf"(?<='){_START}[^']*[\\/][^']*(?=')|{_START}[^\s'\":;,]*[\\/][^\s'\":;,]*")


def without_paths(sentence: str) -> str:
    """`sentence` with absolute paths replaced: run directories are shared and must name no person or machine."""
    return _PATH.sub("<path>", sentence)


class Part:
    """See `Faults.part`. It has no state of a block, so any thread may use it at any time."""

    __slots__ = ("_faults", "_part", "_stopped")

    def __init__(self, faults: "Faults", part: str, stopped: Set[str]) -> None:
        self._faults = faults
        self._part = part
        self._stopped = stopped

    def __enter__(self) -> bool:
        return self._part not in self._stopped

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._faults.stop(self._part, f"{type(error).__name__}: {error}")
        return True


MAX_FAILED_STEPS = 3
"""Steps in a row whose analysis may fail before it stops."""
MAX_STEP_NOTES = 5
"""Most steps that are reported for a part; further ones are logged at debug level only."""


class _StepPart(Part):
    """See `Faults.step`."""

    __slots__ = ("_step",)

    def __init__(self, faults: "Faults", part: str, stopped: Set[str], step: int) -> None:
        super().__init__(faults, part, stopped)
        self._step = step

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._faults.step_ended(self._part, self._step, error)
        return error is not None


class Faults:
    """Runs parts of the recorder; reports a part's first fault and does not run the part again.

    Any thread may call the methods.

    Args:
        report: Called with one sentence per fault; may raise.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()
        self._parts: dict[str, Part] = {}
        self._failed_steps: dict[str, int] = {}  # in a row
        self._noted_steps: dict[str, int] = {}

    def part(self, part: str) -> "Part":
        """A block that runs a part, unless it has stopped, and stops it at its first exception:

        ```python
        with faults.part("memory samples") as runs:
            if runs:
                take_sample()
        ```

        Args:
            part: Noun phrase for the user that completes "… stopped".
        """
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = Part(self, part, self._stopped)
        return found

    def step(self, part: str, step: int) -> "_StepPart":
        """A block like that of `part` that analyzes one step; for the background thread.

        An exception costs this step. `MAX_FAILED_STEPS` of them in a row stop the part.
        """
        return _StepPart(self, part, self._stopped, step)

    def step_ended(self, part: str, step: int, error: Exception | None) -> None:
        """Note how a block of `step` ended."""
        if error is None:
            self._failed_steps[part] = 0
            return
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
        """Stop a part for a known reason; report it once."""
        if part in self._stopped:
            return
        self._stopped.add(part)
        changes.note()
        self.warn(f"{part} stopped: {_line(reason)}; training is not affected")

    def stopped(self, part: str) -> bool:
        """Whether `part` has stopped."""
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
