"""Reads this process's memory by address, only if it is mapped."""

import bisect
import ctypes


class UnreadableError(Exception):
    """The memory map cannot be read; the message is the reason, without a full stop."""


class MappedMemory:
    """The readable mappings of this process, from ``/proc/self/maps`` at construction. Every pointer into a C++ library
    is looked up here before it is followed, so that a wrong assumption about the library raises `UnreadableError`
    instead of crashing the process."""

    def __init__(self, listing: str | None = None) -> None:
        if listing is None:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                listing = file.read()
        # By column: an object for each of a thousand mappings would let Python's garbage collector run earlier.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._files: list[str] = []
        # "7f52c0000000-7f52c0021000 r-xp 00000000 08:01 123  /usr/lib/libm.so.6", in ascending order
        for line in listing.splitlines():
            addresses, permissions, _, _, _, *path = line.split(None, 5)
            if permissions.startswith("r"):
                start, _, end = addresses.partition("-")
                self._starts.append(int(start, 16))
                self._ends.append(int(end, 16))
                self._files.append(path[0] if path else "")

    def file_of(self, address: int) -> str:
        """Path of the file mapped at an address, empty for anonymous memory."""
        return self._files[self._at(address)]

    def paths_of(self, name: str) -> list[str]:
        return sorted({file for file in self._files if file.rpartition("/")[2] == name})

    def pointer(self, address: int) -> int:
        """The pointer at an aligned address."""
        if address % 8 or address + 8 > self._ends[self._at(address)]:
            raise UnreadableError(f"pointer {address:#x} does not point to readable memory")
        return ctypes.c_uint64.from_address(address).value

    def signed(self, address: int) -> int:
        return ctypes.c_int64(self.pointer(address)).value

    def text(self, address: int, longest: int = 200) -> str:
        """The zero-terminated ASCII text at an address, of less than `longest` characters."""
        data = ctypes.string_at(address, min(longest, self._ends[self._at(address)] - address))
        text, zero, _ = data.partition(b"\0")
        if not zero or not text.isascii():
            raise UnreadableError(f"there is no name at {address:#x}")
        return text.decode("ascii")

    def _at(self, address: int) -> int:
        number = bisect.bisect_right(self._starts, address) - 1
        if number >= 0 and address < self._ends[number]:
            return number
        raise UnreadableError(f"pointer {address:#x} does not point to readable memory")
