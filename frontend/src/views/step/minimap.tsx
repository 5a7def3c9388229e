/** The whole step in a narrow strip: the bytes in use, and the shown range as a box to drag and resize. */

import { useMemo, useRef } from "preact/hooks";

import { panned, zoomed } from "../../charts/map-layout";
import { totalPath, type TimelineLayout } from "../../charts/timeline-layout";
import type { Box } from "../shared/chart";
import type { Zoom } from "./use-zoom";

const HEIGHT = 30;

interface Drag {
  /** What is held: an edge of the box, or all of it. */
  grip: string;
  /** Where on the x-axis, and the range then. */
  at: number;
  from: number;
  to: number;
}

/** Keys as in the chart. */
function keysOf({ range, whole, show, reset }: Zoom): Record<string, () => void> {
  const middle = (range[0] + range[1]) / 2;
  const pan = (share: number) => () => show(panned(range, whole, share, 0));
  const zoom = (factor: number) => () => show(zoomed(range, whole, middle, factor, 0));
  const [left, right, nearer, farther] = [pan(-0.25), pan(0.25), zoom(0.5), zoom(2)];
  const all = { ArrowLeft: left, a: left, ArrowRight: right, d: right, "+": nearer, "=": nearer, w: nearer, "-": farther, s: farther };
  return { ...all, Home: pan(-Infinity), End: pan(Infinity), "0": reset };
}

/** Handlers of the strip: the box, or one of its edges, follows the pointer. */
function useDrag(zoom: Zoom) {
  const { whole, show } = zoom;
  const drag = useRef<Drag | null>(null);
  const length = whole[1] - whole[0];
  const at = (event: PointerEvent): number => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    return whole[0] + ((event.clientX - left) / width) * length;
  };
  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const strip = event.currentTarget as Element;
    strip.setPointerCapture(event.pointerId);
    const grip = (event.target as HTMLElement).dataset.grip;
    let [from, to] = zoom.latest();
    if (grip === undefined) {
      // Beside the box: it comes here.
      [from, to] = [at(event) - (to - from) / 2, at(event) + (to - from) / 2];
      show([from, to], true);
    }
    drag.current = { grip: grip ?? "both", at: at(event), from, to };
  };
  const move = (event: PointerEvent): void => {
    if (!drag.current) return;
    const { grip, at: held, from, to } = drag.current;
    const distance = at(event) - held;
    const edges = [grip === "to" ? from : from + distance, grip === "from" ? to : to + distance];
    show([Math.min(...edges), Math.max(...edges)], true);
  };
  const onPointerUp = (): void => void (drag.current = null);
  return { onPointerDown: down, onPointerMove: move, onPointerUp, onPointerCancel: onPointerUp };
}

interface MinimapProps {
  layout: TimelineLayout;
  zoom: Zoom;
  /** The plot below it. */
  box: Box;
  /** The peak's place on the x-axis. */
  peak: number;
  /** "1 ms to 3 ms": the shown range. */
  label: string;
}

export function Minimap({ layout, zoom, box, peak, label }: MinimapProps) {
  const { range, whole } = zoom;
  const length = whole[1] - whole[0];
  const path = useMemo(() => totalPath(layout, whole, box.width, HEIGHT), [layout, box.width]);
  const place = (value: number): string => `${(100 * (value - whole[0])) / length}%`;
  const keys = keysOf(zoom);
  return (
    <div class="minimap" style={{ marginLeft: `${box.left}px`, width: `${box.width}px` }} {...useDrag(zoom)} onDblClick={zoom.reset}>
      <svg viewBox={`0 0 ${box.width} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        <path d={path} />
      </svg>
      <i class="minimap-peak" style={{ left: place(peak) }} />
      <div
        class="minimap-box"
        style={{ left: place(range[0]), width: `${(100 * (range[1] - range[0])) / length}%` }}
        data-grip="both"
        role="scrollbar"
        tabIndex={0}
        aria-controls="step-chart"
        aria-label="Shown part of the step"
        aria-orientation="horizontal"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round((50 * (range[0] + range[1] - 2 * whole[0])) / length)}
        aria-valuetext={label}
        onKeyDown={(event) => {
          const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
          if (!act) return;
          event.preventDefault();
          act();
        }}
      >
        <i data-grip="from" />
        <i data-grip="to" />
      </div>
    </div>
  );
}
