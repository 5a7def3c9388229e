/**
 * Everything that the page fetches but the list of runs: one resource for each kind of question,
 * and the questions of the shown view.
 */

import { computed, effect, type ReadonlySignal } from "@preact/signals";

import type { OverviewQuery, Source, Span, TotalsQuery } from "../api/source";
import type { Place } from "../model/memory-map";
import type { Overview } from "../model/overview";
import { preferredDevice } from "../model/run";
import { AS_RECORDED, type Conditions } from "../model/what-if";
import { limiter, nearer, NOTHING, Resource, Shelf, type Loaded } from "./resource";
import { phaseBeside, type ChoicesSignal, type Shown } from "./runs";
import type { Need } from "./views";
import type { AnswersAnswer, Phase, RunInfo, SessionStart } from "../schema";

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

export interface StepRef {
  phase: Phase;
  step: number;
}

/**
 * Makes resources whose answers share a shelf and wait in one queue; a question is told apart by
 * the run's name and its other parts.
 */
function maker(shelf: Shelf, atOnce = AT_ONCE) {
  const queue = limiter(atOnce);
  return <Args extends [RunInfo, ...unknown[]], T>(
    version: (run: RunInfo) => string,
    load: (abort: AbortSignal, ...args: Args) => Promise<T>,
    key: (...args: Args) => unknown = (run, ...others) => [run.run, ...others],
  ): Resource<Args, T> =>
    new Resource({ key, version: (...[run]: Args) => version(run), load }, shelf, queue);
}

type Maker = ReturnType<typeof maker>;

function ofWholeRuns(source: Source, of: Maker) {
  return {
    answers: of(latest, (abort, { run }: RunInfo, device: string | null, phase: Phase) =>
      source.answers(run, device, phase, abort),
    ),
    overviews: of(latest, (abort, _: RunInfo, query: OverviewQuery) =>
      source.overview(query, abort),
    ),
    pools: of(latest, (abort, _: RunInfo, query: OverviewQuery) => source.pool(query, abort)),
    hostMemories: of(latest, (abort, _: RunInfo, query: OverviewQuery) =>
      source.hostMemory(query, abort),
    ),
    devices: of(latest, (abort, { run }: RunInfo, phase: Phase) =>
      source.devices(run, phase, abort),
    ),
    ledgerTotals: of(latest, (abort, _: RunInfo, query: TotalsQuery) =>
      source.ledgerTotals(query, abort),
    ),
    activations: of(latest, (abort, { run }: RunInfo, points: number, span: Span) =>
      source.activations(run, points, span, abort),
    ),
    ooms: of(latest, (abort, { run }: RunInfo) => source.ooms(run, abort)),
    snapshotLists: of(latest, (abort, { run }: RunInfo, device: string) =>
      source.snapshots(run, device, abort),
    ),
    timelineLists: of(latest, (abort, { run }: RunInfo, device: string) =>
      source.timelines(run, device, abort),
    ),
    mapLists: of(latest, (abort, { run }: RunInfo, device: string) =>
      source.maps(run, device, abort),
    ),
  };
}

/**
 * A device of one of several workers, "worker_1/GPU:0"; null for other devices, since all have the
 * same layers.
 */
const ofWorker = (device: string | null): string | null => (device?.includes("/") ? device : null);

function ofSteps(source: Source, of: Maker) {
  const ofStep = ({ run }: RunInfo, device: string, { phase, step }: StepRef): unknown => [
    run,
    device,
    phase,
    step,
  ];
  return {
    snapshots: of(
      stable,
      (abort, { run }: RunInfo, device: string, { phase, step }: StepRef) =>
        source.snapshot(run, device, phase, step, abort),
      ofStep,
    ),
    layers: of(
      stable,
      (abort, { run }: RunInfo, device: string | null, step: number) =>
        source.layers(run, ofWorker(device), step, abort),
      ({ run }, device, step) => [run, ofWorker(device), step],
    ),
    timelines: of(
      stable,
      (abort, { run }: RunInfo, device: string, { phase, step }: StepRef) =>
        source.timeline(run, device, phase, step, abort),
      ofStep,
    ),
    maps: of(
      ({ sessions, ooms }) => `${sessions}/${ooms}`,
      (abort, { run }: RunInfo, place: Place) => source.map(run, place, abort),
    ),
    deviceMemories: of(latest, (abort, { run }: RunInfo, device: string, step: number | null) =>
      source.deviceMemory(run, device, step, abort),
    ),
  };
}

function ofSimulations(source: Source, of: Maker) {
  return {
    fixes: of(traced, (abort, { run }: RunInfo, oom: number) => source.fixes(run, oom, abort)),
    whatIfs: of(traced, (abort, { run }: RunInfo, device: string, asked: Conditions) =>
      source.whatIf(run, device, asked, abort),
    ),
    demands: of(traced, (abort, { run }: RunInfo, device: string) =>
      source.demand(run, device, abort),
    ),
    plans: of(
      traced,
      (abort, { run }: RunInfo, device: string, budget: string, batchSize: string) =>
        source.plan(run, device, budget, batchSize, abort),
    ),
  };
}

/** Longer ones, that no other waits for. */
function ofBatchSizes(source: Source, of: Maker) {
  return {
    curves: of(traced, (abort, { run }: RunInfo, device: string, asked: Conditions) =>
      source.curve(run, device, asked, abort),
    ),
    batchLimits: of(traced, (abort, { run }: RunInfo, device: string, asked: Conditions) =>
      source.batchLimit(run, device, asked, abort),
    ),
  };
}

export function createResources(source: Source, limitBytes = LIMIT_BYTES) {
  const shelf = new Shelf(limitBytes);
  const quick = maker(shelf);
  // The others do not wait for simulations.
  const resources = {
    ...ofWholeRuns(source, quick),
    ...ofSteps(source, quick),
    ...ofSimulations(source, maker(shelf)),
    ...ofBatchSizes(source, maker(shelf, 1)),
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

/**
 * Columns over steps: the pool, the host memory of the device's worker at the same steps, and
 * recorded activations.
 */
export function createColumns(fetched: Resources, shown: Shown, choices: ChoicesSignal) {
  const zoom = (): Span => choices.value.zoom;
  const ofSteps = (span: Span): [RunInfo, OverviewQuery] | null => {
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    if (!run || device === null || !run.phases.includes(phase)) return null;
    return [
      run,
      { run: run.run, device, phase, points: POINTS, span, session: choices.value.session },
    ];
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
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    const { layer, session } = choices.value;
    if (!run || device === null || !run.phases.includes(phase)) return null;
    return [
      run,
      {
        run: run.run,
        device,
        phase,
        layer: shown.needs("totals of the layer") ? layer : null,
        session,
      },
    ];
  };
  const conditions = (): Conditions => (recordedOnly ? AS_RECORDED : choices.value.conditions);
  const ofConditions = (): [RunInfo, string, Conditions] | null => {
    const one = ofDevice();
    return one && [...one, { ...conditions(), budget: "" }];
  };
  const ofBudget = (): [RunInfo, string, string, string] | null => {
    const one = ofDevice();
    const { budget, capacity, batch_size } = conditions();
    return one && [...one, budget || capacity, batch_size];
  };
  const ofAnyBatchSize = (): [RunInfo, string, Conditions] | null => {
    const one = ofDevice();
    return one && [...one, { ...conditions(), budget: "", batch_size: "" }];
  };
  const whatIf = fetchedWhile(fetched.whatIfs, needed("what if"), ofConditions);
  // The curve and the plan wait for the verdict.
  const afterVerdict = (): boolean =>
    shown.needs("what if") && (whatIf.value.value ?? whatIf.value.error) !== null;
  const needsTotals = (): boolean => shown.needs("totals") || shown.needs("totals of the layer");
  return {
    stepOf: (ref: StepRef | null): [RunInfo, string, StepRef] | null => {
      const one = ofDevice();
      return one && ref && [...one, ref];
    },
    answers: computed((): Loaded<AnswersAnswer> => {
      const one = ofDevice();
      return readOrNothing(fetched.answers, one && [...one, shown.phase.value]);
    }),
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
    return [
      run,
      { run: run.run, device, phase, points: primary ? POINTS : POINTS_OF_OTHERS, span, session },
    ];
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
