"""A line on standard error about work that takes longer than two seconds, if that is a terminal."""

import contextlib
import shutil
import sys
import threading
from typing import TextIO

DELAY_SECONDS = 2.0  # work that ends earlier shows nothing
_ERASE = "\r\x1b[K"


class Progress:
    """Shows what is being done in one line, which the end of the block removes. Without a terminal
    it shows nothing. `work` is what takes long, such as ``report``, `parts` the number of its
    parts, None if unknown."""

    def __init__(
        self,
        work: str,
        parts: int | None = None,
        stream: TextIO | None = None,
        delay: float = DELAY_SECONDS,
    ) -> None:
        self._work, self._parts = work, parts
        self._stream = sys.stderr if stream is None else stream
        self._text, self._begun, self._visible, self._ended = "", 0, False, False
        self._lock = threading.Lock()
        self._timer = threading.Timer(delay, self._appear)
        self._timer.daemon = True

    def part(self, text: str) -> None:
        with self._lock:
            self._text, self._begun = text, self._begun + 1
            if self._visible:
                self._draw()

    def __enter__(self) -> "Progress":
        with contextlib.suppress(ValueError):  # it is closed
            if self._stream is not None and self._stream.isatty():
                self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._visible:
                self._write(_ERASE)

    def _appear(self) -> None:
        with self._lock:
            if not self._ended:
                self._visible = True
                self._draw()

    def _draw(self) -> None:
        count = f" ({self._begun} of {self._parts})" if self._parts and self._begun else ""
        line = f"{self._work}: {self._text or 'starting'}{count}"
        # A longer line would wrap, and only its last row would be removed.
        self._write(_ERASE + line[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()
