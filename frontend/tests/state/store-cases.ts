/** Runs, and a source that lists them. */

import { vi } from "vitest";

import type { OverviewQuery, Source } from "../../src/api/source";
import type { Overview } from "../../src/model/overview";
import type { RunInfo } from "../../src/schema";

export const run = (name: string, started: number, changed: Partial<RunInfo> = {}): RunInfo => ({
  run: name,
  version: "1",
  sessions: 1,
  workers: [""],
  steps: 100,
  first_step: 0,
  last_step: 99,
  started,
  ended: null,
  recorded_until: null,
  phases: ["train"],
  devices: [{ device: "GPU:0", capacity_bytes: null, peak_bytes: 1, peak_step: 0, snapshots: 0 }],
  most_loaded: "GPU:0",
  activation_layers: 0,
  frozen: true,
  ooms: 0,
  status: "ok",
  rank: 1000 - started,
  findings: [],
  largest_at_failure: null,
  notes: [],
  damage: [],
  ...changed,
});

export const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resume) => setTimeout(resume, 0));
};

/** Columns of an overview whose values are all unknown. */
const UNKNOWN = {
  step: [],
  peak_bytes: [],
  traced: [],
  snapshot: [],
  snapshots: [],
  sessions: [],
  failures: [],
};

/**
 * A source that answers with what it was asked; `asked` are the overviews, `fails` makes the list
 * of runs fail.
 */
export function sourceOf(runs: readonly RunInfo[]) {
  const asked: (OverviewQuery & { run: string })[] = [];
  const state = { runs, fails: false };
  const overview = (_: AbortSignal, run: string, query: OverviewQuery): Promise<Overview> => {
    asked.push({ run, ...query });
    return Promise.resolve({
      ...UNKNOWN,
      run,
      rows: query.span === null ? 100 : 7,
    } as unknown as Overview);
  };
  const source = {
    runs: vi.fn(() =>
      state.fails
        ? Promise.reject(new Error("gone"))
        : Promise.resolve({ plugin_version: "1", runs: [...state.runs] }),
    ),
    hostRuns: () => Promise.resolve([]),
    overview,
    pool: () => new Promise(() => undefined),
    ledgerTotals: () => new Promise(() => undefined),
  } as unknown as Source;
  return { source, asked, state };
}
