"""The records that an answer needs, from only their workers."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import MemoryMap, Phase, Run, Snapshot, Timeline, full_device_name, some
from tb_memplugin.storage import (
    BASIC,
    OOM,
    LoadedRun,
    Reader,
    RunTags,
    Stream,
    of_session,
    of_worker,
    workers_of,
)
from tb_memplugin.storage.files import MANY_WORKERS, MAX_WORKERS, Source

if TYPE_CHECKING:
    from tb_memplugin.server.run_list import RunList


class FoundDevice(NamedTuple):
    """A run with the data of all workers or only of some, that of a device's worker, and the
    device's name there."""

    loaded: LoadedRun
    run: Run
    own_name: str


class Lookup(NamedTuple):
    """Finds the records that an answer needs, and reads only their workers: those of a large run
    one by one. Raises NotFoundError for an unknown run, session, device or record, SourceError if
    the source cannot be read now."""

    reader: Reader
    source: Source
    listed: "RunList"

    def run(self, name: str, *streams: Stream) -> LoadedRun:
        """The run with its basic streams and these."""
        return self.reader.run(self.source, name, {*BASIC, *streams})

    def tags(self, name: str) -> RunTags:
        return self.reader.tags(self.source, name)

    def find_device(self, name: str, device: str, session: str | None = None) -> FoundDevice:
        """Read the worker with `device` of the run called `name`, or only one session."""
        tags = self.tags_with(name, device)
        if session is not None:
            of_session(tags, session)
        names = []
        for own in workers_with(tags, device):
            if session is not None and session not in {entry[2].session for entry in own.tags}:
                continue
            loaded = self.reader.load(self.source, own, session=session)
            for worker, run in loaded.by_worker.items():
                recorded = [*run.samples.devices, *(snapshot.device for snapshot in run.snapshots)]
                for own_name in dict.fromkeys(recorded):
                    if full_device_name(worker, own_name) == device:
                        return FoundDevice(loaded, run, own_name)
                    names.append(full_device_name(worker, own_name))
        raise NotFoundError(f"run {name} has no device {device!r:.200}; available: {some(names)}")

    def tags_with(self, name: str, device: str | None) -> RunTags:
        """The tags of the run called `name`, or of one with many workers those of the worker in the
        device's name."""
        if device is not None and "/" in device:
            workers = self.reader.workers(self.source, name)
            named = _named_in(device, workers.of_worker)
            if named and len(workers.of_worker) > MANY_WORKERS:
                return self.reader.worker_tags(self.source, workers, named[0])
        return self.tags(name)

    def with_all_ooms(self, found: LoadedRun, name: str) -> Run:
        """The run of some workers with the failed allocations of all, so that their indices are
        those of the whole run; those of a worker beyond the limit of workers come last."""
        if not found.run.ooms:
            return found.run
        # Identifiers are those of a session.
        own = {(oom.identifier, oom.wall_time): oom for oom in found.run.ooms}
        everything = self.reader.run(self.source, name, {OOM}).run.ooms
        ooms = [own.pop((oom.identifier, oom.wall_time), oom) for oom in everything]
        return dataclasses.replace(found.run, ooms=(*ooms, *own.values()))


def workers_with(tags: RunTags, device: str | None = None) -> Iterator[RunTags]:
    """The tags of each worker that is shown, first those of workers that the device's name says."""
    workers = workers_of(tags)[:MAX_WORKERS]
    if workers == ("",) or not workers:
        yield tags
        return
    for worker in dict.fromkeys([*_named_in(device, workers), *workers]):
        yield of_worker(tags, worker)


def _named_in(device: str | None, workers: Iterable[str]) -> list[str]:
    """The workers whose names a device's name may begin with, the longest name first."""
    named = [worker for worker in workers if worker and (device or "").startswith(f"{worker}/")]
    return sorted(named, key=len, reverse=True)


_Record = TypeVar("_Record", Snapshot, MemoryMap, Timeline)


def at_step(
    records: Iterable[_Record], device: str | None, step: int | None, phase: Phase, missing: str
) -> list[_Record]:
    """The records of a device in a phase at a step; at least one, else an error with `missing` and
    the steps."""
    candidates = [record for record in records if record.device == device and record.phase == phase]
    matches = [record for record in candidates if record.step == step]
    if not matches:
        raise NotFoundError(
            f"{missing}; available steps: {some([record.step for record in candidates])}"
        )
    return matches
