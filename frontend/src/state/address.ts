/** The user's choices, encoded in the page's address. Unreadable text gives the defaults. */

import { COLOURINGS, type Colouring } from "../model/memory-map";
import { CATEGORIES, type Category } from "../model/categories";
import { AS_RECORDED, CONDITIONS, changedConditions, type ConditionName, type Conditions } from "../model/conditions";
import { DEVICE_SORTS, type DeviceSort } from "../model/devices";
import { GROUPINGS, SORT_KEYS, type Grouping, type SortKey } from "../model/layer-figures";
import { PHASES, type Phase } from "../model/run";

export const VIEWS = [
  "overview",
  "layers",
  "frozen",
  "step",
  "fragmentation",
  "devices",
  "oom",
  "what-if",
  "compare",
  "activations",
  "layer",
] as const;
export type ViewName = (typeof VIEWS)[number];

export const AXES = ["step", "relative", "wall"] as const;
type AxisName = (typeof AXES)[number];

/** Parts of the stack in a step's timeline, and its x-axis. */
export const STACKS = ["tensor", "category", "layer"] as const;
export type StackName = (typeof STACKS)[number];
/** Tensors: what colors them, and whether they are stacked or lie at their addresses. */
export const TENSOR_COLOURINGS = ["category", "layer"] as const;
export type TensorColouring = (typeof TENSOR_COLOURINGS)[number];
export const PLACEMENTS = ["stacked", "by address"] as const;
export type Placement = (typeof PLACEMENTS)[number];
export const TIMELINE_AXES = ["time", "event index"] as const;
export type TimelineAxis = (typeof TIMELINE_AXES)[number];

/** In place of a key to sort by. */
const MODEL_ORDER = "model";

export interface Choices {
  view: ViewName;
  /** Runs whose boxes are checked; null: the page chooses. */
  runs: string[] | null;
  /** The selected run, shown as a stack; null: the page chooses. */
  primary: string | null;
  device: string | null;
  phase: Phase | null;
  axis: AxisName;
  /** The selected step; null: the page chooses. */
  step: number | null;
  /** First and last step of the zoom. */
  zoom: readonly [number, number] | null;
  filter: string;
  /** Path of the selected layer. */
  layer: string | null;
  /** The selected category. */
  category: Category | null;
  stack: StackName;
  tensorColouring: TensorColouring;
  placement: Placement;
  /** The selected tensor of the step's timeline, by its number. */
  tensor: number | null;
  timelineAxis: TimelineAxis;
  /** The selected moment of the step's timeline. */
  moment: number | null;
  /** First and last moment of the zoom in the step's timeline. */
  span: readonly [number, number] | null;
  /** One attempt of several that recorded the same steps; null: the last attempt of each step. */
  session: string | null;
  /** Which of the run's failures. */
  oom: number;
  /** Run and step that the shown ones are compared with; null: the page chooses. */
  other: string | null;
  otherStep: number | null;
  /** Whether figures are exact bytes instead of rounded ones. */
  exact: boolean;
  /** Whether lists and maps show all entries instead of the first ones. */
  all: boolean;
  /** Search, grouping and sort key of the layers; null sorts in the model's order. */
  search: string;
  grouping: Grouping;
  sort: SortKey | null;
  /** Order of the devices. */
  deviceSort: DeviceSort;
  /** Colouring of a memory map, and its zooms: spans of addresses, at most one per region. */
  colouring: Colouring;
  mapZooms: readonly (readonly [number, number])[];
  /** Size tested in "would it fit"; null: just larger than the largest free chunk. */
  fitMib: number | null;
  /** The conditions of the what-if question. */
  conditions: Conditions;
}

export const DEFAULTS: Choices = {
  view: "overview",
  runs: null,
  primary: null,
  device: null,
  phase: null,
  axis: "step",
  step: null,
  zoom: null,
  filter: "",
  layer: null,
  category: null,
  stack: "tensor",
  tensorColouring: "category",
  placement: "stacked",
  tensor: null,
  timelineAxis: "time",
  moment: null,
  span: null,
  session: null,
  oom: 0,
  other: null,
  otherStep: null,
  exact: false,
  all: false,
  search: "",
  grouping: "none",
  sort: "persistent_saved",
  deviceSort: "device",
  colouring: "category",
  mapZooms: [],
  fitMib: null,
  conditions: AS_RECORDED,
};

export function encode(choices: Choices): string {
  const out = new URLSearchParams();
  if (choices.view !== DEFAULTS.view) out.set("view", choices.view);
  if (choices.primary !== null) out.set("run", choices.primary);
  if (choices.runs !== null) {
    for (const run of choices.runs) out.append("with", run);
    if (choices.runs.length === 0) out.set("none", "1");
  }
  if (choices.device !== null) out.set("device", choices.device);
  if (choices.phase !== null) out.set("phase", choices.phase);
  if (choices.axis !== DEFAULTS.axis) out.set("x", choices.axis);
  if (choices.step !== null) out.set("step", String(choices.step));
  if (choices.zoom !== null) out.set("zoom", `${choices.zoom[0]}-${choices.zoom[1]}`);
  if (choices.filter !== "") out.set("filter", choices.filter);
  if (choices.layer !== null) out.set("layer", choices.layer);
  if (choices.category !== null) out.set("category", choices.category);
  if (choices.stack !== DEFAULTS.stack) out.set("stack", choices.stack);
  if (choices.tensorColouring !== DEFAULTS.tensorColouring) out.set("tensor_colour", choices.tensorColouring);
  if (choices.placement !== DEFAULTS.placement) out.set("place", choices.placement);
  if (choices.tensor !== null) out.set("tensor", String(choices.tensor));
  if (choices.timelineAxis !== DEFAULTS.timelineAxis) out.set("timeline", choices.timelineAxis);
  if (choices.moment !== null) out.set("moment", String(choices.moment));
  if (choices.span !== null) out.set("span", `${choices.span[0]}-${choices.span[1]}`);
  if (choices.session !== null) out.set("session", choices.session);
  if (choices.oom !== 0) out.set("oom", String(choices.oom));
  if (choices.other !== null) out.set("other", choices.other);
  if (choices.otherStep !== null) out.set("other_step", String(choices.otherStep));
  encodeLayers(choices, out);
  if (choices.deviceSort !== DEFAULTS.deviceSort) out.set("devices", choices.deviceSort);
  encodeMap(choices, out);
  for (const [name, value] of changedConditions(choices.conditions)) out.set(name, value);
  if (choices.exact) out.set("exact", "1");
  if (choices.all) out.set("all", "1");
  return out.toString();
}

function encodeLayers({ search, grouping, sort }: Choices, out: URLSearchParams): void {
  if (search !== "") out.set("search", search);
  if (grouping !== DEFAULTS.grouping) out.set("group", grouping);
  if (sort !== DEFAULTS.sort) out.set("sort", sort ?? MODEL_ORDER);
}

function encodeMap({ colouring, mapZooms, fitMib }: Choices, out: URLSearchParams): void {
  if (colouring !== DEFAULTS.colouring) out.set("colour", colouring);
  for (const [from, to] of mapZooms) out.append("map", `${from}-${to}`);
  if (fitMib !== null) out.set("fit", String(fitMib));
}

const among = <T extends string>(allowed: readonly T[], value: string | null): T | null => allowed.find((item) => item === value) ?? null;

const whole = (text: string | null): number | null => (text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null);

function span(text: string | null): [number, number] | null {
  const found = /^(\d{1,15})-(\d{1,15})$/.exec(text ?? "");
  if (!found) return null;
  const [first, last] = [Number(found[1]), Number(found[2])];
  return first <= last ? [first, last] : null;
}

/** A size above 0, such as "12.5". */
function size(text: string | null): number | null {
  const found = Number(text ?? "");
  return /^\d/.test(text ?? "") && Number.isFinite(found) && found > 0 ? found : null;
}

export function decode(text: string): Choices {
  const given = new URLSearchParams(text);
  const chosen = given.getAll("with");
  return {
    view: among(VIEWS, given.get("view")) ?? DEFAULTS.view,
    runs: given.has("none") ? [] : chosen.length > 0 ? chosen : null,
    primary: given.get("run"),
    device: given.get("device"),
    phase: among(PHASES, given.get("phase")),
    axis: among(AXES, given.get("x")) ?? DEFAULTS.axis,
    step: whole(given.get("step")),
    zoom: span(given.get("zoom")),
    filter: given.get("filter") ?? "",
    layer: given.get("layer"),
    category: among(CATEGORIES, given.get("category")),
    stack: among(STACKS, given.get("stack")) ?? DEFAULTS.stack,
    tensorColouring: among(TENSOR_COLOURINGS, given.get("tensor_colour")) ?? DEFAULTS.tensorColouring,
    placement: among(PLACEMENTS, given.get("place")) ?? DEFAULTS.placement,
    tensor: whole(given.get("tensor")),
    timelineAxis: among(TIMELINE_AXES, given.get("timeline")) ?? DEFAULTS.timelineAxis,
    moment: whole(given.get("moment")),
    span: span(given.get("span")),
    session: given.get("session"),
    oom: whole(given.get("oom")) ?? 0,
    other: given.get("other"),
    otherStep: whole(given.get("other_step")),
    exact: given.has("exact"),
    all: given.has("all"),
    search: given.get("search") ?? "",
    grouping: among(GROUPINGS, given.get("group")) ?? DEFAULTS.grouping,
    sort: given.get("sort") === MODEL_ORDER ? null : (among(SORT_KEYS, given.get("sort")) ?? DEFAULTS.sort),
    deviceSort: among(DEVICE_SORTS, given.get("devices")) ?? DEFAULTS.deviceSort,
    colouring: among(COLOURINGS, given.get("colour")) ?? DEFAULTS.colouring,
    mapZooms: given.getAll("map").flatMap((text) => {
      const found = span(text);
      return found && found[1] > found[0] ? [found] : [];
    }),
    fitMib: size(given.get("fit")),
    conditions: Object.fromEntries(CONDITIONS.map((name) => [name, given.get(name) ?? ""])) as Record<ConditionName, string>,
  };
}

const OF_A_STEP = ["primary", "device", "phase", "step", "session"] as const;

/** Whether they name the same step of the same attempt. */
export const sameStep = (a: Choices, b: Choices): boolean => OF_A_STEP.every((name) => a[name] === b[name]);

/** The choices with some of them changed; a moment and a tensor belong to their step, so another step clears them. */
export function changedTo(choices: Choices, changed: Partial<Choices>): Choices {
  const next = { ...choices, ...changed };
  if (sameStep(next, choices)) return next;
  return { ...next, moment: changed.moment ?? null, span: changed.span ?? null, tensor: changed.tensor ?? null };
}
