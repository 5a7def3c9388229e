/** The list of runs, and the user's choices in it. */

import { batch, signal, type ReadonlySignal } from "@preact/signals";

import type { Source } from "../api/source";
import { busy } from "../lib/activity";
import type { RunInfo, RunsAnswer } from "../model/run";
import type { Choices } from "./address";
import type { Loaded } from "./resource";

/** The list of runs, fetched again and again. */
export function createRuns(source: Source) {
  const answer = signal<Loaded<RunsAnswer>>({ value: null, error: null, loading: true });
  const hostRuns = signal<string[]>([]);
  let text = "";
  let running: Promise<void> | null = null;
  const once = async (): Promise<void> => {
    const abort = new AbortController();
    try {
      const [runs, names] = await Promise.all([source.runs(abort.signal), source.hostRuns(abort.signal).catch(() => hostRuns.peek())]);
      const now = JSON.stringify([runs, names]);
      if (now === text && answer.peek().error === null) return;
      text = now;
      batch(() => {
        hostRuns.value = names;
        answer.value = { value: runs, error: null, loading: false };
      });
    } catch (fault) {
      answer.value = { ...answer.peek(), error: fault instanceof Error ? fault.message : String(fault), loading: false };
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
