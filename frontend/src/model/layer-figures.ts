/** The layer table joined with the ledger of a traced step: bytes of each layer by category. */

import { CATEGORIES, type Category } from "./categories";
import type { LayersAnswer } from "./layers";
import { NOT_TIED } from "./names";
import type { LedgerRow } from "./snapshot";

export interface LayerFigures {
  /** Null: memory not tied to a layer. */
  path: string | null;
  type: string | null;
  trainable: boolean | null;
  parameters: number | null;
  output_shape: readonly number[] | null;
  output_dtype: string | null;
  /** Of one batch. */
  output_bytes: number | null;
  bytes: Record<Category, number>;
  total: number;
}

const nothing = (): Record<Category, number> => Object.fromEntries(CATEGORIES.map((category) => [category, 0])) as Record<Category, number>;

const sum = (bytes: Record<Category, number>): number => CATEGORIES.reduce((total, category) => total + bytes[category], 0);

/**
 * Every layer of the table in the model's order, then owners that only the ledger knows. With a ledger the figures are allocated bytes as
 * traced, and sum to the bytes in use; without one only weights and optimizer state are known, from the table.
 */
export function layerFigures(table: LayersAnswer | null, ledger: readonly LedgerRow[] | null): LayerFigures[] {
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
    const { path, type, trainable, parameters, output_shape, output_dtype, output_bytes } = layer;
    return { path, type, trainable, parameters, output_shape, output_dtype, output_bytes, bytes, total: sum(bytes) };
  });
  const others = [...owned].map(([path, bytes]): LayerFigures => ({
    path,
    type: null,
    trainable: null,
    parameters: null,
    output_shape: null,
    output_dtype: null,
    output_bytes: null,
    bytes,
    total: sum(bytes),
  }));
  return [...known, ...others];
}

export const GROUPINGS = ["none", "block", "type", "trainable"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export const SORT_KEYS = ["path", "type", "total", "output_bytes", ...CATEGORIES] as const;
export type SortKey = (typeof SORT_KEYS)[number];

export interface LayerGroup {
  /** Null for the only group when nothing is grouped. */
  title: string | null;
  layers: LayerFigures[];
  bytes: Record<Category, number>;
  total: number;
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
  if (key === "total") return (a, b) => b.total - a.total;
  if (key === "output_bytes") return (a, b) => (b.output_bytes ?? -1) - (a.output_bytes ?? -1);
  return (a, b) => b.bytes[key] - a.bytes[key];
}

/** Layers in groups with subtotals, both sorted; `key` null keeps the model's order. */
export function groupLayers(layers: readonly LayerFigures[], grouping: Grouping, key: SortKey | null): LayerGroup[] {
  const groups = new Map<string | null, LayerGroup>();
  for (const layer of layers) {
    const title = grouping === "none" ? null : titleOf(layer, grouping);
    const group = groups.get(title) ?? { title, layers: [], bytes: nothing(), total: 0 };
    group.layers.push(layer);
    group.total += layer.total;
    for (const category of CATEGORIES) group.bytes[category] += layer.bytes[category];
    groups.set(title, group);
  }
  const made = [...groups.values()];
  if (key === null) return made;
  for (const group of made) group.layers.sort(compare(key));
  if (key === "path" || key === "type") return made.sort((a, b) => (a.title ?? "").localeCompare(b.title ?? ""));
  // Outputs have no subtotal, because a model's is that of its last layer: the group with the largest one comes first.
  const largestOutput = ({ layers: sorted }: LayerGroup): number => sorted[0]?.output_bytes ?? -1;
  if (key === "output_bytes") return made.sort((a, b) => largestOutput(b) - largestOutput(a));
  return made.sort((a, b) => (key === "total" ? b.total - a.total : b.bytes[key] - a.bytes[key]));
}

/** "(batch, 64, 64, 64) float32". */
export function shapeText(layer: Pick<LayerFigures, "output_shape" | "output_dtype">): string {
  if (layer.output_shape === null) return "";
  const sizes = layer.output_shape.map((size, index) => (size >= 0 ? String(size) : index === 0 ? "batch" : "?"));
  return `(${sizes.join(", ")})${layer.output_dtype === null ? "" : ` ${layer.output_dtype}`}`;
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
