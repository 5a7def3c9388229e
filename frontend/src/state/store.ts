/** The page's state: runs, the user's choices, and the resources fetched for both. */

import { computed, signal } from "@preact/signals";

import type { Source } from "../api/source";
import { createChoices, keepAddress } from "./choices";
import { createOverviews } from "./overviews";
import { createColumns, createRecords } from "./records";
import { createResources } from "./resources";
import { createRuns } from "./runs";
import { createShown } from "./shown";
import { clearInside, createStep } from "./step";
import { supports } from "./views";

export type Store = ReturnType<typeof createStore>;

export function createStore(source: Source) {
  const chosen = createChoices();
  const { choices } = chosen;
  const runs = createRuns(source);
  const fetched = createResources(source);
  const shown = createShown(runs, choices);
  const overviews = createOverviews(fetched, shown, choices);
  const recordedOnly = source.recordedOnly ?? false;
  const records = createRecords(fetched, shown, choices, recordedOnly);
  const steps = createStep(overviews, records.timelineList, shown, choices);
  clearInside(steps.shownTimeline, shown, choices);
  // A link to a step's timeline names the step: the default changes as the training goes on.
  const impliedStep = computed(() => (supports(choices.value.view, "moment") ? (steps.shownStep.value?.step ?? null) : null));
  return {
    ...chosen,
    ...keepAddress(chosen, impliedStep),
    ...shown,
    ...overviews,
    ...steps,
    ...records,
    ...createColumns(fetched, shown, choices),
    /** What views fetch themselves. */
    fetched,
    answer: runs.answer,
    absent: source.absent ?? [],
    recordedOnly,
    /** The step under the pointer or the keyboard's cursor. */
    cursor: signal<number | null>(null),
    /** The moment of a step's timeline under the pointer or the keyboard's cursor. */
    momentCursor: signal<number | null>(null),
    dark: signal(false),
    poll: runs.refresh,
    reload: async (): Promise<void> => {
      await runs.refresh();
      fetched.retryFailed();
    },
  };
}
