/** Layers as areas, on the page as buttons and saved as a drawing. */

import { useMemo } from "preact/hooks";

import { formatBytes } from "../../lib/bytes";
import type { LayerFigures } from "../../model/layer-figures";
import { NOT_TIED } from "../../model/names";
import { fillOf, INKS, type Scheme } from "../../theme/palette";
import { schemeOf, useStore } from "../shared/context";
import { useSize } from "../shared/size";
import { Patterns, SvgDrawing, svgFill } from "../shared/svg";
import { tipOf } from "../shared/tips";
import { areaFill, areaText, areasOf, placeAreas } from "./treemap-layers";

interface TreemapProps {
  layers: readonly LayerFigures[];
  total: number;
}

export function Treemap({ layers, total }: TreemapProps) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { host, width, height } = useSize();
  const areas = useMemo(() => areasOf(layers, total), [layers, total]);
  const rectangles = useMemo(() => placeAreas(areas, width, height), [areas, width, height]);
  const { layer: selected, category } = store.choices.value;
  return (
    <div class="treemap" ref={host} role="group" aria-label="Layers by memory">
      {rectangles.map(({ index, x, y, width: wide, height: high }) => {
        const area = areas[index];
        if (!area) return null;
        const style = { left: `${x}px`, top: `${y}px`, width: `${wide}px`, height: `${high}px` };
        const { layer, name, bytes, main, share } = area;
        const tip = tipOf(bytes, layer === null ? name : (layer.path ?? NOT_TIED), share);
        if (layer === null || main === null) {
          return (
            <span key="rest" class="area rest" style={style} data-tip={tip}>
              {name}
            </span>
          );
        }
        const muted = category !== null && category !== main;
        return (
          <button
            key={layer.path}
            type="button"
            class={`area ${layer.trainable === false ? "frozen" : ""} ${muted ? "muted" : ""}`}
            aria-pressed={layer.path !== null && selected === layer.path}
            style={{ ...style, "--fill": fillOf(main, null, scheme).colour }}
            data-tip={tip}
            aria-label={`${name} ${formatBytes(bytes)}, ${share}`}
            onClick={() => store.choose({ layer: selected === layer.path ? null : layer.path })}
          >
            {wide > 54 && high > 26 && <span class="area-name">{name} </span>}
            {wide > 54 && high > 46 && <span class="area-size">{formatBytes(bytes)}</span>}
          </button>
        );
      })}
    </div>
  );
}

const [WIDTH, HEIGHT] = [1200, 600];

/** The same areas as a drawing that can be saved. */
export function TreemapDrawing({ layers, total, title, scheme }: TreemapProps & { title: string; scheme: Scheme }) {
  const ink = INKS[scheme];
  const areas = areasOf(layers, total);
  const fills = areas.map((area) => areaFill(area, scheme, ink.idle));
  return (
    <SvgDrawing title={title} width={WIDTH} height={HEIGHT} ink={ink}>
      <Patterns fills={fills} ground={ink.background} />
      {placeAreas(areas, WIDTH, HEIGHT).map(({ index, x, y, width, height }) => {
        const [area, fill] = [areas[index], fills[index]];
        if (!area || !fill) return null;
        const lines = areaText(area, width, height);
        const room = Math.max(...lines.map((line) => line.length)) * 6.6 + 8;
        return (
          <g key={index}>
            <title>{`${area.layer?.path ?? area.name}: ${formatBytes(area.bytes)}, ${area.share}`}</title>
            <rect x={x} y={y} width={width} height={height} fill={svgFill(fill)} stroke={ink.background} />
            {lines.length > 0 && (
              <rect x={x + 3} y={y + 3} width={room} height={16 * lines.length + 2} fill={ink.background} opacity="0.9" />
            )}
            {lines.map((line, row) => (
              <text key={row} x={x + 7} y={y + 16 + 16 * row} fill={ink.text}>
                {line}
              </text>
            ))}
          </g>
        );
      })}
    </SvgDrawing>
  );
}
