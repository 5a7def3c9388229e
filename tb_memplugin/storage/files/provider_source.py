"""Frames from TensorBoard's data provider."""

import dataclasses
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard import errors
from tensorboard.data import provider as provider_lib

from tb_memplugin.storage.files.source import (
    NO_ROLLUP,
    RECORDED,
    Listing,
    NewestFrames,
    SourceError,
    StoredFrame,
    TagContent,
)
from tb_memplugin.storage.frames import parse_tag
from tb_memplugin.version import PLUGIN_NAME

ALL = 2**31 - 1
"""`downsample` of every read: the provider must not drop points at random."""
FIRST_BATCH_TAGS = 16
MAX_BATCH_TAGS = 512
AIM_BATCH_BYTES = 8 << 20
"""Target size of a batch; the data server limits a response to 256 MiB."""
MAX_FAILURES = 24
"""Failed reads after which the provider counts as unavailable, not single tags as damaged."""


class ProviderSource:
    """The frames of one experiment (empty for a local log directory) in a data provider, for one request."""

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
            raise SourceError(f"TensorBoard's data cannot be listed now: {_brief(error)}") from error
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
                    raise SourceError(f"TensorBoard's data cannot be read now: {_brief(error)}") from error
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
        """See `Source.event_runs`; a run's mark is the number of its tags and the newest of their marks."""
        listing = self.listing()
        return {run: (len(tags), max(tags.values(), key=_time)) for run, tags in listing.items() if tags}

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        return {run: tags for run, tags in self.listing().items() if run in event_runs}

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        listing = self.listing_of(event_runs)
        parsed = {run: sorted(filter(None, map(parse_tag, tags))) for run, tags in listing.items()}
        last = {run: {tag.session: str(tag) for tag in tags if tag.stream == stream} for run, tags in parsed.items()}
        contents: dict[str, list[TagContent]] = {}
        for content in self.read({run: list(tags.values()) for run, tags in last.items()}):
            contents.setdefault(content.event_run, []).append(dataclasses.replace(content, frames=content.frames[-1:]))
        for run in event_runs:
            recorded = {tag.session for tag in parsed.get(run, ()) if tag.stream in RECORDED}
            missing = NO_ROLLUP if recorded - last.get(run, {}).keys() else None
            yield NewestFrames(run, tuple(sorted(contents.get(run, ()), key=lambda content: content.tag)), missing)

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
