/**
 * The answers that the page asks for, from the plugin's routes or from a saved report: each route
 * with its parameters and its check.
 */

import { readColumns, type Check, list, text } from "../lib/check";
import type { Devices } from "../model/devices";
import type { MemoryMap, Place } from "../model/memory-map";
import type { Overview } from "../model/overview";
import type { HostMemory, PoolSteps } from "../model/pool";
import type { Activations, LedgerTotals } from "../model/snapshot";
import { splitRounding, type Timeline } from "../model/timeline";
import { changedConditions, type Conditions } from "../model/what-if";
import * as schema from "../schema";

type Phase = schema.Phase;

const column = (values: readonly (number | null)[]): Float64Array =>
  Float64Array.from(values, (one) => one ?? NaN);

export function parseDevices(json: unknown, where = "devices"): Devices {
  const { steps, ...answer } = schema.devicesAnswer(json, where);
  return {
    ...answer,
    steps: {
      step: column(steps.step),
      max_peak_bytes: column(steps.max_peak_bytes),
      min_peak_bytes: column(steps.min_peak_bytes),
      sum_in_use_bytes: steps.sum_in_use_bytes && column(steps.sum_in_use_bytes),
    },
  };
}

export function parseOverview(buffer: ArrayBuffer): Overview {
  const { answer, numbered } = readColumns(
    buffer,
    "overview",
    schema.overviewHead,
    schema.OVERVIEW_COLUMNS,
  );
  return { ...answer, bytes: numbered("group", answer.groups) };
}

export function parseActivations(buffer: ArrayBuffer): Activations {
  const { answer, numbered } = readColumns(buffer, "activations", schema.activationsHead, [
    "step",
    "wall_time",
  ]);
  return { ...answer, bytes: numbered("layer", answer.layers) };
}

export function parseLedgerTotals(buffer: ArrayBuffer): LedgerTotals {
  const { answer, numbered } = readColumns(buffer, "ledger_totals", schema.ledgerTotalsHead, [
    "step",
    "wall_time",
    "in_use_bytes",
  ]);
  return { ...answer, bytes: numbered("group", answer.groups) };
}

export const parseMap = (buffer: ArrayBuffer): MemoryMap =>
  readColumns(buffer, "map", schema.mapHead, schema.MAP_COLUMNS).answer;

export const parseTimeline = (buffer: ArrayBuffer): Timeline =>
  splitRounding(
    readColumns(buffer, "timeline", schema.timelineHead, schema.TIMELINE_COLUMNS).answer,
  );

export const parsePool = (buffer: ArrayBuffer): PoolSteps =>
  readColumns(buffer, "pool", schema.poolHead, schema.POOL_COLUMNS).answer;

const parseHostMemory = (buffer: ArrayBuffer): HostMemory =>
  readColumns(buffer, "host_memory", schema.hostMemoryHead, schema.HOST_COLUMNS).answer;

export class Refused extends Error {
  constructor(
    readonly status: number,
    sentence: string,
    /** The parameter that it is about, if it is one alone. */
    readonly parameter: string | null = null,
  ) {
    super(sentence);
    this.name = "Refused";
  }
}

/**
 * Routes that simulate: a report holds their answers for the recorded conditions and the capacity.
 */
export const SIMULATED = ["what_if", "curve", "plan"];

/** Those that are null are not asked about. */
export type Parameters = Record<string, string | number | null>;

/** Gives the body of a route's answer, or throws `Refused`. */
export type Ask = (
  route: string,
  parameters: Parameters,
  signal: AbortSignal,
) => Promise<ArrayBuffer>;

export type Span = readonly [number, number] | null;

export interface OverviewQuery {
  device: string;
  phase: Phase;
  points: number;
  span: Span;
  /** One attempt of several that recorded the same steps; null for the last one of each step. */
  session: string | null;
}

/** Totals of a layer, or of all layers together for null. */
export type TotalsQuery = Pick<OverviewQuery, "device" | "phase" | "session"> & {
  layer: string | null;
};

export interface StepRef {
  phase: Phase;
  step: number;
}

export const jsonOf = (body: ArrayBuffer): unknown =>
  JSON.parse(new TextDecoder().decode(body)) as unknown;

function stepsOf(span: Span): Parameters {
  const [first_step, last_step] = span ?? [null, null];
  return { first_step, last_step };
}

const overSteps = (run: string, { device, phase, points, span, session }: OverviewQuery) => ({
  ...{ run, device, phase, ...stepsOf(span), points, session },
});

const ofDevice = (run: string, device: string): Parameters => ({ run, device });

const ofStep = (run: string, device: string, { phase, step }: StepRef): Parameters => ({
  ...{ run, device, step, phase },
});

const ofConditions = (run: string, device: string, conditions: Conditions): Parameters => ({
  run,
  device,
  ...Object.fromEntries(changedConditions(conditions)),
});

/** Each route with the parameters that its arguments give, and what reads its answer. */
export function routesOver(ask: Ask) {
  const columns =
    <Args extends unknown[], T>(
      route: string,
      parameters: (...args: Args) => Parameters,
      parse: (body: ArrayBuffer) => T,
    ) =>
    async (signal: AbortSignal, ...args: Args): Promise<T> =>
      parse(await ask(route, parameters(...args), signal));
  const json = <Args extends unknown[], T>(
    route: string,
    parameters: (...args: Args) => Parameters,
    check: Check<T>,
  ) => columns(route, parameters, (body) => check(jsonOf(body), route));
  return {
    runs: json("runs", () => ({}), schema.runsAnswer),
    /** `device`: null for a run without allocator data. */
    answers: json(
      "answers",
      (run: string, device: string | null, phase: Phase) => ({ run, device, phase }),
      schema.answersAnswer,
    ),
    overview: columns("overview", overSteps, parseOverview),
    pool: columns("pool", overSteps, parsePool),
    devices: json("devices", (run: string, phase: Phase) => ({ run, phase }), parseDevices),
    hostMemory: columns("host_memory", overSteps, parseHostMemory),
    snapshots: json(
      "snapshots",
      ofDevice,
      (value, where) => schema.snapshotsAnswer(value, where).snapshots,
    ),
    snapshot: json("snapshot", ofStep, schema.snapshot),
    /** `device`: null for a run of one process. */
    layers: json(
      "layers",
      (run: string, device: string | null, step: number | null) => ({ run, device, step }),
      schema.layersAnswer,
    ),
    ledgerTotals: columns(
      "ledger_totals",
      (run: string, query: TotalsQuery) => ({ run, ...query }),
      parseLedgerTotals,
    ),
    activations: columns(
      "activations",
      (run: string, points: number, span: Span) => ({ run, ...stepsOf(span), points }),
      parseActivations,
    ),
    timelines: json(
      "timelines",
      ofDevice,
      (value, where) => schema.timelinesAnswer(value, where).timelines,
    ),
    timeline: columns("timeline", ofStep, parseTimeline),
    maps: json("maps", ofDevice, (value, where) => schema.mapsAnswer(value, where).maps),
    map: columns("map", (run: string, place: Place) => ({ run, ...place }), parseMap),
    ooms: json(
      "oom",
      (run: string) => ({ run }),
      (value, where) => schema.oomsAnswer(value, where).ooms,
    ),
    /** `oom`: index of the failure in `ooms`. */
    fixes: json("fixes", (run: string, oom: number) => ({ run, oom }), schema.fixes),
    deviceMemory: json(
      "device_memory",
      (run: string, device: string, step: number | null) => ({ run, device, step }),
      schema.deviceMemory,
    ),
    whatIf: json("what_if", ofConditions, schema.whatIf),
    curve: json("curve", ofConditions, schema.curve),
    batchLimit: json("batch_limit", ofConditions, schema.batchLimit),
    demand: json("demand", ofDevice, schema.demandAnswer),
    /** `budget`: a size such as 8GiB; empty for the capacity. */
    plan: json(
      "plan",
      (run: string, device: string, budget: string, batchSize: string) => ({
        ...{ run, device, budget: budget || null, batch_size: batchSize || null },
      }),
      schema.plan,
    ),
  };
}

export interface Source extends ReturnType<typeof routesOver> {
  /** Sentences on data that a saved report does not contain; a server has none. */
  absent?: readonly string[];
  /**
   * Whether it answers what-if questions for the recorded conditions only, as a saved report does.
   */
  recordedOnly?: boolean;
  /** TensorBoard's own list of runs, in the order that gives them their colours. */
  hostRuns(signal: AbortSignal): Promise<string[]>;
}

const get: Ask = async (route, parameters, signal) => {
  const known = Object.entries(parameters).flatMap(([name, value]) =>
    value === null ? [] : [[name, String(value)]],
  );
  const address = known.length > 0 ? `${route}?${new URLSearchParams(known).toString()}` : route;
  let response: Response;
  try {
    response = await fetch(address, { signal, credentials: "same-origin" });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw new Error("The server does not answer. Is it still running?", { cause });
  }
  if (response.ok) return response.arrayBuffer();
  const isSentence = response.headers.get("content-type")?.startsWith("text/plain") ?? false;
  const sentence = isSentence ? (await response.text()).trim().slice(0, 500) : "";
  const parameter = response.headers.get("x-parameter");
  throw new Refused(
    response.status,
    sentence || `The server answered ${response.status} for ${route}.`,
    parameter,
  );
};

export const httpSource: Source = {
  ...routesOver((route, parameters, signal) => get(`./${route}`, parameters, signal)),
  hostRuns: async (signal) => list(text)(jsonOf(await get("../../runs", {}, signal)), "runs"),
};
