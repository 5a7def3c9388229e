/**
 * The page's state: runs, the user's choices, the resources fetched for both, and what
 * TensorBoard's page tells.
 */

import { computed, signal, effect, type ReadonlySignal, type Signal } from "@preact/signals";

import type { Source } from "../api/source";
import { later, touch } from "../lib/activity";
import type { Overview } from "../model/overview";
import { comparedSteps, selectStep, type StepSelection } from "../model/step-selection";
import { chosenTimeline } from "../model/timeline";
import { dark } from "../theme/palette";
import { INSIDE, sameStep, type Choices, DEFAULTS, changedTo, decode, encode } from "./address";
import type { Loaded } from "./resource";
import { createColumns, createOverviews, createRecords, createResources } from "./resources";
import { createRuns, createShown, type ChoicesSignal, type Shown } from "./runs";
import { supports, VIEWS } from "./views";
import type { TimelineRef } from "../schema";

const KEY = "p.tb_memplugin.at";

interface TfStorage {
  getString(key: string): string;
  setString(
    key: string,
    value: string,
    options: { defaultValue: string; useLocationReplace: boolean },
  ): void;
  addHashListener?(listener: () => void): void;
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

function storage(): TfStorage | null {
  return attempt(() => {
    if (window.parent === window) return null;
    const host = (window.parent as unknown as { tensorboard?: { tf_storage?: TfStorage } })
      .tensorboard;
    return host?.tf_storage ?? null;
  });
}

/**
 * The page's part of the address: TensorBoard's hash if it can be reached, else the document's own.
 */
export function readAddress(): string {
  const kept = attempt(() => storage()?.getString(KEY) ?? null);
  return kept ?? window.location.hash.replace(/^#/, "");
}

export function writeAddress(text: string): void {
  const host = storage();
  if (
    host &&
    attempt(() => (host.setString(KEY, text, { defaultValue: "", useLocationReplace: true }), true))
  )
    return;
  attempt(() =>
    window.history.replaceState(
      null,
      "",
      `${window.location.pathname}${window.location.search}#${text}`,
    ),
  );
}

/** Writes an address so that the browser's Back button returns to the one before it. */
function writeNextAddress(leaving: string, text: string): void {
  // An empty text would be read as another tab's address.
  writeAddress(leaving);
  attempt(() => {
    const { history, location } = storage() ? window.parent : window;
    history.pushState(history.state, "", location.href);
  });
  writeAddress(text);
}

function onAddress(listener: () => void): void {
  attempt(() => storage()?.addHashListener?.(listener));
  window.addEventListener("hashchange", listener);
}

/** Lets TensorBoard's reload button, and its timer, reload this page's data. */
function onReload(listener: () => void): void {
  attempt(() => {
    const frame = window.frameElement as (Element & { reload?: () => void }) | null;
    if (frame) frame.reload = listener;
  });
}

/**
 * TensorBoard hides a tab by making its frame 0 pixels high; the document itself stays "visible".
 */
export const isVisible = (): boolean =>
  document.visibilityState === "visible" && window.innerHeight > 0;

/** `darkMode` of the document's own address, TensorBoard's name for it; null if it is not given. */
function darkAsked(): boolean | null {
  const asked = new URLSearchParams(window.location.search).get("darkMode");
  return asked === "true" ? true : asked === "false" ? false : null;
}

function darkNow(): boolean {
  const host = attempt(() =>
    window.parent === window
      ? darkAsked()
      : window.parent.document.body.classList.contains("dark-mode"),
  );
  return host ?? window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function followDarkMode(listener: (dark: boolean) => void): void {
  const report = () => listener(darkNow());
  attempt(() => {
    if (window.parent === window) return;
    new MutationObserver(report).observe(window.parent.document.body, {
      attributes: true,
      attributeFilter: ["class"],
    });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", report);
  report();
}

interface Overviews {
  whole: ReadonlySignal<Loaded<Overview>>;
  overview: ReadonlySignal<Loaded<Overview>>;
}

function createStep(
  { whole, overview }: Overviews,
  timelineList: ReadonlySignal<Loaded<TimelineRef[]>>,
  shown: Shown,
  choices: ChoicesSignal,
) {
  /** Null until the overview of the whole run has arrived, and without steps. */
  const shownStep = computed((): StepSelection | null => {
    const all = whole.value.value;
    return all && selectStep(all, overview.value.value ?? all, choices.value.step);
  });
  /** Those that Compare shows of one run while its second step is not chosen. */
  const defaultPair = computed((): readonly [number, number] | null => {
    const [all, selected, { otherStep }] = [whole.value.value, shownStep.value, choices.value];
    const isOpen = shown.view.value === "compare" && otherStep === null;
    return isOpen && all && selected && shown.other.value === shown.primary.value
      ? comparedSteps(all, selected.step)
      : null;
  });
  /**
   * The timeline of the selected step, otherwise of the traced step of its breakdown, otherwise the
   * nearest one.
   */
  const shownTimeline = computed((): TimelineRef | null => {
    const selected = shownStep.value;
    if (!selected) return null;
    const ofPhase = (timelineList.value.value ?? []).filter(
      ({ phase }) => phase === shown.phase.value,
    );
    return chosenTimeline(ofPhase, (selected.snapshot ?? selected).step);
  });
  /**
   * The overview of the zoom, once that of the whole run has arrived as well, which decides on the
   * selected step.
   */
  const shownOverview = computed((): Loaded<Overview> =>
    whole.value.value ? overview.value : { ...overview.value, ...whole.value },
  );
  return { defaultPair, shownStep, shownTimeline, shownOverview };
}

const sameInside = (a: Choices, b: Choices): boolean =>
  (Object.keys(INSIDE) as (keyof typeof INSIDE)[]).every((name) => a[name] === b[name]);

/**
 * Clears the moment, its zoom, the span and the tensor once another timeline is shown without a
 * choice: a live run got a higher traced peak, or a filter hides the run. A step, a moment or a
 * tensor that was chosen since, on the page or by the address, stays.
 */
function clearInside(
  timeline: ReadonlySignal<TimelineRef | null>,
  shown: Shown,
  choices: Signal<Choices>,
): void {
  let last: { key: string; choices: Choices } | null = null;
  effect(() => {
    const [ref, now] = [timeline.value, choices.value];
    if (ref === null) return;
    const key = JSON.stringify([
      shown.primary.value?.run,
      ref.device,
      ref.phase,
      ref.step,
      ref.wall_time,
    ]);
    const before = last;
    last = { key, choices: now };
    if (before === null || before.key === key) return;
    if (sameStep(before.choices, now) && sameInside(before.choices, now))
      choices.value = { ...now, ...INSIDE };
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
  const impliedStep = computed(() =>
    supports(choices.value.view, "moment") ? (steps.shownStep.value?.step ?? null) : null,
  );
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
    poll: runs.refresh,
    reload: async (): Promise<void> => {
      await runs.refresh();
      fetched.retryFailed();
    },
  };
}

/**
 * TensorBoard's own reload is off by default and at least 30 s apart: too slow to watch a training.
 */
const POLL_MS = 5000;
/** The server itself waits for a run that is being read, up to a second. */
const SOON_MS = 200;

/**
 * Polls until the shown run has been read: there is nothing to show before. The page is busy
 * meanwhile.
 */
function pollWhileRead(store: Store): void {
  const reading = computed(
    () => store.primary.value?.status === "reading" && store.answer.value.error === null,
  );
  const again = (): unknown =>
    reading.peek() && later(SOON_MS, () => void store.poll().then(again));
  effect(() => void (reading.value && again()));
}

export function keepUp(store: Store, live: boolean): void {
  followDarkMode((isDark) => {
    dark.value = isDark;
    document.documentElement.dataset.scheme = isDark ? "dark" : "light";
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

/**
 * Choices that change with each key or turn of the wheel, or follow from others: Back does not stop
 * at them.
 */
const PASSING: ReadonlySet<keyof Choices> = new Set([
  "search",
  "moment",
  "tensor",
  "span",
  "mapZooms",
  "fitMib",
]);

/**
 * Of the runs' filter, its first character and its removal are changes: Back undoes it as a whole.
 */
const isChange = (before: Choices, now: Choices): boolean =>
  (Object.keys(now) as (keyof Choices)[]).some(
    (name) =>
      !PASSING.has(name) &&
      now[name] !== before[name] &&
      (name !== "filter" || !now.filter || !before.filter),
  );

function createChoices() {
  const choices = signal<Choices>(decode(readAddress()));
  const choose = (changed: Partial<Choices>) => {
    choices.value = changedTo(choices.peek(), changed);
  };
  /**
   * Whether the change takes the place of the one before it, and whether there is a stop to use
   * instead of a new one.
   */
  const replaces = { current: false, spare: false };
  const replaceAll = (now: Choices) => {
    replaces.current = true;
    choices.value = now;
    replaces.current = false;
  };
  return {
    choices,
    choose,
    replaces,
    replace: (changed: Partial<Choices>): void => replaceAll(changedTo(choices.peek(), changed)),
    /** The same; gives a function that restores the choices before. */
    chooseWithUndo: (changed: Partial<Choices>): (() => void) => {
      const before = choices.peek();
      choose(changed);
      const stopped = isChange(before, choices.peek());
      return () => {
        replaceAll(before);
        // The stop that the change made is left for the next one.
        if (stopped) replaces.spare = true;
      };
    },
  };
}

/**
 * The address of the default choices, once there is another one to go back to: an empty one is
 * TensorBoard's on another tab.
 */
const FIRST = `view=${DEFAULTS.view}`;

function keepAddress(
  {
    choices,
    replaces,
  }: { choices: Signal<Choices>; replaces: { current: boolean; spare: boolean } },
  impliedStep: ReadonlySignal<number | null>,
) {
  let empty = "";
  const textOf = (now: Choices, step: number | null): string =>
    encode({ ...now, step: now.step ?? step }) || empty;
  let before = choices.peek();
  let written = encode(before);
  effect(() => {
    const now = choices.value;
    const next = !replaces.current && isChange(before, now);
    if (next) empty = FIRST;
    const text = textOf(now, impliedStep.value);
    if (text === written) return;
    if (next && !replaces.spare) writeNextAddress(written || FIRST, text);
    else writeAddress(text);
    if (next) replaces.spare = false;
    written = text;
    before = now;
  });
  return {
    follow: () => {
      const text = readAddress();
      // An address without our part means that TensorBoard went to another tab: keep the choices.
      if (text === written || text === "") return;
      empty = FIRST;
      replaces.spare = false;
      before = decode(text);
      written = encode(before) || FIRST;
      choices.value = before;
    },
  };
}

/** What Escape clears, in this order; what is selected inside a step only in a view of it. */
const CLEARINGS: readonly (readonly [name: string, ...choices: (keyof Choices)[]])[] = [
  ["selected layer", "layer"],
  ["selected category", "category"],
  ["selected tensor", "tensor"],
  ["selected moment", "moment"],
  ["selected span", "selection"],
  ["zoom of the timeline", "span"],
  ["selected step", "step"],
  ["zoom", "zoom", "mapZooms"],
];

/** "selected layer, selected category, …", in the order in which Escape clears them. */
export const CLEARED_IN_ORDER = CLEARINGS.map(([name]) => name).join(", ");

/** The choices that one press of Escape changes; empty if nothing is left to clear. */
export function cleared(choices: Choices): Partial<Choices> {
  const { view } = choices;
  const { parent } = VIEWS[view];
  if (parent !== undefined) return { view: parent };
  for (const [, ...names] of CLEARINGS) {
    const isShown = supports(view, "moment") || !names.some((name) => name in INSIDE);
    const isChosen = names.some((name) => `${choices[name]}` !== `${DEFAULTS[name]}`);
    if (isShown && isChosen) return Object.fromEntries(names.map((name) => [name, DEFAULTS[name]]));
  }
  return {};
}
