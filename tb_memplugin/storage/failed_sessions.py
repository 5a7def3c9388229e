"""The session in which an allocation failed, with what it recorded before."""

from typing import NamedTuple

from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import Oom, Run
from tb_memplugin.storage.catalog import RunTags
from tb_memplugin.storage.files import Source
from tb_memplugin.storage.read import BASIC, REQUESTS, TIMELINES
from tb_memplugin.storage.run_reader import LoadedRun, Reader


class FailedSession(NamedTuple):
    """A session with its requests, and its failure on a device as the session names it."""

    run: Run
    oom: Oom


def failed_session(reader: Reader, source: Source, tags: RunTags, loaded: LoadedRun, oom: Oom) -> FailedSession:
    """The session of a failure.

    It has its own steps only, also those that a later session repeats: these replace them in the run.

    Args:
        reader, source, tags: Where the run is read.
        loaded: The run.
        oom: One of its failures.
    """
    workers = [worker for worker, run in loaded.by_worker.items() if any(_same(oom, own) for own in run.ooms)]
    spans = [span for span in reversed(loaded.sessions) if span.worker in workers]
    # The last one that had started; an imported dump may be older than its session.
    for span in sorted(spans, key=lambda span: span.started > oom.wall_time):
        run = next(
            iter(reader.load(source, tags, {*BASIC, REQUESTS, TIMELINES}, session=span.session).by_worker.values())
        )
        for own in run.ooms:
            if _same(oom, own):
                return FailedSession(run, own)
    raise NotFoundError(f"run {tags.name} has no session of the failed allocation in step {oom.step} any more")


def _same(oom: Oom, own: Oom) -> bool:
    """Whether two records of a run and of a worker are of one failure: identifiers are those of a session."""
    return (own.identifier, own.wall_time) == (oom.identifier, oom.wall_time) and oom.device.endswith(own.device)
