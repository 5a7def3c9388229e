/** A plot in the page: its size, keyboard cursor, marks above it. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { placeMarks } from "../../charts/layout";
import { panned } from "../../charts/map-layout";
import { Plot, placeOf, type PlotEvents } from "../../charts/plot";
import { touch } from "../../lib/activity";
import { clamp } from "../../lib/search";
import type { Box, ChartMark, ChartProps } from "./chart-props";
import { actOnKey, zoomKeys } from "./controls";
import { Handle } from "./handle";

const NO_BOX: Box = { left: 0, top: 0, width: 0, height: 0 };

function usePlot(props: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [box, setBox] = useState<Box>(NO_BOX);
  const drawn = useRef(NO_BOX);
  const { spec } = props;

  useLayoutEffect(() => {
    if (!host.current) return;
    if (plot.current?.fits(spec)) plot.current.update(spec);
    else {
      plot.current?.destroy();
      const events: PlotEvents = {
        cursor: (row, value) => latest.current.onCursor(row, value),
        pin: (row) => latest.current.onPin(row),
        zoom: (from, to) => (latest.current.onDrag ?? latest.current.onZoom)(from, to),
        reset: () => latest.current.onReset(),
        painted: (now) => {
          if (JSON.stringify(drawn.current) !== JSON.stringify(now)) {
            drawn.current = now;
            setBox(now);
            latest.current.onBox?.(now);
          }
          touch();
        },
      };
      plot.current = new Plot(host.current, spec, events);
    }
    touch();
  }, [spec]);

  useEffect(() => {
    if (!host.current) return undefined;
    const observer = new ResizeObserver(() => {
      plot.current?.resize();
      touch();
    });
    observer.observe(host.current);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);

  const place = (row: number | null): number | null => (row === null ? null : placeOf(spec, row));
  useLayoutEffect(() => {
    plot.current?.show("cursor", place(props.cursor));
    plot.current?.show("pin", place(props.pin));
  }, [props.cursor, props.pin, spec]);

  useLayoutEffect(() => plot.current?.showOutline(props.outline ?? null), [props.outline, spec]);

  return { host, box };
}

/**
 * Arrows move the cursor, Enter selects, plus and minus zoom around it, 0 shows all. Escape is the
 * page's.
 */
function useKeys(props: ChartProps) {
  return (event: KeyboardEvent) => {
    const { spec, cursor, pin } = props;
    const last = spec.x.length - 1;
    const now = cursor ?? pin ?? props.rest ?? 0;
    const stride = event.shiftKey ? 10 : 1;
    const move = (row: number) => props.onCursor(clamp(row, 0, last), null);
    const zoom = (factor: number) => {
      const [from, to] = spec.range;
      const middle = spec.x[now] ?? (from + to) / 2;
      const half = ((to - from) / 2) * factor;
      props.onZoom(middle - half, middle + half);
    };
    const pan = (share: number): void =>
      props.onZoom(...panned(spec.range, props.whole ?? [-Infinity, Infinity], share, 0));
    if (last < 0) return;
    actOnKey(event, {
      ArrowLeft: () => move(cursor === null ? now : now - stride),
      ArrowRight: () => move(cursor === null ? now : now + stride),
      Home: () => move(0),
      End: () => move(last),
      Enter: () => props.onPin(now),
      " ": () => props.onPin(now),
      ...zoomKeys(zoom, pan, props.onReset),
    });
  };
}

let ruler: CanvasRenderingContext2D | null = null;
function labelWidth(label: string): number {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!ruler) return label.length * 7 + 24;
  ruler.font = '11px "Roboto", "Helvetica Neue", Arial, sans-serif';
  return ruler.measureText(label).width + 24;
}

function Marks({ box, props }: { box: Box; props: ChartProps }) {
  const [from, to] = props.spec.range;
  if (box.width === 0 || props.marks.length === 0) return null;
  const inside = props.marks.filter(({ x }) => x >= from && x <= to);
  const place = (x: number): number => ((x - from) / (to - from)) * box.width;
  const placed = placeMarks(
    inside.map(({ x, label }) => ({ x: place(x), label })),
    box.width,
    labelWidth,
    260,
  );
  return (
    <div class="marks" style={{ left: `${box.left}px`, width: `${box.width}px` }}>
      {placed.map(({ index, left, width, flipped, bare, label }) => {
        const mark = inside[index] as ChartMark;
        return (
          <button
            key={`${mark.step} ${mark.label}`}
            type="button"
            class={`mark${mark.oom === undefined ? "" : " failure"}${flipped ? " flipped" : ""}${bare ? " bare" : ""}`}
            style={{ left: `${left}px`, width: `${width}px` }}
            title={mark.sentence}
            aria-label={`${label}. ${mark.sentence}`}
            onClick={() => props.onMark?.(mark)}
          >
            {bare ? "" : label}
          </button>
        );
      })}
    </div>
  );
}

export function Chart(props: ChartProps) {
  const { host, box } = usePlot(props);
  const keys = useKeys(props);
  const { spec, cursor, pin } = props;
  const row = cursor ?? pin ?? props.rest ?? 0;
  return (
    <div class={`chart ${props.height ?? ""}`}>
      <Marks box={box} props={props} />
      <div
        ref={host}
        class="plot"
        role="slider"
        tabIndex={0}
        aria-label={props.label}
        aria-valuemin={0}
        aria-valuemax={Math.max(spec.x.length - 1, 0)}
        aria-valuenow={row}
        aria-valuetext={spec.x.length > 0 ? props.describe(row) : "no data"}
        onKeyDown={keys}
        onBlur={() => props.onCursor(null, null)}
        onPointerEnter={() => props.onHover(true)}
        onPointerLeave={() => props.onHover(false)}
      />
      {props.handle && props.height !== "small" && box.width > 0 && (
        <Handle box={box} chart={props} of={props.handle} />
      )}
      {props.children}
    </div>
  );
}
