/** A saved report: the document contains the server's answers, compressed. Nothing is fetched. */

import { totalsOf, type LedgerTotals } from "../model/snapshot";
import { parseDeviceMemory, parseFixes, parseMap, parseMaps, parseOoms } from "./allocator-answers";
import { parseAnswers } from "./answer-answers";
import { parseActivations, parseLayers, parseLedgerTotals, parseOverview, parseRuns, parseSnapshot, parseSnapshots } from "./answers";
import { list, number, object, text, type Check } from "./check";
import { parseDemand } from "./demand-answer";
import { parseDevices } from "./devices-answer";
import { parseHostMemory } from "./host-memory-answer";
import { Refused } from "./http";
import { parsePlan } from "./plan-answer";
import { parsePool } from "./pool-answer";
import type { Source, TotalsQuery } from "./source";
import { parseTimeline, parseTimelines } from "./timeline-answers";
import { parseWhatIf } from "./what-if-answer";

/** Id of the element with the answers. */
export const REPORT_ID = "tb-memplugin-report";

interface Answer {
  route: string;
  parameters: Record<string, string>;
  status: number;
  /** gzip in base64. */
  data: string;
}

interface Refusal {
  route: string;
  parameters: Record<string, string>;
  why: string;
}

interface Report {
  format: number;
  /** Sentences on data that is not in the report. */
  absent: string[];
  answers: Answer[];
  refusals: Refusal[];
}

const parameters: Check<Record<string, string>> = (value, where) => {
  if (typeof value !== "object" || value === null) throw new Error(`The report is damaged: ${where} should be an object.`);
  return Object.fromEntries(Object.entries(value).map(([name, given]) => [name, text(given, where)]));
};

const report = object<Report>({
  format: number,
  absent: list(text),
  answers: list(object<Answer>({ route: text, parameters, status: number, data: text })),
  refusals: list(object<Refusal>({ route: text, parameters, why: text })),
});

type Wanted = Record<string, string | number | null>;

/** Parameters that do not identify an answer: its resolution and its step. */
const LOOSE = new Set(["points", "step"]);

function keyOf(route: string, given: Wanted): string {
  const exact = Object.entries(given).filter(([name, value]) => value !== null && !LOOSE.has(name));
  return JSON.stringify([route, ...exact.map(([name, value]) => [name, String(value)]).sort()]);
}

async function unpack(data: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

const decode = (buffer: ArrayBuffer): string => new TextDecoder().decode(buffer);

interface Entry {
  step: number | null;
  answer: Answer | null;
  why: string;
}

class Answers {
  private readonly entries = new Map<string, Entry[]>();

  constructor({ answers, refusals }: Report) {
    for (const answer of answers) this.add(answer.route, answer.parameters, answer, "");
    for (const { route, parameters, why } of refusals) this.add(route, parameters, null, why);
    for (const entries of this.entries.values()) entries.sort((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity));
  }

  /** The answer to exactly this question. */
  async exact(route: string, wanted: Wanted): Promise<ArrayBuffer> {
    return this.open(this.of(route, wanted).find(({ step }) => step === (wanted.step ?? null)));
  }

  /** The answer that applies at a step: the last one up to it, otherwise the first; without a step, the one without a step. */
  async at(route: string, wanted: Wanted, step: number | null): Promise<ArrayBuffer> {
    const entries = this.of(route, wanted);
    const ofSteps = entries.filter((entry) => entry.step !== null);
    const holding = ofSteps.filter((entry) => step !== null && (entry.step ?? 0) <= step).at(-1) ?? ofSteps[0];
    return this.open(step === null ? entries.find((entry) => entry.step === null) : (holding ?? entries[0]));
  }

  /** All successful answers to a question, for every step. */
  async all(route: string, wanted: Wanted): Promise<ArrayBuffer[]> {
    return Promise.all(
      this.of(route, wanted)
        .filter(({ answer }) => answer?.status === 200)
        .map((entry) => this.open(entry)),
    );
  }

  private of(route: string, wanted: Wanted): Entry[] {
    return this.entries.get(keyOf(route, wanted)) ?? [];
  }

  private async open(entry: Entry | undefined): Promise<ArrayBuffer> {
    if (!entry) throw new Refused(404, "Not in this report: it holds only the data selected when it was created.");
    if (!entry.answer) throw new Refused(404, entry.why);
    const body = await unpack(entry.answer.data);
    if (entry.answer.status !== 200) throw new Refused(entry.answer.status, decode(body));
    return body;
  }

  private add(route: string, given: Record<string, string>, answer: Answer | null, why: string): void {
    const key = keyOf(route, given);
    const entries = this.entries.get(key) ?? [];
    entries.push({ step: given.step === undefined ? null : Number(given.step), answer, why });
    this.entries.set(key, entries);
  }
}

const json = async (body: Promise<ArrayBuffer>): Promise<unknown> => JSON.parse(decode(await body)) as unknown;

/** Totals of all layers as answered by the server; of one layer computed from the report's snapshots. */
async function ledgerTotals(answers: Answers, { run, device, phase, layer, session }: TotalsQuery): Promise<LedgerTotals> {
  if (layer === null) return parseLedgerTotals(await answers.exact("ledger_totals", { run, device, phase, session }));
  const bodies = await answers.all("snapshot", { run, device, phase });
  const snapshots = bodies.map((body) => parseSnapshot(JSON.parse(decode(body)) as unknown));
  return totalsOf(snapshots, layer, { run, device, phase });
}

/** The source whose data is the content of the report's element. */
export function embeddedSource(content: string): Source {
  const stored = report(JSON.parse(content), "report");
  if (stored.format !== 1)
    throw new Error(`Unsupported report format ${stored.format}: this page reads format 1. Create the report again.`);
  const answers = new Answers(stored);
  return {
    absent: stored.absent,
    recordedOnly: true,
    runs: async () => parseRuns(await json(answers.exact("runs", {}))),
    answers: async (run, device, phase) => parseAnswers(await json(answers.exact("answers", { run, device, phase }))),
    // A zoom has no answer of its own: it shows a part of the whole range's.
    overview: async ({ run, device, phase, session }) => parseOverview(await answers.exact("overview", { run, device, phase, session })),
    pool: async ({ run, device, phase, session }) => parsePool(await answers.exact("pool", { run, device, phase, session })),
    devices: async (run, phase) => parseDevices(await json(answers.exact("devices", { run, phase }))),
    hostMemory: async ({ run, device, phase, session }) =>
      parseHostMemory(await answers.exact("host_memory", { run, device, phase, session })),
    snapshots: async (run, device) => parseSnapshots(await json(answers.exact("snapshots", { run, device }))),
    snapshot: async (run, device, phase, step) => parseSnapshot(await json(answers.exact("snapshot", { run, device, phase, step }))),
    layers: async (run, device, step) => parseLayers(await json(answers.at("layers", { run, device }, step))),
    ledgerTotals: (query) => ledgerTotals(answers, query),
    activations: async (run) => parseActivations(await answers.exact("activations", { run })),
    timelines: async (run, device) => parseTimelines(await json(answers.exact("timelines", { run, device }))),
    timeline: async (run, device, phase, step) => parseTimeline(await answers.exact("timeline", { run, device, phase, step })),
    maps: async (run, device) => parseMaps(await json(answers.exact("maps", { run, device }))),
    map: async (run, place) => parseMap(await answers.exact("map", { run, ...place })),
    ooms: async (run) => parseOoms(await json(answers.exact("oom", { run }))),
    fixes: async (run, oom) => parseFixes(await json(answers.exact("fixes", { run, oom }))),
    deviceMemory: async (run, device, step) => parseDeviceMemory(await json(answers.at("device_memory", { run, device }, step))),
    whatIf: async (run, device) => parseWhatIf(await json(answers.exact("what_if", { run, device }))),
    demand: async (run, device) => parseDemand(await json(answers.exact("demand", { run, device }))),
    plan: async (run, device) => parsePlan(await json(answers.exact("plan", { run, device }))),
    hostRuns: () => Promise.resolve([]),
  };
}
