"""Frames from event files, without TensorBoard's server and without TensorFlow."""

import itertools
import math
import os
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.files.event_file import EventFile, Place, read_tail
from tb_memplugin.storage.files.source import (
    MAX_TAG_BYTES,
    Listing,
    NewestFrames,
    SourceError,
    StoredFrame,
    TagContent,
)
from tb_memplugin.storage.frames import run_name

SCAN_SECONDS = 1.0
"""Time that a live listing spends on files with records of this plugin before it leaves the others
to the next one."""
_OTHER_SECONDS = 0.5
"""The same for files without a known record of this plugin."""
_REST_FACTOR = 10
_MAX_REST_SECONDS, _MAX_REMOTE_REST_SECONDS = 10.0, 60.0
"""A live listing stays valid for 10 times as long as it took, at most 10 seconds: directories may
hold many files. In an object store at most 60 seconds: each file and directory costs a request."""
_READ_BYTES = 4 << 20
"""Most bytes of one read of neighboring records."""
_READ_GAP_BYTES = 64 << 10
"""Gaps between requested records up to this size are read, not skipped."""


class FileSource:
    """The frames in the event files under a directory.

    Args:
        live: Whether the directory is listed again and again, as by a server: then a listing is
            quick at the expense of being complete, what it leaves out is said, and the next one
            goes on.
        found: The event files to read; by default all under the directory, which are looked for at
            each listing.

    Raises:
        NotFoundError: There is no such directory."""

    def __init__(
        self, logdir: str | os.PathLike[str], live: bool = False, found: files.Found | None = None
    ) -> None:
        self._logdir = files.log_directory(os.fspath(logdir))
        self._found = found
        self._live = live
        self._files: dict[str, EventFile] = {}  # by path
        self._unlisted: Mapping[str, Sequence[str]] = {}
        self._marks: Mapping[str, Mapping[str, Hashable]] = {}
        self._valid_until = -math.inf
        self._scanned_alone = False
        self._runs: Mapping[str, tuple[tuple[str, files.FileState | None], ...]] = {}
        self._runs_valid_until = -math.inf

    def listing(self) -> Listing:
        """See `Source.listing`; a tag's mark is the number of its frames by file. Reads only
        appended bytes.

        The same object is returned as long as nothing has changed."""
        began = time.monotonic()
        if began < self._valid_until:
            return self._marks
        found = self._found or files.event_files(self._logdir)
        self._unlisted = found.damage
        known, self._files = (
            self._files,
            {
                path: self._files.get(path) or EventFile(run, path)
                for run, paths in found.files.items()
                for path in paths
            },
        )
        changed = self._scanned_alone or known.keys() != self._files.keys()
        self._scanned_alone = False
        every = self._files.values()
        # What the last listing did not finish comes last: it must not hold up the others again.
        for file in sorted(every, key=lambda file: (not file.is_ours, file.remaining > 0)):
            seconds = SCAN_SECONDS if file.is_ours else _OTHER_SECONDS
            changed |= file.scan(
                began + seconds if self._live else math.inf, found.states.get(file.path)
            )
        if changed:
            self._marks = _marks(every)
        if self._live and not any(file.remaining for file in every):
            self._valid_until = self._rested(began)
        return self._marks

    def event_runs(self) -> Mapping[str, Hashable]:
        """See `Source.event_runs`: runs with files of the recorder. Their marks are the states of
        their files."""
        began = time.monotonic()
        if began < self._runs_valid_until:
            return self._runs
        found = self._found or files.event_files(self._logdir)
        self._runs = {
            run: tuple((path, found.states.get(path)) for path in paths)
            for run, paths in found.files.items()
            if run_name(run)[0] != run
        }
        if self._live:
            self._runs_valid_until = self._rested(began)
        return self._runs

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        wanted = []
        for run in self.event_runs().keys() & set(event_runs):
            for path, state in self._runs[run]:
                file = self._files.setdefault(path, EventFile(run, path))
                # The length of a store's listing was true a moment ago; a local file is asked for
                # its own.
                self._scanned_alone |= file.scan(math.inf, None if files.is_local(path) else state)
                wanted.append(file)
        return _marks(wanted)

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        self.event_runs()
        known = self._runs
        yield from files.at_once(
            lambda run: _newest(run, known.get(run, ()), stream), [*event_runs], self._logdir
        )

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        for run, tags in wanted.items():
            of_run = [file for file in self._files.values() if file.run == run]
            batch: dict[str, Sequence[Place]] = {}
            size = 0
            for tag in dict.fromkeys(tags):
                batch[tag] = [place for file in of_run for place in file.places.get(tag, ())]
                size += sum(place.size for place in batch[tag])
                if size >= _READ_BYTES:
                    yield from self._read_batch(run, batch)
                    batch, size = {}, 0
            yield from self._read_batch(run, batch)

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        sentences = {run: list(texts) for run, texts in self._unlisted.items()}
        # Damage to files of other plugins is not reported.
        ours = {file.run for file in self._files.values() if file.is_ours}
        for file in self._files.values():
            if file.run in ours or file.error is not None:
                sentences.setdefault(file.run, []).extend(file.damage(self._live))
        return {run: tuple(texts) for run, texts in sentences.items() if texts}

    def _rested(self, began: float) -> float:
        """Until when a result is valid whose making began then."""
        now = time.monotonic()
        longest = _MAX_REST_SECONDS if files.is_local(self._logdir) else _MAX_REMOTE_REST_SECONDS
        return now + min(_REST_FACTOR * (now - began), longest)

    def unread(self) -> tuple[str, ...]:
        """Sentences on files and directories that the last `listing` could not read; the next one
        may."""
        unlisted = [text for texts in self._unlisted.values() for text in texts]
        every = [file.unread for file in self._files.values()]
        return (*unlisted, *(text for text in every if text is not None))

    def _read_batch(self, run: str, wanted: Mapping[str, Sequence[Place]]) -> Iterator[TagContent]:
        fitting: dict[str, list[Place]] = {}
        for tag, places in wanted.items():
            ends = itertools.accumulate(place.size for place in places)
            fitting[tag] = [
                place for place, end in zip(places, ends, strict=True) if end <= MAX_TAG_BYTES
            ]
        contents = _read_places(itertools.chain(*fitting.values()))
        for tag, places in fitting.items():
            frames, damage = [], []
            more = len(wanted[tag]) - len(places)
            if more:
                damage.append(f"{more} events are not read: the tag exceeds {MAX_TAG_BYTES} bytes")
            for place in places:
                data = contents[place.path, place.offset]
                if len(data) == place.size:
                    frames.append(StoredFrame(place.step, data))
                else:
                    damage.append(f"the event of step {place.step} has changed in the file")
            yield TagContent(run, tag, tuple(frames), tuple(damage))


def _newest(
    run: str, paths: Sequence[tuple[str, files.FileState | None]], stream: str
) -> NewestFrames:
    sessions: dict[str, TagContent] = {}
    missing = None
    for path, state in paths:
        try:
            # Its state is read again if it could not be read before: that says why.
            length = (state or files.state(path)).length
            tail = read_tail(files.reader(path), length, stream)
        except Exception as error:  # each file system raises its own
            missing = f"it cannot be read: {files.reason(error, path)}"
            continue
        if isinstance(tail, tuple):
            # A session's last file holds the newest.
            sessions[tail[0].split("/")[1]] = TagContent(run, tail[0], tail[1:])
        else:
            missing = missing or tail
    return NewestFrames(run, tuple(content for _, content in sorted(sessions.items())), missing)


def _marks(every: Iterable[EventFile]) -> dict[str, dict[str, Hashable]]:
    marks: dict[str, dict[str, Any]] = {}
    for file in every:
        for tag, places in file.places.items():
            of_run = marks.setdefault(file.run, {})
            of_run[tag] = (*of_run.get(tag, ()), (file.path, file.generation, len(places)))
    return marks


def _read_places(places: Iterable[Place]) -> dict[tuple[str, int], bytes]:
    contents: dict[tuple[str, int], bytes] = {}
    ordered = sorted({(place.path, place.offset, place.size) for place in places})
    at = 0
    while at < len(ordered):
        path, begin, size = ordered[at]
        end, last = begin + size, at + 1
        while last < len(ordered):
            next_path, offset, next_size = ordered[last]
            if (
                next_path != path
                or offset > end + _READ_GAP_BYTES
                or offset + next_size - begin > _READ_BYTES
            ):
                break
            end, last = max(end, offset + next_size), last + 1
        try:
            data = files.reader(path)(begin, end - begin)
        except Exception as error:  # each file system raises its own
            raise SourceError(
                f"an event file cannot be read now: {files.reason(error, path)}"
            ) from error
        for _, offset, next_size in itertools.islice(ordered, at, last):
            contents[path, offset] = data[offset - begin : offset - begin + next_size]
        at = last
    return contents
