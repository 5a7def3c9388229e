/** The areas of the treemap: one for each of the largest layers, one for the others of each group. Pure. */

import { LETTER, shortened, treemap, type Rectangle } from "../../charts/layout";
import { formatBytes, formatShare, plural } from "../../lib/bytes";
import { PERSISTENT, categoryLabel, type Category } from "../../model/categories";
import type { LayerFigures, LayerGroup } from "../../model/layers";
import { NOT_TIED, distinctNames, shortName } from "../../model/run";
import { rankOf } from "../../model/snapshot";
import { fillOf, type Fill, type Scheme } from "../../theme/palette";

const AREAS = 60;

export interface Area {
  /** Null: all layers of the group that have no area of their own. */
  layer: LayerFigures | null;
  name: string;
  bytes: number;
  /** What it consists of, largest first: persistent categories, and activations that are saved for the backward pass. */
  parts: readonly Part[];
  /** The category of the largest part, which gives the area its colour. */
  main: Category | null;
  /** "41 %, mostly activations". */
  share: string;
  /** Number of layers in it. */
  count: number;
}

interface Part {
  category: Category;
  bytes: number;
}

/** A group of areas; without a title for the only group when nothing is grouped. */
interface Block {
  title: string | null;
  /** The title as short as the others allow. */
  name: string;
  bytes: number;
  /** Largest first. */
  areas: Area[];
}

const partsOf = ({ bytes, saved }: LayerFigures): Part[] =>
  [...PERSISTENT.map((category): Part => ({ category, bytes: bytes[category] })), { category: "activations" as const, bytes: saved }]
    .filter((part) => part.bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);

/** The groups with their layers by rank; the largest layers of all groups together have an area of their own. */
export function blocksOf(groups: readonly LayerGroup[], total: number): Block[] {
  const shown = groups.flatMap(({ layers }) => layers.filter((layer) => rankOf(layer) > 0)).sort((a, b) => rankOf(b) - rankOf(a));
  const largest = shown.slice(0, AREAS);
  const names = distinctNames(largest.map(({ path }) => path ?? NOT_TIED));
  const nameOf = new Map(largest.map((layer, index) => [layer, names[index] ?? ""]));
  const titles = distinctNames(groups.map(({ title }) => title ?? ""));
  const blocks = groups.map((group, index): Block => {
    const { title, layers } = group;
    const block = { title, name: titles[index] ?? "", bytes: rankOf(group) };
    const own = layers.filter((layer) => nameOf.has(layer)).sort((a, b) => rankOf(b) - rankOf(a));
    const areas = own.map((layer): Area => {
      const parts = partsOf(layer);
      const main = parts[0]?.category ?? "weights";
      const share = `${formatShare(rankOf(layer) / total)}, mostly ${categoryLabel(main)}`;
      return { layer, name: nameOf.get(layer) ?? "", bytes: rankOf(layer), parts, main, share, count: 1 };
    });
    const rest = layers.filter((layer) => rankOf(layer) > 0 && !nameOf.has(layer));
    if (rest.length === 0) return { ...block, areas };
    const left = rest.reduce((sum, layer) => sum + rankOf(layer), 0);
    const name = plural(rest.length, "more layer");
    const others: Area = { layer: null, name, bytes: left, parts: [], main: null, share: formatShare(left / total), count: rest.length };
    return { ...block, areas: [...areas, others] };
  });
  return blocks.filter(({ bytes }) => bytes > 0);
}

interface PlacedBlock extends Rectangle {
  block: Block;
  /** Height of the line with the title; 0 where there is no room for it. */
  head: number;
  areas: (Rectangle & { area: Area })[];
}

const HEAD = 18;
/** A title needs this much room, otherwise its areas take all of the block. */
const [LEAST_WIDTH, LEAST_HEIGHT] = [60, 2.5 * HEAD];

/** Blocks in proportion to their bytes, and in each its areas below its title. */
export function placeBlocks(blocks: readonly Block[], width: number, height: number): PlacedBlock[] {
  const boxes = treemap(
    blocks.map(({ bytes }) => bytes),
    width,
    height,
  );
  return boxes.flatMap((box): PlacedBlock[] => {
    const block = blocks[box.index];
    if (!block) return [];
    const head = block.title !== null && box.width >= LEAST_WIDTH && box.height >= LEAST_HEIGHT ? HEAD : 0;
    const inner = treemap(
      block.areas.map(({ bytes }) => bytes),
      box.width,
      box.height - head,
    );
    const areas = inner.flatMap((place) => {
      const area = block.areas[place.index];
      return area ? [{ ...place, x: box.x + place.x, y: box.y + head + place.y, area }] : [];
    });
    return [{ ...box, block, head, areas }];
  });
}

/** Frozen layers have the diagonal pattern in every view. */
export const areaFill = ({ layer, main }: Area, scheme: Scheme, rest: string): Fill =>
  main === null ? { colour: rest, pattern: "plain" } : fillOf(main, layer?.trainable === false ? false : null, scheme);

/** "trainable 122 MiB", as far as it fits. */
export const blockText = ({ block, width }: PlacedBlock): string =>
  shortened(`${block.name} ${formatBytes(block.bytes)}`, Math.floor((width - 8) / LETTER));

/** Areas up to this width in pixels have no text: little of a name would be left. */
const MOST_CUT = 72;

/** A name, or as much of its end as fits: names that begin alike differ there. */
const fitted = (name: string, letters: number): string =>
  shortened(name.length > letters && name.includes("/") ? `…/${shortName(name)}` : name, letters);

/** The text of an area, as far as it fits: about 7 pixels per letter, 16 per line. */
export function areaText({ name, bytes }: Area, width: number, height: number): string[] {
  return [fitted(name, Math.floor((width - 8) / LETTER)), formatBytes(bytes)].slice(
    0,
    width > MOST_CUT ? Math.floor((height - 6) / 16) : 0,
  );
}
