/** The areas of the treemap: one for each of the largest layers, one for all others. Pure. */

import { treemap, type Rectangle } from "../../charts/treemap-layout";
import { formatBytes } from "../../lib/bytes";
import { formatShare } from "../../lib/format";
import { CATEGORIES, categoryLabel, type Category } from "../../model/categories";
import type { LayerFigures } from "../../model/layer-figures";
import { NOT_TIED, distinctNames } from "../../model/names";
import { fillOf, type Fill, type Scheme } from "../../theme/palette";

const AREAS = 60;

export interface Area {
  /** Null: all layers that have no area of their own. */
  layer: LayerFigures | null;
  name: string;
  bytes: number;
  /** The layer's largest category, which gives the area its colour. */
  main: Category | null;
  /** "41 %, mostly activations". */
  share: string;
  /** Number of layers in it. */
  count: number;
}

const mainCategory = (layer: LayerFigures): Category =>
  CATEGORIES.reduce((best, category) => (layer.bytes[category] > layer.bytes[best] ? category : best), CATEGORIES[0]);

export function areasOf(layers: readonly LayerFigures[], total: number): Area[] {
  const shown = layers.filter(({ total: bytes }) => bytes > 0).sort((a, b) => b.total - a.total);
  const largest = shown.slice(0, AREAS);
  const names = distinctNames(largest.map(({ path }) => path ?? NOT_TIED));
  const areas = largest.map((layer, index): Area => {
    const main = mainCategory(layer);
    const share = `${formatShare(layer.total / total)}, mostly ${categoryLabel(main)}`;
    return { layer, name: names[index] ?? "", bytes: layer.total, main, share, count: 1 };
  });
  const rest = shown.slice(AREAS);
  if (rest.length === 0) return areas;
  const bytes = rest.reduce((sum, { total: one }) => sum + one, 0);
  const name = `${rest.length} more ${rest.length === 1 ? "layer" : "layers"}`;
  return [...areas, { layer: null, name, bytes, main: null, share: formatShare(bytes / total), count: rest.length }];
}

export const placeAreas = (areas: readonly Area[], width: number, height: number): Rectangle[] =>
  treemap(
    areas.map(({ bytes }) => bytes),
    width,
    height,
  );

/** Frozen layers have the diagonal pattern in every view. */
export const areaFill = ({ layer, main }: Area, scheme: Scheme, rest: string): Fill =>
  main === null ? { colour: rest, pattern: "plain" } : fillOf(main, layer?.trainable === false ? false : null, scheme);

/** The text of an area, as far as it fits: about 7 pixels per letter, 16 per line. */
export function areaText({ name, bytes }: Area, width: number, height: number): string[] {
  const letters = Math.floor((width - 8) / 7);
  const short = name.length > letters ? `${name.slice(0, Math.max(letters - 1, 0))}…` : name;
  return [short, formatBytes(bytes)].slice(0, width > 54 ? Math.floor((height - 6) / 16) : 0);
}
