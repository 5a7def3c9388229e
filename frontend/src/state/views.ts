/**
 * The views: what each is called, what can be selected in it, what is fetched for it, and when it
 * is shown.
 */

import type { RunInfo } from "../schema";

/** What can be selected in some views; a run, a device, a layer and a category in all of them. */
type Selection =
  | "phase"
  | "attempt"
  | "step"
  | "axis"
  /** A moment, its zoom and a tensor in the timeline of a step. */
  | "moment"
  | "pair"
  | "failure"
  | "search";

/**
 * What the store fetches for a view; views fetch themselves what depends on more than the user's
 * choices.
 */
export type Need =
  | "overview"
  | "overviews"
  | "other overview"
  | "pool"
  | "host memory"
  | "snapshots"
  | "timelines"
  | "maps"
  | "devices"
  | "failures"
  | "totals"
  | "totals of the layer"
  | "activations"
  | "what if";

interface Facts<Name> {
  title?: string;
  parent?: Name;
  /** Whether it is about the selected layer; while none is selected, its parent is shown. */
  ofLayer?: boolean;
  selects: readonly Selection[];
  needs: readonly Need[];
  /**
   * Whether it shows what a run recorded beside the allocator's data; every other view needs a run
   * with a device.
   */
  withoutDevice?: boolean;
  /** What to show of a run without a device: the first of these that it recorded. */
  instead?: readonly Name[];
  /** Whether the run recorded what the view shows of a run without a device. */
  recorded?: (run: RunInfo) => boolean;
  ownSteps?: boolean;
  /** Whether its tab is there though the view is not shown; by default always. */
  offered?: (primary: RunInfo | null, selected: readonly RunInfo[]) => boolean;
}

const hasFailures = (run: RunInfo): boolean => run.ooms > 0;
const hasActivations = (run: RunInfo): boolean => run.activation_layers > 0;

const TABLE = {
  overview: {
    title: "Overview",
    selects: ["phase", "attempt", "step", "axis"],
    needs: ["overview", "overviews", "failures"],
    instead: ["oom", "activations"],
  },
  layers: {
    title: "Layers",
    selects: ["phase", "attempt", "step", "search"],
    needs: ["overview", "timelines"],
  },
  frozen: {
    title: "Frozen",
    selects: ["phase", "attempt", "step", "axis"],
    needs: ["overview", "totals"],
    offered: (primary) => primary?.frozen !== false,
  },
  step: {
    title: "Step",
    selects: ["phase", "attempt", "step", "moment", "search"],
    needs: ["overview", "snapshots", "timelines"],
  },
  fragmentation: {
    title: "Fragmentation",
    selects: ["phase", "attempt", "step", "axis"],
    needs: ["overview", "pool", "snapshots", "maps"],
  },
  host: {
    title: "Host",
    selects: ["phase", "attempt", "step", "axis"],
    needs: ["overview", "host memory"],
  },
  devices: {
    title: "Devices",
    selects: ["phase", "step", "search"],
    needs: ["overview", "devices"],
    ownSteps: true,
    offered: (primary) => (primary?.devices.length ?? 0) > 1,
  },
  oom: {
    title: "OOM",
    selects: ["failure"],
    needs: ["failures"],
    withoutDevice: true,
    recorded: hasFailures,
    offered: (primary) => primary !== null && hasFailures(primary),
  },
  "what-if": { title: "What if", selects: [], needs: ["what if"] },
  compare: {
    title: "Compare",
    selects: ["phase", "attempt", "step", "axis", "pair"],
    needs: ["overview", "other overview"],
  },
  activations: {
    title: "Recorded activations",
    selects: ["axis"],
    needs: ["activations"],
    withoutDevice: true,
    recorded: hasActivations,
    offered: (_, selected) => selected.some(hasActivations),
  },
  layer: {
    parent: "layers",
    ofLayer: true,
    selects: ["step", "axis"],
    needs: ["overview", "totals of the layer"],
  },
} as const satisfies Record<string, Facts<string>>;

export type ViewName = keyof typeof TABLE;

export const VIEWS: Readonly<Record<ViewName, Facts<ViewName>>> = TABLE;
export const VIEW_NAMES = Object.keys(TABLE) as readonly ViewName[];

export const supports = (view: ViewName, selection: Selection): boolean =>
  VIEWS[view].selects.includes(selection);

/**
 * The views that have a tab: those for which the shown runs recorded data, and always the view that
 * is shown.
 */
export function offeredViews(
  view: ViewName,
  primary: RunInfo | null,
  selected: readonly RunInfo[],
): ViewName[] {
  return VIEW_NAMES.filter((name) => {
    const { title, offered } = VIEWS[name];
    return (
      title !== undefined && (name === view || offered === undefined || offered(primary, selected))
    );
  });
}

/**
 * The view that is shown of a run when `view` is chosen; null if the run has nothing to show in it.
 */
export function shownView(view: ViewName, layer: string | null, run: RunInfo): ViewName | null {
  const { parent, ofLayer = false, withoutDevice = false, instead = [] } = VIEWS[view];
  if (run.devices.length === 0 && !withoutDevice)
    return instead.find((name) => VIEWS[name].recorded?.(run)) ?? null;
  return parent !== undefined && ofLayer && layer === null ? parent : view;
}
