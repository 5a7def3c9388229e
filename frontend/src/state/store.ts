/** The page's state: runs, the user's choices, and the resources fetched for both. */

import { computed, signal, effect, type ReadonlySignal, type Signal } from "@preact/signals";

import type { Source } from "../api/source";
import { later, touch } from "../lib/activity";
import type { Overview } from "../model/overview";
import { selectStep, type StepSelection } from "../model/step-selection";
import { chosenTimeline } from "../model/timeline";
import { sameStep, type Choices } from "./address";
import { createChoices, keepAddress } from "./choices";
import { followDarkMode, isVisible, onAddress, onReload } from "./host";
import type { Loaded } from "./resource";
import { createColumns, createOverviews, createRecords, createResources } from "./resources";
import { createRuns, createShown, type ChoicesSignal, type Shown } from "./runs";
import { supports } from "./views";
import type { TimelineRef } from "../schema";

interface Overviews {
  whole: ReadonlySignal<Loaded<Overview>>;
  overview: ReadonlySignal<Loaded<Overview>>;
}

type TimelineList = ReadonlySignal<Loaded<TimelineRef[]>>;

export function createStep({ whole, overview }: Overviews, timelineList: TimelineList, shown: Shown, choices: ChoicesSignal) {
  /** Null until the overview of the whole run has arrived, and without steps. */
  const shownStep = computed((): StepSelection | null => {
    const all = whole.value.value;
    return all && selectStep(all, overview.value.value ?? all, choices.value.step);
  });
  /** The timeline of the selected step, otherwise of the traced step of its breakdown, otherwise the nearest one. */
  const shownTimeline = computed((): TimelineRef | null => {
    const selected = shownStep.value;
    if (!selected) return null;
    const ofPhase = (timelineList.value.value ?? []).filter(({ phase }) => phase === shown.phase.value);
    return chosenTimeline(ofPhase, (selected.snapshot ?? selected).step);
  });
  /** The overview of the zoom, once that of the whole run has arrived as well, which decides on the selected step. */
  const shownOverview = computed((): Loaded<Overview> => (whole.value.value ? overview.value : { ...overview.value, ...whole.value }));
  return { shownStep, shownTimeline, shownOverview };
}

const sameInside = (a: Choices, b: Choices): boolean =>
  (["moment", "span", "selection", "tensor"] as const).every((name) => a[name] === b[name]);

/**
 * Clears the moment, its zoom, the span and the tensor once another timeline is shown without a choice: a live run got a higher traced peak, or a
 * filter hides the run. A step, a moment or a tensor that was chosen since, on the page or by the address, stays.
 */
export function clearInside(timeline: ReadonlySignal<TimelineRef | null>, shown: Shown, choices: Signal<Choices>): void {
  let last: { key: string; choices: Choices } | null = null;
  effect(() => {
    const [ref, now] = [timeline.value, choices.value];
    if (ref === null) return;
    const key = JSON.stringify([shown.primary.value?.run, ref.device, ref.phase, ref.step, ref.wall_time]);
    const before = last;
    last = { key, choices: now };
    if (before === null || before.key === key) return;
    if (sameStep(before.choices, now) && sameInside(before.choices, now))
      choices.value = { ...now, moment: null, span: null, selection: null, tensor: null };
  });
}

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
    fetched,
    answer: runs.answer,
    absent: source.absent ?? [],
    recordedOnly,
    cursor: signal<number | null>(null),
    momentCursor: signal<number | null>(null),
    dark: signal(false),
    poll: runs.refresh,
    reload: async (): Promise<void> => {
      await runs.refresh();
      fetched.retryFailed();
    },
  };
}

/** TensorBoard's own reload is off by default and at least 30 s apart: too slow to watch a training. */
const POLL_MS = 5000;
/** The server itself waits for a run that is being read, up to a second. */
const SOON_MS = 200;

/** Polls until the shown run has been read: there is nothing to show before. The page is busy meanwhile. */
function pollWhileRead(store: Store): void {
  const reading = computed(() => store.primary.value?.status === "reading" && store.answer.value.error === null);
  const again = (): unknown => reading.peek() && later(SOON_MS, () => void store.poll().then(again));
  effect(() => void (reading.value && again()));
}

export function keepUp(store: Store, live: boolean): void {
  followDarkMode((dark) => {
    store.dark.value = dark;
    document.documentElement.dataset.scheme = dark ? "dark" : "light";
    touch();
  });
  onAddress(store.follow);
  void store.reload();
  if (!live) return;
  pollWhileRead(store);
  onReload(() => void store.reload());
  window.setInterval(() => {
    if (isVisible()) void store.poll();
  }, POLL_MS);
}
