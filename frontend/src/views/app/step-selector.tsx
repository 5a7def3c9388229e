/** Selects the step that every view shows: any step, the traced ones one by one, or the default. */

import { useRef } from "preact/hooks";

import { peakWord, stepNote, tracedNeighbours, tracedSteps, type StepSelection } from "../../model/step-selection";
import { VIEWS, supports } from "../../state/views";
import { useStore } from "../shared/context";

/** Traced steps in the field's list. */
const LISTED = 500;

/** A number field with the traced steps as its list; empty means the default. */
function StepField({ selection, traced }: { selection: StepSelection | null; traced: readonly number[] }) {
  const store = useStore();
  const field = useRef<HTMLInputElement>(null);
  const shown = String(selection?.step ?? "");
  const choose = (text: string): void => {
    const step = Number(text);
    if (text !== "" && Number.isSafeInteger(step) && step >= 0) store.choose({ step });
    else if (text === "") store.choose({ step: null });
    // The field shows the step that is shown, also after a step that is not in the chart.
    if (field.current) field.current.value = String(store.shownStep.peek()?.step ?? "");
  };
  return (
    <>
      <input
        ref={field}
        type="number"
        min="0"
        list="traced-steps"
        aria-label="Selected step"
        title="Any step; the list has the traced ones"
        disabled={selection === null}
        value={shown}
        onChange={(event) => choose(event.currentTarget.value)}
      />
      <datalist id="traced-steps">
        {traced.slice(-LISTED).map((step) => (
          <option key={step} value={step} />
        ))}
      </datalist>
    </>
  );
}

function Arrow({ to, children, label }: { to: number | null; children: string; label: string }) {
  const store = useStore();
  const title = to === null ? label : `${label}: ${to}`;
  return (
    <button type="button" aria-label={label} title={title} disabled={to === null} onClick={() => store.choose({ step: to })}>
      {children}
    </button>
  );
}

export function StepSelector() {
  const store = useStore();
  const { view } = store.choices.value;
  const selection = store.shownStep.value;
  const whole = store.whole.value.value;
  if (!supports(view, "step")) return null;
  const traced = whole ? tracedSteps(whole) : [];
  const { before, after } = tracedNeighbours(traced, selection?.step ?? -1);
  const timeline = supports(view, "moment") ? (store.shownTimeline.value?.step ?? null) : null;
  const note = selection && !VIEWS[view].ownSteps ? stepNote(selection, timeline) : "";
  const isDefault = selection === null || selection.step === selection.defaultStep;
  const failed = whole?.failures.some(({ step }) => step === selection?.defaultStep) ?? false;
  const what = failed ? "failed step" : `${traced.length > 0 ? "traced step with the " : ""}highest peak`;
  const back = `Back to step ${selection?.defaultStep ?? ""}, the ${what} (Escape)`;
  return (
    <>
      <div
        class="step-selector"
        role="group"
        aria-label="Step"
        data-testid="step-selector"
        data-step={selection?.step ?? ""}
        data-breakdown={timeline ?? selection?.snapshot?.step ?? ""}
      >
        <span class="segments-label">{supports(view, "pair") ? "A" : "step"}</span>
        <Arrow to={before} label="Previous traced step">
          ◂
        </Arrow>
        <StepField selection={selection} traced={traced} />
        <Arrow to={selection ? after : null} label="Next traced step">
          ▸
        </Arrow>
        <span class="why">
          {selection ? peakWord(selection) : ""}
          {!isDefault && (
            <button type="button" class="unpin" aria-label={back} title={back} onClick={() => store.choose({ step: null })}>
              ×
            </button>
          )}
        </span>
      </div>
      <p class="step-note small" data-testid="step-note" aria-live="polite" title={note}>
        {note}
      </p>
    </>
  );
}
