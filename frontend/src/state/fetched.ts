/** Resources fetched for the current choices, by key; and functions that fetch and read the records of a run. */

import type { Source } from "../api/source";
import { limiter } from "../lib/limit";
import type { Activations } from "../model/activations";
import type { Answer } from "../model/answer";
import type { Conditions } from "../model/conditions";
import type { HostMemory } from "../model/host-memory";
import type { MemoryMap, MapRef, Place } from "../model/memory-map";
import type { DeviceMemory } from "../model/device-memory";
import type { Devices } from "../model/devices";
import type { LayersAnswer } from "../model/layers";
import type { LedgerTotals } from "../model/ledger-totals";
import type { Oom } from "../model/oom";
import type { Overview, SnapshotRef } from "../model/overview";
import type { PoolSteps } from "../model/pool";
import type { Phase, RunInfo } from "../model/run";
import type { Snapshot, SnapshotSummary } from "../model/snapshot";
import type { Timeline, TimelineRef } from "../model/timeline";
import type { WhatIf } from "../model/what-if";
import { Resource, type Loaded } from "./resource";

const AT_ONCE = 4;

export function createFetched() {
  const queue = limiter(AT_ONCE);
  return {
    answers: new Resource<Answer[]>(queue),
    overviews: new Resource<Overview>(queue),
    pools: new Resource<PoolSteps>(queue),
    devices: new Resource<Devices>(queue),
    hostMemories: new Resource<HostMemory>(queue),
    snapshotLists: new Resource<SnapshotSummary[]>(queue),
    snapshots: new Resource<Snapshot>(queue),
    activations: new Resource<Activations>(queue),
    ledgerTotals: new Resource<LedgerTotals>(queue),
    layers: new Resource<LayersAnswer>(queue),
    timelineLists: new Resource<TimelineRef[]>(queue),
    timelines: new Resource<Timeline>(queue),
    mapLists: new Resource<MapRef[]>(queue),
    maps: new Resource<MemoryMap>(queue),
    ooms: new Resource<Oom[]>(queue),
    deviceMemories: new Resource<DeviceMemory>(queue),
    // These answers may take seconds: the others do not wait for them.
    whatIfs: new Resource<WhatIf>(limiter(AT_ONCE)),
  };
}

export type Fetched = ReturnType<typeof createFetched>;

const key = (...parts: unknown[]): string => JSON.stringify(parts);

/** Version of a traced step's records: they never change, but a restarted training may record the step again. */
const stable = (run: RunInfo): string => String(run.sessions);

/** Version of the run's traced steps together. */
const traced = (run: RunInfo): string => JSON.stringify([run.sessions, run.ooms, run.devices.map(({ snapshots }) => snapshots)]);

/** Functions that read and fetch each record of a run and a device. */
export function createRecords(source: Source, fetched: Fetched) {
  return {
    answersIn: (run: RunInfo, device: string | null, phase: Phase): Loaded<Answer[]> => fetched.answers.read(key(run.run, device, phase)),
    wantAnswersIn: (run: RunInfo, device: string | null, phase: Phase): void =>
      fetched.answers.want(key(run.run, device, phase), run.version, (abort) => source.answers(run.run, device, phase, abort)),
    devicesIn: (run: RunInfo, phase: Phase): Loaded<Devices> => fetched.devices.read(key(run.run, phase)),
    wantDevicesIn: (run: RunInfo, phase: Phase): void =>
      fetched.devices.want(key(run.run, phase), run.version, (abort) => source.devices(run.run, phase, abort)),
    layersIn: (run: RunInfo, step: number): Loaded<LayersAnswer> => fetched.layers.read(key(run.run, step)),
    wantLayersIn: (run: RunInfo, step: number): void =>
      fetched.layers.want(key(run.run, step), stable(run), (abort) => source.layers(run.run, step, abort)),
    snapshotIn: (run: RunInfo, device: string, ref: SnapshotRef): Loaded<Snapshot> =>
      fetched.snapshots.read(key(run.run, device, ref.phase, ref.step)),
    wantSnapshotIn: (run: RunInfo, device: string, ref: SnapshotRef): void =>
      fetched.snapshots.want(key(run.run, device, ref.phase, ref.step), stable(run), (abort) =>
        source.snapshot(run.run, device, ref.phase, ref.step, abort),
      ),
    timelinesIn: (run: RunInfo, device: string): Loaded<TimelineRef[]> => fetched.timelineLists.read(key(run.run, device)),
    wantTimelinesIn: (run: RunInfo, device: string): void =>
      fetched.timelineLists.want(key(run.run, device), run.version, (abort) => source.timelines(run.run, device, abort)),
    timelineIn: (run: RunInfo, device: string, ref: { phase: Phase; step: number }): Loaded<Timeline> =>
      fetched.timelines.read(key(run.run, device, ref.phase, ref.step)),
    wantTimelineIn: (run: RunInfo, device: string, ref: { phase: Phase; step: number }): void =>
      fetched.timelines.want(key(run.run, device, ref.phase, ref.step), stable(run), (abort) =>
        source.timeline(run.run, device, ref.phase, ref.step, abort),
      ),
    mapsIn: (run: RunInfo, device: string): Loaded<MapRef[]> => fetched.mapLists.read(key(run.run, device)),
    wantMapsIn: (run: RunInfo, device: string): void =>
      fetched.mapLists.want(key(run.run, device), run.version, (abort) => source.maps(run.run, device, abort)),
    mapIn: (run: RunInfo, place: Place): Loaded<MemoryMap> => fetched.maps.read(key(run.run, place)),
    wantMapIn: (run: RunInfo, place: Place): void =>
      fetched.maps.want(key(run.run, place), `${run.sessions}/${run.ooms}`, (abort) => source.map(run.run, place, abort)),
    oomsIn: (run: RunInfo): Loaded<Oom[]> => fetched.ooms.read(run.run),
    wantOomsIn: (run: RunInfo): void => fetched.ooms.want(run.run, run.version, (abort) => source.ooms(run.run, abort)),
    deviceMemoryIn: (run: RunInfo, device: string, step: number | null): Loaded<DeviceMemory> =>
      fetched.deviceMemories.read(key(run.run, device, step)),
    wantDeviceMemoryIn: (run: RunInfo, device: string, step: number | null): void =>
      fetched.deviceMemories.want(key(run.run, device, step), run.version, (abort) => source.deviceMemory(run.run, device, step, abort)),
    whatIfIn: (run: RunInfo, device: string, conditions: Conditions): Loaded<WhatIf> =>
      fetched.whatIfs.read(key(run.run, device, conditions)),
    wantWhatIfIn: (run: RunInfo, device: string, conditions: Conditions): void => {
      const wanted = key(run.run, device, conditions);
      fetched.whatIfs.only(wanted);
      fetched.whatIfs.want(wanted, traced(run), (abort) => source.whatIf(run.run, device, conditions, abort));
    },
  };
}

export type Records = ReturnType<typeof createRecords>;
