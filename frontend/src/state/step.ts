/** The selected step of the shown run, device and phase, and the timeline that the step view shows. */

import { computed, effect, type ReadonlySignal, type Signal } from "@preact/signals";

import type { Overview } from "../model/overview";
import { selectStep, type StepSelection } from "../model/step-selection";
import { chosenTimeline, type TimelineRef } from "../model/timeline";
import { sameStep, type Choices } from "./address";
import type { Loaded } from "./resource";
import type { ChoicesSignal, Shown } from "./shown";

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
