/** Everything that the page fetches but the list of runs: one resource for each kind of question. */

import type { OverviewQuery, Source, Span, TotalsQuery } from "../api/source";
import type { Place } from "../model/memory-map";
import type { Conditions } from "../model/what-if";
import { limiter, Resource, Shelf } from "./resource";
import type { Phase, RunInfo } from "../schema";

const AT_ONCE = 4;

/** Memory of all answers together: enough to go back and forth between views and some large steps without fetching them again. */
const LIMIT_BYTES = 64 * 2 ** 20;

/** Version of a traced step's records: they never change, but a restarted training may record the step again. */
const stable = (run: RunInfo): string => String(run.sessions);

const traced = (run: RunInfo): string => JSON.stringify([run.sessions, run.ooms, run.devices.map(({ snapshots }) => snapshots)]);

const latest = (run: RunInfo): string => run.version;

export interface StepRef {
  phase: Phase;
  step: number;
}

/** Makes resources whose answers share a shelf and wait in one queue; a question is told apart by the run's name and its other parts. */
function maker(shelf: Shelf) {
  const queue = limiter(AT_ONCE);
  return <Args extends [RunInfo, ...unknown[]], T>(
    version: (run: RunInfo) => string,
    load: (abort: AbortSignal, ...args: Args) => Promise<T>,
    key: (...args: Args) => unknown = (run, ...others) => [run.run, ...others],
  ): Resource<Args, T> => new Resource({ key, version: (...[run]: Args) => version(run), load }, shelf, queue);
}

type Maker = ReturnType<typeof maker>;

function ofWholeRuns(source: Source, of: Maker) {
  return {
    answers: of(latest, (abort, { run }: RunInfo, device: string | null, phase: Phase) => source.answers(run, device, phase, abort)),
    overviews: of(latest, (abort, _: RunInfo, query: OverviewQuery) => source.overview(query, abort)),
    pools: of(latest, (abort, _: RunInfo, query: OverviewQuery) => source.pool(query, abort)),
    hostMemories: of(latest, (abort, _: RunInfo, query: OverviewQuery) => source.hostMemory(query, abort)),
    devices: of(latest, (abort, { run }: RunInfo, phase: Phase) => source.devices(run, phase, abort)),
    ledgerTotals: of(latest, (abort, _: RunInfo, query: TotalsQuery) => source.ledgerTotals(query, abort)),
    activations: of(latest, (abort, { run }: RunInfo, points: number, span: Span) => source.activations(run, points, span, abort)),
    ooms: of(latest, (abort, { run }: RunInfo) => source.ooms(run, abort)),
    snapshotLists: of(latest, (abort, { run }: RunInfo, device: string) => source.snapshots(run, device, abort)),
    timelineLists: of(latest, (abort, { run }: RunInfo, device: string) => source.timelines(run, device, abort)),
    mapLists: of(latest, (abort, { run }: RunInfo, device: string) => source.maps(run, device, abort)),
  };
}

/** A device of one of several workers, "worker_1/GPU:0"; null for other devices, since all have the same layers. */
const ofWorker = (device: string | null): string | null => (device?.includes("/") ? device : null);

function ofSteps(source: Source, of: Maker) {
  const ofStep = ({ run }: RunInfo, device: string, { phase, step }: StepRef): unknown => [run, device, phase, step];
  return {
    snapshots: of(
      stable,
      (abort, { run }: RunInfo, device: string, { phase, step }: StepRef) => source.snapshot(run, device, phase, step, abort),
      ofStep,
    ),
    layers: of(
      stable,
      (abort, { run }: RunInfo, device: string | null, step: number) => source.layers(run, ofWorker(device), step, abort),
      ({ run }, device, step) => [run, ofWorker(device), step],
    ),
    timelines: of(
      stable,
      (abort, { run }: RunInfo, device: string, { phase, step }: StepRef) => source.timeline(run, device, phase, step, abort),
      ofStep,
    ),
    maps: of(
      ({ sessions, ooms }) => `${sessions}/${ooms}`,
      (abort, { run }: RunInfo, place: Place) => source.map(run, place, abort),
    ),
    deviceMemories: of(latest, (abort, { run }: RunInfo, device: string, step: number | null) =>
      source.deviceMemory(run, device, step, abort),
    ),
  };
}

/** Answers that may take seconds. */
function ofSimulations(source: Source, of: Maker) {
  return {
    fixes: of(traced, (abort, { run }: RunInfo, oom: number) => source.fixes(run, oom, abort)),
    whatIfs: of(traced, (abort, { run }: RunInfo, device: string, asked: Conditions) => source.whatIf(run, device, asked, abort)),
    demands: of(traced, (abort, { run }: RunInfo, device: string) => source.demand(run, device, abort)),
    plans: of(traced, (abort, { run }: RunInfo, device: string, budget: string) => source.plan(run, device, budget, abort)),
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
    bytes: (): number => shelf.bytes,
  };
}

export type Resources = ReturnType<typeof createResources>;
