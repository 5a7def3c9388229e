/** Everything that the page fetches but the list of runs: one resource for each kind of question. */

import type { OverviewQuery, Source, TotalsQuery } from "../api/source";
import type { Place } from "../model/memory-map";
import type { Phase, RunInfo } from "../model/run";
import type { Conditions } from "../model/what-if";
import { limiter, Resource, Shelf } from "./resource";

const AT_ONCE = 4;

/** Memory of all answers together: enough to go back and forth between views and some large steps without fetching them again. */
const LIMIT_BYTES = 64 * 2 ** 20;

/** Version of a traced step's records: they never change, but a restarted training may record the step again. */
const stable = (run: RunInfo): string => String(run.sessions);

/** Version of the run's traced steps together. */
const traced = (run: RunInfo): string => JSON.stringify([run.sessions, run.ooms, run.devices.map(({ snapshots }) => snapshots)]);

const latest = (run: RunInfo): string => run.version;

/** A traced step of one phase. */
export interface StepRef {
  phase: Phase;
  step: number;
}

export type Span = readonly [number, number] | null;

const ofDevice = (run: RunInfo, device: string): unknown => [run.run, device];
const ofStep = (run: RunInfo, device: string, { phase, step }: StepRef): unknown => [run.run, device, phase, step];
const ofQuery = (_: RunInfo, query: OverviewQuery): unknown => query;
const ofTotals = (_: RunInfo, query: TotalsQuery): unknown => query;

/** Makes resources whose answers share a shelf and wait in one queue. */
function maker(shelf: Shelf) {
  const queue = limiter(AT_ONCE);
  return <Args extends unknown[], T>(
    key: (...args: Args) => unknown,
    version: (...args: Args) => string,
    load: (abort: AbortSignal, ...args: Args) => Promise<T>,
  ): Resource<Args, T> => new Resource({ key, version, load }, shelf, queue);
}

type Maker = ReturnType<typeof maker>;

/** Answers on a run or a device as a whole. */
function ofWholeRuns(source: Source, of: Maker) {
  return {
    answers: of(
      (run: RunInfo, device: string | null, phase: Phase) => [run.run, device, phase],
      latest,
      (abort, run, device, phase) => source.answers(run.run, device, phase, abort),
    ),
    overviews: of(ofQuery, latest, (abort, _, query) => source.overview(query, abort)),
    pools: of(ofQuery, latest, (abort, _, query) => source.pool(query, abort)),
    hostMemories: of(ofQuery, latest, (abort, _, query) => source.hostMemory(query, abort)),
    devices: of(
      (run: RunInfo, phase: Phase) => [run.run, phase],
      latest,
      (abort, run, phase) => source.devices(run.run, phase, abort),
    ),
    ledgerTotals: of(ofTotals, latest, (abort, _, query) => source.ledgerTotals(query, abort)),
    activations: of(
      (run: RunInfo, points: number, span: Span) => [run.run, points, span],
      latest,
      (abort, run, points, span) => source.activations(run.run, points, span, abort),
    ),
    ooms: of(
      (run: RunInfo) => run.run,
      latest,
      (abort, run) => source.ooms(run.run, abort),
    ),
    snapshotLists: of(ofDevice, latest, (abort, run, device) => source.snapshots(run.run, device, abort)),
    timelineLists: of(ofDevice, latest, (abort, run, device) => source.timelines(run.run, device, abort)),
    mapLists: of(ofDevice, latest, (abort, run, device) => source.maps(run.run, device, abort)),
  };
}

/** A device of one of several workers, "worker_1/GPU:0"; null for other devices, since all have the same layers. */
const ofWorker = (device: string | null): string | null => (device?.includes("/") ? device : null);

/** Answers on one step. */
function ofSteps(source: Source, of: Maker) {
  return {
    snapshots: of(ofStep, stable, (abort, run, device, { phase, step }) => source.snapshot(run.run, device, phase, step, abort)),
    layers: of(
      (run: RunInfo, device: string | null, step: number) => [run.run, ofWorker(device), step],
      stable,
      (abort, run, device, step) => source.layers(run.run, ofWorker(device), step, abort),
    ),
    timelines: of(ofStep, stable, (abort, run, device, { phase, step }) => source.timeline(run.run, device, phase, step, abort)),
    maps: of(
      (run: RunInfo, place: Place) => [run.run, place],
      (run) => `${run.sessions}/${run.ooms}`,
      (abort, run, place) => source.map(run.run, place, abort),
    ),
    deviceMemories: of(
      (run: RunInfo, device: string, step: number | null) => [run.run, device, step],
      latest,
      (abort, run, device, step) => source.deviceMemory(run.run, device, step, abort),
    ),
  };
}

/** Answers that may take seconds. */
function ofSimulations(source: Source, of: Maker) {
  return {
    fixes: of(
      (run: RunInfo, oom: number) => [run.run, oom],
      traced,
      (abort, run, oom) => source.fixes(run.run, oom, abort),
    ),
    whatIfs: of(
      (run: RunInfo, device: string, conditions: Conditions) => [run.run, device, conditions],
      traced,
      (abort, run, device, conditions) => source.whatIf(run.run, device, conditions, abort),
    ),
    demands: of(ofDevice, traced, (abort, run, device) => source.demand(run.run, device, abort)),
    plans: of(
      (run: RunInfo, device: string, budget: string) => [run.run, device, budget],
      traced,
      (abort, run, device, budget) => source.plan(run.run, device, budget, abort),
    ),
  };
}

export function createResources(source: Source, limitBytes = LIMIT_BYTES) {
  const shelf = new Shelf(limitBytes);
  const quick = maker(shelf);
  // The others do not wait for simulations.
  const resources = { ...ofWholeRuns(source, quick), ...ofSteps(source, quick), ...ofSimulations(source, maker(shelf)) };
  const all = Object.values(resources);
  return {
    ...resources,
    hold: (holding: boolean): void => all.forEach((resource) => resource.hold(holding)),
    retryFailed: (): void => all.forEach((resource) => resource.retryFailed()),
    /** About how much memory the answers hold. */
    bytes: (): number => shelf.bytes,
  };
}

export type Resources = ReturnType<typeof createResources>;
