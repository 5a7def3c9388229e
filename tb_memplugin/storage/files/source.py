"""The interface of a source of frames, TensorBoard's data provider as one, and limits on what one
run costs.

A run directory may come from a stranger: a few kilobytes can state gigabytes."""

import dataclasses
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from tensorboard import errors
from tensorboard.data import provider as provider_lib

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.storage.frames import Tag, parse_tag
from tb_memplugin.version import PLUGIN_NAME

Listing: TypeAlias = Mapping[str, Mapping[str, Hashable]]
"""TensorBoard's run name to tag to a mark that changes whenever the tag's frames change."""


class SourceError(MemoryPluginError):
    """The source cannot be read now (stopped server, failing disk); a retry may succeed."""


@dataclasses.dataclass(frozen=True)
class StoredFrame:
    """One event's step and frame, neither validated."""

    step: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class TagContent:
    """The frames of one tag, and sentences on frames that could not be read."""

    event_run: str
    tag: str
    frames: tuple[StoredFrame, ...]
    damage: tuple[str, ...] = ()


RECORDED = ("samples", "snapshots", "oom")
"""Streams that a roll-up summarizes: a session with any of them should have a roll-up."""
NO_ROLLUP = "it has no roll-up"
DAMAGED_ROLLUP = "its newest roll-up is damaged"


@dataclasses.dataclass(frozen=True)
class NewestFrames:
    """The newest frame of one stream of each session in an event run; or why a session may lack it,
    as the end of a sentence."""

    event_run: str
    contents: tuple[TagContent, ...]
    missing: str | None


class Source(Protocol):
    """A source of frames, used by one thread at a time. Methods raise SourceError if it cannot be
    read now."""

    def listing(self) -> Listing:
        """The current tags; cheap enough for every request."""

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """Read the wanted tags (event run to tags) in batches of bounded size; missing tags are
        left out."""

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """Event run to sentences on data that the last `listing` could not list."""

    def event_runs(self) -> Mapping[str, Hashable]:
        """Event runs that may have frames, each with a mark that changes whenever its frames do.
        Reads no frames."""

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        """The current tags of some event runs, complete however many others there are."""

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        """The newest frames of a stream in some event runs, at a cost that does not depend on how
        much they hold."""


MAX_RUN_BYTES = 96 << 20
"""Limit of what the data of one run takes in memory, without activations; the run's damage says
what is not shown."""
MAX_RUN_ROWS = 1 << 20
"""Limit of the samples of one run, of all workers together: a view widens the columns of one
device."""
MAX_TAG_BYTES = 32 << 20
"""Stored bytes read of one tag; the recorder's tags stay below 8 MiB."""
MAX_SESSIONS = 1000
"""Most sessions shown per run, the newest."""
MAX_WORKERS = 128
"""Most workers whose histories are read for a view of all of them, the first by name."""
MANY_WORKERS = 64
"""Of runs with more workers the comparison of devices reads roll-ups only."""

Entry: TypeAlias = tuple[str, str, Tag, Hashable]
"""Worker, event run, tag, mark of the tag."""


@dataclasses.dataclass
class ByteBudget:
    """What the frames of a run may still take: bytes in memory, and rows of samples or values of
    activations.

    The first frame that does not fit is left out, and so are all after it. Equal tuples of layer
    paths are kept once.
    """

    bytes: int
    rows: int
    is_full: bool = False
    layers: dict[tuple[str, ...], tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def fits(self, size: int, rows: int) -> bool:
        return not self.is_full and size <= self.bytes and rows <= self.rows

    def reserve(self, size: int, rows: int) -> bool:
        self.is_full = not self.fits(size, rows)
        if not self.is_full:
            self.bytes -= size
            self.rows -= rows
        return not self.is_full


def within_limits(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries of the workers and sessions that are shown, and a sentence on each kind of
    others."""
    sentences = []
    workers = sorted({entry[0] for entry in entries})
    if len(workers) > MAX_WORKERS:
        sentences.append(
            f"{len(workers) - MAX_WORKERS} of {len(workers)} workers: only the first "
            f"{MAX_WORKERS} by name are read"
        )
        shown = set(workers[:MAX_WORKERS])
        entries = [entry for entry in entries if entry[0] in shown]
    # Identifiers of sessions sort by start time.
    sessions = sorted({(entry[2].session, entry[0]) for entry in entries})
    if len(sessions) > MAX_SESSIONS:
        left_out = len(sessions) - MAX_SESSIONS
        sentences.append(
            f"{left_out} of {len(sessions)} sessions: only the last {MAX_SESSIONS} are read"
        )
        newest = set(sessions[-MAX_SESSIONS:])
        entries = [entry for entry in entries if (entry[2].session, entry[0]) in newest]
    return list(entries), sentences


ALL = 2**31 - 1
"""`downsample` of every read: the provider must not drop points at random."""
FIRST_BATCH_TAGS = 16
MAX_BATCH_TAGS = 512
AIM_BATCH_BYTES = 8 << 20
"""Target size of a batch; the data server limits a response to 256 MiB."""
MAX_FAILURES = 24
"""Failed reads after which the provider counts as unavailable, not single tags as damaged."""


class ProviderSource:
    """The frames of one experiment (empty for a local log directory) in a data provider, for one
    request."""

    def __init__(self, provider: Any, context: Any, experiment_id: str) -> None:
        self._provider = provider
        self._context = context
        self._experiment_id = experiment_id

    def listing(self) -> Listing:
        """See `Source.listing`; a tag's mark is the step and time of its newest event."""
        try:
            listing = self._provider.list_tensors(
                self._context, experiment_id=self._experiment_id, plugin_name=PLUGIN_NAME
            )
        except errors.PublicError:
            raise
        except Exception as error:  # providers raise any type: connection errors, bugs
            raise SourceError(
                f"TensorBoard's data cannot be listed now: {_brief(error)}"
            ) from error
        return {
            run: {tag: (series.max_step, series.max_wall_time) for tag, series in tags.items()}
            for run, tags in (listing or {}).items()
        }

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        pending = [(run, tag) for run, tags in wanted.items() for tag in tags]
        pending.reverse()
        size, failures = FIRST_BATCH_TAGS, 0
        while pending:
            batch = [pending.pop() for _ in range(min(size, len(pending)))]
            try:
                contents = self._read_batch(batch)
            except errors.PublicError:
                raise
            except Exception as error:  # over the response limit, or one bad tag: bisect
                failures += 1
                if failures > MAX_FAILURES:
                    raise SourceError(
                        f"TensorBoard's data cannot be read now: {_brief(error)}"
                    ) from error
                if len(batch) == 1:
                    run, tag = batch[0]
                    yield TagContent(run, tag, (), (f"the tag could not be read: {_brief(error)}",))
                else:
                    pending.extend(reversed(batch))
                    size = max(1, len(batch) // 2)
                continue
            yield from contents
            total = sum(len(frame.data) for content in contents for frame in content.frames)
            fitting = AIM_BATCH_BYTES // max(1, total // len(batch))
            size = max(1, min(fitting, len(batch) * 4, MAX_BATCH_TAGS))

    def event_runs(self) -> Mapping[str, Hashable]:
        """See `Source.event_runs`; a run's mark is the number of its tags and the newest of their
        marks."""
        listing = self.listing()
        return {
            run: (len(tags), max(tags.values(), key=_time)) for run, tags in listing.items() if tags
        }

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        return {run: tags for run, tags in self.listing().items() if run in event_runs}

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        listing = self.listing_of(event_runs)
        parsed = {run: sorted(filter(None, map(parse_tag, tags))) for run, tags in listing.items()}
        last = {
            run: {tag.session: str(tag) for tag in tags if tag.stream == stream}
            for run, tags in parsed.items()
        }
        contents: dict[str, list[TagContent]] = {}
        for content in self.read({run: list(tags.values()) for run, tags in last.items()}):
            contents.setdefault(content.event_run, []).append(
                dataclasses.replace(content, frames=content.frames[-1:])
            )
        for run in event_runs:
            recorded = {tag.session for tag in parsed.get(run, ()) if tag.stream in RECORDED}
            missing = NO_ROLLUP if recorded - last.get(run, {}).keys() else None
            yield NewestFrames(
                run, tuple(sorted(contents.get(run, ()), key=lambda content: content.tag)), missing
            )

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def _read_batch(self, batch: Sequence[tuple[str, str]]) -> list[TagContent]:
        tensors = self._provider.read_tensors(
            self._context,
            experiment_id=self._experiment_id,
            plugin_name=PLUGIN_NAME,
            downsample=ALL,
            run_tag_filter=provider_lib.RunTagFilter(
                runs=sorted({run for run, _ in batch}), tags=sorted({tag for _, tag in batch})
            ),
        )
        found = [(run, tag, (tensors or {}).get(run, {}).get(tag)) for run, tag in batch]
        return [_content(run, tag, data) for run, tag, data in found if data is not None]


def _time(mark: Any) -> float:
    return float(mark[1])


def _content(run: str, tag: str, data: Sequence[Any]) -> TagContent:
    frames: list[StoredFrame] = []
    for datum in data:
        values = np.asarray(datum.numpy, dtype=object)
        value = values.item() if values.size == 1 else None
        if isinstance(value, bytes):
            frames.append(StoredFrame(int(datum.step or 0), value))
    others = len(data) - len(frames)
    damage = (f"{others} events of the tag do not hold one string",) if others else ()
    return TagContent(run, tag, tuple(frames), damage)


def _brief(error: BaseException) -> str:
    # Connection errors span several lines and contain addresses.
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]:.200}" if text else type(error).__name__
