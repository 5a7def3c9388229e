"""Faults of the recorder never reach the training: each part that fails is reported once and stops."""

import logging
import re
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("tb_memplugin")


# A path from the root, with or without a drive; a single name after a slash (``/device:CPU:0``, ``a/b``) is none.
_PATH = re.compile(r"(?<![\w/.])(?:[A-Za-z]:)?[\\/][^\s'\":;,]*[\\/][^\s'\":;,]*")


def without_paths(sentence: str) -> str:
    """`sentence` with absolute paths left out: run directories are sent to others and name no person or machine."""
    return _PATH.sub("<path>", sentence)


class Faults:
    """Runs parts of the recorder; after a part's first fault it is reported and not run again.

    Args:
        report: Called with the sentence of each fault, for the record; may itself fail.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report
        self._stopped: set[str] = set()

    def run(self, part: str, action: Callable[..., Any], *arguments: Any) -> Any:
        """`action(*arguments)`, or None if `part` has failed, now or before.

        `part` completes "… stopped": a noun phrase for the user, such as "memory samples".
        """
        if part in self._stopped:
            return None
        try:
            return action(*arguments)
        except Exception as error:
            self.stop(part, f"{type(error).__name__}: {error}")
            return None

    def stop(self, part: str, reason: str) -> None:
        """Stops a part for a known reason; says so once."""
        if part in self._stopped:
            return
        self._stopped.add(part)
        sentence = f"{part} stopped: {' '.join(reason.split())[:500]}"
        self.warn(sentence + "; training is not affected")

    def stopped(self, part: str) -> bool:
        """Whether `part` has failed."""
        return part in self._stopped

    def warn(self, sentence: str) -> None:
        """One warning by `logging`, noted in the run as well."""
        logger.warning("%s", sentence)
        if self._report is not None:
            try:
                self._report(without_paths(sentence))
            except Exception:  # the record of a fault may fail with what caused it, e.g. a full disk
                logger.debug("the fault could not be noted in the run", exc_info=True)
