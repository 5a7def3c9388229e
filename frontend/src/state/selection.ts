/** Selection of runs, device and phase from the user's choices. Pure. */

import { preferredDevice, preferredPhase, type Phase, type RunInfo } from "../model/run";
import type { Choices } from "./address";

interface Matcher {
  test(name: string): boolean;
  /** A sentence if the filter is not a regular expression. */
  fault: string | null;
}

export function matcher(filter: string): Matcher {
  if (filter === "") return { test: () => true, fault: null };
  try {
    const pattern = new RegExp(filter, "i");
    return { test: (name) => pattern.test(name), fault: null };
  } catch {
    return { test: () => true, fault: "Invalid regular expression: showing all." };
  }
}

/** The runs that can be shown: those that the filter does not hide, and of them the checked ones once the user has checked some. */
function candidates(all: readonly RunInfo[], { filter, runs, primary }: Choices): RunInfo[] {
  const matching = matcher(filter);
  return all.filter(({ run }) => matching.test(run) && (runs === null || runs.includes(run) || run === primary));
}

/** The run shown as a stack: the chosen one, else the one shown before, else the worst. */
export function primaryRun(all: readonly RunInfo[], choices: Choices, sticky: string | null): RunInfo | null {
  const runs = candidates(all, choices);
  const named = (name: string | null): RunInfo | undefined => runs.find((run) => run.run === name);
  const worst = [...runs].sort((a, b) => a.rank - b.rank);
  return named(choices.primary) ?? named(sticky) ?? worst[0] ?? null;
}

/** The runs that are drawn: the checked ones that the filter does not hide; by default the shown one alone. */
export function selectedRuns(all: readonly RunInfo[], choices: Choices, primary: RunInfo | null): RunInfo[] {
  if (choices.runs === null) return primary === null ? [] : [primary];
  return candidates(all, choices);
}

/** The run compared with: the chosen one, else another checked one, else the same run, to compare two of its steps. */
export function otherRun(
  runs: readonly RunInfo[],
  selected: readonly RunInfo[],
  primary: RunInfo | null,
  choices: Choices,
): RunInfo | null {
  const named = runs.find(({ run }) => run === choices.other);
  return named ?? selected.find((run) => run !== primary && run.devices.length > 0) ?? primary;
}

export function shownDevice(run: RunInfo | null, choices: Choices): string | null {
  if (!run) return null;
  return run.devices.some(({ device }) => device === choices.device) ? choices.device : preferredDevice(run);
}

export function shownPhase(run: RunInfo | null, choices: Choices): Phase {
  if (!run) return "train";
  return choices.phase !== null && run.phases.includes(choices.phase) ? choices.phase : preferredPhase(run);
}

/** The phase of another run to show beside the shown phase of the primary run: the same, or of each run the one that it is about. */
export function phaseBeside(run: RunInfo, primary: RunInfo | null, shown: Phase): Phase | null {
  if (run.phases.includes(shown)) return shown;
  return primary !== null && shown === preferredPhase(primary) && run.phases.length > 0 ? preferredPhase(run) : null;
}

/**
 * Order of our runs in TensorBoard's list, which gives them their colours. Our files lie in `<run>/memory`, so TensorBoard may know a run
 * by its own name or only by that of its directory. Runs that TensorBoard does not list follow in our order.
 */
export function colourIndex(runs: readonly string[], hostRuns: readonly string[]): Map<string, number> {
  const places = new Map(hostRuns.map((name, index) => [name, index]));
  let next = hostRuns.length;
  const result = new Map<string, number>();
  for (const run of runs) {
    const directory = run === "." ? "memory" : `${run}/memory`;
    const inside = hostRuns.findIndex((name) => name.startsWith(`${directory}/`));
    const place = places.get(run) ?? places.get(directory) ?? (inside >= 0 ? inside : undefined);
    result.set(run, place ?? next++);
  }
  return result;
}
