/** Selects the traced step, the stack and the x-axis of its timeline. */

import type { TimelineRef } from "../../model/timeline";
import { STACKS, TIMELINE_AXES } from "../../state/address";
import { useStore } from "../shared/context";
import { Segments } from "../shared/segments";

export function Chooser({ list, shown }: { list: readonly TimelineRef[]; shown: TimelineRef }) {
  const store = useStore();
  const choices = store.choices.value;
  const steps = [...new Set(list.map(({ step }) => step))].sort((a, b) => a - b);
  const place = steps.indexOf(shown.step);
  const go = (step: number | undefined): void => {
    if (step !== undefined) store.choose({ step });
  };
  return (
    <div class="timeline-bar">
      <label class="select">
        <span>step</span>
        <select value={String(shown.step)} onChange={(event) => go(Number(event.currentTarget.value))}>
          {steps.map((step) => (
            <option key={step} value={String(step)}>
              {step}
            </option>
          ))}
        </select>
      </label>
      <span class="segments" role="group" aria-label="other traced steps">
        <button type="button" aria-label="Previous traced step" disabled={place <= 0} onClick={() => go(steps[place - 1])}>
          ←
        </button>
        <button type="button" aria-label="Next traced step" disabled={place >= steps.length - 1} onClick={() => go(steps[place + 1])}>
          →
        </button>
      </span>
      <Segments label="stack by" options={STACKS} chosen={choices.stack} choose={(stack) => store.choose({ stack })} />
      <Segments
        label="x-axis"
        options={TIMELINE_AXES}
        chosen={choices.timelineAxis}
        choose={(timelineAxis) => store.choose({ timelineAxis })}
      />
      <button type="button" class="quiet" disabled={choices.span === null} onClick={() => store.choose({ span: null })}>
        Show whole step
      </button>
    </div>
  );
}
