/** Device, phase, x-axis, and the sentence that answers "how full is it?". */

import { headline } from "../model/overview";
import { AXES, VIEWS, type ViewName } from "../state/address";
import { useStore } from "./context";

const TABS: Record<ViewName, string> = {
  overview: "Overview",
  layers: "Layers",
  frozen: "Frozen vs trainable",
  fragmentation: "Fragmentation",
  activations: "Recorded activations",
};

export function Tabs() {
  const store = useStore();
  const recorded = store.selected.value.some((run) => run.activation_layers > 0);
  const { view } = store.choices.value;
  return (
    <div class="tabs" role="group" aria-label="Views">
      {VIEWS.filter((name) => name !== "activations" || recorded || view === name).map((name) => (
        <button key={name} type="button" class="tab" aria-pressed={view === name} onClick={() => store.choose({ view: name })}>
          {TABS[name]}
        </button>
      ))}
    </div>
  );
}

interface SegmentsProps<T extends string> {
  label: string;
  options: readonly T[];
  chosen: T;
  choose: (option: T) => void;
}

export function Segments<T extends string>({ label, options, chosen, choose }: SegmentsProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      <span class="segments-label" aria-hidden="true">
        {label}
      </span>
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === chosen} onClick={() => choose(option)}>
          {option}
        </button>
      ))}
    </div>
  );
}

function Headline() {
  const store = useStore();
  const run = store.primary.value;
  const device = run?.devices.find(({ device: name }) => name === store.device.value);
  const sentence = device ? headline(device.peak_bytes, device.peak_step, device.capacity_bytes) : null;
  return (
    <p class="headline" data-testid="headline" data-bytes={device?.peak_bytes ?? ""}>
      {sentence ?? ""}
    </p>
  );
}

export function Toolbar() {
  const store = useStore();
  const run = store.primary.value;
  if (!run) return null;
  const { view, axis } = store.choices.value;
  return (
    <div class="toolbar">
      {run.devices.length > 0 && (
        <label class="select">
          <span>device</span>
          <select value={store.device.value ?? ""} onChange={(event) => store.choose({ device: event.currentTarget.value })}>
            {run.devices.map(({ device }) => (
              <option key={device} value={device}>
                {device}
              </option>
            ))}
          </select>
        </label>
      )}
      {run.phases.length > 1 && view !== "fragmentation" && view !== "activations" && (
        <Segments label="phase" options={run.phases} chosen={store.phase.value} choose={(phase) => store.choose({ phase })} />
      )}
      {view !== "layers" && <Segments label="x-axis" options={AXES} chosen={axis} choose={(chosen) => store.choose({ axis: chosen })} />}
      <Headline />
    </div>
  );
}
