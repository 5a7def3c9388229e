/** Layers as areas. The largest are buttons; the rest is one area, for it could not be hit anyway. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { treemap } from "../charts/treemap-layout";
import { formatBytes, formatExact } from "../lib/bytes";
import { formatShare, plural } from "../lib/format";
import { CATEGORIES, categoryLabel, type Category } from "../model/categories";
import type { LayerFigures } from "../model/layer-figures";
import { distinctNames } from "../model/names";
import { fillOf } from "../theme/palette";
import { schemeOf, useStore } from "./context";

const AREAS = 60;

/** The category that holds most of a layer gives it its colour. */
const mainCategory = (layer: LayerFigures): Category =>
  CATEGORIES.reduce((best, category) => (layer.bytes[category] > layer.bytes[best] ? category : best), CATEGORIES[0]);

function useSize() {
  const host = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    if (!host.current) return undefined;
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
    });
    observer.observe(host.current);
    return () => observer.disconnect();
  }, []);
  return { host, ...size };
}

export function Treemap({ layers, total }: { layers: readonly LayerFigures[]; total: number }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { host, width, height } = useSize();
  const shown = useMemo(() => layers.filter(({ total: bytes }) => bytes > 0).sort((a, b) => b.total - a.total), [layers]);
  const largest = shown.slice(0, AREAS);
  const rest = shown.slice(AREAS).reduce((sum, { total: bytes }) => sum + bytes, 0);
  const rectangles = useMemo(() => treemap([...largest.map(({ total: bytes }) => bytes), rest], width, height), [shown, width, height]);
  const names = useMemo(() => distinctNames(largest.map(({ path }) => path ?? "no layer")), [shown]);
  const { layer: selected } = store.choices.value;
  return (
    <div class="treemap" ref={host} role="group" aria-label="Layers by bytes held">
      {rectangles.map(({ index, x, y, width: wide, height: high }) => {
        const layer = largest[index];
        const style = { left: `${x}px`, top: `${y}px`, width: `${wide}px`, height: `${high}px` };
        if (!layer) {
          return (
            <span key="rest" class="area rest" style={style} title={`${plural(shown.length - AREAS, "more layer")}\n${formatExact(rest)}`}>
              {plural(shown.length - AREAS, "more layer")}
            </span>
          );
        }
        const main = mainCategory(layer);
        const share = `${formatShare(layer.total / total)}, mostly ${categoryLabel(main)}`;
        const label = `${names[index]} ${formatBytes(layer.total)}, ${share}`;
        return (
          <button
            key={layer.path}
            type="button"
            class={`area ${layer.trainable === false ? "frozen" : ""}`}
            aria-pressed={layer.path !== null && selected === layer.path}
            style={{ ...style, "--fill": fillOf(main, null, scheme).colour }}
            title={`${layer.path ?? "no layer"}\n${formatExact(layer.total)}, ${share}`}
            aria-label={label}
            onClick={() => store.choose({ layer: selected === layer.path ? null : layer.path })}
          >
            {wide > 54 && high > 26 && <span class="area-name">{names[index]} </span>}
            {wide > 54 && high > 46 && <span class="area-size">{formatBytes(layer.total)}</span>}
          </button>
        );
      })}
    </div>
  );
}
