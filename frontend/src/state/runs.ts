/** The list of runs, and which runs, device, phase and view are shown of it. */

import { batch, signal, computed, effect, type ReadonlySignal } from "@preact/signals";

import type { Source } from "../api/source";
import { busy } from "../lib/activity";
import { preferredDevice, preferredPhase } from "../model/run";
import type { Choices } from "./address";
import type { Loaded } from "./resource";
import { VIEWS, shownView, type Need, type ViewName } from "./views";
import type { Phase, RunInfo, RunsAnswer } from "../schema";

export function createRuns(source: Source) {
  const answer = signal<Loaded<RunsAnswer>>({ value: null, error: null, loading: true });
  const hostRuns = signal<string[]>([]);
  let text = "";
  let running: Promise<void> | null = null;
  const once = async (): Promise<void> => {
    const abort = new AbortController();
    try {
      const [runs, names] = await Promise.all([
        source.runs(abort.signal),
        source.hostRuns(abort.signal).catch(() => hostRuns.peek()),
      ]);
      const now = JSON.stringify([runs, names]);
      if (now === text && answer.peek().error === null) return;
      text = now;
      batch(() => {
        hostRuns.value = names;
        answer.value = { value: runs, error: null, loading: false };
      });
    } catch (fault) {
      answer.value = {
        ...answer.peek(),
        error: fault instanceof Error ? fault.message : String(fault),
        loading: false,
      };
    }
  };
  /** One request at a time, so that a slow server gets no second request before it has answered. */
  const refresh = (): Promise<void> => {
    running ??= busy(once()).finally(() => (running = null));
    return running;
  };
  return { answer, hostRuns, refresh };
}

interface RunChoices {
  choices: ReadonlySignal<Choices>;
  choose: (changed: Partial<Choices>) => void;
  selected: ReadonlySignal<RunInfo[]>;
}

/** Checks or unchecks a run; the first click turns the page's own choice into the user's. */
export function toggleRun(store: RunChoices, run: string): void {
  const choices = store.choices.peek();
  const { primary } = choices;
  const shown = store.selected.peek().map((info) => info.run);
  // Runs that the filter hides stay checked.
  const now = [...new Set([...shown, ...(choices.runs ?? [])])];
  const runs = now.includes(run) ? now.filter((name) => name !== run) : [...now, run];
  store.choose({ runs, primary: primary === run && !runs.includes(run) ? null : primary });
}

export function showRun(store: RunChoices, run: string): void {
  const { runs } = store.choices.peek();
  store.choose({
    primary: run,
    runs: runs === null || runs.includes(run) ? runs : [...runs, run],
    step: null,
    zoom: null,
    session: null,
    oom: 0,
    mapZooms: [],
  });
}

interface Matcher {
  test(name: string): boolean;
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

/**
 * The runs that can be shown: those that the filter does not hide, and of them the checked ones
 * once the user has checked some.
 */
function candidates(all: readonly RunInfo[], { filter, runs, primary }: Choices): RunInfo[] {
  const matching = matcher(filter);
  return all.filter(
    ({ run }) => matching.test(run) && (runs === null || runs.includes(run) || run === primary),
  );
}

export const isMissing = (all: readonly RunInfo[], name: string | null): boolean =>
  name !== null && !all.some(({ run }) => run === name);

/**
 * The run shown as a stack: the chosen one, else the one shown before, else the worst; null if the
 * chosen one is not there.
 */
export function primaryRun(
  all: readonly RunInfo[],
  choices: Choices,
  sticky: string | null,
): RunInfo | null {
  if (isMissing(all, choices.primary)) return null;
  const runs = candidates(all, choices);
  const named = (name: string | null): RunInfo | undefined => runs.find((run) => run.run === name);
  const worst = [...runs].sort((a, b) => a.rank - b.rank);
  return named(choices.primary) ?? named(sticky) ?? worst[0] ?? null;
}

export function selectedRuns(
  all: readonly RunInfo[],
  choices: Choices,
  primary: RunInfo | null,
): RunInfo[] {
  if (choices.runs === null) return primary === null ? [] : [primary];
  return candidates(all, choices);
}

/**
 * The run compared with: the chosen one, else another checked one, else the same run, to compare
 * two of its steps; null as above.
 */
export function otherRun(
  runs: readonly RunInfo[],
  selected: readonly RunInfo[],
  primary: RunInfo | null,
  choices: Choices,
): RunInfo | null {
  if (isMissing(runs, choices.other)) return null;
  const named = runs.find(({ run }) => run === choices.other);
  return named ?? selected.find((run) => run !== primary && run.devices.length > 0) ?? primary;
}

export function shownDevice(run: RunInfo | null, choices: Choices): string | null {
  if (!run) return null;
  return run.devices.some(({ device }) => device === choices.device)
    ? choices.device
    : preferredDevice(run);
}

export function shownPhase(run: RunInfo | null, choices: Choices): Phase {
  if (!run) return "train";
  return choices.phase !== null && run.phases.includes(choices.phase)
    ? choices.phase
    : preferredPhase(run);
}

/**
 * The phase of another run to show beside the shown phase of the primary run: the same, or of each
 * run the one that it is about.
 */
export function phaseBeside(run: RunInfo, primary: RunInfo | null, shown: Phase): Phase | null {
  if (run.phases.includes(shown)) return shown;
  return primary !== null && shown === preferredPhase(primary) && run.phases.length > 0
    ? preferredPhase(run)
    : null;
}

/**
 * Order of our runs in TensorBoard's list, which gives them their colours. Our files lie in
 * `<run>/memory`, so TensorBoard may know a run by its own name or only by that of its directory.
 * Runs that TensorBoard does not list follow by name, as it would list them, also in a report.
 */
export function colourIndex(
  runs: readonly Pick<RunInfo, "run">[],
  hostRuns: readonly string[],
): Map<string, number> {
  const places = new Map(hostRuns.map((name, index) => [name, index]));
  let next = hostRuns.length;
  const result = new Map<string, number>();
  const byName = [...runs].sort((a, b) => a.run.localeCompare(b.run, "en", { numeric: true }));
  for (const { run } of byName) {
    const directory = run === "." ? "memory" : `${run}/memory`;
    const inside = hostRuns.findIndex((name) => name.startsWith(`${directory}/`));
    const place = places.get(run) ?? places.get(directory) ?? (inside >= 0 ? inside : undefined);
    result.set(run, place ?? next++);
  }
  return result;
}

export type ChoicesSignal = ReadonlySignal<Choices>;

export function createShown(
  {
    answer,
    hostRuns,
  }: { answer: ReadonlySignal<Loaded<RunsAnswer>>; hostRuns: ReadonlySignal<string[]> },
  choices: ChoicesSignal,
) {
  const sticky = signal<string | null>(null);
  const runs = computed<RunInfo[]>(() => answer.value.value?.runs ?? []);
  const primary = computed(() => primaryRun(runs.value, choices.value, sticky.value));
  const selected = computed(() => selectedRuns(runs.value, choices.value, primary.value));
  // The page's own first choice stays, whatever newer runs appear.
  effect(() => {
    if (sticky.value === null && primary.value) sticky.value = primary.value.run;
  });
  const view = computed((): ViewName | null => {
    const { view: chosen, layer } = choices.value;
    return primary.value && shownView(chosen, layer, primary.value);
  });
  return {
    runs,
    selected,
    primary,
    /**
     * The view that the shown run has; null without a run, and where the run has nothing to show.
     */
    view,
    needs: (need: Need): boolean => view.value !== null && VIEWS[view.value].needs.includes(need),
    other: computed(() => otherRun(runs.value, selected.value, primary.value, choices.value)),
    device: computed(() => shownDevice(primary.value, choices.value)),
    phase: computed(() => shownPhase(primary.value, choices.value)),
    colours: computed(() => colourIndex(runs.value, hostRuns.value)),
    filter: computed(() => matcher(choices.value.filter)),
  };
}

export type Shown = ReturnType<typeof createShown>;
