"""Finds the records that a response needs, and reads only their workers: those of a large run one by one."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import MemoryMap, Phase, Run, Snapshot, Timeline, full_device_name, some
from tb_memplugin.storage import LoadedRun, Reader, RollupReader, RunTags, of_session, of_worker, workers_of
from tb_memplugin.storage.files import MANY_WORKERS, MAX_WORKERS, Source


class FoundDevice(NamedTuple):
    """A run with the data of all workers or only of some, that of a device's worker, and the device's name there."""

    loaded: LoadedRun
    run: Run
    own_name: str


# These raise NotFoundError if there is no such run, session, device or record, and SourceError if the source cannot be
# read now.


def find_device(reader: Reader, source: Source, name: str, device: str, session: str | None = None) -> FoundDevice:
    """Read the worker with `device` of the run called `name`, or only one session."""
    tags = tags_with(reader, source, name, device)
    if session is not None:
        of_session(tags, session)
    names = []
    for own in workers_with(tags, device):
        if session is not None and session not in {entry[2].session for entry in own.tags}:
            continue
        loaded = reader.load(source, own, session=session)
        for worker, run in loaded.by_worker.items():
            for own_name in dict.fromkeys([*run.samples.devices, *(snapshot.device for snapshot in run.snapshots)]):
                if full_device_name(worker, own_name) == device:
                    return FoundDevice(loaded, run, own_name)
                names.append(full_device_name(worker, own_name))
    raise NotFoundError(f"run {name} has no device {device!r:.200}; available: {some(names)}")


def tags_with(reader: Reader, source: Source, name: str, device: str | None) -> RunTags:
    """The tags of the run called `name`, or of a run with many workers those of the one that the device's name says."""
    if device is not None and "/" in device:
        rollups = RollupReader(reader)
        workers = rollups.workers(source, name)
        named = [worker for worker in workers.of_worker if worker and device.startswith(f"{worker}/")]
        if named and len(workers.of_worker) > MANY_WORKERS:
            return rollups.tags(source, workers, max(named, key=len))
    return reader.tags(source, name)


def workers_with(tags: RunTags, device: str | None = None) -> Iterator[RunTags]:
    """The tags of each worker that is shown, first those of workers that the device's name says."""
    workers = workers_of(tags)[:MAX_WORKERS]
    if workers == ("",) or not workers:
        yield tags
        return
    named = [worker for worker in workers if worker and device is not None and device.startswith(f"{worker}/")]
    for worker in (*sorted(named, key=len, reverse=True), *(worker for worker in workers if worker not in named)):
        yield of_worker(tags, worker)


def with_all_ooms(reader: Reader, source: Source, found: LoadedRun, name: str) -> Run:
    """The run of some workers with the failed allocations of all, so that their indices are those of the whole run.

    Those of a worker beyond the limit of workers come last.
    """
    if not found.run.ooms:
        return found.run
    # Identifiers are those of a session.
    own = {(oom.identifier, oom.wall_time): oom for oom in found.run.ooms}
    everything = reader.ooms(source, reader.tags(source, name))
    ooms = [own.pop((oom.identifier, oom.wall_time), oom) for oom in everything]
    return dataclasses.replace(found.run, ooms=(*ooms, *own.values()))


_Record = TypeVar("_Record", Snapshot, MemoryMap, Timeline)


def at_step(
    records: Iterable[_Record], device: str | None, step: int | None, phase: Phase, missing: str
) -> list[_Record]:
    """The records of a device in a phase at a step; at least one, else an error with `missing` and the steps."""
    candidates = [record for record in records if record.device == device and record.phase == phase]
    matches = [record for record in candidates if record.step == step]
    if not matches:
        raise NotFoundError(f"{missing}; available steps: {some([record.step for record in candidates])}")
    return matches
