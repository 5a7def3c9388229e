"""One dump of an allocator in a log, line by line."""

import re

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.chunk_list import ListedChunk, ListedRegion, make_map, region_of
from tb_memplugin.model import AllocatorMap

ROUNDING = 256
MAX_LINES = 1_000_000
"""Most chunks that are kept of one dump."""

_BIN = re.compile(r"Bin \((\d+)\):\s*Total Chunks: (\d+), Chunks in use: (\d+)")
_REGION = re.compile(r"Next region of size (\d+)")
_CHUNK = re.compile(
    r"(?P<state>InUse|Chunk|Free)\s+at (?:0x)?(?P<address>[0-9a-fA-F]+)"
    r"(?:(?: by op \S+)?(?: action_count \d+)?(?: step \d+)?(?: next (?P<next1>\d+))?)? of size (?P<size>\d+)"
    r"(?: by op \S*)?(?: action_count \d+)?(?: step \d+)?(?: next (?P<next2>\d+))?"
)
_LAST = 2**64 - 1
"""What "next" says of the last chunk of a region."""
_POOL = re.compile(
    r"(?:total_region_allocated_bytes_|Total size in pool): (?P<pool>[\d.]+\w*) memory_limit_: (?P<limit>[\d.]+\w*) "
    r"available (?:bytes|size): (?P<left>[\d.]+\w*)"
)
_STAT = re.compile(r"^\s*(Limit|InUse):\s+([\d.]+\w*)\s*$")


class LogDump:
    """Collects the lines of one failed allocation.

    Attributes:
        name: The allocator's.
        rounded_bytes, op: Of the request, None if the log does not say.
        mixed: Whether another allocator's lines may be among these.
        ended: Whether the dump's last part was seen.
    """

    def __init__(self, name: str, rounded_bytes: int | None, op: str | None) -> None:
        self.name, self.rounded_bytes, self.op = name, rounded_bytes, op
        self.mixed = self.ended = False
        self._bins: dict[int, tuple[int, int]] = {}
        self._regions: list[tuple[int | None, list[tuple[ListedChunk, bool]]]] = []
        self._stats: dict[str, str] = {}
        self._pool: re.Match[str] | None = None
        self._lines = 0

    @property
    def has_chunks(self) -> bool:
        """Whether any line of the dump itself was read."""
        return bool(self._bins or self._regions)

    def fits(self, requested: int | None, allocator: str | None) -> bool:
        """Whether a message about a request of that many bytes is about this failure."""
        if allocator is not None and allocator != self.name:
            return False
        return requested is None or self.rounded_bytes in (None, max(1, -(-requested // ROUNDING)) * ROUNDING)

    def take(self, line: str) -> None:
        """Reads one line; any other than a dump's is passed over."""
        region = _REGION.search(line)
        if region is not None:
            self._regions.append((int(region[1]), []))
            return
        chunk = _CHUNK.search(line)
        # The free chunks of the wanted bin are listed before the regions as well, in another form.
        if chunk is not None and "Chunk State" not in line and not self.ended:
            self._chunk(chunk)
            return
        found = _BIN.search(line)
        if found is not None:
            self._bins[int(found[1])] = (int(found[2]), int(found[3]))
            return
        if "Summary of in-use Chunks" in line or "Sum Total of in-use chunks" in line:
            self.ended = True
        self._pool = self._pool or _POOL.search(line)
        stat = _STAT.match(line)
        if stat is not None:
            self._stats[stat[1]] = stat[2]

    def _chunk(self, match: re.Match[str]) -> None:
        self._lines += 1
        if self._lines > MAX_LINES:
            raise FormatError(f"the log lists more than {MAX_LINES} chunks of one allocator")
        chunk = ListedChunk(int(match["address"], 16), int(match["size"]), match["state"] != "Free")
        last = int(match["next1"] or match["next2"] or 0) == _LAST
        if not self._regions or self._begins_region(chunk):
            self._regions.append((None, []))
        self._regions[-1][1].append((chunk, last))

    def _begins_region(self, chunk: ListedChunk) -> bool:
        """Whether a chunk cannot be of the region that is open: the line that begins its own was lost."""
        size, chunks = self._regions[-1]
        if not chunks:
            return False
        first, (end_chunk, was_last) = chunks[0][0], chunks[-1]
        end = end_chunk.address + end_chunk.bytes
        too_far = size is not None and chunk.address + chunk.bytes > first.address + size
        return was_last or chunk.address < end or too_far or (size is None and chunk.address != end)

    def map(self, device: str, wall_time: float) -> tuple[AllocatorMap | None, list[str]]:
        """The map of the chunks, if there are any that can be believed, and what is not available."""
        if self.mixed:
            return None, [
                "The chunks are not available, because the log mixes the dumps of two allocators and its lines do not "
                "name their threads."
            ]
        if not any(chunks for _, chunks in self._regions):
            return None, ["The chunks are not available, because the log lists none for this failure."]
        notes: list[str] = []
        regions = [self._region(size, chunks, notes) for size, chunks in self._regions if chunks]
        listed = sum(len(region.chunks) for region in regions)
        told = sum(total for total, _ in self._bins.values())
        if self._bins and told != listed:
            lost = f"{told - listed} of {told}" if told > listed else "some"
            notes.append(f"{lost} chunks are not available, because the log does not hold their lines.")
        if not self.ended:
            notes.append("The end of the dump is not available, because the log ends early or lacks it.")
        empty = sum(1 for _, chunks in self._regions if not chunks)
        if empty:
            notes.append(f"The chunks of {empty} regions are not available, because the log does not hold their lines.")
        complete = not notes and bool(self._bins)
        pool = self._pool_bytes()
        if complete and pool is None:
            pool = sum(region.bytes for region in regions)
        in_use = sum(chunk.bytes for region in regions for chunk in region.chunks if chunk.in_use)
        capacity, sentence = self._capacity(pool)
        if sentence:
            notes.append(sentence)
        try:
            taken = make_map(
                regions,
                device=device,
                wall_time=wall_time,
                in_use_bytes=in_use if complete else _exact(self._stats.get("InUse")),
                pool_bytes=pool,
                capacity_bytes=capacity,
                complete=complete,
                not_available=notes,
            )
        except FormatError as error:
            return None, [f"The chunks are not available, because {error}."]
        return taken, notes

    def _region(self, size: int | None, chunks: list[tuple[ListedChunk, bool]], notes: list[str]) -> ListedRegion:
        """One region; where its size and its last chunk are known, so is where it begins."""
        listed = region_of([chunk for chunk, _ in chunks])
        if size is None:
            notes.append("The size of a region is not available, because the log lacks the line that begins it.")
            return listed
        holes = size - sum(chunk.bytes for chunk in listed.chunks)
        if not holes:
            return listed
        notes.append(f"{holes} bytes of a region of {size} are not available, because lines of the log are missing.")
        if chunks[-1][1]:
            return ListedRegion(listed.chunks, listed.address + listed.bytes - size, size)
        return listed

    def _pool_bytes(self) -> int | None:
        sizes = [size for size, _ in self._regions]
        if self._pool is not None and _exact(self._pool["pool"]) is not None:
            return _exact(self._pool["pool"])
        return None if None in sizes or not self.ended else sum(size for size in sizes if size is not None)

    def _capacity(self, pool: int | None) -> tuple[int | None, str | None]:
        """The limit, exact or not at all: newer logs round it, but what is left of it often is exact."""
        limit = _exact(self._stats.get("Limit")) or _exact(self._pool["limit"] if self._pool else None)
        left = _exact(self._pool["left"]) if self._pool else None
        if limit is None and left is not None and pool is not None:
            limit = pool + left
        about = self._stats.get("Limit") or (self._pool["limit"] if self._pool else None)
        if limit is None and about is not None:
            return None, f"The exact limit is not available, because the log rounds it to {about}."
        return limit, None


def _exact(text: str | None) -> int | None:
    """A size that the log gives to the byte; a rounded one, such as ``16.00MiB``, is None."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)B?", text)
    return int(match[1]) if match else None
