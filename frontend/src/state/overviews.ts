/** Overviews of the checked runs and of the one compared with. */

import { computed } from "@preact/signals";

import type { OverviewQuery } from "../api/source";
import type { Overview, SessionStart } from "../model/overview";
import { preferredDevice, type RunInfo } from "../model/run";
import { keepFetched } from "./fetched";
import { NOTHING, nearer, type Loaded } from "./resource";
import type { Resources, Span } from "./resources";
import { phaseBeside } from "./selection";
import type { ChoicesSignal, Shown } from "./shown";

const POINTS = 1500;
const POINTS_OF_OTHERS = 500;

/** A run and what to ask about it. */
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
    /** Whether the run compared with has steps to compare with. */
    comparable: computed(() => ofOther.value !== null),
    /** Overview of the run compared with. */
    otherOverview: computed(() => read(ofOther.value)),
    /** The attempts that recorded into the run; several may have recorded the same steps. */
    attempts: computed((): SessionStart[] => read(ofEvery.value).value?.sessions ?? []),
  };
}
