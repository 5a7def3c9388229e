/** The user's choices, encoded in the page's address. Unreadable text gives the defaults. */

import { COLOURINGS, type Colouring } from "../model/memory-map";
import { CATEGORIES, type Category } from "../model/categories";
import { AS_RECORDED, CONDITIONS, changedConditions, type ConditionName, type Conditions } from "../model/conditions";
import { DEVICE_SORTS, type DeviceSort } from "../model/devices";
import { GROUPINGS, SORT_KEYS, type Grouping, type SortKey } from "../model/layer-figures";
import { PHASES, RUN_SORTS, type Phase, type RunSort } from "../model/run";
import {
  flag,
  nameOrNone,
  namesOrNone,
  oneOf,
  oneOrNamedNone,
  oneOrNone,
  sizeOrNone,
  spanOrNone,
  spans,
  text,
  whole,
  wholeOrNone,
  type Codec,
} from "./codec";
import { VIEW_NAMES, type ViewName } from "./views";

export const AXES = ["step", "relative", "wall"] as const;
type AxisName = (typeof AXES)[number];

/** Parts of the stack in a step's timeline, and its x-axis. */
export const STACKS = ["tensor", "category", "layer"] as const;
export type StackName = (typeof STACKS)[number];
/** Tensors: what colors them, and whether they are stacked or lie at their addresses. */
export const TENSOR_COLOURINGS = ["category", "layer"] as const;
type TensorColouring = (typeof TENSOR_COLOURINGS)[number];
export const PLACEMENTS = ["stacked", "by address"] as const;
export type Placement = (typeof PLACEMENTS)[number];
export const TIMELINE_AXES = ["time", "event index"] as const;
export type TimelineAxis = (typeof TIMELINE_AXES)[number];

/** What a drag over a step's timeline does. */
export const DRAGS = ["zoom", "select"] as const;
type Drag = (typeof DRAGS)[number];

/** In place of a key to sort by. */
const MODEL_ORDER = "model";

export interface Choices {
  view: ViewName;
  /** Runs whose boxes are checked; null: the shown run alone. */
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
  /** Order of the list of runs. */
  runSort: RunSort;
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
  /** First and last moment of the selected span of the step's timeline. */
  selection: readonly [number, number] | null;
  dragging: Drag;
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
  /** Whether the list of a step's allocations shows what the step allocated and did not free, at every moment. */
  survived: boolean;
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
  /** The budget of a plan; empty for the capacity. */
  budget: string;
}

/** Each choice in the address, in the order in which they stand there. */
const CODECS: { readonly [Name in keyof Choices]: Codec<Choices[Name]> } = {
  view: oneOf("view", VIEW_NAMES, "overview"),
  primary: nameOrNone("run"),
  runs: namesOrNone("with", "none"),
  device: nameOrNone("device"),
  phase: oneOrNone("phase", PHASES),
  axis: oneOf("x", AXES, "step"),
  step: wholeOrNone("step"),
  zoom: spanOrNone("zoom"),
  filter: text("filter"),
  runSort: oneOf("runs", RUN_SORTS, "status"),
  layer: nameOrNone("layer"),
  category: oneOrNone("category", CATEGORIES),
  stack: oneOf("stack", STACKS, "tensor"),
  tensorColouring: oneOf("tensor_colour", TENSOR_COLOURINGS, "category"),
  placement: oneOf("place", PLACEMENTS, "stacked"),
  tensor: wholeOrNone("tensor"),
  timelineAxis: oneOf("timeline", TIMELINE_AXES, "time"),
  moment: wholeOrNone("moment"),
  span: spanOrNone("span"),
  selection: spanOrNone("selected"),
  dragging: oneOf("drag", DRAGS, "zoom"),
  session: nameOrNone("session"),
  oom: whole("oom"),
  other: nameOrNone("other"),
  otherStep: wholeOrNone("other_step"),
  search: text("search"),
  grouping: oneOf("group", GROUPINGS, "none"),
  sort: oneOrNamedNone("sort", SORT_KEYS, "rank", MODEL_ORDER),
  deviceSort: oneOf("devices", DEVICE_SORTS, "device"),
  colouring: oneOf("colour", COLOURINGS, "category"),
  mapZooms: spans("map"),
  fitMib: sizeOrNone("fit"),
  conditions: {
    initial: AS_RECORDED,
    print: (conditions, out) => changedConditions(conditions).forEach(([name, value]) => out.set(name, value)),
    parse: (given) => Object.fromEntries(CONDITIONS.map((name) => [name, given.get(name) ?? ""])) as Record<ConditionName, string>,
  },
  budget: text("budget"),
  exact: flag("exact"),
  all: flag("all"),
  survived: flag("survived"),
};

const NAMES = Object.keys(CODECS) as (keyof Choices)[];

/** The choices; `of` makes each of them from its name. */
const choicesOf = (of: (name: keyof Choices) => unknown): Choices => Object.fromEntries(NAMES.map((name) => [name, of(name)])) as never;

export const DEFAULTS: Choices = choicesOf((name) => CODECS[name].initial);

export function encode(choices: Choices): string {
  const out = new URLSearchParams();
  const print = <Name extends keyof Choices>(name: Name): void => CODECS[name].print(choices[name], out);
  NAMES.forEach(print);
  return out.toString();
}

/** Unreadable parts give their defaults. */
export function decode(address: string): Choices {
  const given = new URLSearchParams(address);
  return choicesOf((name) => CODECS[name].parse(given));
}

const OF_A_STEP = ["primary", "device", "phase", "step", "session"] as const;

/** Whether they name the same step of the same attempt. */
export const sameStep = (a: Choices, b: Choices): boolean => OF_A_STEP.every((name) => a[name] === b[name]);

/** The choices with some of them changed; what is selected inside a step belongs to it, so another step clears it. */
export function changedTo(choices: Choices, changed: Partial<Choices>): Choices {
  const next = { ...choices, ...changed };
  if (sameStep(next, choices)) return next;
  const { moment = null, span = null, selection = null, tensor = null } = changed;
  return { ...next, moment, span, selection, tensor };
}
