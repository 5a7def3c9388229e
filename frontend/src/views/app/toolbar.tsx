/** Tabs, device, phase, attempt and x-axis. */

import { useRef } from "preact/hooks";

import { preferredLabel } from "../../model/run";
import {
  peakWord,
  stepNote,
  tracedNeighbours,
  tracedSteps,
  type StepSelection,
} from "../../model/step-selection";
import { AXES } from "../../state/address";
import type { Store } from "../../state/store";
import { VIEWS, offeredViews, supports, type ViewName } from "../../state/views";
import { useStore, useChoices } from "../shared/context";
import { ChoiceSegments, Segments, Choose } from "../shared/controls";
import type { RunInfo } from "../../schema";

const LISTED = 500;

function StepField({
  selection,
  traced,
}: {
  selection: StepSelection | null;
  traced: readonly number[];
}) {
  const store = useStore();
  const field = useRef<HTMLInputElement>(null);
  const shown = String(selection?.step ?? "");
  const choose = (text: string) => {
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

const Arrow = ({ to, children, label }: { to: number | null; children: string; label: string }) => (
  <Choose
    aria-label={label}
    title={to === null ? label : `${label}: ${to}`}
    disabled={to === null}
    these={{ step: to }}
  >
    {children}
  </Choose>
);

function StepSelector() {
  const store = useStore();
  const { view } = useChoices();
  // Its place is there in every view, so that nothing moves from one to the next.
  const selection = supports(view, "step") ? store.shownStep.value : null;
  const whole = store.whole.value.value;
  const traced = whole ? tracedSteps(whole) : [];
  const { before, after } = tracedNeighbours(traced, selection?.step ?? -1);
  const timeline = supports(view, "moment") ? (store.shownTimeline.value?.step ?? null) : null;
  const note = selection && !VIEWS[view].ownSteps ? stepNote(selection, timeline) : "";
  const isDefault = selection === null || selection.step === selection.defaultStep;
  const failed = whole?.failures.some(({ step }) => step === selection?.defaultStep) ?? false;
  const what = failed
    ? "failed step"
    : `${traced.length > 0 ? "traced step with the " : ""}highest peak`;
  const isLater = selection !== null && selection.step === store.defaultPair.value?.[1];
  const back = `Back to step ${selection?.defaultStep ?? ""}, the ${what} (Escape)`;
  return (
    <>
      <div
        class={supports(view, "step") ? "step-selector" : "step-selector reserved"}
        role="group"
        aria-label="Step"
        data-testid="step-selector"
        data-step={selection?.step ?? ""}
        data-breakdown={timeline ?? selection?.snapshot?.step ?? ""}
      >
        <span class="segments-label">
          {supports(view, "pair") ? (isLater ? "B" : "A") : "step"}
        </span>
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
            <Choose class="unpin" aria-label={back} title={back} these={{ step: null }}>
              ×
            </Choose>
          )}
        </span>
      </div>
      <p class="step-note small" data-testid="step-note" aria-live="polite" title={note}>
        {note}
      </p>
    </>
  );
}

export const tabsOf = (store: Store): ViewName[] =>
  offeredViews(store.choices.value.view, store.primary.value, store.selected.value);

/** The list of tabs is one stop of the Tab key; arrow keys go from tab to tab, Enter opens one. */
function moveAmongTabs(event: KeyboardEvent): void {
  if (!(event.currentTarget instanceof HTMLElement)) return;
  const tabs = [...event.currentTarget.querySelectorAll<HTMLElement>("button")];
  const now = tabs.indexOf(event.target as HTMLElement);
  const goal = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 }[
    event.key
  ];
  if (goal === undefined || now < 0) return;
  event.preventDefault();
  tabs[(goal + tabs.length) % tabs.length]?.focus();
}

export function Tabs() {
  const store = useStore();
  const { view } = useChoices();
  const shown = VIEWS[view].parent ?? view;
  const failures = store.primary.value?.ooms ?? 0;
  const tabs = tabsOf(store);
  const stop = tabs.includes(shown) ? shown : tabs[0];
  return (
    <div class="tabs" role="group" aria-label="Views" onKeyDown={moveAmongTabs}>
      {tabs.map((name) => (
        <button
          key={name}
          type="button"
          class="tab"
          aria-pressed={shown === name}
          tabIndex={name === stop ? 0 : -1}
          onClick={() => store.choose({ view: name })}
        >
          {VIEWS[name].title}
          {supports(name, "failure") && failures > 0 && <span class="badge">{failures}</span>}
        </button>
      ))}
    </div>
  );
}

/**
 * A restarted training records some steps twice: shows the last attempt of each step, or one
 * attempt alone.
 */
function Attempts() {
  const store = useStore();
  const attempts = store.attempts.value;
  const { session, view } = useChoices();
  if (attempts.length < 2) return null;
  return (
    <label class={supports(view, "attempt") ? "select" : "select reserved"}>
      <span>attempt</span>
      <select
        value={session ?? ""}
        onChange={(event) =>
          store.choose({ session: event.currentTarget.value || null, step: null, zoom: null })
        }
      >
        <option value="">last attempt of each step</option>
        {attempts.map(({ session: name, first_step }, index) => (
          <option key={name} value={name}>
            {index + 1} of {attempts.length}, from step {first_step}
          </option>
        ))}
      </select>
    </label>
  );
}

function DeviceField({ run }: { run: RunInfo }) {
  const store = useStore();
  const several = run.devices.length > 1;
  const chosen = run.devices.some(({ device }) => device === store.choices.value.device);
  return (
    <label class="select">
      <span class="unseen">device</span>
      <select
        value={several && !chosen ? "" : (store.device.value ?? "")}
        onChange={(event) => store.choose({ device: event.currentTarget.value || null })}
      >
        {several && <option value="">{preferredLabel(run)}</option>}
        {run.devices.map(({ device }) => (
          <option key={device} value={device}>
            {device}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Toolbar() {
  const store = useStore();
  const run = store.primary.value;
  if (!run) return null;
  const { view } = useChoices();
  return (
    <div class="toolbar">
      {run.devices.length > 0 && <DeviceField run={run} />}
      {run.phases.length > 1 && (
        <Segments
          named={false}
          reserved={!supports(view, "phase")}
          label="phase"
          options={run.phases}
          chosen={store.phase.value}
          choose={(phase) => store.choose({ phase })}
        />
      )}
      <Attempts />
      <StepSelector />
      <ChoiceSegments
        of="axis"
        named={false}
        reserved={!supports(view, "axis")}
        label="x-axis"
        options={AXES}
      />
    </div>
  );
}
