/** What is fetched of the shown run besides its overview, while the shown view needs it. */

import type { OverviewQuery, TotalsQuery } from "../api/source";
import { AS_RECORDED, type Conditions } from "../model/conditions";
import type { RunInfo } from "../model/run";
import { fetchedOverSteps, fetchedWhile } from "./fetched";
import type { Resources, Span, StepRef } from "./resources";
import type { ChoicesSignal, Shown } from "./shown";
import type { Need } from "./views";

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
    /** What to ask about a traced step of the shown run and device. */
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
