/** Layers as areas in the groups of the table, on the page as buttons and saved as a drawing. */

import { useMemo } from "preact/hooks";

import type { Rectangle } from "../../charts/layout";
import { formatBytes } from "../../lib/bytes";
import { categoryLabel } from "../../model/categories";
import type { LayerGroup } from "../../model/layers";
import { NOT_TIED } from "../../model/run";
import { fillOf, INKS, type Ink, type Scheme } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { useSize } from "../shared/size";
import { Patterns, SvgDrawing, svgFill } from "../shared/svg";
import { tipOf } from "../shared/tips";
import { areaFill, areaText, blockText, blocksOf, placeBlocks, type Area } from "./treemap-layers";

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

/** The text of a rectangle on a plate that the pattern does not show through. */
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

/** The same areas as a drawing that can be saved. */
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
