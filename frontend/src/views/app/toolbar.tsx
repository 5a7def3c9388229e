/** Tabs, device, phase, attempt and x-axis. */

import { preferredLabel, type RunInfo } from "../../model/run";
import { AXES, VIEWS, type ViewName } from "../../state/address";
import type { Store } from "../../state/store";
import { useStore } from "../shared/context";
import { Segments } from "../shared/segments";
import { StepSelector } from "./step-selector";

type Tabbed = Exclude<ViewName, "layer">;

const TABS: Record<Tabbed, string> = {
  overview: "Overview",
  layers: "Layers",
  frozen: "Frozen vs trainable",
  step: "Step",
  fragmentation: "Fragmentation",
  devices: "Devices",
  oom: "Out of memory",
  "what-if": "What if",
  compare: "Compare",
  activations: "Recorded activations",
};

/** Views that have a tab; a layer's own page belongs to the tab of the layers. */
const TABBED = VIEWS.filter((name): name is Tabbed => name !== "layer");

const OVER_STEPS: readonly ViewName[] = ["overview", "frozen", "fragmentation", "activations", "compare", "layer"];
const OF_A_PHASE: readonly ViewName[] = ["overview", "layers", "frozen", "step", "fragmentation", "devices", "compare"];
/** Views that can show one attempt alone. */
const OF_AN_ATTEMPT: readonly ViewName[] = OF_A_PHASE.filter((name) => name !== "devices");

/** The tabs; devices only where the run has one, recorded activations only where a run has some. */
export function tabsOf(store: Store): Tabbed[] {
  const offered: Partial<Record<Tabbed, boolean>> = {
    devices: store.primary.value?.devices.length !== 0,
    activations: store.selected.value.some((run) => run.activation_layers > 0),
  };
  return TABBED.filter((name) => (offered[name] ?? true) || store.choices.value.view === name);
}

export function Tabs() {
  const store = useStore();
  const { view } = store.choices.value;
  const shown = view === "layer" ? "layers" : view;
  const failures = store.primary.value?.ooms ?? 0;
  return (
    <div class="tabs" role="group" aria-label="Views">
      {tabsOf(store).map((name) => (
        <button key={name} type="button" class="tab" aria-pressed={shown === name} onClick={() => store.choose({ view: name })}>
          {TABS[name]}
          {name === "oom" && failures > 0 && <span class="badge">{failures}</span>}
        </button>
      ))}
    </div>
  );
}

/** A restarted training records some steps twice: shows the last attempt of each step, or one attempt alone. */
function Attempts() {
  const store = useStore();
  const attempts = store.attempts.value;
  const { session, view } = store.choices.value;
  if (attempts.length < 2 || !OF_AN_ATTEMPT.includes(view)) return null;
  return (
    <label class="select">
      <span>attempt</span>
      <select
        value={session ?? ""}
        onChange={(event) => store.choose({ session: event.currentTarget.value || null, step: null, zoom: null })}
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

/** Of several devices the most loaded one, until the user chooses another. */
function DeviceField({ run }: { run: RunInfo }) {
  const store = useStore();
  const several = run.devices.length > 1;
  const chosen = run.devices.some(({ device }) => device === store.choices.value.device);
  return (
    <label class="select">
      <span>device</span>
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
  const { view, axis } = store.choices.value;
  return (
    <div class="toolbar">
      {run.devices.length > 0 && <DeviceField run={run} />}
      {run.phases.length > 1 && OF_A_PHASE.includes(view) && (
        <Segments label="phase" options={run.phases} chosen={store.phase.value} choose={(phase) => store.choose({ phase })} />
      )}
      <Attempts />
      <StepSelector />
      {OVER_STEPS.includes(view) && (
        <Segments label="x-axis" options={AXES} chosen={axis} choose={(chosen) => store.choose({ axis: chosen })} />
      )}
    </div>
  );
}
