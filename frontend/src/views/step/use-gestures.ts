/** Wheel, touchpad and Shift-drag on the chart: zoom at the pointer, pan. */

import { useEffect, useRef } from "preact/hooks";

import { panned, zoomed } from "../../charts/map-layout";
import type { Zoom } from "./use-zoom";

const LINE_PIXELS = 16;
const ZOOM_PER_PIXEL = 0.002;
/** From this movement on, in pixels, a press with Shift is a drag and not a click. */
const DRAGGED = 3;

/** Distance of a turn of the wheel in pixels, and which way it goes. */
export function wheelMove(event: Pick<WheelEvent, "deltaX" | "deltaY" | "deltaMode" | "shiftKey">): { pan: number; zoom: number } {
  const unit = event.deltaMode === 0 ? 1 : LINE_PIXELS;
  const [x, y] = [event.deltaX * unit, event.deltaY * unit];
  if (Math.abs(x) > Math.abs(y)) return { pan: x, zoom: 0 };
  return event.shiftKey ? { pan: y, zoom: 0 } : { pan: 0, zoom: y };
}

/** Gives the element around the chart its gestures; returns whether the pointer drags the range, or a span with Ctrl. */
export function useGestures(zoom: Zoom) {
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef(zoom);
  const panning = useRef(false);
  const selecting = useRef(false);
  latest.current = zoom;
  useEffect(() => (host.current ? listen(host.current, () => latest.current, panning, selecting) : undefined), []);
  return { host, isPanning: () => panning.current, isSelecting: () => selecting.current };
}

function listen(host: HTMLElement, zoomNow: () => Zoom, panning: { current: boolean }, selecting: { current: boolean }): () => void {
  const plot = (): DOMRect | null => host.querySelector(".u-over")?.getBoundingClientRect() ?? null;
  let drag: { x: number; moved: boolean } | null = null;
  const wheel = (event: WheelEvent): void => {
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
    show(pan !== 0 ? panned(range, whole, pan / box.width, 0) : zoomed(range, whole, around, Math.exp(zoom * ZOOM_PER_PIXEL), 0), true);
  };
  const down = (event: MouseEvent): void => {
    selecting.current = event.ctrlKey || event.metaKey;
    if (!event.shiftKey || event.button !== 0) return;
    // The plot would begin to select a range.
    event.stopPropagation();
    event.preventDefault();
    drag = { x: event.clientX, moved: false };
  };
  const move = (event: MouseEvent): void => {
    const box = plot();
    if (!drag || !box || (!drag.moved && Math.abs(event.clientX - drag.x) < DRAGGED)) return;
    panning.current = true;
    const { latest: latestRange, whole, show } = zoomNow();
    show(panned(latestRange(), whole, (drag.x - event.clientX) / box.width, 0), true);
    drag = { x: event.clientX, moved: true };
  };
  const click = (event: MouseEvent): void => {
    if (drag?.moved) event.stopPropagation();
    drag = null;
  };
  const released = (): void => {
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
