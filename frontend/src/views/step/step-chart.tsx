/** The chart of a step: its zoom, the block under the pointer, the selection by a click. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import { BlockPainter } from "../../charts/timeline-block-paint";
import { blockAt } from "../../charts/timeline-blocks";
import { partAt } from "../../charts/timeline-layout";
import { formatBytes } from "../../lib/bytes";
import { ownerOfRow, type Timeline } from "../../model/timeline";
import { tensorOf } from "../../model/timeline-tensor";
import { momentSentence, tensorLines } from "../../model/timeline-text";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { partOf } from "./step-parts";
import { stepSpec, type StepLook } from "./step-spec";
import { useGestures } from "./use-gestures";
import { useZoom } from "./use-zoom";

/** What lies under the pointer: a part of the figures, and a tensor if tensors are drawn. */
export interface Pointed {
  part: string | null;
  tensor: number | null;
}

export const NOWHERE: Pointed = { part: null, tensor: null };

interface StepChartProps {
  timeline: Timeline;
  look: StepLook;
  moments: { hovered: number | null; selected: number | null };
  pointed: Pointed;
  point: (pointed: Pointed) => void;
  /** The shown range, for a saved drawing. */
  range: { current: Range };
}

function pointedAt(timeline: Timeline, { layout, series, tensors }: StepLook, moment: number, value: number): Pointed {
  if (!tensors) return { part: series[partAt(layout, moment, value)]?.key ?? null, tensor: null };
  const row = blockAt(tensors.blocks, moment, value);
  if (row < 0) return NOWHERE;
  return { part: partOf(series, ownerOfRow(timeline, row)), tensor: timeline.tensor[row] ?? null };
}

const rowsOf = (timeline: Timeline, tensor: number | null): readonly number[] =>
  (tensor === null ? null : tensorOf(timeline, tensor))?.rows ?? [];

/** The plot for the shown range and the outlined tensors. */
function usePlotSpec({ timeline, look, pointed }: StepChartProps, range: Range) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { stack, layer, timelineAxis, tensor } = store.choices.value;
  const painter = useMemo(() => new BlockPainter(), []);
  return useMemo(() => {
    const outlined = { selected: rowsOf(timeline, tensor), pointed: rowsOf(timeline, pointed.tensor) };
    return stepSpec(timeline, look, range, { choices: { stack, layer, timelineAxis }, scheme, painter, outlined });
  }, [timeline, look, range[0], range[1], scheme, tensor, pointed.tensor]);
}

export function StepChart(props: StepChartProps) {
  const { timeline, look, moments, pointed, point } = props;
  const store = useStore();
  const { stack } = store.choices.value;
  const zoom = useZoom(look.layout.edges);
  const host = useGestures(zoom);
  const spec = usePlotSpec(props, zoom.range);
  props.range.current = zoom.range;
  const pointer = useRef({ x: 0, y: 0 });
  return (
    <div ref={host} onPointerMove={({ clientX: x, clientY: y }) => (pointer.current = { x, y })}>
      <Chart
        height="timeline"
        label={`Timeline of step ${timeline.step} by ${stack}. Peak ${formatBytes(timeline.in_use_bytes)}.`}
        spec={spec}
        marks={[]}
        cursor={moments.hovered}
        pin={moments.selected}
        rest={timeline.peak}
        describe={(row) => momentSentence(timeline, look.series, look.labels, row)}
        onCursor={(row, value) => {
          store.momentCursor.value = row;
          const next = row === null || value === null ? NOWHERE : pointedAt(timeline, look, row, value);
          if (next.part !== pointed.part || next.tensor !== pointed.tensor) point(next);
        }}
        onPin={(row) => store.chooseWithUndo({ moment: row, ...(pointed.tensor === null ? {} : { tensor: pointed.tensor }) })}
        onZoom={(from, to) => zoom.show([from, to])}
        onReset={zoom.reset}
        onHover={store.fetched.hold}
      />
      {pointed.tensor !== null && <PointerTip timeline={timeline} tensor={pointed.tensor} pointer={pointer} />}
    </div>
  );
}

const TIP_GAP = 14;

/** Facts of the tensor under the pointer, beside it. They stand in the list and below the chart as well, so screen readers skip them. */
function PointerTip({ timeline, tensor, pointer }: { timeline: Timeline; tensor: number; pointer: { current: { x: number; y: number } } }) {
  const host = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState({ left: 0, top: 0 });
  const found = useMemo(() => tensorOf(timeline, tensor), [timeline, tensor]);
  useLayoutEffect(() => {
    const box = host.current?.getBoundingClientRect();
    if (!box) return;
    const { x, y } = pointer.current;
    const left = x + TIP_GAP + box.width > window.innerWidth ? x - TIP_GAP - box.width : x + TIP_GAP;
    const top = y + TIP_GAP + box.height > window.innerHeight ? y - TIP_GAP - box.height : y + TIP_GAP;
    setPlace({ left: Math.max(left, 4), top: Math.max(top, 4) });
  }, [tensor]);
  if (!found) return null;
  return (
    <div ref={host} class="tip" aria-hidden="true" data-testid="tensor-tip" style={{ left: `${place.left}px`, top: `${place.top}px` }}>
      {tensorLines(timeline, found).map((line, index) => (
        <span key={index}>{line}</span>
      ))}
    </div>
  );
}
