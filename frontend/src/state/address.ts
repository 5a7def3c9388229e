/** The user's choices, encoded in the page's address. Unreadable text gives the defaults. */

import { DEVICE_SORTS } from "../model/devices";
import { GROUPINGS, SORT_KEYS } from "../model/layers";
import { COLOURINGS } from "../model/memory-map";
import { POOL_INSTANTS } from "../model/pool";
import { RUN_SORTS } from "../model/run";
import {
  AS_RECORDED,
  CONDITIONS,
  changedConditions,
  type ConditionName,
  type Conditions,
} from "../model/what-if";
import { VIEW_NAMES } from "./views";
import { CATEGORIES, PHASES } from "../schema";

/**
 * `parse` gives the default for what it cannot read, and `print` writes nothing for the default.
 */
export interface Codec<T> {
  initial: T;
  print(value: T, out: URLSearchParams): void;
  parse(given: URLSearchParams): T;
}

function inOne<T>(
  name: string,
  initial: T,
  read: (text: string) => T | null,
  write: (value: T) => string = String,
): Codec<T> {
  return {
    initial,
    print: (value, out) => {
      if (value !== initial) out.set(name, write(value));
    },
    parse: (given) => {
      const text = given.get(name);
      return (text === null ? null : read(text)) ?? initial;
    },
  };
}

const among = <T extends string>(allowed: readonly T[], text: string): T | null =>
  allowed.find((item) => item === text) ?? null;

const wholeNumber = (text: string): number | null =>
  /^\d{1,15}$/.test(text) ? Number(text) : null;

type Span = readonly [number, number];

const spanText = ([first, last]: Span): string => `${first}-${last}`;

function readSpan(text: string): Span | null {
  const found = /^(\d{1,15})-(\d{1,15})$/.exec(text);
  if (!found) return null;
  const [first, last] = [Number(found[1]), Number(found[2])];
  return first <= last ? [first, last] : null;
}

const oneOf = <T extends string>(name: string, allowed: readonly T[], initial: T): Codec<T> =>
  inOne(name, initial, (text) => among(allowed, text));

const oneOrNone = <T extends string>(name: string, allowed: readonly T[]): Codec<T | null> =>
  inOne<T | null>(name, null, (text) => among(allowed, text));

/** One of a few words, or null, which has a word of its own. */
export const oneOrNamedNone = <T extends string>(
  name: string,
  allowed: readonly T[],
  initial: T,
  none: string,
): Codec<T | null> => ({
  initial,
  print: (value, out) => {
    if (value !== initial) out.set(name, value ?? none);
  },
  parse: (given) => {
    const written = given.get(name) ?? "";
    return written === none ? null : (among(allowed, written) ?? initial);
  },
});

const text = (name: string): Codec<string> => inOne(name, "", String);

const nameOrNone = (name: string): Codec<string | null> => inOne<string | null>(name, null, String);

const whole = (name: string): Codec<number> => inOne(name, 0, wholeNumber);
export const wholeOrNone = (name: string): Codec<number | null> =>
  inOne<number | null>(name, null, wholeNumber);

export const sizeOrNone = (name: string): Codec<number | null> =>
  inOne<number | null>(name, null, (written) => {
    const found = Number(written);
    return /^\d/.test(written) && Number.isFinite(found) && found > 0 ? found : null;
  });

export const spanOrNone = (name: string): Codec<Span | null> =>
  inOne<Span | null>(name, null, readSpan, (value) => (value === null ? "" : spanText(value)));

export const spans = (name: string): Codec<readonly Span[]> => ({
  initial: [],
  print: (value, out) => value.forEach((one) => out.append(name, spanText(one))),
  parse: (given) =>
    given.getAll(name).flatMap((written) => {
      const found = readSpan(written);
      return found && found[1] > found[0] ? [found] : [];
    }),
});

const flag = (name: string): Codec<boolean> => ({
  initial: false,
  print: (value, out) => {
    if (value) out.set(name, "1");
  },
  parse: (given) => given.has(name),
});

/** A list of names, or null by default; an empty list has a parameter of its own. */
export const namesOrNone = (name: string, empty: string): Codec<string[] | null> => ({
  initial: null,
  print: (value, out) => {
    value?.forEach((one) => out.append(name, one));
    if (value?.length === 0) out.set(empty, "1");
  },
  parse: (given) => {
    const found = given.getAll(name);
    return given.has(empty) ? [] : found.length > 0 ? found : null;
  },
});

export const AXES = ["step", "relative", "wall"] as const;

export const STACKS = ["tensor", "category", "layer"] as const;
export type StackName = (typeof STACKS)[number];
/** Tensors: what colors them, and whether they are stacked or lie at their addresses. */
export const TENSOR_COLOURINGS = ["category", "layer"] as const;
export const PLACEMENTS = ["stacked", "by address"] as const;
export type Placement = (typeof PLACEMENTS)[number];
export const TIMELINE_AXES = ["time", "event index"] as const;
export type TimelineAxis = (typeof TIMELINE_AXES)[number];

export const DRAGS = ["zoom", "select"] as const;

const MODEL_ORDER = "model";

/** Each choice in the address, in the order in which they stand there. */
const CODECS = {
  view: oneOf("view", VIEW_NAMES, "overview"),
  primary: nameOrNone("run"),
  /** Runs whose boxes are checked; null: the shown run alone. */
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
  /** One attempt of several that recorded the same steps; null: the last attempt of each step. */
  session: nameOrNone("session"),
  oom: whole("oom"),
  /** Run and step that the shown ones are compared with; null: the page chooses. */
  other: nameOrNone("other"),
  otherStep: wholeOrNone("other_step"),
  search: text("search"),
  grouping: oneOf("group", GROUPINGS, "none"),
  sort: oneOrNamedNone("sort", SORT_KEYS, "total", MODEL_ORDER),
  /** Whether the table of layers has a column for each figure instead of a bar, and that of devices
   * one for each figure beside its bar. */
  columns: flag("columns"),
  deviceSort: oneOf("devices", DEVICE_SORTS, "peak_bytes"),
  colouring: oneOf("colour", COLOURINGS, "category"),
  /** Zooms of a memory map: spans of addresses, at most one per region. */
  mapZooms: spans("map"),
  /** When in a step the pool is shown. */
  instant: oneOf("instant", POOL_INSTANTS, "peak"),
  /** Size tested in "would it fit"; null: just larger than the largest free chunk. */
  fitMib: sizeOrNone("fit"),
  conditions: {
    initial: AS_RECORDED,
    print: (conditions, out) =>
      changedConditions(conditions).forEach(([name, value]) => out.set(name, value)),
    parse: (given) =>
      Object.fromEntries(CONDITIONS.map((name) => [name, given.get(name) ?? ""])) as Record<
        ConditionName,
        string
      >,
  } satisfies Codec<Conditions> as Codec<Conditions>,
  exact: flag("exact"),
  /** Whether lists and maps show all entries instead of the first ones. */
  all: flag("all"),
  /**
   * Whether the list of a step's allocations shows what the step allocated and did not free, at
   * every moment.
   */
  survived: flag("survived"),
};

export type Choices = { [Name in keyof typeof CODECS]: (typeof CODECS)[Name]["initial"] };

const NAMES = Object.keys(CODECS) as (keyof Choices)[];

const choicesOf = (of: (name: keyof Choices) => unknown): Choices =>
  Object.fromEntries(NAMES.map((name) => [name, of(name)])) as never;

export const DEFAULTS: Choices = choicesOf((name) => CODECS[name].initial);

export function encode(choices: Choices): string {
  const out = new URLSearchParams();
  const print = <Name extends keyof Choices>(name: Name): void =>
    (CODECS[name] as Codec<Choices[Name]>).print(choices[name], out);
  NAMES.forEach(print);
  return out.toString();
}

export function decode(address: string): Choices {
  const given = new URLSearchParams(address);
  return choicesOf((name) => CODECS[name].parse(given));
}

/** Nothing selected inside a step. */
export const INSIDE = { moment: null, span: null, selection: null, tensor: null };

const OF_A_STEP = ["primary", "device", "phase", "step", "session"] as const;

export const sameStep = (a: Choices, b: Choices): boolean =>
  OF_A_STEP.every((name) => a[name] === b[name]);

/**
 * The choices with some of them changed; what is selected inside a step belongs to it, so another
 * step clears it.
 */
export function changedTo(choices: Choices, changed: Partial<Choices>): Choices {
  const next = { ...choices, ...changed };
  if (sameStep(next, choices)) return next;
  return { ...next, ...INSIDE, ...changed };
}
