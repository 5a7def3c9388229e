/**
 * The shown range of a step: a strip of the whole step with a box to drag, wheel and touchpad, and
 * the span in the address.
 */

import { useMemo, useRef, useEffect, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import type { StackLayout } from "../../charts/layout";
import { panned, zoomed, clamped } from "../../charts/map-layout";
import { totalPath, rangeOfSpan, spanOfRange } from "../../charts/timeline-layout";
import { later } from "../../lib/activity";
import type { Box } from "../shared/chart-props";
import { useStore, useChoices } from "../shared/context";
import { zoomKeys, actOnKey } from "../shared/controls";

const HEIGHT = 30;

interface Drag {
  grip: string;
  /** Where on the x-axis, and the range then. */
  at: number;
  from: number;
  to: number;
}

function keysOf({ range, whole, show, reset }: Zoom): Record<string, () => void> {
  const middle = (range[0] + range[1]) / 2;
  const pan = (share: number) => show(panned(range, whole, share, 0));
  return {
    ...zoomKeys((factor) => show(zoomed(range, whole, middle, factor, 0)), pan, reset),
    ArrowLeft: () => pan(-0.25),
    ArrowRight: () => pan(0.25),
    Home: () => pan(-Infinity),
    End: () => pan(Infinity),
  };
}

function useDrag(zoom: Zoom) {
  const { whole, show } = zoom;
  const drag = useRef<Drag | null>(null);
  const length = whole[1] - whole[0];
  const at = (event: PointerEvent): number => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    return whole[0] + ((event.clientX - left) / width) * length;
  };
  const down = (event: PointerEvent) => {
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
  const move = (event: PointerEvent) => {
    if (!drag.current) return;
    const { grip, at: held, from, to } = drag.current;
    const distance = at(event) - held;
    const edges = [grip === "to" ? from : from + distance, grip === "from" ? to : to + distance];
    show([Math.min(...edges), Math.max(...edges)], true);
  };
  const onPointerUp = () => void (drag.current = null);
  return { onPointerDown: down, onPointerMove: move, onPointerUp, onPointerCancel: onPointerUp };
}

export function Minimap({
  layout,
  zoom,
  box,
  peak,
  label,
}: {
  layout: StackLayout;
  zoom: Zoom;
  box: Box;
  peak: number;
  label: string;
}) {
  const { range, whole } = zoom;
  const length = whole[1] - whole[0];
  const path = useMemo(() => totalPath(layout, whole, box.width, HEIGHT), [layout, box.width]);
  const place = (value: number): string => `${(100 * (value - whole[0])) / length}%`;
  return (
    <div
      class="minimap"
      style={{ marginLeft: `${box.left}px`, width: `${box.width}px` }}
      {...useDrag(zoom)}
      onDblClick={zoom.reset}
    >
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
        onKeyDown={(event) => actOnKey(event, keysOf(zoom))}
      >
        <i data-grip="from" />
        <i data-grip="to" />
      </div>
    </div>
  );
}

/** After this time without another turn of the wheel, the zoom goes into the address. */
const SETTLED_MS = 150;

export type Zoom = ReturnType<typeof useZoom>;

interface Shown {
  edges: Float64Array;
  range: Range;
  /** The span of the address that the range stands for. */
  span: string;
  moving: boolean;
}

export function useZoom(edges: Float64Array) {
  const store = useStore();
  const { span } = useChoices();
  const shown = useRef<Shown | null>(null);
  const settle = useRef<() => void>(() => undefined);
  const [, render] = useState(0);
  useEffect(() => () => settle.current(), []);
  const whole: Range = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  const now = shown.current;
  const own = now?.edges === edges && now.span === JSON.stringify(span) ? now.range : null;
  const write = (range: Range) => {
    const next = spanOfRange(edges, range[0], range[1]);
    shown.current = { edges, range, span: JSON.stringify(next), moving: false };
    store.choose({ span: next });
  };
  /** Shows a range; `soon` writes it into the address once the gesture ends. */
  const show = (wanted: Range, soon = false) => {
    const range = clamped(wanted, whole, 0);
    const all = range[1] - range[0] >= whole[1] - whole[0];
    // Inside one moment there is nothing to see.
    if (!all && spanOfRange(edges, range[0], range[1]) === null && !coversAll(edges, range)) return;
    settle.current();
    shown.current = { edges, range, span: JSON.stringify(store.choices.peek().span), moving: soon };
    render((count) => count + 1);
    if (soon) settle.current = later(SETTLED_MS, () => write(range));
    else write(range);
  };
  const range = own ?? rangeOfSpan(edges, span);
  const latest = (): Range =>
    shown.current?.edges === edges && shown.current !== now ? shown.current.range : range;
  return { range, whole, moving: now?.moving ?? false, latest, show, reset: () => show(whole) };
}

/** Whether a range touches every moment, though it is narrower than the step. */
const coversAll = (edges: Float64Array, [from, to]: Range): boolean =>
  from < (edges[1] ?? 0) && to >= (edges[edges.length - 2] ?? 0);

const LINE_PIXELS = 16;
const ZOOM_PER_PIXEL = 0.002;
/** From this movement on, in pixels, a press with Shift is a drag and not a click. */
const DRAGGED = 3;

/** Distance of a turn of the wheel in pixels, and which way it goes. */
export function wheelMove(
  event: Pick<WheelEvent, "deltaX" | "deltaY" | "deltaMode" | "shiftKey">,
): { pan: number; zoom: number } {
  const unit = event.deltaMode === 0 ? 1 : LINE_PIXELS;
  const [x, y] = [event.deltaX * unit, event.deltaY * unit];
  if (Math.abs(x) > Math.abs(y)) return { pan: x, zoom: 0 };
  return event.shiftKey ? { pan: y, zoom: 0 } : { pan: 0, zoom: y };
}

/**
 * Gives the element around the chart its gestures; returns whether the pointer drags the range, or
 * a span with Ctrl.
 */
export function useGestures(zoom: Zoom) {
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef(zoom);
  const panning = useRef(false);
  const selecting = useRef(false);
  latest.current = zoom;
  useEffect(
    () =>
      host.current ? listen(host.current, () => latest.current, panning, selecting) : undefined,
    [],
  );
  return { host, isPanning: () => panning.current, isSelecting: () => selecting.current };
}

function listen(
  host: HTMLElement,
  zoomNow: () => Zoom,
  panning: { current: boolean },
  selecting: { current: boolean },
): () => void {
  const plot = (): DOMRect | null => host.querySelector(".u-over")?.getBoundingClientRect() ?? null;
  let drag: { x: number; moved: boolean } | null = null;
  const wheel = (event: WheelEvent) => {
    const box = plot();
    const { latest: latestRange, whole, show } = zoomNow();
    const range = latestRange();
    if (!box || box.width === 0) return;
    const { pan, zoom } = wheelMove(event);
    const all = range[1] - range[0] >= whole[1] - whole[0];
    // Zoomed out, the wheel scrolls the page.
    if (all && (pan !== 0 || zoom > 0)) return;
    event.preventDefault();
    const around = range[0] + ((event.clientX - box.left) / box.width) * (range[1] - range[0]);
    show(
      pan !== 0
        ? panned(range, whole, pan / box.width, 0)
        : zoomed(range, whole, around, Math.exp(zoom * ZOOM_PER_PIXEL), 0),
      true,
    );
  };
  const down = (event: MouseEvent) => {
    selecting.current = event.ctrlKey || event.metaKey;
    if (!event.shiftKey || event.button !== 0) return;
    // The plot would begin to select a range.
    event.stopPropagation();
    event.preventDefault();
    drag = { x: event.clientX, moved: false };
  };
  const move = (event: MouseEvent) => {
    const box = plot();
    if (!drag || !box || (!drag.moved && Math.abs(event.clientX - drag.x) < DRAGGED)) return;
    panning.current = true;
    const { latest: latestRange, whole, show } = zoomNow();
    show(panned(latestRange(), whole, (drag.x - event.clientX) / box.width, 0), true);
    drag = { x: event.clientX, moved: true };
  };
  const click = (event: MouseEvent) => {
    if (drag?.moved) event.stopPropagation();
    drag = null;
  };
  const released = () => {
    panning.current = false;
    window.setTimeout(() => (drag = null), 0);
  };
  host.addEventListener("wheel", wheel, { passive: false });
  host.addEventListener("mousedown", down, true);
  host.addEventListener("click", click, true);
  window.addEventListener("mousemove", move, true);
  window.addEventListener("mouseup", released);
  return () => {
    window.removeEventListener("mousemove", move, true);
    window.removeEventListener("mouseup", released);
  };
}
