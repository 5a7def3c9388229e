/** What is fetched of the shown run besides its overview, while the shown view needs it. */

import { computed, effect, type ReadonlySignal } from "@preact/signals";

import type { OverviewQuery, Span, TotalsQuery } from "../api/source";
import type { Overview } from "../model/overview";
import { preferredDevice } from "../model/run";
import { AS_RECORDED, type Conditions } from "../model/what-if";
import { NOTHING, nearer, type Loaded, type Resource } from "./resource";
import type { Resources, StepRef } from "./resources";
import { phaseBeside, type ChoicesSignal, type Shown } from "./runs";
import type { Need } from "./views";
import type { RunInfo, SessionStart } from "../schema";

/** Fetches what `questions` gives, and keeps it until it gives something else. */
function keepFetched<Args extends unknown[], T>(resource: Resource<Args, T>, questions: () => readonly Args[]): void {
  effect(() => {
    const wanted = questions();
    resource.keep(wanted);
    for (const one of wanted) resource.want(...one);
  });
}

const readOrNothing = <Args extends unknown[], T>(resource: Resource<Args, T>, question: Args | null): Loaded<T> =>
  question === null ? NOTHING : resource.read(...question);

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

/** The same for columns over steps: of all steps, and of those in the zoom with every step that fits. */
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
  const shown = computed(() => (zoom() === null ? whole.value : nearer(whole.value, readOrNothing(resource, question(zoom())))));
  return { whole, shown };
}

const POINTS = 1500;
/** Rows of recorded activations: each has as many figures as there are layers. */
const POINTS_OF_LAYERS = 600;

/** Columns over steps: the pool, the host memory of the device's worker at the same steps, and recorded activations. */
export function createColumns(fetched: Resources, shown: Shown, choices: ChoicesSignal) {
  const zoom = (): Span => choices.value.zoom;
  const ofSteps = (span: Span): [RunInfo, OverviewQuery] | null => {
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    if (!run || device === null || !run.phases.includes(phase)) return null;
    return [run, { run: run.run, device, phase, points: POINTS, span, session: choices.value.session }];
  };
  const ofLayers = (span: Span): [RunInfo, number, Span] | null => {
    const run = shown.primary.value;
    return run && run.activation_layers > 0 ? [run, POINTS_OF_LAYERS, span] : null;
  };
  const pool = fetchedOverSteps(fetched.pools, () => shown.needs("pool"), ofSteps, zoom);
  return {
    pool: pool.shown,
    wholePool: pool.whole,
    hostMemory: fetchedOverSteps(fetched.hostMemories, () => shown.needs("host memory"), ofSteps, zoom).shown,
    activations: fetchedOverSteps(fetched.activations, () => shown.needs("activations"), ofLayers, zoom).shown,
  };
}

/** Lists, totals and answers. `recordedOnly`: what-if questions are answered for the recorded conditions only. */
export function createRecords(fetched: Resources, shown: Shown, choices: ChoicesSignal, recordedOnly: boolean) {
  const needed = (need: Need) => (): boolean => shown.needs(need);
  const ofDevice = (): [RunInfo, string] | null => {
    const [run, device] = [shown.primary.value, shown.device.value];
    return run && device !== null ? [run, device] : null;
  };
  const ofPhase = (): [RunInfo, TotalsQuery["phase"]] | null => shown.primary.value && [shown.primary.value, shown.phase.value];
  const failures = (): [RunInfo] | null => (shown.primary.value && shown.primary.value.ooms > 0 ? [shown.primary.value] : null);
  const totals = (): [RunInfo, TotalsQuery] | null => {
    const [run, device, phase] = [shown.primary.value, shown.device.value, shown.phase.value];
    const { layer, session } = choices.value;
    if (!run || device === null || !run.phases.includes(phase)) return null;
    return [run, { run: run.run, device, phase, layer: shown.needs("totals of the layer") ? layer : null, session }];
  };
  const whatIf = (): [RunInfo, string, Conditions] | null => {
    const one = ofDevice();
    return one && [...one, recordedOnly ? AS_RECORDED : choices.value.conditions];
  };
  const plan = (): [RunInfo, string, string] | null => {
    const one = ofDevice();
    return one && [...one, recordedOnly ? "" : choices.value.budget];
  };
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
    whatIf: fetchedWhile(fetched.whatIfs, needed("what if"), whatIf),
    plan: fetchedWhile(fetched.plans, needed("plan"), plan),
  };
}

const POINTS_OF_OTHERS = 500;

type Question = [RunInfo, OverviewQuery];

/** Overviews of the checked runs: the whole, and of a zoom its own with every step that fits. */
export function createOverviews(fetched: Resources, shown: Shown, choices: ChoicesSignal) {
  /** Null if the run has no such device or phase: bytes of different devices do not belong in one picture. */
  const question = (run: RunInfo, span: Span, device = shown.device.value): Question | null => {
    const phase = phaseBeside(run, shown.primary.value, shown.phase.value);
    if (device === null || phase === null) return null;
    if (!run.devices.some((known) => known.device === device)) return null;
    const primary = run.run === shown.primary.value?.run;
    const session = primary ? choices.value.session : null;
    return [run, { run: run.run, device, phase, points: primary ? POINTS : POINTS_OF_OTHERS, span, session }];
  };
  const read = (one: Question | null): Loaded<Overview> => (one ? fetched.overviews.read(...one) : NOTHING);
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
  /** All attempts of the shown run, if there are several. */
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
    const ofRuns = runs.flatMap((run) => [question(run, null), zoom === null ? null : question(run, zoom)]);
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
