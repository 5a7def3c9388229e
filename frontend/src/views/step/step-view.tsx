/**
 * The timeline of the selected step, its loading, and its chart: its zoom, the block under the
 * pointer, the selection by a click.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState, useLayoutEffect } from "preact/hooks";

import { type Range, xLabel } from "../../charts/axis";
import { bandAt } from "../../charts/layout";
import type { Outline, PlotSpec } from "../../charts/plot";
import { BlockPainter, outlinePath } from "../../charts/timeline-block-paint";
import { blockAt, countThin } from "../../charts/timeline-blocks";
import { momentAt } from "../../charts/timeline-layout";
import { plural, unitOf, formatBytes, formatCount } from "../../lib/bytes";
import { requestAt } from "../../model/overview";
import {
  type Timeline,
  timelineFile,
  largestTensor,
  tensorOf,
  timeText,
  ownerOfRow,
  momentSentence,
  tensorLines,
} from "../../model/timeline";
import { DRAGS, PLACEMENTS, STACKS, TENSOR_COLOURINGS, TIMELINE_AXES } from "../../state/address";
import { dark, NO_FILL } from "../../theme/palette";
import { Chart } from "../shared/chart";
import type { Box } from "../shared/chart-props";
import { useStore, useFetched, useFocus, type Focus, useChoices } from "../shared/context";
import { ChoiceSegments, LegendItem, Choose } from "../shared/controls";
import { useExport } from "../shared/export";
import { InUnit } from "../shared/figures";
import { Fault, NoticeList, Nothing, Skeleton, TRACE_STEPS } from "../shared/states";
import { LiveList } from "./live-list";
import { Minimap, useGestures, useZoom, type Zoom } from "./minimap";
import { MomentPanel, SpanPanel, TensorPanel, type TensorWhy } from "./panels";
import {
  StepDrawing,
  partingOf,
  stepParts,
  stepLook,
  stepSpec,
  tensorBlocks,
  hasAddresses,
  type StepLook,
  type TensorBlocks,
  partOf,
} from "./step-spec";
import type { RunInfo, SnapshotSummary } from "../../schema";

function Chooser() {
  const store = useStore();
  return (
    <div class="timeline-bar">
      <ChoiceSegments of="stack" named={false} label="stack by" options={STACKS} />
      <ChoiceSegments of="timelineAxis" named={false} label="x-axis" options={TIMELINE_AXES} />
      <ChoiceSegments of="dragging" named={false} label="drag" options={DRAGS} />
      <Choose
        class="quiet"
        title="Show whole step"
        aria-label="Whole step"
        disabled={store.choices.value.span === null}
        these={{ span: null }}
      >
        ⤢
      </Choose>
    </div>
  );
}

function TensorBar({ timeline, tensors }: { timeline: Timeline; tensors: TensorBlocks }) {
  const { placement } = useChoices();
  const known = hasAddresses(timeline);
  const { addresses } = tensors;
  return (
    <div class="timeline-bar" data-testid="tensor-bar">
      <ChoiceSegments of="tensorColouring" label="colour" options={TENSOR_COLOURINGS} />
      {known && (
        <ChoiceSegments of="placement" named={false} label="tensors" options={PLACEMENTS} />
      )}
      {!known && placement === "by address" && (
        <span class="small">Addresses unknown: tensors are stacked.</span>
      )}
      {addresses !== null && addresses.unknown > 0 && (
        <span class="small" data-testid="unplaced">
          {`Not drawn, address unknown: ${plural(addresses.unknown, "tensor")}, ${formatBytes(addresses.unknown_bytes)} at the peak`}
        </span>
      )}
    </div>
  );
}

function useLook(timeline: Timeline, focus: Focus): StepLook {
  const store = useStore();
  const { stack, timelineAxis, layer, placement } = useChoices();
  const parting = partingOf(store.choices.value);
  const parts = useMemo(() => stepParts(timeline, parting), [timeline, parting]);
  const tensors = useMemo(
    () => (stack === "tensor" ? tensorBlocks(timeline, placement) : null),
    [timeline, stack, placement],
  );
  const overview = store.whole.value.value;
  const failed = useMemo(
    () => overview && requestAt(overview, timeline.step),
    [overview, timeline],
  );
  return useMemo(
    () => stepLook(timeline, parts, { stack, timelineAxis, layer }, focus, tensors, failed),
    [timeline, parts, tensors, timelineAxis, layer, dark.value, focus, failed],
  );
}

function useMoment(timeline: Timeline) {
  const store = useStore();
  const within = (moment: number | null): number | null =>
    moment === null ? null : Math.min(moment, timeline.moments - 1);
  const [hovered, selected] = [
    within(store.momentCursor.value),
    within(store.choices.value.moment),
  ];
  useEffect(() => () => void (store.momentCursor.value = null), []);
  return { hovered, selected, moment: hovered ?? selected ?? timeline.peak };
}

function useSelection({ moments }: Timeline): readonly [number, number] | null {
  const { selection } = useChoices();
  return useMemo(
    () => selection && [Math.min(selection[0], moments - 1), Math.min(selection[1], moments - 1)],
    [selection, moments],
  );
}

function useTensor(timeline: Timeline, pointed: Pointed, moment: number) {
  const { tensor: selected } = useChoices();
  const largest = useMemo(() => largestTensor(timeline, moment), [timeline, moment]);
  const known = selected !== null && tensorOf(timeline, selected) !== null ? selected : null;
  const number = pointed.tensor ?? known ?? largest;
  const why: TensorWhy =
    pointed.tensor !== null ? "pointed" : known !== null ? "selected" : "largest";
  return {
    why,
    tensor: useMemo(
      () => (number === null ? null : tensorOf(timeline, number)),
      [timeline, number],
    ),
  };
}

function useDownloads(timeline: Timeline, look: StepLook, range: { current: Range }): void {
  const choices = useChoices();
  useExport({
    table: () => timelineFile(timeline),
    legend: () =>
      look.labels.map((label, index) => ({ label, fill: look.fills[index] ?? NO_FILL })),
    drawing: () => {
      const spec = stepSpec(timeline, look, range.current, {
        choices,
        painter: new BlockPainter(),
        selected: [],
        selection: null,
        moving: false,
      });
      return <StepDrawing timeline={timeline} picture={{ ...look, spec }} />;
    },
  });
}

function StepTimeline({ timeline, children }: { timeline: Timeline; children: ComponentChildren }) {
  const focus = useFocus();
  const [pointed, point] = useState<Pointed>(NOWHERE);
  const look = useLook(timeline, focus);
  const moments = useMoment(timeline);
  const { hovered, selected, moment } = moments;
  const shown = useTensor(timeline, pointed, moment);
  const range = useRef<Range>([0, 1]);
  useDownloads(timeline, look, range);
  const selection = useSelection(timeline);
  const where = moment === timeline.peak ? "at the peak" : `at ${timeText(timeline, moment)}`;
  return (
    <InUnit value={unitOf(timeline.in_use_bytes)}>
      <div
        class="body"
        data-testid="timeline"
        data-step={timeline.step}
        data-moments={timeline.moments}
      >
        <div class="picture">
          <div class="timeline-bars">
            {children}
            {look.tensors && <TensorBar timeline={timeline} tensors={look.tensors} />}
          </div>
          <StepChart
            timeline={timeline}
            look={look}
            moments={moments}
            pointed={pointed}
            point={point}
            range={range}
            selection={selection}
          />
        </div>
        <MomentPanel
          timeline={timeline}
          look={look}
          moment={moment}
          why={hovered !== null ? "hover" : selected !== null ? "selected" : "peak"}
          pointed={pointed.part}
        />
        {selection && <SpanPanel timeline={timeline} total={look.layout.total} span={selection} />}
        <TensorPanel timeline={timeline} {...shown} />
        <LiveList timeline={timeline} moment={moment} where={where} />
      </div>
    </InUnit>
  );
}

function whyNone({ step, not_available }: SnapshotSummary): string {
  const said = not_available.find((sentence) => sentence.includes("misses events"));
  const why = said
    ? "its trace misses events"
    : "it was not kept (long runs keep some timelines, very long steps have none)";
  return `No timeline of step ${step}: ${why}`;
}

const UNTRACED =
  "Step timelines come from traced steps. Tracing is off with `overhead=0` and for replicas; choose the steps with:";

function NoTimelines({
  snapshots,
  run,
  phase,
}: {
  snapshots: readonly SnapshotSummary[];
  run: RunInfo;
  phase: string;
}) {
  const traced = snapshots.filter((snapshot) => snapshot.phase === phase);
  const last = traced.at(-1);
  const count = plural(traced.length, "step was", "steps were");
  const others = `${count} traced; Overview and Layers show the breakdown at their peaks.`;
  return last ? (
    <Nothing title={`${run.run} has no step timeline`} sentences={[`${whyNone(last)}.`, others]} />
  ) : (
    <Nothing
      title={`No ${phase} step of this run was traced on this device`}
      sentences={[UNTRACED]}
      code={TRACE_STEPS}
    />
  );
}

/**
 * What to show while there is no timeline: an error, that something is loading, or why there is
 * none.
 */
function NoTimeline({ run }: { run: RunInfo }) {
  const store = useStore();
  const snapshots = store.snapshotList.value;
  const needed = [store.timelineList.value, store.whole.value, snapshots];
  const error = needed.find((loaded) => loaded.value === null && loaded.error !== null)?.error;
  if (error) return <Fault sentence={error} />;
  if (snapshots.value === null || needed.some(({ value }) => value === null)) return <Skeleton />;
  return <NoTimelines snapshots={snapshots.value} run={run} phase={store.phase.value} />;
}

export function StepView({ run }: { run: RunInfo }) {
  const store = useStore();
  const listed = store.timelineList.value;
  const shown = store.shownTimeline.value;
  const at = shown && `${shown.phase}/${shown.step}`;
  const { value, error } = useFetched(store.fetched.timelines, store.stepOf(shown));
  if (!shown) return <NoTimeline run={run} />;
  return (
    <>
      {listed.error !== null && <Fault sentence={`Not up to date: ${listed.error}`} />}
      {value ? (
        <StepTimeline key={`${run.run}/${store.device.value}/${at}`} timeline={value}>
          <Chooser />
          <NoticeList sentences={value.not_available} testid="not-available" />
        </StepTimeline>
      ) : (
        <>
          <div class="timeline-alone">
            <Chooser />
          </div>
          {error === null ? <Skeleton /> : <Fault sentence={error} />}
        </>
      )}
    </>
  );
}

export interface Pointed {
  part: string | null;
  tensor: number | null;
}

const NOWHERE: Pointed = { part: null, tensor: null };

interface StepChartProps {
  timeline: Timeline;
  look: StepLook;
  moments: { hovered: number | null; selected: number | null };
  pointed: Pointed;
  point: (pointed: Pointed) => void;
  selection: readonly [number, number] | null;
  range: { current: Range };
}

function pointedAt(
  timeline: Timeline,
  { layout, series, tensors }: StepLook,
  moment: number,
  value: number,
): Pointed {
  if (!tensors) return { part: series[bandAt(layout, moment, value)]?.key ?? null, tensor: null };
  const row = blockAt(tensors.blocks, moment, value);
  if (row < 0) return NOWHERE;
  return { part: partOf(series, ownerOfRow(timeline, row)), tensor: timeline.tensor[row] ?? null };
}

const rowsOf = (timeline: Timeline, tensor: number | null): readonly number[] =>
  (tensor === null ? null : tensorOf(timeline, tensor))?.rows ?? [];

function usePlotSpec(
  { timeline, look, pointed, selection }: StepChartProps,
  { range, moving }: Zoom,
) {
  const { stack, layer, timelineAxis, tensor } = useChoices();
  const painter = useMemo(() => new BlockPainter(), []);
  const spec = useMemo(() => {
    const choices = { stack, layer, timelineAxis };
    return stepSpec(timeline, look, range, {
      choices,
      painter,
      selected: rowsOf(timeline, tensor),
      selection,
      moving,
    });
  }, [timeline, look, range[0], range[1], moving, dark.value, tensor, selection]);
  const outline = useMemo((): Outline | null => {
    const blocks = look.tensors?.blocks;
    if (!blocks || pointed.tensor === null || moving) return null;
    return (scale) =>
      outlinePath(blocks, look.layout, rowsOf(timeline, pointed.tensor), range, scale);
  }, [spec, pointed.tensor]);
  return { spec, outline };
}

/**
 * How many tensors of the shown range are smaller than a device pixel; of the range before while it
 * changes.
 */
function useThin(
  timeline: Timeline,
  look: StepLook,
  { range, yMax }: PlotSpec,
  box: Box | null,
  moving: boolean,
): number {
  const last = useRef(0);
  last.current = useMemo(() => {
    if (moving) return last.current;
    if (!look.tensors || !box) return 0;
    const ratio = window.devicePixelRatio || 1;
    const [across, up] = [(ratio * box.width) / (range[1] - range[0]), (ratio * box.height) / yMax];
    return countThin(look.tensors.blocks, timeline.tensor, {
      edges: look.layout.edges,
      range,
      across,
      up,
    });
  }, [timeline, look, range[0], range[1], yMax, box, moving]);
  return last.current;
}

function StepChart(props: StepChartProps) {
  const { timeline, look, moments, pointed, point } = props;
  const store = useStore();
  const { stack } = useChoices();
  const zoom = useZoom(look.layout.edges);
  const gestures = useGestures(zoom);
  const { spec, outline } = usePlotSpec(props, zoom);
  props.range.current = zoom.range;
  const pointer = useRef({ x: 0, y: 0 });
  const [box, setBox] = useState<Box | null>(null);
  const thin = useThin(timeline, look, spec, box, zoom.moving);
  const mark = (event: KeyboardEvent) => {
    if (event.key !== "m" || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = moments.hovered ?? moments.selected ?? timeline.peak;
    const [first, last] = props.selection ?? [-1, -2];
    // The first press marks a moment, the second one the other end.
    store.choose({
      selection: first === last ? [Math.min(first, now), Math.max(first, now)] : [now, now],
    });
  };
  const label = zoom.range.map((value) => xLabel(spec.xKind, value)).join(" to ");
  return (
    <>
      {box && (
        <Minimap
          layout={look.layout}
          zoom={zoom}
          box={box}
          peak={look.layout.edges[timeline.peak] ?? 0}
          label={label}
        />
      )}
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
            const next =
              row === null || value === null ? NOWHERE : pointedAt(timeline, look, row, value);
            if (next.part !== pointed.part || next.tensor !== pointed.tensor) point(next);
          }}
          onPin={(row) =>
            store.chooseWithUndo({
              moment: row,
              ...(pointed.tensor === null ? {} : { tensor: pointed.tensor }),
            })
          }
          onZoom={(from, to) => zoom.show([from, to])}
          onDrag={(from, to) => {
            if (gestures.isSelecting() || store.choices.peek().dragging === "select")
              store.choose({
                selection: [momentAt(look.layout.edges, from), momentAt(look.layout.edges, to)],
              });
            else zoom.show([from, to]);
          }}
          onReset={zoom.reset}
          onHover={store.fetched.hold}
          onBox={setBox}
        />
        <Legend look={look} thin={thin} />
        {pointed.tensor !== null && (
          <PointerTip timeline={timeline} tensor={pointed.tensor} pointer={pointer} />
        )}
      </div>
    </>
  );
}

function Legend({ look, thin }: { look: StepLook; thin: number }) {
  const { stack, layer } = useChoices();
  const byAddress = look.tensors?.addresses ?? null;
  return (
    <p class="legend">
      {byAddress === null && <LegendItem kind="line" label="bytes in use" />}
      <LegendItem kind="peak" label="peak" />
      {stack === "category" && layer !== null && <LegendItem kind="layer" label="selected layer" />}
      {byAddress !== null && byAddress.cuts.length > 0 && (
        <LegendItem kind="cut" label="unused addresses cut out" />
      )}
      {thin > 0 && (
        <span data-testid="thin">{`${formatCount(thin)} ${thin === 1 ? "tensor" : "tensors"} smaller than a pixel`}</span>
      )}
    </p>
  );
}

const TIP_GAP = 14;

/**
 * Facts of the tensor under the pointer, beside it. They stand in the list and below the chart as
 * well, so screen readers skip them.
 */
function PointerTip({
  timeline,
  tensor,
  pointer,
}: {
  timeline: Timeline;
  tensor: number;
  pointer: { current: { x: number; y: number } };
}) {
  const host = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState({ left: 0, top: 0 });
  const found = useMemo(() => tensorOf(timeline, tensor), [timeline, tensor]);
  useLayoutEffect(() => {
    const box = host.current?.getBoundingClientRect();
    if (!box) return;
    const { x, y } = pointer.current;
    const left =
      x + TIP_GAP + box.width > window.innerWidth ? x - TIP_GAP - box.width : x + TIP_GAP;
    const top =
      y + TIP_GAP + box.height > window.innerHeight ? y - TIP_GAP - box.height : y + TIP_GAP;
    setPlace({ left: Math.max(left, 4), top: Math.max(top, 4) });
  }, [tensor]);
  if (!found) return null;
  const style = { transform: `translate(${place.left}px, ${place.top}px)` };
  return (
    <div ref={host} class="tip" aria-hidden="true" data-testid="tensor-tip" style={style}>
      {tensorLines(timeline, found).map((line, index) => (
        <span key={index}>{line}</span>
      ))}
    </div>
  );
}
