/** The answers that the page asks for, from the plugin's routes or from a saved report: each route with its parameters and its check. */

import type { Place } from "../model/memory-map";
import { changedConditions, type Conditions } from "../model/what-if";
import {
  parseActivations,
  parseAnswers,
  parseDemand,
  parseDeviceMemory,
  parseDevices,
  parseFixes,
  parseHostMemory,
  parseLayers,
  parseLedgerTotals,
  parseMap,
  parseMaps,
  parseOoms,
  parseOverview,
  parsePlan,
  parsePool,
  parseRuns,
  parseSnapshot,
  parseSnapshots,
  parseTimeline,
  parseTimelines,
  parseWhatIf,
} from "./answers";
import type { Phase } from "../schema";

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

/** Those that are null are not asked about. */
export type Parameters = Record<string, string | number | null>;

/** Gives the body of a route's answer, or throws `Refused`. */
export type Ask = (route: string, parameters: Parameters, signal: AbortSignal) => Promise<ArrayBuffer>;

/** First and last step; null for all. */
export type Span = readonly [number, number] | null;

export interface OverviewQuery {
  run: string;
  device: string;
  phase: Phase;
  points: number;
  span: Span;
  /** One attempt of several that recorded the same steps; null for the last one of each step. */
  session: string | null;
}

export interface TotalsQuery {
  run: string;
  device: string;
  phase: Phase;
  /** Null for all layers together. */
  layer: string | null;
  session: string | null;
}

export const jsonOf = (body: ArrayBuffer): unknown => JSON.parse(new TextDecoder().decode(body)) as unknown;

function overSteps({ run, device, phase, points, span, session }: OverviewQuery): Parameters {
  const [first_step, last_step] = span ?? [null, null];
  return { run, device, phase, first_step, last_step, points, session };
}

export function routesOver(ask: Ask) {
  const json = async <T>(route: string, parameters: Parameters, signal: AbortSignal, parse: (json: unknown) => T): Promise<T> =>
    parse(jsonOf(await ask(route, parameters, signal)));
  const columns = async <T>(route: string, parameters: Parameters, signal: AbortSignal, parse: (body: ArrayBuffer) => T): Promise<T> =>
    parse(await ask(route, parameters, signal));
  return {
    runs: (signal: AbortSignal) => json("runs", {}, signal, parseRuns),
    /** `device`: null for a run without allocator data. */
    answers: (run: string, device: string | null, phase: Phase, signal: AbortSignal) =>
      json("answers", { run, device, phase }, signal, parseAnswers),
    overview: (query: OverviewQuery, signal: AbortSignal) => columns("overview", overSteps(query), signal, parseOverview),
    pool: (query: OverviewQuery, signal: AbortSignal) => columns("pool", overSteps(query), signal, parsePool),
    devices: (run: string, phase: Phase, signal: AbortSignal) => json("devices", { run, phase }, signal, parseDevices),
    hostMemory: (query: OverviewQuery, signal: AbortSignal) => columns("host_memory", overSteps(query), signal, parseHostMemory),
    snapshots: (run: string, device: string, signal: AbortSignal) => json("snapshots", { run, device }, signal, parseSnapshots),
    snapshot: (run: string, device: string, phase: Phase, step: number, signal: AbortSignal) =>
      json("snapshot", { run, device, step, phase }, signal, parseSnapshot),
    /** `device`: null for a run of one process. */
    layers: (run: string, device: string | null, step: number | null, signal: AbortSignal) =>
      json("layers", { run, device, step }, signal, parseLayers),
    ledgerTotals: (query: TotalsQuery, signal: AbortSignal) => columns("ledger_totals", { ...query }, signal, parseLedgerTotals),
    activations: (run: string, points: number, span: Span, signal: AbortSignal) => {
      const [first_step, last_step] = span ?? [null, null];
      return columns("activations", { run, first_step, last_step, points }, signal, parseActivations);
    },
    timelines: (run: string, device: string, signal: AbortSignal) => json("timelines", { run, device }, signal, parseTimelines),
    timeline: (run: string, device: string, phase: Phase, step: number, signal: AbortSignal) =>
      columns("timeline", { run, device, step, phase }, signal, parseTimeline),
    maps: (run: string, device: string, signal: AbortSignal) => json("maps", { run, device }, signal, parseMaps),
    map: (run: string, place: Place, signal: AbortSignal) => columns("map", { run, ...place }, signal, parseMap),
    ooms: (run: string, signal: AbortSignal) => json("oom", { run }, signal, parseOoms),
    /** `oom`: index of the failure in `ooms`. */
    fixes: (run: string, oom: number, signal: AbortSignal) => json("fixes", { run, oom }, signal, parseFixes),
    deviceMemory: (run: string, device: string, step: number | null, signal: AbortSignal) =>
      json("device_memory", { run, device, step }, signal, parseDeviceMemory),
    whatIf: (run: string, device: string, conditions: Conditions, signal: AbortSignal) =>
      json("what_if", { run, device, ...Object.fromEntries(changedConditions(conditions)) }, signal, parseWhatIf),
    demand: (run: string, device: string, signal: AbortSignal) => json("demand", { run, device }, signal, parseDemand),
    /** `budget`: a size such as 8GiB; empty for the capacity. */
    plan: (run: string, device: string, budget: string, signal: AbortSignal) =>
      json("plan", { run, device, budget: budget || null }, signal, parsePlan),
  };
}

export interface Source extends ReturnType<typeof routesOver> {
  /** Sentences on data that a saved report does not contain; a server has none. */
  absent?: readonly string[];
  /** Whether it answers what-if questions for the recorded conditions only, as a saved report does. */
  recordedOnly?: boolean;
  /** TensorBoard's own list of runs, in the order that gives them their colours. */
  hostRuns(signal: AbortSignal): Promise<string[]>;
}
