/** The page's state: what there is, what the user chose, and what is fetched because of both. */

import { batch, computed, effect, signal } from "@preact/signals";

import type { OverviewQuery, Source } from "../api/source";
import { busy } from "../lib/activity";
import { limiter } from "../lib/limit";
import type { Activations } from "../model/activations";
import type { Overview, SnapshotRef } from "../model/overview";
import type { Phase, RunInfo, RunsAnswer } from "../model/run";
import type { Snapshot, SnapshotSummary } from "../model/snapshot";
import { DEFAULTS, decode, encode, type Choices } from "./address";
import { readAddress, writeAddress } from "./host";
import { Resource, type Loaded } from "./resource";
import { colourIndex, matcher, primaryRun, selectedRuns, shownDevice, shownPhase } from "./selection";

const POINTS = 1500;
const POINTS_OF_OTHERS = 500;
const AT_ONCE = 4;

export type Store = ReturnType<typeof createStore>;

const overviewKey = ({ run, device, phase, points, span }: OverviewQuery): string =>
  JSON.stringify([run, device, phase, points, span]);

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
      if (text === written) return;
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

export function createStore(source: Source) {
  const { choices, choose, follow } = createChoices();
  const { answer, hostRuns, refresh } = createRuns(source);
  const fetched = createFetched();
  const sticky = signal<string | null>(null);
  const cursor = signal<number | null>(null);
  const dark = signal(false);

  const runs = computed<RunInfo[]>(() => answer.value.value?.runs ?? []);
  const selected = computed(() => selectedRuns(runs.value, choices.value));
  const primary = computed(() => primaryRun(selected.value, choices.value, sticky.value));
  const device = computed(() => shownDevice(primary.value, choices.value));
  const phase = computed(() => shownPhase(primary.value, choices.value));
  const colours = computed(() => colourIndex(runs.value.map(({ run }) => run), hostRuns.value));
  const filter = computed(() => matcher(choices.value.filter));

  effect(() => {
    if (sticky.value === null && primary.value) sticky.value = primary.value.run;
  });

  const query = (run: RunInfo, points: number, span: readonly [number, number] | null): OverviewQuery | null => {
    const named = run.devices.some((known) => known.device === device.value);
    const own = named ? device.value : shownDevice(run, DEFAULTS);
    if (own === null || !run.phases.includes(phase.value)) return null;
    return { run: run.run, device: own, phase: phase.value, points, span };
  };

  /** A run's overview: of the zoom if that has arrived, else the whole. */
  const overviewOf = (run: RunInfo): Loaded<Overview> => {
    const points = run.run === primary.value?.run ? POINTS : POINTS_OF_OTHERS;
    const whole = query(run, points, null);
    if (!whole) return NOTHING;
    const state = fetched.overviews.read(overviewKey(whole));
    const { zoom } = choices.value;
    if (zoom === null) return state;
    const near = fetched.overviews.read(overviewKey({ ...whole, span: zoom }));
    return near.value && near.value.rows > 0 ? near : { ...state, loading: state.loading || near.loading, error: near.error ?? state.error };
  };

  const overview = computed(() => (primary.value ? overviewOf(primary.value) : NOTHING));
  const whole = computed(() => {
    const wanted = primary.value && query(primary.value, POINTS, null);
    return wanted ? fetched.overviews.read(overviewKey(wanted)) : NOTHING;
  });

  const needsOverviews = computed(() => choices.value.view === "overview" || choices.value.view === "frozen");
  effect(() => {
    const wanted = new Set<string>();
    for (const run of needsOverviews.value ? selected.value : []) {
      const own = run.run === primary.value?.run;
      if (!own && choices.value.view === "frozen") continue;
      for (const span of choices.value.zoom === null ? [null] : [null, choices.value.zoom]) {
        const asked = query(run, own ? POINTS : POINTS_OF_OTHERS, span);
        if (!asked) continue;
        wanted.add(overviewKey(asked));
        fetched.overviews.want(overviewKey(asked), run.version, (abort) => source.overview(asked, abort));
      }
    }
    if (needsOverviews.value) fetched.overviews.keep(wanted);
  });

  const listKey = computed(() => JSON.stringify([primary.value?.run, device.value]));
  effect(() => {
    const [run, own] = [primary.value, device.value];
    if (choices.value.view !== "fragmentation" || !run || own === null) return;
    fetched.snapshotLists.want(listKey.value, run.version, (abort) => source.snapshots(run.run, own, abort));
  });

  effect(() => {
    const run = primary.value;
    if (!run || run.activation_layers === 0) return;
    if (choices.value.view !== "activations" && run.devices.length > 0) return;
    fetched.activations.want(run.run, run.version, (abort) => source.activations(run.run, POINTS, abort));
  });

  const snapshotKey = (ref: SnapshotRef): string => JSON.stringify([primary.value?.run, device.value, ref.phase, ref.step]);
  /** A snapshot never changes, but a restarted training may record its step anew. */
  const wantSnapshot = (ref: SnapshotRef): void => {
    const [run, own] = [primary.value, device.value];
    if (!run || own === null) return;
    fetched.snapshots.want(snapshotKey(ref), String(run.sessions), (abort) => source.snapshot(run.run, own, ref.phase, ref.step, abort));
  };

  return {
    choices, choose, follow,
    answer, runs, selected, primary, device, phase, colours, filter,
    overview, whole, overviewOf,
    snapshotList: computed(() => fetched.snapshotLists.read(listKey.value)),
    activations: computed(() => (primary.value ? fetched.activations.read(primary.value.run) : NOTHING)),
    snapshotOf: (ref: SnapshotRef): Loaded<Snapshot> => fetched.snapshots.read(snapshotKey(ref)),
    wantSnapshot,
    /** The step under the pointer or the keyboard's cursor. */
    cursor,
    dark,
    hold: (holding: boolean): void => Object.values(fetched).forEach((resource) => resource.hold(holding)),
    reload: async (): Promise<void> => {
      await refresh();
      Object.values(fetched).forEach((resource) => resource.retryFailed());
    },
    poll: refresh,
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

export type { Phase };
