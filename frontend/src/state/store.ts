/** The page's state: runs, the user's choices, and the resources fetched for both. */

import { batch, computed, effect, signal } from "@preact/signals";

import type { OverviewQuery, Source } from "../api/source";
import { busy } from "../lib/activity";
import type { LayersAnswer } from "../model/layers";
import type { Overview, SessionStart, SnapshotRef } from "../model/overview";
import { preferredDevice, type RunInfo, type RunsAnswer } from "../model/run";
import type { Snapshot } from "../model/snapshot";
import { changedTo, decode, type Choices, type ViewName } from "./address";
import { keepAddress } from "./address-bar";
import { createFetched, createRecords, type Fetched, type Records } from "./fetched";
import { readAddress } from "./host";
import { createPools } from "./pools";
import { createActivations, createTotals } from "./recorded";
import { NOTHING, type Loaded } from "./resource";
import { phaseBeside, selectedRuns } from "./selection";
import { createShown, type ChoicesSignal, type Shown } from "./shown";
import { clearInside, createStep } from "./step";

const POINTS = 1500;
const POINTS_OF_OTHERS = 500;

export type Store = ReturnType<typeof createStore>;

const overviewKey = ({ run, device, phase, points, span, session }: OverviewQuery): string =>
  JSON.stringify([run, device, phase, points, span, session]);

function createChoices() {
  const choices = signal<Choices>(decode(readAddress()));
  const choose = (changed: Partial<Choices>): void => {
    choices.value = changedTo(choices.peek(), changed);
  };
  return {
    choices,
    choose,
    /** The same; gives a function that restores the choices before. */
    chooseWithUndo: (changed: Partial<Choices>): (() => void) => {
      const before = choices.peek();
      choose(changed);
      return () => (choices.value = before);
    },
  };
}

/** The list of runs, fetched again and again. */
function createRuns(source: Source) {
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

/** Overviews of the checked runs: the whole, and of a zoom its own with every step that fits. */
function createOverviews(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  /** Null if the run has no such device or phase: bytes of different devices do not belong in one picture. */
  const query = (run: RunInfo, span: readonly [number, number] | null, device = shown.device.value): OverviewQuery | null => {
    const phase = phaseBeside(run, shown.primary.value, shown.phase.value);
    if (device === null || phase === null) return null;
    if (!run.devices.some((known) => known.device === device)) return null;
    const primary = run.run === shown.primary.value?.run;
    const session = primary ? choices.value.session : null;
    return { run: run.run, device, phase, points: primary ? POINTS : POINTS_OF_OTHERS, span, session };
  };
  const overviewOf = (run: RunInfo): Loaded<Overview> => {
    const all = query(run, null);
    if (!all) return NOTHING;
    const state = fetched.overviews.read(overviewKey(all));
    const { zoom } = choices.value;
    if (zoom === null) return state;
    const near = fetched.overviews.read(overviewKey({ ...all, span: zoom }));
    if (near.value && near.value.rows > 0) return near;
    return { ...state, loading: state.loading || near.loading, error: near.error ?? state.error };
  };
  /** The run compared with: on the same device if it has it, else on its own. */
  const otherQuery = computed((): OverviewQuery | null => {
    const run = shown.other.value;
    if (!run) return null;
    const same = run.devices.some(({ device }) => device === shown.device.value);
    return query(run, null, same ? shown.device.value : preferredDevice(run));
  });
  const every = computed((): OverviewQuery | null => {
    const run = shown.primary.value;
    const own = run && run.sessions > 1 ? query(run, null) : null;
    return own && { ...own, session: null };
  });
  effect(() => {
    const { view, zoom } = choices.value;
    if (view === "activations" || view === "oom" || view === "what-if") return;
    const wanted = new Set<string>();
    const want = (wantedQuery: OverviewQuery | null, run: RunInfo, now: boolean): void => {
      if (!wantedQuery) return;
      wanted.add(overviewKey(wantedQuery));
      if (now) fetched.overviews.want(overviewKey(wantedQuery), run.version, (abort) => source.overview(wantedQuery, abort));
    };
    for (const run of shown.selected.value) {
      for (const span of zoom === null ? [null] : [null, zoom])
        want(query(run, span), run, view === "overview" || run === shown.primary.value);
    }
    if (shown.primary.value) want(every.value, shown.primary.value, true);
    if (shown.other.value) want(otherQuery.value, shown.other.value, view === "compare");
    fetched.overviews.keep(wanted);
  });
  const read = (one: OverviewQuery | null): Loaded<Overview> => (one ? fetched.overviews.read(overviewKey(one)) : NOTHING);
  return {
    overviewOf,
    overview: computed(() => (shown.primary.value ? overviewOf(shown.primary.value) : NOTHING)),
    whole: computed(() => read(shown.primary.value && query(shown.primary.value, null))),
    /** Whether the run compared with has steps to compare with. */
    comparable: computed(() => otherQuery.value !== null),
    /** Overview of the run compared with. */
    otherOverview: computed(() => read(otherQuery.value)),
    /** The attempts that recorded into the run; several may have recorded the same steps. */
    attempts: computed((): SessionStart[] => read(every.value).value?.sessions ?? []),
  };
}

/** Views that need the list of snapshots. */
const LISTING: readonly ViewName[] = ["step", "fragmentation", "layer"];

/** Lists of snapshots, snapshots and layer tables of the selected run. */
function createDetails(source: Source, fetched: Fetched, records: Records, shown: Shown, choices: ChoicesSignal) {
  const listKey = computed(() => JSON.stringify([shown.primary.value?.run, shown.device.value]));
  effect(() => {
    const [run, device] = [shown.primary.value, shown.device.value];
    const { view } = choices.value;
    if (!LISTING.includes(view) || !run || device === null) return;
    fetched.snapshotLists.want(listKey.value, run.version, (abort) => source.snapshots(run.run, device, abort));
  });
  /** Calls with the run and the device that are shown, if there are any. */
  const shownNow = <T>(work: (run: RunInfo, device: string) => T, otherwise: T): T => {
    const [run, device] = [shown.primary.value, shown.device.value];
    return run && device !== null ? work(run, device) : otherwise;
  };
  return {
    /** The layer table at a step. */
    layersAt: (step: number): Loaded<LayersAnswer> => shownNow((run) => records.layersIn(run, step), NOTHING),
    wantLayers: (step: number): void => shownNow((run) => records.wantLayersIn(run, step), undefined),
    snapshotList: computed(() => fetched.snapshotLists.read(listKey.value)),
    snapshotOf: (ref: SnapshotRef): Loaded<Snapshot> => shownNow((run, device) => records.snapshotIn(run, device, ref), NOTHING),
    wantSnapshot: (ref: SnapshotRef): void => shownNow((run, device) => records.wantSnapshotIn(run, device, ref), undefined),
  };
}

export function createStore(source: Source) {
  const chosen = createChoices();
  const runs = createRuns(source);
  const fetched = createFetched();
  const records = createRecords(source, fetched);
  const shown = createShown(runs, chosen.choices);
  const overviews = createOverviews(source, fetched, shown, chosen.choices);
  const steps = createStep(overviews, records, shown, chosen.choices);
  clearInside(steps.shownTimeline, shown, chosen.choices);
  // A link to a step's timeline names the step: the default changes as the training goes on.
  const impliedStep = computed(() => (chosen.choices.value.view === "step" ? (steps.shownStep.value?.step ?? null) : null));
  const resources = Object.values(fetched);
  return {
    ...chosen,
    ...keepAddress(chosen.choices, impliedStep),
    ...shown,
    ...overviews,
    ...steps,
    ...records,
    ...createDetails(source, fetched, records, shown, chosen.choices),
    ...createActivations(source, fetched, shown, chosen.choices),
    ...createTotals(source, fetched, shown, chosen.choices),
    ...createPools(source, fetched, shown, chosen.choices),
    answer: runs.answer,
    absent: source.absent ?? [],
    recordedOnly: source.recordedOnly ?? false,
    /** The step under the pointer or the keyboard's cursor. */
    cursor: signal<number | null>(null),
    /** The moment of a step's timeline under the pointer or the keyboard's cursor. */
    momentCursor: signal<number | null>(null),
    dark: signal(false),
    hold: (holding: boolean): void => resources.forEach((resource) => resource.hold(holding)),
    poll: runs.refresh,
    reload: async (): Promise<void> => {
      await runs.refresh();
      resources.forEach((resource) => resource.retryFailed());
    },
  };
}

/** Checks or unchecks a run; the first click turns the page's own choice into the user's. */
export function toggleRun(store: Store, run: string): void {
  const choices = store.choices.peek();
  const { primary } = choices;
  const namesOf = (infos: readonly RunInfo[]): string[] => infos.map((info) => info.run);
  const shown = namesOf(store.selected.peek());
  // Runs that the filter hides stay checked, by default as well.
  const checked = choices.runs ?? namesOf(selectedRuns(store.runs.peek(), { ...choices, filter: "" }));
  const now = [...new Set([...shown, ...checked])];
  const runs = now.includes(run) ? now.filter((name) => name !== run) : [...now, run];
  store.choose({ runs, primary: primary === run && !runs.includes(run) ? null : primary });
}

export function showRun(store: Store, run: string): void {
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
