/** The page's state: what there is, what the user chose, and what is fetched because of both. */

import { batch, computed, effect, signal } from "@preact/signals";

import type { OverviewQuery, Source } from "../api/source";
import { busy } from "../lib/activity";
import { limiter } from "../lib/limit";
import type { Activations } from "../model/activations";
import type { LayersAnswer } from "../model/layers";
import type { Overview, SnapshotRef } from "../model/overview";
import type { RunInfo, RunsAnswer } from "../model/run";
import type { Snapshot, SnapshotSummary } from "../model/snapshot";
import { decode, encode, type Choices } from "./address";
import { readAddress, writeAddress } from "./host";
import { Resource, type Loaded } from "./resource";
import { colourIndex, matcher, primaryRun, selectedRuns, shownDevice, shownPhase } from "./selection";

const POINTS = 1500;
const POINTS_OF_OTHERS = 500;
/** Rows of recorded activations: each has as many figures as there are layers. */
const POINTS_OF_LAYERS = 600;
const AT_ONCE = 4;

export type Store = ReturnType<typeof createStore>;

const overviewKey = ({ run, device, phase, points, span }: OverviewQuery): string => JSON.stringify([run, device, phase, points, span]);

const NOTHING: Loaded<never> = { value: null, error: null, loading: false };

function createChoices() {
  const choices = signal<Choices>(decode(readAddress()));
  let written = encode(choices.peek());
  effect(() => {
    const text = encode(choices.value);
    if (text === written) return;
    written = text;
    writeAddress(text);
  });
  return {
    choices,
    choose: (changed: Partial<Choices>): void => {
      choices.value = { ...choices.peek(), ...changed };
    },
    /** Takes over an address that someone else wrote. */
    follow: (): void => {
      const text = readAddress();
      // Without any part of ours, TensorBoard went to another tab or forgot it: what is shown stays.
      if (text === written || text === "") return;
      written = text;
      choices.value = decode(text);
    },
  };
}

function createFetched() {
  const queue = limiter(AT_ONCE);
  return {
    overviews: new Resource<Overview>(queue),
    snapshotLists: new Resource<SnapshotSummary[]>(queue),
    snapshots: new Resource<Snapshot>(queue),
    activations: new Resource<Activations>(queue),
    layers: new Resource<LayersAnswer>(queue),
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
  /** One request at a time: a slow server is not asked again before it has answered. */
  const refresh = (): Promise<void> => {
    running ??= busy(once()).finally(() => (running = null));
    return running;
  };
  return { answer, hostRuns, refresh };
}

/** What is shown, from what there is and what the user chose. */
function createShown(runsState: ReturnType<typeof createRuns>, { choices }: ReturnType<typeof createChoices>) {
  const sticky = signal<string | null>(null);
  const runs = computed<RunInfo[]>(() => runsState.answer.value.value?.runs ?? []);
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
    device: computed(() => shownDevice(primary.value, choices.value)),
    phase: computed(() => shownPhase(primary.value, choices.value)),
    colours: computed(() =>
      colourIndex(
        runs.value.map(({ run }) => run),
        runsState.hostRuns.value,
      ),
    ),
    filter: computed(() => matcher(choices.value.filter)),
  };
}

type Shown = ReturnType<typeof createShown>;
type Fetched = ReturnType<typeof createFetched>;
type ChoicesSignal = ReturnType<typeof createChoices>["choices"];

/** Overviews of the checked runs: the whole, and of a zoom its own with every step that fits. */
function createOverviews(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  /** Null if the run has no such device or phase: bytes of different devices do not belong in one picture. */
  const query = (run: RunInfo, span: readonly [number, number] | null): OverviewQuery | null => {
    const device = shown.device.value;
    if (device === null || !run.phases.includes(shown.phase.value)) return null;
    if (!run.devices.some((known) => known.device === device)) return null;
    const points = run.run === shown.primary.value?.run ? POINTS : POINTS_OF_OTHERS;
    return { run: run.run, device, phase: shown.phase.value, points, span };
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
  effect(() => {
    const { view, zoom } = choices.value;
    if (view === "fragmentation" || view === "activations") return;
    const wanted = new Set<string>();
    for (const run of shown.selected.value) {
      for (const span of zoom === null ? [null] : [null, zoom]) {
        const asked = query(run, span);
        if (!asked) continue;
        wanted.add(overviewKey(asked));
        if (view !== "overview" && run !== shown.primary.value) continue;
        fetched.overviews.want(overviewKey(asked), run.version, (abort) => source.overview(asked, abort));
      }
    }
    fetched.overviews.keep(wanted);
  });
  return {
    overviewOf,
    overview: computed(() => (shown.primary.value ? overviewOf(shown.primary.value) : NOTHING)),
    whole: computed(() => {
      const wanted = shown.primary.value && query(shown.primary.value, null);
      return wanted ? fetched.overviews.read(overviewKey(wanted)) : NOTHING;
    }),
  };
}

/** Lists of snapshots, snapshots and recorded activations of the run that is the stack. */
function createDetails(source: Source, fetched: Fetched, shown: Shown, choices: ChoicesSignal) {
  const listKey = computed(() => JSON.stringify([shown.primary.value?.run, shown.device.value]));
  effect(() => {
    const [run, device] = [shown.primary.value, shown.device.value];
    if (choices.value.view !== "fragmentation" || !run || device === null) return;
    fetched.snapshotLists.want(listKey.value, run.version, (abort) => source.snapshots(run.run, device, abort));
  });
  effect(() => {
    const run = shown.primary.value;
    if (!run || run.activation_layers === 0) return;
    if (choices.value.view !== "activations" && run.devices.length > 0) return;
    fetched.activations.want(run.run, run.version, (abort) => source.activations(run.run, POINTS_OF_LAYERS, abort));
  });
  const snapshotKey = (ref: SnapshotRef): string => JSON.stringify([shown.primary.value?.run, shown.device.value, ref.phase, ref.step]);
  const layersKey = (step: number): string => JSON.stringify([shown.primary.value?.run, step]);
  return {
    /** The layer table that holds at a step. */
    layersAt: (step: number): Loaded<LayersAnswer> => fetched.layers.read(layersKey(step)),
    wantLayers: (step: number): void => {
      const run = shown.primary.value;
      if (run) fetched.layers.want(layersKey(step), String(run.sessions), (abort) => source.layers(run.run, step, abort));
    },
    snapshotList: computed(() => fetched.snapshotLists.read(listKey.value)),
    activations: computed(() => (shown.primary.value ? fetched.activations.read(shown.primary.value.run) : NOTHING)),
    snapshotOf: (ref: SnapshotRef): Loaded<Snapshot> => fetched.snapshots.read(snapshotKey(ref)),
    /** A snapshot never changes, but a restarted training may record its step anew. */
    wantSnapshot: (ref: SnapshotRef): void => {
      const [run, device] = [shown.primary.value, shown.device.value];
      if (!run || device === null) return;
      const load = (abort: AbortSignal): Promise<Snapshot> => source.snapshot(run.run, device, ref.phase, ref.step, abort);
      fetched.snapshots.want(snapshotKey(ref), String(run.sessions), load);
    },
  };
}

export function createStore(source: Source) {
  const chosen = createChoices();
  const runs = createRuns(source);
  const fetched = createFetched();
  const shown = createShown(runs, chosen);
  const resources = Object.values(fetched);
  return {
    ...chosen,
    ...shown,
    ...createOverviews(source, fetched, shown, chosen.choices),
    ...createDetails(source, fetched, shown, chosen.choices),
    answer: runs.answer,
    /** The step under the pointer or the keyboard's cursor. */
    cursor: signal<number | null>(null),
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
  const now = store.selected.peek().map((info) => info.run);
  const runs = now.includes(run) ? now.filter((name) => name !== run) : [...now, run];
  const { primary } = store.choices.peek();
  store.choose({ runs, primary: primary === run && !runs.includes(run) ? null : primary });
}

export function showRun(store: Store, run: string): void {
  const { runs } = store.choices.peek();
  store.choose({ primary: run, runs: runs === null || runs.includes(run) ? runs : [...runs, run], step: null, zoom: null });
}
