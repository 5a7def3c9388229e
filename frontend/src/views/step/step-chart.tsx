/** The chart of a step: its zoom, the block under the pointer, the selection by a click. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { xLabel, type Range } from "../../charts/axis";
import { bandAt } from "../../charts/layout";
import type { Outline, PlotSpec } from "../../charts/plot";
import { BlockPainter, outlinePath } from "../../charts/timeline-block-paint";
import { blockAt, countThin } from "../../charts/timeline-blocks";
import { momentAt } from "../../charts/timeline-layout";
import { formatBytes, formatCount } from "../../lib/bytes";
import { ownerOfRow, type Timeline } from "../../model/timeline";
import { tensorOf, momentSentence, tensorLines } from "../../model/timeline-text";
import { Chart, type Box } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { Minimap, useGestures, useZoom, type Zoom } from "./minimap";
import { partOf, stepSpec, type StepLook } from "./step-spec";

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
  selection: readonly [number, number] | null;
  range: { current: Range };
}

function pointedAt(timeline: Timeline, { layout, series, tensors }: StepLook, moment: number, value: number): Pointed {
  if (!tensors) return { part: series[bandAt(layout, moment, value)]?.key ?? null, tensor: null };
  const row = blockAt(tensors.blocks, moment, value);
  if (row < 0) return NOWHERE;
  return { part: partOf(series, ownerOfRow(timeline, row)), tensor: timeline.tensor[row] ?? null };
}

const rowsOf = (timeline: Timeline, tensor: number | null): readonly number[] =>
  (tensor === null ? null : tensorOf(timeline, tensor))?.rows ?? [];

/** The plot for the shown range, and the outline of the tensor under the pointer. */
function usePlotSpec({ timeline, look, pointed, selection }: StepChartProps, { range, moving }: Zoom) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { stack, layer, timelineAxis, tensor } = store.choices.value;
  const painter = useMemo(() => new BlockPainter(), []);
  const spec = useMemo(() => {
    const choices = { stack, layer, timelineAxis };
    return stepSpec(timeline, look, range, { choices, scheme, painter, selected: rowsOf(timeline, tensor), selection, moving });
  }, [timeline, look, range[0], range[1], moving, scheme, tensor, selection]);
  const outline = useMemo((): Outline | null => {
    const blocks = look.tensors?.blocks;
    if (!blocks || pointed.tensor === null || moving) return null;
    return (scale) => outlinePath(blocks, look.layout, rowsOf(timeline, pointed.tensor), range, scale);
  }, [spec, pointed.tensor]);
  return { spec, outline };
}

/** How many tensors of the shown range are smaller than a device pixel; of the range before while it changes. */
function useThin(timeline: Timeline, look: StepLook, { range, yMax }: PlotSpec, box: Box | null, moving: boolean): number {
  const last = useRef(0);
  last.current = useMemo(() => {
    if (moving) return last.current;
    if (!look.tensors || !box) return 0;
    const ratio = window.devicePixelRatio || 1;
    const [across, up] = [(ratio * box.width) / (range[1] - range[0]), (ratio * box.height) / yMax];
    return countThin(look.tensors.blocks, timeline.tensor, { edges: look.layout.edges, range, across, up });
  }, [timeline, look, range[0], range[1], yMax, box, moving]);
  return last.current;
}

export function StepChart(props: StepChartProps) {
  const { timeline, look, moments, pointed, point } = props;
  const store = useStore();
  const { stack } = store.choices.value;
  const zoom = useZoom(look.layout.edges);
  const gestures = useGestures(zoom);
  const { spec, outline } = usePlotSpec(props, zoom);
  props.range.current = zoom.range;
  const pointer = useRef({ x: 0, y: 0 });
  const [box, setBox] = useState<Box | null>(null);
  const thin = useThin(timeline, look, spec, box, zoom.moving);
  const mark = (event: KeyboardEvent): void => {
    if (event.key !== "m" || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = moments.hovered ?? moments.selected ?? timeline.peak;
    const [first, last] = props.selection ?? [-1, -2];
    // The first press marks a moment, the second one the other end.
    store.choose({ selection: first === last ? [Math.min(first, now), Math.max(first, now)] : [now, now] });
  };
  const label = zoom.range.map((value) => xLabel(spec.xKind, value)).join(" to ");
  return (
    <>
      {box && <Minimap layout={look.layout} zoom={zoom} box={box} peak={look.layout.edges[timeline.peak] ?? 0} label={label} />}
      <div
        id="step-chart"
        ref={gestures.host}
        onKeyDown={mark}
        onPointerMove={({ clientX: x, clientY: y }) => (pointer.current = { x, y })}
      >
        <Chart
          height="timeline"
          label={`Timeline of step ${timeline.step} by ${stack}. Peak ${formatBytes(timeline.in_use_bytes)}.`}
          spec={spec}
          outline={outline}
          marks={[]}
          cursor={moments.hovered}
          pin={moments.selected}
          rest={timeline.peak}
          describe={(row) => momentSentence(timeline, look.series, look.labels, row)}
          onCursor={(row, value) => {
            // The pointer holds the moment that it drags.
            if (gestures.isPanning()) return;
            store.momentCursor.value = row;
            const next = row === null || value === null ? NOWHERE : pointedAt(timeline, look, row, value);
            if (next.part !== pointed.part || next.tensor !== pointed.tensor) point(next);
          }}
          onPin={(row) => store.chooseWithUndo({ moment: row, ...(pointed.tensor === null ? {} : { tensor: pointed.tensor }) })}
          onZoom={(from, to) => zoom.show([from, to])}
          onDrag={(from, to) => {
            if (gestures.isSelecting() || store.choices.peek().dragging === "select")
              store.choose({ selection: [momentAt(look.layout.edges, from), momentAt(look.layout.edges, to)] });
            else zoom.show([from, to]);
          }}
          onReset={zoom.reset}
          onHover={store.fetched.hold}
          onBox={setBox}
        />
        <Legend look={look} thin={thin} />
        {pointed.tensor !== null && <PointerTip timeline={timeline} tensor={pointed.tensor} pointer={pointer} />}
      </div>
    </>
  );
}

function Legend({ look, thin }: { look: StepLook; thin: number }) {
  const { stack, layer } = useStore().choices.value;
  const byAddress = look.tensors?.addresses ?? null;
  return (
    <p class="legend">
      {byAddress === null && <LegendItem kind="line">bytes in use</LegendItem>}
      <LegendItem kind="peak">peak</LegendItem>
      {stack === "category" && layer !== null && <LegendItem kind="layer">selected layer</LegendItem>}
      {byAddress !== null && byAddress.cuts.length > 0 && <LegendItem kind="cut">unused addresses cut out</LegendItem>}
      {thin > 0 && <span data-testid="thin">{`${formatCount(thin)} ${thin === 1 ? "tensor" : "tensors"} smaller than a pixel`}</span>}
    </p>
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
