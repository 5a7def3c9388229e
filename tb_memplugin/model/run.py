"""A run and its sessions."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from tb_memplugin.model.counters import Counters
from tb_memplugin.model.host import HostMemory, HostSamples
from tb_memplugin.model.layers import LayerTable
from tb_memplugin.model.memory_map import MemoryMap
from tb_memplugin.model.oom import Oom
from tb_memplugin.model.requests import StepRequests
from tb_memplugin.model.samples import LayerActivations, Samples
from tb_memplugin.model.snapshot import Snapshot
from tb_memplugin.model.text import clean
from tb_memplugin.model.timeline import Timeline
from tb_memplugin.model.units import counted


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """One process's recording into a run.

    Attributes:
        session: Identifier; sorts by start time.
        started: Seconds since the epoch.
        producer: ``recorder``, ``summary`` or ``import``.
        versions: Package name to version, for tb_memplugin, tensorflow and keras.
        notes: Sentences on what was not recorded, and why.
        ended: When the recorder was closed, in seconds since the epoch; None if it did not say so.
        analyzing: The traced step that is being analyzed, as long as there is no breakdown; None otherwise.
    """

    session: str
    started: float
    producer: Literal["recorder", "summary", "import"]
    versions: Mapping[str, str]
    notes: tuple[str, ...]
    ended: float | None = None
    analyzing: int | None = None


@dataclasses.dataclass(frozen=True)
class Session:
    """The records of one session.

    Attributes:
        host: Parts of host memory; no rows if none were recorded.
        lost_steps: Ranges (first, last) of trained steps whose samples were recorded and cannot be read.
        lost_activation_steps: The same for recorded activations.
    """

    info: SessionInfo
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    maps: tuple[MemoryMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    requests: tuple[StepRequests, ...] = ()
    lost_steps: tuple[tuple[int, int], ...] = ()
    lost_activation_steps: tuple[tuple[int, int], ...] = ()
    counters: Counters | None = None
    host: HostSamples = dataclasses.field(default_factory=HostSamples.none)


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """One run: its sessions in order of their start, merged by `reader.merge`.

    Attributes:
        name: As TensorBoard shows it.
        sessions: Identifiers, in order.
        workers: Worker names; ``("",)`` for a run of one process.
        layer_tables, samples, activations, snapshots: Of all sessions; a later session replaces the steps it repeats.
        notes: Sentences on what was not recorded.
        damage: Sentences on what could not be read, with the missing steps.
        maps: Memory maps, if requested.
        ooms: Post-mortems in order of time, without withdrawn ones.
        findings: Sentences on memory that grows over the steps, if requested.
        session_starts: Starts of the sessions, in seconds since the epoch; each session has a new pool.
        timelines: Timelines of traced steps, if requested.
        requests: Requests of traced steps for replay, if requested.
        counters: Of each session that recorded them, in order of their start.
        ended: Whether the last session said that it ended; None if none of a recorder can say so.
        host: Host memory by worker.
    """

    name: str
    sessions: tuple[str, ...]
    workers: tuple[str, ...]
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    notes: tuple[str, ...]
    damage: tuple[str, ...]
    maps: tuple[MemoryMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    findings: tuple[str, ...] = ()
    session_starts: tuple[float, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    requests: tuple[StepRequests, ...] = ()
    counters: tuple[Counters, ...] = ()
    ended: bool | None = None
    host: Mapping[str, HostMemory] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        devices = ", ".join(self.samples.devices) or "no device"
        figures = [counted(len(self.samples), "sample"), counted(len(self.snapshots), "snapshot")]
        figures += [counted(len(self.ooms), "failure")] if self.ooms else []
        return clean(f"<{type(self).__name__} {self.name!r}: {', '.join(figures)} of {devices}>")
