/**
 * Colours of what is shown, the same in every view. Persistent memory: blues and violets, held
 * tensors magenta. Transient memory: oranges and reds, communication green and striped. Rounding is
 * dotted and grey, unattributed hatched, free memory pale grey. tests/theme/palette.test.ts checks
 * each pair as colour-blind readers see it, and against the runs' colours and the background.
 */

import { signal } from "@preact/signals";

import type { Category, Group } from "../schema";

export type Scheme = "light" | "dark";

export interface Fill {
  colour: string;
  pattern: "plain" | "diagonal" | "hatched" | "dotted";
}

/** Of a light and of a dark ground. */
type Pair = readonly [light: string, dark: string];

function byScheme<Name extends string>(
  pairs: Record<Name, Pair>,
): Record<Scheme, Record<Name, string>> {
  const side = (index: 0 | 1) =>
    Object.fromEntries(Object.entries<Pair>(pairs).map(([name, pair]) => [name, pair[index]]));
  return { light: side(0), dark: side(1) } as Record<Scheme, Record<Name, string>>;
}

export const CATEGORY_COLOURS = byScheme<Category>({
  weights: ["#385db4", "#8494f4"],
  optimizer_state: ["#9c75fa", "#d5caff"],
  other_state: ["#79673e", "#8a7967"],
  held_tensors: ["#880073", "#cc3aca"],
  inputs: ["#479899", "#b9eedf"],
  activations: ["#cf8002", "#ffd57b"],
  weight_gradients: ["#b04a68", "#ea84a3"],
  activation_gradients: ["#ba0603", "#d94d00"],
  workspace: ["#839a6d", "#98a25a"],
  communication: ["#147602", "#6bcb01"],
  rounding: ["#8e939b", "#7a7f87"],
  unattributed: ["#7b7f87", "#9aa0a8"],
});

export const INKS = byScheme({
  background: ["#ffffff", "#303030"],
  panel: ["#f7f8fa", "#3a3a3a"],
  text: ["#202124", "#eeeeee"],
  faint: ["#5f6368", "#b8bcc2"],
  grid: ["#ebedf0", "#444444"],
  line: ["#202124", "#ffffff"],
  capacity: ["#b3261e", "#ff8a80"],
  used: ["#5f6b7c", "#a7b2c1"],
  free: ["#ccd2da", "#5a6068"],
  shade: ["#e3e6ea", "#4a4d52"],
  accent: ["#b94f06", "#ff9f5a"],
});

export type Ink = (typeof INKS)["light"];

/** Whether the page is dark. The functions below give the colours of this moment. */
export const dark = signal(false);

const scheme = (): Scheme => (dark.value ? "dark" : "light");
export const inks = (): Ink => INKS[scheme()];

/** The palette of TensorBoard's Time Series tab; its first colour has a dark variant. */
const RUN_COLOURS = [
  "#425066",
  "#12b5cb",
  "#e52592",
  "#f9ab00",
  "#9334e6",
  "#7cb342",
  "#e8710a",
] as const;
const FIRST_IN_DARK = "#8e98a3";

export function runColour(index: number): string {
  const place = index % RUN_COLOURS.length;
  return place === 0 && dark.value ? FIRST_IN_DARK : (RUN_COLOURS[place] as string);
}

/** Seven colours wrap: the second round of runs is drawn dashed. */
export const runDash = (index: number): number[] =>
  Math.floor(index / RUN_COLOURS.length) % 2 === 1 ? [6, 3] : [];

/** Of what has no fill, so that nothing is drawn. */
export const NO_FILL: Fill = { colour: "none", pattern: "plain" };

export const plainFill = (colour: string): Fill => ({ colour, pattern: "plain" });

export function fillOf({ category, trainable }: Group): Fill {
  const colour = CATEGORY_COLOURS[scheme()][category];
  if (category === "unattributed") return { colour, pattern: "hatched" };
  if (category === "rounding") return { colour, pattern: "dotted" };
  const striped = trainable === false || category === "communication";
  return { colour, pattern: striped ? "diagonal" : "plain" };
}

export const categoryFill = (category: Category): Fill => fillOf({ category, trainable: null });

/** Of memory that no tensor takes, the same in every view. */
export function freeFill(part: "free" | "largest" | "other" | "unreserved"): Fill {
  const { free, background } = inks();
  return {
    colour: part === "unreserved" ? background : free,
    pattern: part === "other" ? "diagonal" : "plain",
  };
}

/** Memory of a device outside the pool: of this process, and of others. */
export const outsideFill = (part: "process_other" | "others"): Fill => ({
  colour: part === "others" ? inks().line : inks().faint,
  pattern: "diagonal",
});

/**
 * Shades for things that have no category colour of their own, such as layers, told apart by order
 * and label.
 */
export function sequence(count: number): string[] {
  const [from, to, saturation] = dark.value ? [44, 80, 72] : [34, 74, 82];
  return Array.from({ length: count }, (_, index) => {
    const position = count === 1 ? 0 : index / (count - 1);
    const hue = 14 + position * 34;
    const lightness = from + (to - from) * position + (index % 2 === 0 ? -3 : 3);
    return `hsl(${hue.toFixed(0)} ${saturation}% ${lightness.toFixed(0)}%)`;
  });
}

/** Colours for a few layers side by side, told apart by their legend as well. */
const LAYER_HUES = [215, 28, 150, 275, 340, 52, 190, 95];

export const LAYERS_TOLD_APART = LAYER_HUES.length;

export function layerColour(index: number): string {
  const hue = LAYER_HUES[index % LAYER_HUES.length] ?? 0;
  const [lightness, saturation] = dark.value ? [60, 62] : [33, 68];
  return `hsl(${hue} ${saturation}% ${lightness + (index % 2) * 5}%)`;
}

/**
 * From the oldest, 0, to the newest, 1: dark to light on a light ground, and the other way round.
 */
export function ageColour(position: number): string {
  const [from, to] = dark.value ? [82, 40] : [22, 74];
  const [hue, lightness] = [262 - 62 * position, from + (to - from) * position];
  return `hsl(${hue.toFixed(0)} 55% ${lightness.toFixed(0)}%)`;
}
