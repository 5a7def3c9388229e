/** The shown runs, device, phase and view, derived from the list of runs and the user's choices. */

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";

import type { RunInfo, RunsAnswer } from "../model/run";
import type { Choices } from "./address";
import type { Loaded } from "./resource";
import { colourIndex, matcher, otherRun, primaryRun, selectedRuns, shownDevice, shownPhase } from "./selection";
import { VIEWS, shownView, type Need, type ViewName } from "./views";

interface RunsState {
  answer: ReadonlySignal<Loaded<RunsAnswer>>;
  hostRuns: ReadonlySignal<string[]>;
}

export type ChoicesSignal = ReadonlySignal<Choices>;

export function createShown({ answer, hostRuns }: RunsState, choices: ChoicesSignal) {
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
    /** The view that the shown run has; null without a run, and where the run has nothing to show. */
    view,
    /** Whether that view needs something fetched. */
    needs: (need: Need): boolean => view.value !== null && VIEWS[view.value].needs.includes(need),
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
