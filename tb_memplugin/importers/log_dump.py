"""One allocator dump in a log, read line by line."""

import math
import re
from collections.abc import Sequence

from tb_memplugin.allocator import rounded_bytes
from tb_memplugin.errors import FormatError
from tb_memplugin.importers.memory_dump import (
    ListedChunk,
    columns_of,
    make_map,
    regions_of,
    split_regions,
)
from tb_memplugin.schema import MemoryMap

MAX_DIGITS = 20  # of 2^64 - 1, TensorFlow's largest number

PRINTED_SIZE = r"\d{1,20}(?:\.\d{1,6})? ?(?:[KMGTPE]i)?B"
"""A size as TensorFlow prints it for readers (``HumanReadableNumBytes``): ``96B``, ``5.9KiB``,
``1.50GiB``."""
_PRINTED = re.compile(r"(\d+(?:\.(\d+))?) ?(?:([KMGTPE])i)?B")
_UNITS = "KMGTPE"
MAX_LINES = 1_000_000  # chunks of one dump
_BIN = re.compile(r"Bin \((\d+)\):\s*Total Chunks: (\d+), Chunks in use: \d+")
_REGION = re.compile(r"Next region of size (\d+)")
_CHUNK = re.compile(
    r"(?P<state>InUse|Chunk|Free)\s+at (?:0x)?(?P<address>[0-9a-fA-F]+)"
    r"(?:(?: by op \S+)?(?: action_count \d+)?(?: step "
    r"\d+)?(?: "
    r"next "
    r"(?P<next1>\d+))?)? "
    r"of "
    r"size "
    r"(?P<size>\d+)"
    r"(?: by op \S*)?(?: action_count \d+)?(?: step \d+)?(?: next (?P<next2>\d+))?"
)
_LAST = 2**64 - 1  # "next" in the last chunk of a region
_POOL = re.compile(
    r"(?:total_region_allocated_bytes_|Total size in "
    r"pool): "
    r"(?P<pool>[\d.]+\w*) "
    r"memory_limit_: "
    r"(?P<limit>[\d.]+\w*) "
    r"available (?:bytes|size): (?P<left>[\d.]+\w*)"
)
_STAT = re.compile(r"(?:^|[\s:|>])(Limit|InUse):\s+([\d.]+\w*)\s*$")
_SIZES = re.compile(r"(\d+) Chunks of size (\d+) totalling")
_SUMMARY, _SUM = "Summary of in-use Chunks", "Sum Total of in-use chunks"


def log_integer(digits: str, base: int = 10) -> int:
    """The integer of some digits; more than TensorFlow writes are refused: Python would take
    quadratic time."""
    if len(digits) > MAX_DIGITS:
        raise FormatError(
            f"the log contains a number of {len(digits)} digits; at most {MAX_DIGITS} are accepted"
        )
    return int(digits, base)


def printed_bytes(text: str) -> tuple[int, int]:
    """(bytes, by how much they may differ) of a `PRINTED_SIZE`. TensorFlow drops whole digits below
    the next smaller unit before it rounds: 1.50GiB may be up to 1 MiB more than its rounding
    allows."""
    match = _PRINTED.fullmatch(text)
    if match is None:
        raise FormatError(f"expected a size such as 1.50GiB. Received: {text!r}")
    digits, unit = match[2] or "", match[3]
    if unit is None:
        return round(float(match[1])), 0
    scale = 1 << (10 * (_UNITS.index(unit) + 1))
    cut = 0 if unit == "K" else scale >> 10
    return round(float(match[1]) * scale), round(scale / 10 ** len(digits) / 2) + cut


class LogDump:
    """Collects the lines of one failed allocation.

    Attributes:
        name: The allocator's name; empty in logs of TensorFlow 1.0 and 1.1.
        rounded_bytes, op: The request's rounded size and op.
        printed: The request as printed for readers, see `printed_bytes`.
        mixed: Whether another allocator's lines may be among these.
        ended: Whether the dump's last part has been read."""

    def __init__(self, name: str, rounded_bytes: int | None, op: str | None) -> None:
        self.name, self.rounded_bytes, self.op = name, rounded_bytes, op
        self.printed: tuple[int, int] | None = None
        self.mixed = self.ended = False
        self._bins: dict[int, int] = {}  # number of chunks of each
        self._regions: list[tuple[int | None, list[ListedChunk]]] = []
        self._stats: dict[str, str] = {}
        # bytes in the summary by size so far, None before its first line
        self._of_sizes: int | None = None
        self._summary = self._sum = False
        self._pool: re.Match[str] | None = None
        self._lines = 0

    @property
    def has_chunks(self) -> bool:
        return bool(self._bins or self._regions)

    @property
    def proves_failure(self) -> bool:
        """Whether its lines alone show that an allocation failed; statistics are printed elsewhere,
        too."""
        return bool(
            self.name or self.has_chunks or self.has_size or self._sum or self._of_sizes is not None
        )

    def begins_another(self, line: str) -> bool:
        """Whether a line of a dump without a header belongs to another dump than those read so
        far."""
        if _SUMMARY in line or _CHUNK.search(line) or _REGION.search(line):
            return self.ended
        stat = _STAT.search(line)
        return stat[1] in self._stats if stat else bool(self._stats)

    @property
    def in_use_bytes(self) -> int | None:
        """Bytes in use, by the statistics or by a whole summary by size."""
        known = _exact(self._stats.get("InUse"))
        return self._of_sizes if known is None and self._summary and self._sum else known

    @property
    def capacity_bytes(self) -> int | None:
        return self._capacity(self._pool_bytes())[0]

    @property
    def has_size(self) -> bool:
        return self.rounded_bytes is not None or self.printed is not None

    def fits(self, sizes: Sequence[int], allocator: str | None) -> bool:
        """Whether this failure may be that of a request of one of the sizes, all that its message
        allows."""
        if allocator is not None and self.name not in ("", allocator):
            return False
        if self.rounded_bytes is not None:
            return not sizes or self.rounded_bytes in map(rounded_bytes, sizes)
        about, uncertain = self.printed or (0, math.inf)
        return not sizes or any(abs(size - about) <= uncertain for size in sizes)

    def take(self, line: str) -> None:
        region = _REGION.search(line)
        if region is not None:
            self._regions.append((log_integer(region[1]), []))
            return
        chunk = _CHUNK.search(line)
        # The free chunks of the requested bin are also listed before the regions, in another form.
        if chunk is not None and "Chunk State" not in line and not self.ended:
            self._chunk(chunk)
            return
        found = _BIN.search(line)
        if found is not None:
            self._bins[log_integer(found[1])] = log_integer(found[2])
            return
        self._summary, self._sum = self._summary or _SUMMARY in line, self._sum or _SUM in line
        self.ended = self.ended or self._summary or self._sum
        sizes = _SIZES.search(line)
        if sizes is not None:
            self._of_sizes = (self._of_sizes or 0) + log_integer(sizes[1]) * log_integer(sizes[2])
        self._pool = self._pool or _POOL.search(line)
        stat = _STAT.search(line)
        if stat is not None:
            self._stats[stat[1]] = stat[2]

    def _chunk(self, match: re.Match[str]) -> None:
        self._lines += 1
        if self._lines > MAX_LINES:
            raise FormatError(
                f"the log lists more than the supported {MAX_LINES} chunks of one allocator"
            )
        last = log_integer(match["next1"] or match["next2"] or "0") == _LAST
        chunk = ListedChunk(
            log_integer(match["address"], 16),
            log_integer(match["size"]),
            match["state"] != "Free",
            last,
        )
        if not self._regions or self._begins_region(chunk):
            self._regions.append((None, []))
        self._regions[-1][1].append(chunk)

    def _begins_region(self, chunk: ListedChunk) -> bool:
        """Whether a chunk cannot be in the current region, so that the line that begins its own is
        missing."""
        size, chunks = self._regions[-1]
        if not chunks:
            return False
        end = chunks[-1].address + chunks[-1].bytes
        too_far = size is not None and chunk.address + chunk.bytes > chunks[0].address + size
        return (
            chunks[-1].last
            or chunk.address < end
            or too_far
            or (size is None and chunk.address != end)
        )

    def map(self, device: str, wall_time: float) -> tuple[MemoryMap | None, list[str]]:
        """The map of the chunks, None if they are missing or inconsistent; and sentences on what is
        unknown."""
        if self.mixed:
            return None, [
                "The chunks are unknown: the log mixes the dumps of two allocators, and its "
                "lines do not name their threads."
            ]
        if not any(chunks for _, chunks in self._regions):
            return None, ["The chunks are unknown: the log lists none for this failure."]
        notes: list[str] = []
        if any(size is not None for size, _ in self._regions):
            regions = regions_of(
                [
                    (chunks, *self._region(size, chunks, notes))
                    for size, chunks in self._regions
                    if chunks
                ]
            )
        # TensorFlow 1.x before 1.15 names no regions and lists the chunks in use of one before the
        # free ones
        else:
            listed_chunks = [chunk for _, chunks in self._regions for chunk in chunks]
            regions = split_regions(
                columns_of(sorted(listed_chunks, key=lambda chunk: chunk.address))
            )
        listed = len(regions.chunks.bytes)
        total = sum(self._bins.values())
        if self._bins and total != listed:
            missing = f"{total - listed} of {total}" if total > listed else "Some"
            notes.append(f"{missing} chunks are unknown: the log lacks their lines.")
        if not self.ended:
            notes.append("The end of the dump is missing from the log.")
        empty = sum(1 for _, chunks in self._regions if not chunks)
        if empty:
            notes.append(f"The chunks of {empty} regions are unknown: the log lacks their lines.")
        complete = not notes and bool(self._bins)
        pool = self._pool_bytes()
        if complete and pool is None:
            pool = int(regions.bytes.sum())
        in_use = int(regions.chunks.bytes[regions.chunks.in_use].sum())
        capacity, note = self._capacity(pool)
        if note:
            notes.append(note)
        try:
            memory_map = make_map(
                regions,
                device=device,
                wall_time=wall_time,
                in_use_bytes=in_use if complete else self.in_use_bytes,
                pool_bytes=pool,
                capacity_bytes=capacity,
                complete=complete,
                not_available=tuple(notes),
            )
        except FormatError as error:
            return None, [f"The chunks are unknown: {error}."]
        return memory_map, notes

    def _region(
        self, size: int | None, chunks: list[ListedChunk], notes: list[str]
    ) -> tuple[int, int]:
        """The address and the bytes of a region, as known."""
        address, known = (
            chunks[0].address,
            chunks[-1].address + chunks[-1].bytes - chunks[0].address,
        )
        holes = 0 if size is None else size - sum(chunk.bytes for chunk in chunks)
        if size is None:
            notes.append("The size of a region is unknown: the log lacks the line that begins it.")
        elif holes:
            notes.append(f"{holes} of a region's {size} bytes are unknown: the log lacks lines.")
            if chunks[-1].last:  # the address follows from the last chunk
                return address + known - size, size
        return address, known

    def _pool_bytes(self) -> int | None:
        """The pool as logged, or else the sum of its regions if no chunk is missing."""
        if self._pool is not None and _exact(self._pool["pool"]) is not None:
            return _exact(self._pool["pool"])
        sizes = [size for size, _ in self._regions if size is not None]
        whole = (
            self._bins
            and sum(self._bins.values()) == self._lines
            and len(sizes) == len(self._regions)
        )
        return sum(sizes) if whole else None

    def _capacity(self, pool: int | None) -> tuple[int | None, str | None]:
        """(exact limit, note); newer logs round the limit, but mostly give the bytes left of it
        exactly."""
        rounded, left = (
            (self._pool["limit"], _exact(self._pool["left"])) if self._pool else (None, None)
        )
        limit = _exact(self._stats.get("Limit")) or _exact(rounded)
        if limit is None and left is not None and pool is not None:
            limit = pool + left
        rounded = self._stats.get("Limit") or rounded
        if limit is None and rounded is not None:
            return None, f"The exact limit is unknown: the log rounds it to {rounded}."
        return limit, None


def is_of_dump(line: str) -> bool:
    return (
        _SUM in line
        or _SUMMARY in line
        or any(one.search(line) for one in (_CHUNK, _REGION, _SIZES, _POOL, _STAT))
    )


def _exact(text: str | None) -> int | None:
    """An exact size in bytes; None for a rounded one such as ``16.00MiB``."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)B?", text)
    return log_integer(match[1]) if match else None
