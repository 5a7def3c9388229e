/** The plugin's routes. Every address is relative to the document's base, so that prefixes and nested frames work. */

import { changedConditions } from "../model/what-if";
import { parseDeviceMemory, parseFixes, parseMap, parseMaps, parseOoms } from "./allocator-answers";
import { parseAnswers } from "./answer-answers";
import { parseActivations, parseLayers, parseLedgerTotals, parseOverview, parseRuns, parseSnapshot, parseSnapshots } from "./answers";
import { list, text } from "./check";
import { parseDemand } from "./demand-answer";
import { parseDevices } from "./devices-answer";
import { parseHostMemory } from "./host-memory-answer";
import { parsePlan } from "./plan-answer";
import { parsePool } from "./pool-answer";
import type { OverviewQuery, Source } from "./source";
import { parseTimeline, parseTimelines } from "./timeline-answers";
import { parseWhatIf } from "./what-if-answer";

/** An error with the server's own sentence. */
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

type Parameters = Record<string, string | number | null>;

function address(route: string, parameters: Parameters): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== null) query.set(name, String(value));
  const text = query.toString();
  return text ? `${route}?${text}` : route;
}

async function get(route: string, parameters: Parameters, signal: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address(route, parameters), { signal, credentials: "same-origin" });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw new Error("The server does not answer. Is it still running?", { cause });
  }
  if (response.ok) return response;
  const isSentence = response.headers.get("content-type")?.startsWith("text/plain") ?? false;
  const sentence = isSentence ? (await response.text()).trim().slice(0, 500) : "";
  const parameter = response.headers.get("x-parameter");
  throw new Refused(response.status, sentence || `The server answered ${response.status} for ${route}.`, parameter);
}

const json = async (route: string, parameters: Parameters, signal: AbortSignal): Promise<unknown> =>
  (await get(route, parameters, signal)).json();

const binary = async (route: string, parameters: Parameters, signal: AbortSignal): Promise<ArrayBuffer> =>
  (await get(route, parameters, signal)).arrayBuffer();

function overSteps({ run, device, phase, points, span, session }: OverviewQuery): Parameters {
  const [first_step, last_step] = span ?? [null, null];
  return { run, device, phase, first_step, last_step, points, session };
}

export const httpSource: Source = {
  runs: async (signal) => parseRuns(await json("./runs", {}, signal)),
  answers: async (run, device, phase, signal) => parseAnswers(await json("./answers", { run, device, phase }, signal)),
  overview: async (query, signal) => parseOverview(await binary("./overview", overSteps(query), signal)),
  pool: async (query, signal) => parsePool(await binary("./pool", overSteps(query), signal)),
  devices: async (run, phase, signal) => parseDevices(await json("./devices", { run, phase }, signal)),
  hostMemory: async (query, signal) => parseHostMemory(await binary("./host_memory", overSteps(query), signal)),
  snapshots: async (run, device, signal) => parseSnapshots(await json("./snapshots", { run, device }, signal)),
  snapshot: async (run, device, phase, step, signal) => parseSnapshot(await json("./snapshot", { run, device, step, phase }, signal)),
  layers: async (run, device, step, signal) => parseLayers(await json("./layers", { run, device, step }, signal)),
  ledgerTotals: async (query, signal) => parseLedgerTotals(await binary("./ledger_totals", { ...query }, signal)),
  activations: async (run, points, span, signal) => {
    const [first_step, last_step] = span ?? [null, null];
    return parseActivations(await binary("./activations", { run, first_step, last_step, points }, signal));
  },
  timelines: async (run, device, signal) => parseTimelines(await json("./timelines", { run, device }, signal)),
  timeline: async (run, device, phase, step, signal) => parseTimeline(await binary("./timeline", { run, device, step, phase }, signal)),
  maps: async (run, device, signal) => parseMaps(await json("./maps", { run, device }, signal)),
  map: async (run, place, signal) => parseMap(await binary("./map", { run, ...place }, signal)),
  ooms: async (run, signal) => parseOoms(await json("./oom", { run }, signal)),
  fixes: async (run, oom, signal) => parseFixes(await json("./fixes", { run, oom }, signal)),
  deviceMemory: async (run, device, step, signal) => parseDeviceMemory(await json("./device_memory", { run, device, step }, signal)),
  whatIf: async (run, device, conditions, signal) =>
    parseWhatIf(await json("./what_if", { run, device, ...Object.fromEntries(changedConditions(conditions)) }, signal)),
  demand: async (run, device, signal) => parseDemand(await json("./demand", { run, device }, signal)),
  plan: async (run, device, budget, signal) => parsePlan(await json("./plan", { run, device, budget: budget || null }, signal)),
  hostRuns: async (signal) => list(text)(await json("../../runs", {}, signal), "runs"),
};
