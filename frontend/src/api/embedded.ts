/** A saved report: the document contains the server's answers, compressed. Nothing is fetched. */

import { list, number, object, text, type Check } from "../lib/check";
import { totalsOf } from "../model/snapshot";
import { Refused, SIMULATED, jsonOf, routesOver, type Parameters, type Source } from "./source";
import { snapshot } from "../schema";

export const REPORT_ID = "tb-memplugin-report";

const parameters: Check<Record<string, string>> = (value, where) => {
  if (typeof value !== "object" || value === null)
    throw new Error(`The report is damaged: ${where} should be an object.`);
  return Object.fromEntries(
    Object.entries(value).map(([name, given]) => [name, text(given, where)]),
  );
};

/** `data` is gzip in base64. */
const answer = object({ route: text, parameters, status: number, data: text });
const refusal = object({ route: text, parameters, why: text });
const report = object({
  format: number,
  absent: list(text),
  answers: list(answer),
  refusals: list(refusal),
});
type Answer = ReturnType<typeof answer>;

/**
 * Parameters that do not identify an answer: its resolution and its step. A zoom shows a part of
 * the whole range's answer.
 */
const LOOSE = new Set(["points", "first_step", "last_step", "step"]);

/** Routes whose answer at a step applies until the next one. */
const HOLDING = ["layers", "device_memory"];

function keyOf(route: string, given: Parameters): string {
  const exact = Object.entries(given).filter(([name, value]) => value !== null && !LOOSE.has(name));
  return JSON.stringify([route, ...exact.map(([name, value]) => [name, String(value)]).sort()]);
}

async function unpack(data: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

interface Entry {
  step: number | null;
  answer: Answer | null;
  why: string;
}

class Answers {
  private readonly entries = new Map<string, Entry[]>();

  constructor({ answers, refusals }: ReturnType<typeof report>) {
    for (const answer of answers) this.add(answer.route, answer.parameters, answer, "");
    for (const { route, parameters, why } of refusals) this.add(route, parameters, null, why);
    for (const entries of this.entries.values())
      entries.sort((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity));
  }

  /**
   * The answer to a question. One that holds from step to step: the last one up to the step,
   * otherwise the first; without a step, the one without a step.
   */
  async find(route: string, wanted: Parameters): Promise<ArrayBuffer> {
    const { run = null, device = null, step = null } = wanted;
    const entries = this.of(route, SIMULATED.includes(route) ? { run, device } : wanted);
    const exact = entries.find((entry) => entry.step === step);
    if (!HOLDING.includes(route) || step === null) return this.open(exact);
    const ofSteps = entries.filter((entry) => entry.step !== null);
    return this.open(
      ofSteps.filter((entry) => (entry.step ?? 0) <= Number(step)).at(-1) ??
        ofSteps[0] ??
        entries[0],
    );
  }

  async all(route: string, wanted: Parameters): Promise<ArrayBuffer[]> {
    return Promise.all(
      this.of(route, wanted)
        .filter(({ answer }) => answer?.status === 200)
        .map((entry) => this.open(entry)),
    );
  }

  private of(route: string, wanted: Parameters): Entry[] {
    return this.entries.get(keyOf(route, wanted)) ?? [];
  }

  private async open(entry: Entry | undefined): Promise<ArrayBuffer> {
    if (!entry)
      throw new Refused(
        404,
        "Not in this report: it holds only the data selected when it was created.",
      );
    if (!entry.answer) throw new Refused(404, entry.why);
    const body = await unpack(entry.answer.data);
    if (entry.answer.status !== 200)
      throw new Refused(entry.answer.status, new TextDecoder().decode(body));
    return body;
  }

  private add(
    route: string,
    given: Record<string, string>,
    answer: Answer | null,
    why: string,
  ): void {
    const key = keyOf(route, given);
    const entries = this.entries.get(key) ?? [];
    entries.push({ step: given.step === undefined ? null : Number(given.step), answer, why });
    this.entries.set(key, entries);
  }
}

export function embeddedSource(content: string): Source {
  const stored = report(JSON.parse(content), "report");
  if (stored.format !== 1)
    throw new Error(
      `Unsupported report format ${stored.format}: this page reads format 1. Create the report again.`,
    );
  const answers = new Answers(stored);
  const routes = routesOver((route, wanted) => answers.find(route, wanted));
  return {
    ...routes,
    absent: stored.absent,
    recordedOnly: true,
    // Totals of one layer are computed from the report's snapshots.
    ledgerTotals: async (signal, run, query) => {
      const { device, phase, layer } = query;
      if (layer === null) return routes.ledgerTotals(signal, run, query);
      const bodies = await answers.all("snapshot", { run, device, phase });
      return totalsOf(
        bodies.map((body) => snapshot(jsonOf(body), "snapshot")),
        layer,
        { run, device, phase },
      );
    },
    hostRuns: () => Promise.resolve([]),
  };
}
