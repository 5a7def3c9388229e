/** The shown range of the x-axis: exact while the user zooms and pans, and as a span of moments in the address. */

import { useEffect, useRef, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import { clamped } from "../../charts/map-layout";
import { rangeOfSpan, spanOfRange } from "../../charts/timeline-layout";
import { later } from "../../lib/activity";
import { useStore } from "../shared/context";

/** After this time without another turn of the wheel, the zoom goes into the address. */
const SETTLED_MS = 150;

export interface Zoom {
  range: Range;
  whole: Range;
  /** Whether a gesture goes on. */
  moving: boolean;
  /** The latest range, rendered or not yet. */
  latest: () => Range;
  /** Shows a range; `soon` writes it into the address once the gesture ends. */
  show: (range: Range, soon?: boolean) => void;
  reset: () => void;
}

interface Shown {
  edges: Float64Array;
  range: Range;
  /** The span of the address that the range stands for. */
  span: string;
  moving: boolean;
}

export function useZoom(edges: Float64Array): Zoom {
  const store = useStore();
  const { span } = store.choices.value;
  const shown = useRef<Shown | null>(null);
  const settle = useRef<() => void>(() => undefined);
  const [, render] = useState(0);
  useEffect(() => () => settle.current(), []);
  const whole: Range = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  const now = shown.current;
  const own = now?.edges === edges && now.span === JSON.stringify(span) ? now.range : null;
  const write = (range: Range): void => {
    const next = spanOfRange(edges, range[0], range[1]);
    shown.current = { edges, range, span: JSON.stringify(next), moving: false };
    store.choose({ span: next });
  };
  const show = (wanted: Range, soon = false): void => {
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
  const latest = (): Range => (shown.current?.edges === edges && shown.current !== now ? shown.current.range : range);
  return { range, whole, moving: now?.moving ?? false, latest, show, reset: () => show(whole) };
}

/** Whether a range touches every moment, though it is narrower than the step. */
const coversAll = (edges: Float64Array, [from, to]: Range): boolean => from < (edges[1] ?? 0) && to >= (edges[edges.length - 2] ?? 0);
