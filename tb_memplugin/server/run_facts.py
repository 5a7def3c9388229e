"""The key figures of a run, worker by worker: a run of many workers is never in memory as a whole."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis.answers.status import run_status, worst
from tb_memplugin.analysis.devices.worker_summary import of_sessions
from tb_memplugin.analysis.findings import former_findings, growth_findings, recomputation_findings
from tb_memplugin.analysis.host.host_memory import host_findings
from tb_memplugin.analysis.steps import facts
from tb_memplugin.model import PHASES, Integers, full_device_name
from tb_memplugin.model.basics import distinct
from tb_memplugin.model.worker_summary import NO_STEPS, RunStatus, WorkerSummary
from tb_memplugin.reader.catalog import RunTags
from tb_memplugin.reader.decode.streams import REQUESTS, TIMELINES, basic_streams
from tb_memplugin.reader.files.limits import MANY_WORKERS, MAX_RUN_ROWS, MAX_WORKERS
from tb_memplugin.reader.files.source import Source
from tb_memplugin.reader.rollups import RollupReader, WorkerRuns
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.sessions import limited
from tb_memplugin.server.worker_lookup import workers_with

MAX_STEPS = 2 * MAX_RUN_ROWS
"""Most different steps of a run that are counted, of all workers together."""


@dataclasses.dataclass(frozen=True)
class WorkerFacts:
    """Key figures of the workers of one directory.

    Attributes:
        workers, sessions: Names of the workers, and number of their sessions.
        started: Start of the first session, None without any.
        training_steps, steps: Distinct training steps, and those of all records.
        phases: Indices into `PHASES`.
        devices: By the names of the whole run.
        ooms: Number of failed allocations.
        findings, notes, damage: Sentences.
        host_findings: Sentences on host memory, by worker.
        statuses: By worker.
        ended: Whether the last session said that it ended.
        recorded_until: Wall time of the last sample, None without any.
        is_thinned: Whether there are more samples than were read.
    """

    workers: tuple[str, ...]
    sessions: int
    started: float | None
    training_steps: Integers
    steps: Integers
    phases: frozenset[int]
    devices: tuple[facts.DeviceFacts, ...]
    ooms: int
    findings: tuple[str, ...]
    host_findings: tuple[str, ...]
    notes: tuple[str, ...]
    damage: tuple[str, ...]
    statuses: tuple[RunStatus, ...]
    ended: bool
    recorded_until: float | None
    is_thinned: bool = False


class RunFacts:
    """Describes runs on top of one `Reader`; the figures of workers that did not change are cached. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rollups = RollupReader(reader)

    def describe(self, source: Source, tags: RunTags) -> dict[str, Any]:
        """The run's entry in ``GET runs``."""
        workers: list[WorkerFacts] = []
        training = every = NO_STEPS
        runs = self._rollups.workers(source, tags.name)
        many = len(runs.of_worker) > MANY_WORKERS
        for worker in (
            self._of_many(source, runs) if many else (self._worker(source, own) for own in workers_with(tags))
        ):
            same = training is every and worker.training_steps is worker.steps
            every = _union(every, worker.steps)
            training = every if same else _union(training, worker.training_steps)
            # Without its steps, which would be most of what all workers take.
            workers.append(dataclasses.replace(worker, training_steps=NO_STEPS, steps=NO_STEPS))
        layers, damage = self._reader.survey_activations(source, tags)
        is_thinned = any(worker.is_thinned for worker in workers)
        steps = facts.range_of((training if len(training) else every)[:MAX_STEPS], is_thinned)
        if not steps.steps and layers:
            # The run has only activations.
            steps = facts.range_of(self._reader.activation_rows(source, tags.name).step)
        devices = sorted(
            (device for worker in workers for device in worker.devices),
            key=lambda device: facts.device_order(device.device),
        )
        sentences = [*tags.damage, *(sentence for worker in workers for sentence in worker.damage)]
        if len(every) > MAX_STEPS:
            sentences.append(f"steps after step {int(every[MAX_STEPS - 1])} are not counted: only {MAX_STEPS} are")
        found = [sentence for worker in workers for sentence in worker.findings]
        found += [sentence for worker in workers for sentence in worker.host_findings]
        ends = [worker.recorded_until for worker in workers if worker.recorded_until is not None]
        starts = [worker.started for worker in workers if worker.started is not None]
        return {
            "run": tags.name,
            "version": tags.version,
            "sessions": sum(worker.sessions for worker in workers),
            "workers": [name for worker in workers for name in worker.workers],
            "steps": steps.steps,
            "first_step": steps.first_step,
            "last_step": steps.last_step,
            "started": min(starts, default=None),
            "status": worst([status for worker in workers for status in worker.statuses]),
            "ended": all(worker.ended for worker in workers),
            "recorded_until": max(ends, default=None),
            "phases": [PHASES[at] for at in sorted(frozenset().union(*(worker.phases for worker in workers)))],
            "devices": [dataclasses.asdict(device) for device in devices],
            "most_loaded": facts.most_loaded(
                {device.device: (device.peak_bytes, device.capacity_bytes) for device in devices}
            ),
            "activation_layers": layers,
            "ooms": sum(worker.ooms for worker in workers),
            "findings": found,
            "notes": list(dict.fromkeys(note for worker in workers for note in worker.notes)),
            "damage": list(dict.fromkeys([*(sentences if len(workers) == 1 else limited(sentences)), *damage])),
        }

    def _of_many(self, source: Source, runs: WorkerRuns) -> list[WorkerFacts]:
        """The figures of many workers, from their roll-ups, or of up to `MAX_WORKERS` without one from their histories.

        Roll-ups have no notes, and say nothing of host memory.
        """
        key = "facts of many", runs.name
        known: list[WorkerFacts] | None = self._reader.cache.get(key, runs.version)
        if known is not None:
            return known
        found: list[WorkerFacts] = []
        histories = 0
        for worker, of in sorted(self._rollups.read(source, runs).items()):
            if of.missing is None:
                found.append(_facts_of(worker, of.sessions, found[-1].steps if found else NO_STEPS))
            elif histories < MAX_WORKERS:
                histories += 1
                found.append(self._worker(source, self._rollups.tags(source, runs, worker)))
        steps = {id(one.steps): len(one.steps) for one in found}
        size = 16 * sum(steps.values()) + 1000 * sum(1 + len(one.devices) for one in found)
        self._reader.cache.put(key, runs.version, found, size)
        return found

    def _worker(self, source: Source, tags: RunTags) -> WorkerFacts:
        key = "facts", tags.name, tags.worker
        known: WorkerFacts | None = self._reader.cache.get(key, tags.version)
        if known is None:
            known = self._read(source, tags)
            size = 8 * len(known.steps) * 2 + 1000 * (1 + len(known.devices))
            self._reader.cache.put(key, tags.version, known, size)
        return known

    def _recomputation(self, source: Source, tags: RunTags, loaded: LoadedRun) -> tuple[str, ...]:
        """The findings on recomputed layers, which need the requests and timelines of traced steps."""
        tables = [run.layer_tables[-1] for run in loaded.by_worker.values() if run.layer_tables]
        if all(layer.recomputed is None for table in tables for layer in table.layers):
            return ()
        loaded = self._reader.load(source, tags, basic_streams(tags.worker) | {REQUESTS, TIMELINES})
        return tuple(
            sentence for worker, run in loaded.by_worker.items() for sentence in recomputation_findings(run, worker)
        )

    def _read(self, source: Source, tags: RunTags) -> WorkerFacts:
        loaded = self._reader.load(source, tags, basic_streams(tags.worker))
        runs = list(loaded.by_worker.items())
        traced = np.asarray([snapshot.step for snapshot in loaded.run.snapshots], np.int64)
        train = PHASES.index("train")
        training = distinct(NO_STEPS, *(run.samples.step[run.samples.phase == train] for _, run in runs))
        steps = distinct(traced, *(run.samples.step for _, run in runs))
        growing = [growth_findings(worker, run) for worker, run in runs]
        on_host = [host_findings(run) for _, run in runs]
        statuses = [
            run_status(run, bool(growths or host))
            for (_, run), growths, host in zip(runs, growing, on_host, strict=True)
        ]
        return WorkerFacts(
            workers=loaded.run.workers,
            sessions=len(loaded.run.sessions),
            started=loaded.sessions[0].started if loaded.sessions else None,
            training_steps=steps if np.array_equal(training, steps) else training,
            steps=steps,
            phases=frozenset(PHASES.index(phase) for _, run in runs for phase in facts.phases(run)),
            devices=tuple(
                dataclasses.replace(device, device=full_device_name(worker, device.device))
                for worker, run in runs
                for device in facts.device_facts(run)
            ),
            ooms=len(loaded.run.ooms),
            findings=tuple(
                sentence
                for (worker, run), growths in zip(runs, growing, strict=True)
                for sentence in [*growths, *former_findings(run, worker)]
            )
            + self._recomputation(source, tags, loaded),
            host_findings=tuple(sentence for host in on_host for sentence in host),
            notes=loaded.run.notes,
            damage=loaded.run.damage,
            statuses=tuple(statuses),
            ended=loaded.run.ended is not False,
            recorded_until=max(
                (float(run.samples.wall_time.max()) for _, run in runs if len(run.samples)), default=None
            ),
            is_thinned=loaded.run.thinning > 1,
        )


def _facts_of(worker: str, sessions: Sequence[WorkerSummary], known_steps: Integers) -> WorkerFacts:
    """The figures of a worker from the summaries of its sessions, whose steps count as recorded without a gap.

    Args:
        known_steps: Those of another worker, whose array one with the same steps shares.
    """
    summary = of_sessions(worker, sessions)
    first, last = summary.first_step, summary.last_step
    steps = NO_STEPS if first is None or last is None else np.arange(first, min(last, first + MAX_STEPS) + 1)
    steps = known_steps if np.array_equal(known_steps, steps) else steps
    grows = f"{worker}: memory grows; open one of its devices for the finding."
    devices = [device for device in summary.devices if device.phase == "train"]
    recorded = (one for one in summary.devices if one.last_in_use_bytes is not None or one.traced)
    return WorkerFacts(
        workers=(worker,),
        sessions=summary.sessions,
        started=min((one.started for one in sessions if one.started is not None), default=None),
        training_steps=steps,
        steps=steps,
        phases=frozenset(PHASES.index(device.phase) for device in recorded),
        devices=tuple(
            facts.DeviceFacts(
                full_device_name(worker, device.name),
                device.capacity_bytes,
                device.peak_bytes,
                device.peak_step,
                device.snapshots,
            )
            for device in devices
        ),
        ooms=sum(device.ooms for device in devices),
        findings=(grows,) if summary.status == "growing" else (),
        host_findings=(),
        notes=(),
        damage=(),
        statuses=(summary.status,),
        ended=summary.ended is not False,
        recorded_until=summary.last_wall_time,
    )


def _union(steps: Integers, others: Integers) -> Integers:
    """All different steps, ascending, at most one more than `MAX_STEPS`."""
    if np.array_equal(steps, others) or not len(others):
        return steps
    return distinct(steps, others)[: MAX_STEPS + 1]
