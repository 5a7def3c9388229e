"""Isolates faults of the recorder from training: a part that fails is reported once and stops."""

import logging
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tb_memplugin.recorder.base.due import changes

logger = logging.getLogger("tb_memplugin")

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# An absolute path of at least two parts, with or without a drive: not ``/device:CPU:0`` and not ``a/b``.
_PATH = re.compile(r"(?<![\w/.])(?:[A-Za-z]:)?[\\/][^\s'\":;,]*[\\/][^\s'\":;,]*")


def without_paths(sentence: str) -> str:
    """`sentence` with absolute paths replaced: run directories are shared and must name no person or machine."""
    return _PATH.sub("<path>", sentence)


class Faults:
    """Runs parts of the recorder; reports a part's first fault and does not run the part again.

    Any thread may call the methods.

    Args:
        report: Called with one sentence per fault; may raise.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()

    def run(
        self, part: str, action: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result | None:
        """Call `action` unless its part has stopped; its first exception stops the part.

        Args:
            part: Noun phrase for the user that completes "… stopped".
            action: What to call, with the arguments that follow.

        Returns:
            What `action` returns; None if the part has stopped.
        """
        if part in self._stopped:
            return None
        try:
            return action(*arguments, **named)
        except Exception as error:
            self.stop(part, f"{type(error).__name__}: {error}")
            return None

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
