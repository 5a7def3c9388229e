/** The shown runs, device and phase, derived from the list of runs and the user's choices. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";

import type { RunInfo, RunsAnswer } from "../model/run";
import type { Choices } from "./address";
import type { Loaded } from "./resource";
import { colourIndex, matcher, otherRun, primaryRun, selectedRuns, shownDevice, shownPhase } from "./selection";

interface RunsState {
  answer: ReadonlySignal<Loaded<RunsAnswer>>;
  hostRuns: ReadonlySignal<string[]>;
}

export type ChoicesSignal = ReadonlySignal<Choices>;

export function createShown({ answer, hostRuns }: RunsState, choices: ChoicesSignal) {
  const sticky = signal<string | null>(null);
  const runs = computed<RunInfo[]>(() => answer.value.value?.runs ?? []);
  const selected = computed(() => selectedRuns(runs.value, choices.value));
  const primary = computed(() => primaryRun(selected.value, choices.value, sticky.value));
  // The page's own first choice stays, whatever newer runs appear.
  effect(() => {
    if (sticky.value === null && primary.value) sticky.value = primary.value.run;
  });
  return {
    runs,
    selected,
    primary,
    other: computed(() => otherRun(runs.value, selected.value, primary.value, choices.value)),
    device: computed(() => shownDevice(primary.value, choices.value)),
    phase: computed(() => shownPhase(primary.value, choices.value)),
    colours: computed(() =>
      colourIndex(
        runs.value.map(({ run }) => run),
        hostRuns.value,
      ),
    ),
    filter: computed(() => matcher(choices.value.filter)),
  };
}

export type Shown = ReturnType<typeof createShown>;
