/** The model's layer table at a step. */

import { formatBytes, plural, formatCount, tableOf, type Table, grouped } from "../lib/bytes";
import { NOT_TIED } from "./run";
import { layerSizes } from "./snapshot";
import {
  CATEGORIES,
  PERSISTENT,
  type Category,
  type Layer,
  type LayersAnswer,
  type LedgerRow,
  type SavedRow,
} from "../schema";

type Training = "frozen" | "trainable" | "no weights";

/**
 * A layer without weights is neither frozen nor trainable, whatever its flag: counts of layers
 * leave it out.
 */
export const trainingOf = ({
  trainable,
  weight_bytes,
}: Pick<Layer, "trainable" | "weight_bytes">): Training =>
  weight_bytes === 0 ? "no weights" : trainable ? "trainable" : "frozen";

const nothing = (): Record<Category, number> =>
  Object.fromEntries(CATEGORIES.map((category) => [category, 0])) as Record<Category, number>;

const sum = (bytes: Record<Category, number>, of: readonly Category[] = CATEGORIES): number =>
  of.reduce((total, category) => total + bytes[category], 0);

const figuresOf = (
  path: string | null,
  layer: Layer | null,
  bytes: Record<Category, number>,
  saved: number,
) => ({
  path,
  type: layer?.type ?? null,
  /** The layer's own flag, which its rows of the ledger have as well. */
  trainable: layer?.trainable ?? null,
  training: layer && trainingOf(layer),
  parameters: layer?.parameters ?? null,
  output_shape: layer?.output_shape ?? null,
  output_dtype: layer?.output_dtype ?? null,
  output_bytes: layer?.output_bytes ?? null,
  /** Null as well: not in the layer table. */
  recomputed: layer?.recomputed ?? null,
  bytes,
  total: sum(bytes),
  /**
   * Persistent memory, and what is saved for the backward pass: neither depends on the moment of
   * the peak.
   */
  persistent: sum(bytes, PERSISTENT),
  saved,
});

export type LayerFigures = ReturnType<typeof figuresOf>;

/**
 * Every layer of the table in the model's order, then owners that only the ledger knows. With a
 * ledger the figures are its bytes: requested ones by category and rounding apart, which sum to the
 * bytes in use. Without one only weights and optimizer state are known, from the table.
 */
export function layerFigures(
  table: LayersAnswer | null,
  ledger: readonly LedgerRow[] | null,
  saved: readonly SavedRow[] = [],
): LayerFigures[] {
  const sizes = layerSizes(ledger ?? [], saved);
  const savedOf = (path: string | null): number => sizes.get(path)?.saved ?? 0;
  const owned = new Map<string | null, Record<Category, number>>();
  for (const row of ledger ?? []) {
    const bytes = owned.get(row.layer) ?? nothing();
    bytes[row.category] += row.bytes;
    owned.set(row.layer, bytes);
  }
  const known = (table?.layers ?? []).map((layer) => {
    const ofTable = {
      ...nothing(),
      weights: layer.weight_bytes,
      optimizer_state: layer.optimizer_bytes,
    };
    const bytes = ledger === null ? ofTable : (owned.get(layer.path) ?? nothing());
    owned.delete(layer.path);
    return figuresOf(layer.path, layer, bytes, savedOf(layer.path));
  });
  const untied = table?.other_optimizer_bytes ?? 0;
  if (ledger === null && untied > 0) owned.set(null, { ...nothing(), optimizer_state: untied });
  return [
    ...known,
    ...[...owned].map(([path, bytes]) => figuresOf(path, null, bytes, savedOf(path))),
  ];
}

/** The categories of a layer or a group in the order of the stack, without those of no bytes. */
export const partsOf = ({ bytes }: LayerFigures | LayerGroup) =>
  CATEGORIES.filter((category) => bytes[category] > 0).map((category) => ({
    category,
    bytes: bytes[category],
  }));

export type NamedLayer = LayerFigures & { path: string };

/** The layers of a ledger, largest first; equal ones in alphabetical order. */
export const largestLayers = (ledger: readonly LedgerRow[]): NamedLayer[] =>
  layerFigures(null, ledger)
    .filter((layer): layer is NamedLayer => layer.path !== null)
    .sort((a, b) => b.total - a.total || a.path.localeCompare(b.path));

export const GROUPINGS = ["none", "block", "type", "trainable"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export const SORT_KEYS = [
  "path",
  "type",
  "parameters",
  "total",
  "persistent",
  "saved",
  "output_bytes",
  ...CATEGORIES,
] as const;
export type SortKey = (typeof SORT_KEYS)[number];

export type LayerGroup = ReturnType<typeof groupOf>;

/**
 * Why persistent memory and saved activations are more than the total, empty if they are not: they
 * are of two moments.
 */
export const aboveTotal = (of: LayerFigures | LayerGroup): string =>
  of.persistent + of.saved > of.total
    ? `More than the ${formatBytes(of.total)} at the peak: by then, activations saved by the forward pass were freed.`
    : "";

export function groupOf(title: string | null, layers: readonly LayerFigures[]) {
  const group = {
    title,
    layers: [...layers],
    parameters: 0,
    bytes: nothing(),
    total: 0,
    persistent: 0,
    saved: 0,
  };
  for (const layer of layers) {
    group.parameters += layer.parameters ?? 0;
    group.total += layer.total;
    group.persistent += layer.persistent;
    group.saved += layer.saved;
    for (const category of CATEGORIES) group.bytes[category] += layer.bytes[category];
  }
  return group;
}

/**
 * "3 layers" and more about them; of a group by trainable "15 with weights", because only layers
 * with weights are counted as trainable or frozen.
 */
export function countText(
  { layers }: LayerGroup,
  grouping: Grouping,
): { text: string; more: string } {
  const named = layers.filter(({ path }) => path !== null);
  const without = named.filter(({ training }) => training === "no weights").length;
  const text = named.length === 0 ? "" : plural(named.length, "layer");
  if (without === 0) return { text, more: text };
  const parts = `${named.length - without} with weights`;
  return {
    text: grouping === "trainable" ? parts : text,
    more: `${text}: ${parts}, ${without} without`,
  };
}

/**
 * The parent in the path and the name up to its last part: vgg16/block1_conv2 is in the block
 * vgg16/block1.
 */
export function blockOf(path: string): string {
  const cut = path.lastIndexOf("_");
  const slash = path.lastIndexOf("/");
  return cut > slash + 1 ? path.slice(0, cut) : slash > 0 ? path.slice(0, slash) : path;
}

export function groupTitle(layer: LayerFigures, grouping: Grouping): string {
  if (layer.path === null) return NOT_TIED;
  switch (grouping) {
    case "type":
      return layer.type ?? "unknown type";
    case "trainable":
      return layer.trainable === null ? "unknown" : layer.trainable ? "trainable" : "frozen";
    default:
      return blockOf(layer.path);
  }
}

function compare(key: SortKey): (a: LayerFigures, b: LayerFigures) => number {
  if (key === "path" || key === "type")
    return (a, b) => (a[key] ?? "\uffff").localeCompare(b[key] ?? "\uffff");
  if (key === "output_bytes" || key === "parameters")
    return (a, b) => (b[key] ?? -1) - (a[key] ?? -1);
  return bySize(key);
}

function bySize(key: Exclude<SortKey, "path" | "type" | "output_bytes" | "parameters">) {
  const size = (of: LayerFigures | LayerGroup): number =>
    key === "total" || key === "persistent" || key === "saved" ? of[key] : of.bytes[key];
  return (a: LayerFigures | LayerGroup, b: LayerFigures | LayerGroup): number => size(b) - size(a);
}

export function groupLayers(
  layers: readonly LayerFigures[],
  grouping: Grouping,
  key: SortKey | null,
): LayerGroup[] {
  const members = grouped(layers, (layer) =>
    grouping === "none" ? null : groupTitle(layer, grouping),
  );
  const made = [...members].map(([title, own]) => groupOf(title, own));
  if (key === null) return made;
  for (const group of made) group.layers.sort(compare(key));
  if (key === "path" || key === "type")
    return made.sort((a, b) => (a.title ?? "").localeCompare(b.title ?? ""));
  // Outputs have no subtotal, because a model's is that of its last layer: the group with the
  // largest one comes first.
  const largestOutput = ({ layers: sorted }: LayerGroup): number => sorted[0]?.output_bytes ?? -1;
  if (key === "output_bytes") return made.sort((a, b) => largestOutput(b) - largestOutput(a));
  if (key === "parameters") return made.sort((a, b) => b.parameters - a.parameters);
  return made.sort(bySize(key));
}

export function sizesText({ output_shape }: Pick<LayerFigures, "output_shape">): string {
  if (output_shape === null) return "";
  return `(${output_shape.map((size, index) => (size >= 0 ? String(size) : index === 0 ? "batch" : "?")).join(", ")})`;
}

export function shapeText(layer: Pick<LayerFigures, "output_shape" | "output_dtype">): string {
  if (layer.output_shape === null) return "";
  return `${sizesText(layer)}${layer.output_dtype === null ? "" : ` ${layer.output_dtype}`}`;
}

export function outputFacts(
  layer: Pick<LayerFigures, "type" | "output_shape" | "output_dtype" | "output_bytes">,
): string[] {
  const missing = (why: string): string => `Output size unknown: ${why}.`;
  if (layer.type === null) return [missing("the layer is not in the layer table")];
  const source = "from the layer table (Keras)";
  if (layer.output_bytes !== null) return [`output of one batch, ${shapeText(layer)}`, source];
  if (layer.output_shape === null) return [missing("Keras reports no output shape"), source];
  return [missing(`a dimension is unknown, ${shapeText(layer)}`), source];
}

/** Bytes of one element, null for an unknown dtype. */
export function dtypeBytes(dtype: string): number | null {
  const bits =
    dtype === "bool" ? 8 : /^(?:u?int|b?float|complex)(8|16|32|64|128)$/.exec(dtype)?.[1];
  return bits === undefined ? null : Number(bits) / 8;
}

/** Bytes of the output for one example, null if a dimension or the dtype is unknown. */
export function exampleBytes({ output_shape: shape, output_dtype: dtype }: Layer): number | null {
  const size = dtypeBytes(dtype ?? "");
  if (shape === null || size === null || shape.slice(1).some((one) => one < 0)) return null;
  return shape.slice(1).reduce((product, one) => product * one, size);
}

/** "" for once, "2 × " for twice, and so on: null unless `bytes` are that many times `one`. */
function times(bytes: number, one: number, most: number): string | null {
  const count = bytes / one;
  if (!Number.isInteger(count) || count < 1 || count > most) return null;
  return count === 1 ? "" : `${formatCount(count)} × `;
}

/** Larger multiples of an output are chance. */
const MOST_OUTPUTS = 4;

function ofOutput(
  layer: Layer,
  bytes: number,
  batch: number | null,
  size: (bytes: number) => string,
): string | null {
  const whole = (exampleBytes(layer) ?? NaN) * (batch ?? NaN);
  const count = times(bytes, whole, MOST_OUTPUTS);
  if (count === null || batch === null) return null;
  const sizes = [batch, ...(layer.output_shape ?? []).slice(1)].map(formatCount);
  const made = [...sizes, `${dtypeBytes(layer.output_dtype ?? "") ?? "?"} B`].join(" × ");
  return `${count}the output of a batch of ${formatCount(batch)}: ${count}${made} = ${size(bytes)}`;
}

export interface FormulaStep {
  optimizer: string | null;
  batch_size: number | null;
}

/**
 * How a figure follows from shapes; null where it does not. `size` formats bytes: tooltips have few
 * digits.
 */
export function formula(
  category: Category,
  layer: Layer | null,
  bytes: number,
  { optimizer, batch_size }: FormulaStep,
  size: (bytes: number) => string = formatBytes,
): string | null {
  if (layer === null) return null;
  const { parameters, weight_bytes, trainable_weight_bytes: trainable, optimizer_bytes } = layer;
  switch (category) {
    case "weights":
      return bytes === weight_bytes && bytes % parameters === 0
        ? `${formatCount(parameters)} parameters × ${bytes / parameters} B = ${size(bytes)}`
        : null;
    case "optimizer_state":
    case "weight_gradients": {
      const count = times(bytes, trainable, Infinity);
      if (count === null || (category === "optimizer_state" && bytes !== optimizer_bytes))
        return null;
      const keeper = category === "optimizer_state" ? `${optimizer ?? "the optimizer"} keeps ` : "";
      return `${keeper}${count}the trainable weights: ${count && `${count}${size(trainable)} = `}${size(bytes)}`;
    }
    case "activations":
    case "activation_gradients":
      return ofOutput(layer, bytes, batch_size, size);
    default:
      return null;
  }
}

export const layerFile = (layers: readonly LayerFigures[]): Table =>
  tableOf(layers, {
    layer: ({ path }) => path,
    type: ({ type }) => type,
    training: ({ training }) => training,
    recomputed: ({ recomputed }) => recomputed,
    parameters: ({ parameters }) => parameters,
    output: shapeText,
    output_bytes: ({ output_bytes }) => output_bytes,
    persistent_bytes: ({ persistent }) => persistent,
    saved_bytes: ({ saved }) => saved,
    total_bytes: ({ total }) => total,
    ...Object.fromEntries(
      CATEGORIES.map((category) => [category, ({ bytes }: LayerFigures) => bytes[category]]),
    ),
  });
