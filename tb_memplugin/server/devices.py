"""All devices and workers of a run side by side."""

from collections.abc import Mapping

from tb_memplugin.analysis import combine, of_sessions, series_bytes, summarize_worker
from tb_memplugin.schema import (
    NO_STEPS,
    Integers,
    Phase,
    WorkerSummary,
    counted,
    format_bytes,
    record_of,
    some,
)
from tb_memplugin.server.answers import DevicesAnswer
from tb_memplugin.server.lookup import Lookup, workers_with
from tb_memplugin.server.messages import encoded
from tb_memplugin.storage import RunTags, WorkerRuns, basic_streams
from tb_memplugin.storage.files import MANY_WORKERS, MAX_RUN_BYTES, MAX_WORKERS, ByteBudget

MAX_SERIES_BYTES = MAX_RUN_BYTES
"""Limit of the figures of all workers over steps: those of 64 workers of 8 devices and 10,000 steps
take 88 MiB."""


def devices(lookup: Lookup, run: str, phase: Phase) -> bytes:
    """The encoded `DevicesAnswer`: encoding takes longest."""
    reader, source, _ = lookup
    workers = reader.workers(source, run)
    is_large = len(workers.of_worker) > MANY_WORKERS
    read = workers if is_large else reader.tags(source, run)

    def compute() -> tuple[bytes, int]:
        answer = (
            _of_rollups(lookup, read, phase)
            if isinstance(read, WorkerRuns)
            else _of_histories(lookup, read, phase)
        )
        body = encoded(answer)
        return body, len(body)

    return reader.cache.computed(("devices", run, phase), read.version, compute)


def _of_rollups(lookup: Lookup, workers: WorkerRuns, phase: Phase) -> DevicesAnswer:
    """The answer for many workers: from their roll-ups, and from the histories of only those that
    need it."""
    rollups = lookup.reader.rollups(lookup.source, workers)
    reasons = {worker: of.missing for worker, of in rollups.items() if of.missing is not None}
    summaries = {
        worker: of_sessions(worker, of.sessions)
        for worker, of in rollups.items()
        if of.missing is None
    }
    described: list[WorkerSummary] = []
    for worker in sorted(reasons)[:MAX_WORKERS]:
        described += _history(lookup, workers, worker, phase)
    combined = combine([*summaries.values(), *described], phase, with_steps=False)
    # A roll-up lags behind: where a worker stopped, only its history says.
    stopped = [
        one.worker for one in combined.workers if one.stopped_early and one.worker in summaries
    ]
    for worker in stopped[:MAX_WORKERS]:
        described += _history(lookup, workers, worker, phase)
        del summaries[worker]
    if stopped:
        combined = combine([*summaries.values(), *described], phase, with_steps=False)
    damage = _damage(reasons)
    return record_of(DevicesAnswer, combined, run=workers.name, rolled_up=True, damage=damage)


def _history(lookup: Lookup, workers: WorkerRuns, worker: str, phase: Phase) -> list[WorkerSummary]:
    """The summaries of one worker's directory from all that it recorded, without steps."""
    reader, source, _ = lookup
    tags = reader.worker_tags(source, workers, worker)
    loaded = reader.load(source, tags, basic_streams(worker))
    return [
        summarize_worker(name, run, [phase], with_steps=False)
        for name, run in loaded.by_worker.items()
    ]


def _of_histories(lookup: Lookup, tags: RunTags, phase: Phase) -> DevicesAnswer:
    """The answer, without figures over steps if there is no room for those of all workers."""
    room = ByteBudget(MAX_SERIES_BYTES)
    workers: list[WorkerSummary] = []
    without: list[str] = []
    for own in workers_with(tags):
        first_steps = workers[0].step if workers else NO_STEPS
        summaries = _summarized(lookup, own, phase, room, first_steps)
        workers.extend(summaries)
        if room.is_full:
            without.extend(summary.worker or tags.name for summary in summaries)
    # Those of only some workers would be no peaks and no sum of the run.
    combined, damage = combine(workers, phase, with_steps=not without), []
    if without:
        size = format_bytes(MAX_SERIES_BYTES)
        exceeded = f"they would exceed {size} with those of {some(without)}"
        damage.append(f"figures over steps are not shown: {exceeded}")
    return record_of(DevicesAnswer, combined, run=tags.name, rolled_up=False, damage=damage)


def _summarized(
    lookup: Lookup, tags: RunTags, phase: Phase, room: ByteBudget, first_steps: Integers
) -> tuple[WorkerSummary, ...]:
    """The summaries of the workers of one directory; only those that recorded since are read again.
    They are without steps if these do not fit into `room`. `first_steps` are those of the run's
    first worker."""
    reader, source, _ = lookup
    key = "summary", tags.name, tags.worker, phase
    # The workers of one directory, the bytes that their series need, and whether they have them.
    known: tuple[tuple[WorkerSummary, ...], int, bool] | None = reader.cache.get(key, tags.version)
    fits = known is not None and room.reserve(known[1])
    if known is not None and fits == known[2]:
        return known[0]
    loaded = reader.load(source, tags, basic_streams(tags.worker))
    size = sum(series_bytes(run, first_steps) for run in loaded.by_worker.values())
    fits = room.reserve(size) if known is None else fits
    workers = tuple(
        summarize_worker(worker, run, [phase], fits) for worker, run in loaded.by_worker.items()
    )
    traced = (1 + len(device.traced) for worker in workers for device in worker.devices)
    others = 1000 + 2000 * sum(traced)
    reader.cache.put(key, tags.version, (workers, size, fits), others + (size if fits else 0))
    return workers


def _damage(reasons: Mapping[str, str]) -> list[str]:
    """A sentence on each reason why histories were read, and on those that were not."""
    shown = sorted(reasons)[:MAX_WORKERS]
    sentences = []
    for reason in sorted({reasons[worker] for worker in shown}):
        of_reason = [worker for worker in shown if reasons[worker] == reason]
        read = f"the history of {counted(len(of_reason), 'worker')} was read instead of a roll-up"
        sentences.append(f"{read} ({reason}): {some(of_reason)}")
    hidden = len(reasons) - len(shown)
    if hidden:
        sentences.append(
            f"{hidden} workers without a roll-up are not shown: "
            f"only {MAX_WORKERS} histories are read"
        )
    return sentences
