/** Layers as areas in the groups of the table, on the page as buttons and saved as a drawing. */

import { useMemo } from "preact/hooks";

import { LETTER, shortened, treemap, type Rectangle } from "../../charts/layout";
import { formatBytes, formatShare, plural } from "../../lib/bytes";
import { categoryLabel } from "../../model/categories";
import type { LayerGroup, LayerFigures } from "../../model/layers";
import { NOT_TIED, distinctNames, shortName } from "../../model/run";
import { rankOf } from "../../model/snapshot";
import { fillOf, INKS, type Ink, type Scheme, type Fill } from "../../theme/palette";
import { schemeOf, useStore, useSize } from "../shared/context";
import { Patterns, SvgDrawing, svgFill } from "../shared/export";
import { tipOf } from "../shared/tips";
import { PERSISTENT, type Category } from "../../schema";

const AREAS = 60;

export interface Area {
  layer: LayerFigures | null;
  name: string;
  bytes: number;
  /** What it consists of, largest first: persistent categories, and activations that are saved for the backward pass. */
  parts: readonly Part[];
  main: Category | null;
  share: string;
  count: number;
}

interface Part {
  category: Category;
  bytes: number;
}

interface Block {
  title: string | null;
  name: string;
  bytes: number;
  areas: Area[];
}

const partsOf = ({ bytes, saved }: LayerFigures): Part[] =>
  [...PERSISTENT.map((category): Part => ({ category, bytes: bytes[category] })), { category: "activations" as const, bytes: saved }]
    .filter((part) => part.bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);

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
  head: number;
  areas: (Rectangle & { area: Area })[];
}

const HEAD = 18;
/** A title needs this much room, otherwise its areas take all of the block. */
const [LEAST_WIDTH, LEAST_HEIGHT] = [60, 2.5 * HEAD];

export function placeBlocks(blocks: readonly Block[], width: number, height: number): PlacedBlock[] {
  const sizesOf = (all: readonly { bytes: number }[]): number[] => all.map(({ bytes }) => bytes);
  const boxes = treemap(sizesOf(blocks), width, height);
  return boxes.flatMap((box): PlacedBlock[] => {
    const block = blocks[box.index];
    if (!block) return [];
    const head = block.title !== null && box.width >= LEAST_WIDTH && box.height >= LEAST_HEIGHT ? HEAD : 0;
    const inner = treemap(sizesOf(block.areas), box.width, box.height - head);
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

export const blockText = ({ block, width }: PlacedBlock): string =>
  shortened(`${block.name} ${formatBytes(block.bytes)}`, Math.floor((width - 8) / LETTER));

/** Areas up to this width in pixels have no text: little of a name would be left. */
const MOST_CUT = 72;

/** A name, or as much of its end as fits: names that begin alike differ there. */
const fitted = (name: string, letters: number): string =>
  shortened(name.length > letters && name.includes("/") ? `…/${shortName(name)}` : name, letters);

export function areaText({ name, bytes }: Area, width: number, height: number): string[] {
  return [fitted(name, Math.floor((width - 8) / LETTER)), formatBytes(bytes)].slice(
    0,
    width > MOST_CUT ? Math.floor((height - 6) / 16) : 0,
  );
}

interface TreemapProps {
  groups: readonly LayerGroup[];
  total: number;
}

const styleOf = ({ x, y, width, height }: Rectangle): Record<string, string> => ({
  left: `${x}px`,
  top: `${y}px`,
  width: `${width}px`,
  height: `${height}px`,
});

/** A path whose end stays when there is no room: names that begin alike differ there. */
function AreaName({ name }: { name: string }) {
  const end = name.lastIndexOf("/") + 1;
  return (
    <span class="area-name">
      <span>{name.slice(0, end)}</span>
      <span>{name.slice(end)} </span>
    </span>
  );
}

function AreaButton({ area, place }: { area: Area; place: Rectangle }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { layer: selected, category } = store.choices.value;
  const { layer, name, bytes, main, parts, share } = area;
  const made = parts.map(
    (part) => `${part.category === "activations" ? "saved activations" : categoryLabel(part.category)} ${formatBytes(part.bytes)}`,
  );
  const tip = tipOf(bytes, `${layer === null ? name : (layer.path ?? NOT_TIED)}: persistent + saved`, share, made.join(", "));
  if (layer === null || main === null) {
    return (
      <span class="area rest" style={styleOf(place)} data-figure="others" data-bytes={bytes} data-tip={tip}>
        {place.width > 54 && place.height > 22 && name}
      </span>
    );
  }
  const muted = category !== null && !parts.some((part) => part.category === category);
  const lines = areaText(area, place.width, place.height);
  return (
    <button
      type="button"
      class={`area ${layer.trainable === false ? "frozen" : ""} ${muted ? "muted" : ""}`}
      aria-pressed={layer.path !== null && selected === layer.path}
      style={{ ...styleOf(place), "--fill": fillOf(main, null, scheme).colour }}
      data-figure="rank"
      data-layer={layer.path ?? ""}
      data-bytes={bytes}
      data-tip={tip}
      aria-label={`${name} ${formatBytes(bytes)}, ${share}`}
      onClick={() => store.choose({ layer: selected === layer.path ? null : layer.path })}
    >
      {lines.length > 0 && <AreaName name={name} />}
      {lines.length > 1 && <span class="area-size">{lines[1]}</span>}
      <span class="area-parts" aria-hidden="true">
        {parts.map((part) => {
          const fill = fillOf(part.category, layer.trainable === false ? false : null, scheme);
          return (
            <i
              key={part.category}
              class={`fill ${fill.pattern}`}
              style={{ "--fill": fill.colour, width: `${(part.bytes / bytes) * 100}%` }}
            />
          );
        })}
      </span>
    </button>
  );
}

export function Treemap({ groups, total }: TreemapProps) {
  const { host, width, height } = useSize();
  const blocks = useMemo(() => blocksOf(groups, total), [groups, total]);
  const placed = useMemo(() => placeBlocks(blocks, width, height), [blocks, width, height]);
  return (
    <div class="treemap" ref={host} role="group" aria-label="Layers by persistent and saved memory" data-testid="treemap">
      {placed.map((one) => (
        <div key={one.block.title} class="block" data-block={one.block.title} role="group" aria-label={one.block.title ?? "all layers"}>
          {one.head > 0 && (
            <span
              class="block-title"
              style={styleOf({ ...one, height: one.head })}
              data-figure="rank"
              data-group={one.block.title}
              data-bytes={one.block.bytes}
              data-tip={tipOf(one.block.bytes, one.block.title ?? "")}
            >
              {blockText(one)}
            </span>
          )}
          {one.areas.map(({ area, ...place }) => (
            <AreaButton key={area.layer?.path ?? area.name} area={area} place={place} />
          ))}
        </div>
      ))}
    </div>
  );
}

const [WIDTH, HEIGHT] = [1200, 600];

function Plate({ lines, x, y, ink }: { lines: readonly string[]; x: number; y: number; ink: Ink }) {
  if (lines.length === 0) return null;
  const room = Math.max(...lines.map((line) => line.length)) * 6.6 + 8;
  return (
    <>
      <rect x={x + 3} y={y + 3} width={room} height={16 * lines.length + 2} fill={ink.background} opacity="0.9" />
      {lines.map((line, row) => (
        <text key={row} x={x + 7} y={y + 16 + 16 * row} fill={ink.text}>
          {line}
        </text>
      ))}
    </>
  );
}

export function TreemapDrawing({ groups, total, title, scheme }: TreemapProps & { title: string; scheme: Scheme }) {
  const ink = INKS[scheme];
  const placed = placeBlocks(blocksOf(groups, total), WIDTH, HEIGHT);
  const areas = placed.flatMap((one) => one.areas);
  const fills = areas.map(({ area }) => areaFill(area, scheme, ink.shade));
  return (
    <SvgDrawing title={title} width={WIDTH} height={HEIGHT} ink={ink}>
      <Patterns fills={fills} ground={ink.background} />
      {areas.map(({ area, x, y, width, height }, index) => {
        const fill = fills[index];
        return (
          fill && (
            <g key={index}>
              <title>{`${area.layer?.path ?? area.name}: ${formatBytes(area.bytes)}, ${area.share}`}</title>
              <rect x={x} y={y} width={width} height={height} fill={svgFill(fill)} stroke={ink.background} />
              <Plate lines={areaText(area, width, height)} x={x} y={y} ink={ink} />
            </g>
          )
        );
      })}
      {placed.map(
        (one, index) =>
          one.head > 0 && (
            <text key={`title ${index}`} x={one.x + 4} y={one.y + 13} fill={ink.text} font-weight="500">
              {blockText(one)}
            </text>
          ),
      )}
    </SvgDrawing>
  );
}
