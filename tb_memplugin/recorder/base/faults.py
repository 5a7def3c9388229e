"""Isolates faults of the recorder from training: a part that fails is reported once and stops."""

import logging
import re
from collections.abc import Callable, Set

from tb_memplugin.recorder.base.due import changes

logger = logging.getLogger("tb_memplugin")


# An absolute path of at least two parts, with or without a drive: not ``/device:CPU:0`` and not ``a/b``.
_PATH = re.compile(r"(?<![\w/.])(?:[A-Za-z]:)?[\\/][^\s'\":;,]*[\\/][^\s'\":;,]*")


def without_paths(sentence: str) -> str:
    """`sentence` with absolute paths replaced: run directories are shared and must name no person or machine."""
    return _PATH.sub("<path>", sentence)


class _Part:
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


class Faults:
    """Runs parts of the recorder; reports a part's first fault and does not run the part again.

    Any thread may call the methods.

    Args:
        report: Called with one sentence per fault; may raise.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()
        self._parts: dict[str, _Part] = {}

    def part(self, part: str) -> "_Part":
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
            found = self._parts[part] = _Part(self, part, self._stopped)
        return found

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
        sentence = f"{part} stopped: {' '.join(reason.split())[:500]}"
        self.warn(sentence + "; training is not affected")

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
