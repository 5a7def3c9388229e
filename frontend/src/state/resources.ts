/**
 * Everything that the page fetches but the list of runs: one resource for each kind of question,
 * and the questions of the shown view.
 */

import { computed, effect, type ReadonlySignal } from "@preact/signals";

import type { OverviewQuery, Source, Span, StepRef, TotalsQuery } from "../api/source";
import type { Overview } from "../model/overview";
import { preferredDevice } from "../model/run";
import { AS_RECORDED, type Conditions } from "../model/what-if";
import { limiter, nearer, NOTHING, Resource, Shelf, type Loaded } from "./resource";
import { phaseBeside, type ChoicesSignal, type Shown } from "./runs";
import type { Need } from "./views";
import type { RunInfo, SessionStart } from "../schema";

const AT_ONCE = 4;

/**
 * Memory of all answers together: enough to go back and forth between views and some large steps
 * without fetching them again.
 */
const LIMIT_BYTES = 64 * 2 ** 20;

/**
 * Version of a traced step's records: they never change, but a restarted training may record the
 * step again.
 */
const stable = (run: RunInfo): string => String(run.sessions);

const traced = (run: RunInfo): string =>
  JSON.stringify([run.sessions, run.ooms, run.devices.map(({ snapshots }) => snapshots)]);

const latest = (run: RunInfo): string => run.version;

/**
 * Makes resources whose answers share a shelf and wait in one queue; a question is told apart by
 * the run's name and its other parts.
 */
function maker(shelf: Shelf, atOnce = AT_ONCE) {
  const queue = limiter(atOnce);
  return <Args extends unknown[], T>(
    version: (run: RunInfo) => string,
    ask: (abort: AbortSignal, run: string, ...args: Args) => Promise<T>,
    key: (...args: Args) => unknown = (...args) => args,
  ): Resource<[RunInfo, ...Args], T> =>
    new Resource<[RunInfo, ...Args], T>(
      {
        key: ({ run }, ...args) => [run, key(...args)],
        version: (...[run]) => version(run),
        load: (abort, { run }, ...args) => ask(abort, run, ...args),
      },
      shelf,
      queue,
    );
}

/**
 * A device of one of several workers, "worker_1/GPU:0"; null for other devices, since all have the
 * same layers.
 */
const ofWorker = (device: string | null): string | null => (device?.includes("/") ? device : null);

const ofStep = (device: string, { phase, step }: StepRef): unknown => [device, phase, step];

export function createResources(source: Source, limitBytes = LIMIT_BYTES) {
  const shelf = new Shelf(limitBytes);
  const quick = maker(shelf);
  // The others do not wait for simulations, and no simulation for those of many batch sizes.
  const [simulated, ofBatchSizes] = [maker(shelf), maker(shelf, 1)];
  const resources = {
    answers: quick(latest, source.answers),
    overviews: quick(latest, source.overview),
    pools: quick(latest, source.pool),
    hostMemories: quick(latest, source.hostMemory),
    devices: quick(latest, source.devices),
    ledgerTotals: quick(latest, source.ledgerTotals),
    activations: quick(latest, source.activations),
    ooms: quick(latest, source.ooms),
    snapshotLists: quick(latest, source.snapshots),
    timelineLists: quick(latest, source.timelines),
    mapLists: quick(latest, source.maps),
    snapshots: quick(stable, source.snapshot, ofStep),
    layers: quick(
      stable,
      (abort, run, device: string | null, step: number) =>
        source.layers(abort, run, ofWorker(device), step),
      (device, step) => [ofWorker(device), step],
    ),
    timelines: quick(stable, source.timeline, ofStep),
    maps: quick(({ sessions, ooms }) => `${sessions}/${ooms}`, source.map),
    deviceMemories: quick(latest, source.deviceMemory),
    fixes: simulated(traced, source.fixes),
    whatIfs: simulated(traced, source.whatIf),
    demands: simulated(traced, source.demand),
    plans: simulated(traced, source.plan),
    curves: ofBatchSizes(traced, source.curve),
    batchLimits: ofBatchSizes(traced, source.batchLimit),
  };
  const all = Object.values(resources);
  return {
    ...resources,
    hold: (holding: boolean): void => all.forEach((resource) => resource.hold(holding)),
    retryFailed: (): void => all.forEach((resource) => resource.retryFailed()),
    bytes: (): number => shelf.bytes,
  };
}

export type Resources = ReturnType<typeof createResources>;

/** Fetches what `questions` gives, and keeps it until it gives something else. */
function keepFetched<Args extends unknown[], T>(
  resource: Resource<Args, T>,
  questions: () => readonly Args[],
): void {
  effect(() => {
    const wanted = questions();
    resource.keep(wanted);
    for (const one of wanted) resource.want(...one);
  });
}

const readOrNothing = <Args extends unknown[], T>(
  resource: Resource<Args, T>,
  question: Args | null,
): Loaded<T> => (question === null ? NOTHING : resource.read(...question));

/** The answer to the question of the moment, which is fetched while it is `needed`. */
function fetchedWhile<Args extends unknown[], T>(
  resource: Resource<Args, T>,
  needed: () => boolean,
  question: () => Args | null,
): ReadonlySignal<Loaded<T>> {
  keepFetched(resource, () => {
    const one = needed() ? question() : null;
    return one === null ? [] : [one];
  });
  return computed(() => readOrNothing(resource, question()));
}

/**
 * The same for columns over steps: of all steps, and of those in the zoom with every step that
 * fits.
 */
function fetchedOverSteps<Args extends unknown[], T extends { rows: number }>(
  resource: Resource<Args, T>,
  needed: () => boolean,
  question: (span: Span) => Args | null,
  zoom: () => Span,
) {
  keepFetched(resource, () => {
    if (!needed()) return [];
    return [null, ...(zoom() === null ? [] : [zoom()])].flatMap((span) => {
      const one = question(span);
      return one === null ? [] : [one];
    });
  });
  const whole = computed(() => readOrNothing(resource, question(null)));
  const shown = computed(() =>
    zoom() === null ? whole.value : nearer(whole.value, readOrNothing(resource, question(zoom()))),
  );
  return { whole, shown };
}

const POINTS = 1500;
/** Rows of recorded activations: each has as many figures as there are layers. */
const POINTS_OF_LAYERS = 600;

/** The shown run, and the device and the phase of it; without a run if it has no such. */
function placeOf(shown: Shown, choices: ChoicesSignal) {
  const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
  const found = device !== null && run?.phases.includes(phase) ? run : null;
  return [found, { device: device ?? "", phase, session: choices.value.session }] as const;
}

/**
 * Columns over steps: the pool, the host memory of the device's worker at the same steps, and
 * recorded activations.
 */
export function createColumns(fetched: Resources, shown: Shown, choices: ChoicesSignal) {
  const zoom = (): Span => choices.value.zoom;
  const ofSteps = (span: Span): [RunInfo, OverviewQuery] | null => {
    const [run, place] = placeOf(shown, choices);
    return run && [run, { ...place, points: POINTS, span }];
  };
  const ofLayers = (span: Span): [RunInfo, number, Span] | null => {
    const run = shown.primary.value;
    return run && run.activation_layers > 0 ? [run, POINTS_OF_LAYERS, span] : null;
  };
  const pool = fetchedOverSteps(fetched.pools, () => shown.needs("pool"), ofSteps, zoom);
  return {
    pool: pool.shown,
    wholePool: pool.whole,
    hostMemory: fetchedOverSteps(
      fetched.hostMemories,
      () => shown.needs("host memory"),
      ofSteps,
      zoom,
    ).shown,
    activations: fetchedOverSteps(
      fetched.activations,
      () => shown.needs("activations"),
      ofLayers,
      zoom,
    ).shown,
  };
}

/**
 * Lists, totals and answers. `recordedOnly`: what-if questions are answered for the recorded
 * conditions only.
 */
export function createRecords(
  fetched: Resources,
  shown: Shown,
  choices: ChoicesSignal,
  recordedOnly: boolean,
) {
  const needed = (need: Need) => (): boolean => shown.needs(need);
  const ofDevice = (): [RunInfo, string] | null => {
    const [run, device] = [shown.primary.value, shown.device.value];
    return run && device !== null ? [run, device] : null;
  };
  const ofPhase = (): [RunInfo, TotalsQuery["phase"]] | null =>
    shown.primary.value && [shown.primary.value, shown.phase.value];
  const failures = (): [RunInfo] | null =>
    shown.primary.value && shown.primary.value.ooms > 0 ? [shown.primary.value] : null;
  const totals = (): [RunInfo, TotalsQuery] | null => {
    const [run, place] = placeOf(shown, choices);
    const layer = shown.needs("totals of the layer") ? choices.value.layer : null;
    return run && [run, { ...place, layer }];
  };
  const conditions = (): Conditions => (recordedOnly ? AS_RECORDED : choices.value.conditions);
  const under = (changed: Partial<Conditions>) => (): [RunInfo, string, Conditions] | null => {
    const one = ofDevice();
    return one && [...one, { ...conditions(), budget: "", ...changed }];
  };
  const ofBudget = (): [RunInfo, string, string, string] | null => {
    const one = ofDevice();
    const { budget, capacity, batch_size } = conditions();
    return one && [...one, budget || capacity, batch_size];
  };
  const ofAnyBatchSize = under({ batch_size: "" });
  const whatIf = fetchedWhile(fetched.whatIfs, needed("what if"), under({}));
  // The curve and the plan wait for the verdict.
  const afterVerdict = (): boolean =>
    shown.needs("what if") && (whatIf.value.value ?? whatIf.value.error) !== null;
  const needsTotals = (): boolean => shown.needs("totals") || shown.needs("totals of the layer");
  return {
    stepOf: (ref: StepRef | null): [RunInfo, string, StepRef] | null => {
      const one = ofDevice();
      return one && ref && [...one, ref];
    },
    snapshotList: fetchedWhile(fetched.snapshotLists, needed("snapshots"), ofDevice),
    timelineList: fetchedWhile(fetched.timelineLists, needed("timelines"), ofDevice),
    mapList: fetchedWhile(fetched.mapLists, needed("maps"), ofDevice),
    devices: fetchedWhile(fetched.devices, needed("devices"), ofPhase),
    ooms: fetchedWhile(fetched.ooms, needed("failures"), failures),
    ledgerTotals: fetchedWhile(fetched.ledgerTotals, needsTotals, totals),
    whatIf,
    curve: fetchedWhile(fetched.curves, afterVerdict, ofAnyBatchSize),
    plan: fetchedWhile(fetched.plans, afterVerdict, ofBudget),
  };
}

const POINTS_OF_OTHERS = 500;

type Question = [RunInfo, OverviewQuery];

/** Overviews of the checked runs: the whole, and of a zoom its own with every step that fits. */
export function createOverviews(fetched: Resources, shown: Shown, choices: ChoicesSignal) {
  /**
   * Null if the run has no such device or phase: bytes of different devices do not belong in one
   * picture.
   */
  const question = (run: RunInfo, span: Span, device = shown.device.value): Question | null => {
    const phase = phaseBeside(run, shown.primary.value, shown.phase.value);
    if (device === null || phase === null) return null;
    if (!run.devices.some((known) => known.device === device)) return null;
    const primary = run.run === shown.primary.value?.run;
    const session = primary ? choices.value.session : null;
    return [run, { device, phase, points: primary ? POINTS : POINTS_OF_OTHERS, span, session }];
  };
  const read = (one: Question | null): Loaded<Overview> =>
    one ? fetched.overviews.read(...one) : NOTHING;
  const overviewOf = (run: RunInfo): Loaded<Overview> => {
    const { zoom } = choices.value;
    const whole = read(question(run, null));
    return zoom === null ? whole : nearer(whole, read(question(run, zoom)));
  };
  /** The run compared with: on the same device if it has it, else on its own. */
  const ofOther = computed((): Question | null => {
    const run = shown.other.value;
    if (!run) return null;
    const same = run.devices.some(({ device }) => device === shown.device.value);
    return question(run, null, same ? shown.device.value : preferredDevice(run));
  });
  const ofEvery = computed((): Question | null => {
    const run = shown.primary.value;
    const own = run && run.sessions > 1 ? question(run, null) : null;
    return own && [own[0], { ...own[1], session: null }];
  });
  keepFetched(fetched.overviews, () => {
    const { zoom } = choices.value;
    const primary = shown.primary.value;
    if (primary === null || !shown.needs("overview")) return [];
    const runs = shown.needs("overviews") ? shown.selected.value : [primary];
    const ofRuns = runs.flatMap((run) => [
      question(run, null),
      zoom === null ? null : question(run, zoom),
    ]);
    const all = [...ofRuns, ofEvery.value, shown.needs("other overview") ? ofOther.value : null];
    return all.filter((one) => one !== null);
  });
  return {
    overviewOf,
    overview: computed(() => (shown.primary.value ? overviewOf(shown.primary.value) : NOTHING)),
    whole: computed(() => read(shown.primary.value && question(shown.primary.value, null))),
    comparable: computed(() => ofOther.value !== null),
    otherOverview: computed(() => read(ofOther.value)),
    /** The attempts that recorded into the run; several may have recorded the same steps. */
    attempts: computed((): SessionStart[] => read(ofEvery.value).value?.sessions ?? []),
  };
}
