"""The inflated body of a frame in order, without holding all of it."""

import zlib
from typing import Any

from tb_memplugin.errors import FormatError

_IN, _OUT = 64 << 10, 1 << 20
"""Bytes that are inflated at once, and bytes of the result at once."""


def _open_stream(packed: memoryview) -> tuple[Any, memoryview]:
    """An inflater for the deflated bytes of a zlib stream, and these bytes.

    The stream's own checksum at its end is not compared: the frame's checksum covers all of its bytes, and this one
    takes a fifth of the time of inflating.
    """
    method, flags = bytes(packed[:2]).ljust(2, b"\0")
    if method & 15 != 8 or flags & 32 or (method << 8 | flags) % 31:
        raise FormatError("frame's body cannot be inflated: incorrect header check")
    return zlib.decompressobj(-zlib.MAX_WBITS), packed[2:]


class Inflating:
    """A body that is being inflated. One of at most `_OUT` bytes is checked at once.

    Args:
        packed: The zlib stream.
        size: The size that the frame's header states.

    Raises:
        FormatError: The body is small and damaged, or of another size.
    """

    def __init__(self, packed: memoryview, size: int) -> None:
        self._inflater, self._packed = _open_stream(packed)
        self._size = size
        self._ready = memoryview(b"")
        self._left = size
        if size <= _OUT:
            whole = b"".join(self._parts(size))
            self._check_end()
            self._ready, self._left = memoryview(whole), size

    def take(self, size: int) -> bytes | memoryview:
        """The next `size` bytes, at most those that are left."""
        parts = list(self._parts(size))
        if not self._left:
            self._check_end()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _parts(self, size: int) -> list[memoryview]:
        parts = []
        self._left -= size
        while size:
            if not self._ready and not self._inflate():
                raise self._wrong_size()
            part = self._ready[:size]
            self._ready = self._ready[len(part) :]
            size -= len(part)
            parts.append(part)
        return parts

    def _check_end(self) -> None:
        if self._ready or self._inflate() or not self._inflater.eof:
            raise self._wrong_size()

    def _inflate(self) -> bool:
        """Inflate some more bytes; False at the end."""
        while not self._inflater.eof:
            rest: bytes | memoryview = self._inflater.unconsumed_tail
            if not rest:
                rest, self._packed = self._packed[:_IN], self._packed[_IN:]
            try:
                inflated = self._inflater.decompress(rest, _OUT)
            except zlib.error as error:
                raise FormatError(f"frame's body cannot be inflated: {error}") from None
            if inflated:
                self._ready = memoryview(inflated)
                return True
            if not self._packed and not self._inflater.unconsumed_tail:
                return False
        return False

    def _wrong_size(self) -> FormatError:
        return FormatError(f"frame's body is not the {self._size} bytes its header states")
