/** The layer table joined with the ledger of a traced step: bytes of each layer by category. */

import { formatBytes } from "../lib/bytes";
import { plural } from "../lib/format";
import { CATEGORIES, PERSISTENT, type Category } from "./categories";
import { trainingOf, type LayersAnswer, type Recomputed, type Training } from "./layers";
import { NOT_TIED } from "./names";
import { layerSizes, rankOf, type LedgerRow, type SavedRow } from "./snapshot";

export interface LayerFigures {
  /** Null: memory not tied to a layer. */
  path: string | null;
  type: string | null;
  /** The layer's own flag, which its rows of the ledger have as well. */
  trainable: boolean | null;
  /** Null: not in the layer table. */
  training: Training | null;
  parameters: number | null;
  output_shape: readonly number[] | null;
  output_dtype: string | null;
  /** Of one batch. */
  output_bytes: number | null;
  /** Null as well: not in the layer table. */
  recomputed: Recomputed | null;
  bytes: Record<Category, number>;
  total: number;
  /** Persistent memory, and what is saved for the backward pass: neither depends on the moment of the peak. */
  persistent: number;
  saved: number;
}

const nothing = (): Record<Category, number> => Object.fromEntries(CATEGORIES.map((category) => [category, 0])) as Record<Category, number>;

const sum = (bytes: Record<Category, number>, of: readonly Category[] = CATEGORIES): number =>
  of.reduce((total, category) => total + bytes[category], 0);

/**
 * Every layer of the table in the model's order, then owners that only the ledger knows. With a ledger the figures are its bytes: requested
 * ones by category and rounding apart, which sum to the bytes in use. Without one only weights and optimizer state are known, from the table.
 */
export function layerFigures(
  table: LayersAnswer | null,
  ledger: readonly LedgerRow[] | null,
  saved: readonly SavedRow[] = [],
): LayerFigures[] {
  const sizes = layerSizes(ledger ?? [], saved);
  const owned = new Map<string | null, Record<Category, number>>();
  for (const row of ledger ?? []) {
    const bytes = owned.get(row.layer) ?? nothing();
    bytes[row.category] += row.bytes;
    owned.set(row.layer, bytes);
  }
  const known = (table?.layers ?? []).map((layer): LayerFigures => {
    const ofTable = { ...nothing(), weights: layer.weight_bytes, optimizer_state: layer.optimizer_bytes };
    const bytes = ledger === null ? ofTable : (owned.get(layer.path) ?? nothing());
    owned.delete(layer.path);
    const { path, type, trainable, parameters, output_shape, output_dtype, output_bytes, recomputed } = layer;
    const facts = { path, type, trainable, training: trainingOf(layer), parameters, output_shape, output_dtype, output_bytes, recomputed };
    return { ...facts, bytes, total: sum(bytes), persistent: sum(bytes, PERSISTENT), saved: sizes.get(path)?.saved ?? 0 };
  });
  const untied = table?.other_optimizer_bytes ?? 0;
  if (ledger === null && untied > 0) {
    owned.set(null, { ...nothing(), optimizer_state: untied });
  }
  const others = [...owned].map(([path, bytes]): LayerFigures => ({
    path,
    type: null,
    trainable: null,
    training: null,
    parameters: null,
    output_shape: null,
    output_dtype: null,
    output_bytes: null,
    recomputed: null,
    bytes,
    total: sum(bytes),
    persistent: sum(bytes, PERSISTENT),
    saved: sizes.get(path)?.saved ?? 0,
  }));
  return [...known, ...others];
}

export const GROUPINGS = ["none", "block", "type", "trainable"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export const SORT_KEYS = ["path", "type", "parameters", "rank", "persistent", "saved", "total", "output_bytes", ...CATEGORIES] as const;
export type SortKey = (typeof SORT_KEYS)[number];

export interface LayerGroup {
  /** Null for the only group when nothing is grouped. */
  title: string | null;
  layers: LayerFigures[];
  parameters: number;
  bytes: Record<Category, number>;
  total: number;
  persistent: number;
  saved: number;
}

/** Why persistent memory and saved activations are more than the total, empty if they are not: they are of two moments. */
export const aboveTotal = (of: LayerFigures | LayerGroup): string =>
  rankOf(of) > of.total
    ? `More than the ${formatBytes(of.total)} at the peak: by then, activations saved by the forward pass were freed.`
    : "";

/** The sums of some layers. */
export function groupOf(title: string | null, layers: readonly LayerFigures[]): LayerGroup {
  const group: LayerGroup = { title, layers: [...layers], parameters: 0, bytes: nothing(), total: 0, persistent: 0, saved: 0 };
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
 * "3 layers" and more about them; of a group by trainable "15 with weights", because only layers with weights are counted as trainable or
 * frozen.
 */
export function countText({ layers }: LayerGroup, grouping: Grouping): { text: string; more: string } {
  const named = layers.filter(({ path }) => path !== null);
  const without = named.filter(({ training }) => training === "no weights").length;
  const text = named.length === 0 ? "" : plural(named.length, "layer");
  if (without === 0) return { text, more: text };
  const parts = `${named.length - without} with weights`;
  return { text: grouping === "trainable" ? parts : text, more: `${text}: ${parts}, ${without} without` };
}

function titleOf(layer: LayerFigures, grouping: Grouping): string {
  if (layer.path === null) return NOT_TIED;
  switch (grouping) {
    case "type":
      return layer.type ?? "unknown type";
    case "trainable":
      return layer.trainable === null ? "unknown" : layer.trainable ? "trainable" : "frozen";
    default: {
      // A block is the parent in the path and the name up to its last part: vgg16/block1_conv2 is in vgg16/block1.
      const cut = layer.path.lastIndexOf("_");
      const slash = layer.path.lastIndexOf("/");
      return cut > slash + 1 ? layer.path.slice(0, cut) : slash > 0 ? layer.path.slice(0, slash) : layer.path;
    }
  }
}

function compare(key: SortKey): (a: LayerFigures, b: LayerFigures) => number {
  if (key === "path" || key === "type") return (a, b) => (a[key] ?? "\uffff").localeCompare(b[key] ?? "\uffff");
  if (key === "output_bytes" || key === "parameters") return (a, b) => (b[key] ?? -1) - (a[key] ?? -1);
  return bySize(key);
}

/** The largest first; equal ones stay in the model's order. */
function bySize(key: Exclude<SortKey, "path" | "type" | "output_bytes" | "parameters">) {
  const size = (of: LayerFigures | LayerGroup): number => {
    if (key === "rank") return rankOf(of);
    return key === "total" || key === "persistent" || key === "saved" ? of[key] : of.bytes[key];
  };
  return (a: LayerFigures | LayerGroup, b: LayerFigures | LayerGroup): number => size(b) - size(a);
}

/** Layers in groups with subtotals, both sorted; `key` null keeps the model's order. */
export function groupLayers(layers: readonly LayerFigures[], grouping: Grouping, key: SortKey | null): LayerGroup[] {
  const members = new Map<string | null, LayerFigures[]>();
  for (const layer of layers) {
    const title = grouping === "none" ? null : titleOf(layer, grouping);
    const own = members.get(title) ?? [];
    own.push(layer);
    members.set(title, own);
  }
  const made = [...members].map(([title, own]) => groupOf(title, own));
  if (key === null) return made;
  for (const group of made) group.layers.sort(compare(key));
  if (key === "path" || key === "type") return made.sort((a, b) => (a.title ?? "").localeCompare(b.title ?? ""));
  // Outputs have no subtotal, because a model's is that of its last layer: the group with the largest one comes first.
  const largestOutput = ({ layers: sorted }: LayerGroup): number => sorted[0]?.output_bytes ?? -1;
  if (key === "output_bytes") return made.sort((a, b) => largestOutput(b) - largestOutput(a));
  if (key === "parameters") return made.sort((a, b) => b.parameters - a.parameters);
  return made.sort(bySize(key));
}

/** "(batch, 64, 64, 64)". */
export function sizesText({ output_shape }: Pick<LayerFigures, "output_shape">): string {
  if (output_shape === null) return "";
  return `(${output_shape.map((size, index) => (size >= 0 ? String(size) : index === 0 ? "batch" : "?")).join(", ")})`;
}

/** "(batch, 64, 64, 64) float32". */
export function shapeText(layer: Pick<LayerFigures, "output_shape" | "output_dtype">): string {
  if (layer.output_shape === null) return "";
  return `${sizesText(layer)}${layer.output_dtype === null ? "" : ` ${layer.output_dtype}`}`;
}

/** Shape and source of an output's size, or why it is unknown. */
export function outputFacts(layer: Pick<LayerFigures, "type" | "output_shape" | "output_dtype" | "output_bytes">): string[] {
  const missing = (why: string): string => `Output size unknown: ${why}.`;
  if (layer.type === null) return [missing("the layer is not in the layer table")];
  const source = "from the layer table (Keras)";
  if (layer.output_bytes !== null) return [`output of one batch, ${shapeText(layer)}`, source];
  if (layer.output_shape === null) return [missing("Keras reports no output shape"), source];
  return [missing(`a dimension is unknown, ${shapeText(layer)}`), source];
}
