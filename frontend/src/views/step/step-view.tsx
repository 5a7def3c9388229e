/** The timeline of the selected step, and its loading. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import { BlockPainter } from "../../charts/timeline-block-paint";
import { plural, unitOf, formatBytes } from "../../lib/bytes";
import type { Timeline } from "../../model/timeline";
import { timelineFile, largestTensor, tensorOf, timeText } from "../../model/timeline-text";
import { DRAGS, PLACEMENTS, STACKS, TENSOR_COLOURINGS, TIMELINE_AXES } from "../../state/address";
import { useStore, useFetched, schemeOf, useFocus, type Focus } from "../shared/context";
import { ChoiceSegments } from "../shared/controls";
import { useExport } from "../shared/export";
import { Fault, NoticeList, Nothing, Skeleton } from "../shared/states";
import { LiveList } from "./live-list";
import { MomentPanel, SpanPanel } from "./moment-panel";
import { NOWHERE, StepChart, type Pointed } from "./step-chart";
import { StepDrawing } from "./step-drawing";
import { partingOf, stepParts, stepLook, stepSpec, tensorBlocks, hasAddresses, type StepLook, type TensorBlocks } from "./step-spec";
import { TensorPanel, type TensorWhy } from "./tensor-panel";
import type { RunInfo, SnapshotSummary } from "../../schema";

function Chooser() {
  const store = useStore();
  return (
    <div class="timeline-bar">
      <ChoiceSegments of="stack" label="stack by" options={STACKS} />
      <ChoiceSegments of="timelineAxis" label="x-axis" options={TIMELINE_AXES} />
      <ChoiceSegments of="dragging" label="drag" options={DRAGS} />
      <button type="button" class="quiet" disabled={store.choices.value.span === null} onClick={() => store.choose({ span: null })}>
        Show whole step
      </button>
    </div>
  );
}

function TensorBar({ timeline, tensors }: { timeline: Timeline; tensors: TensorBlocks }) {
  const { placement } = useStore().choices.value;
  const known = hasAddresses(timeline);
  const { addresses } = tensors;
  return (
    <div class="timeline-bar" data-testid="tensor-bar">
      <ChoiceSegments of="tensorColouring" label="colour by" options={TENSOR_COLOURINGS} />
      {known && <ChoiceSegments of="placement" label="tensors" options={PLACEMENTS} />}
      {!known && placement === "by address" && <span class="small">Addresses unknown: tensors are stacked.</span>}
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
  const scheme = schemeOf(store);
  const { stack, timelineAxis, layer, placement } = store.choices.value;
  const parting = partingOf(store.choices.value);
  const parts = useMemo(() => stepParts(timeline, parting), [timeline, parting]);
  const tensors = useMemo(() => (stack === "tensor" ? tensorBlocks(timeline, placement) : null), [timeline, stack, placement]);
  return useMemo(
    () => stepLook(timeline, parts, { stack, timelineAxis, layer }, scheme, focus, tensors),
    [timeline, parts, tensors, timelineAxis, layer, scheme, focus],
  );
}

function useMoment(timeline: Timeline) {
  const store = useStore();
  const within = (moment: number | null): number | null => (moment === null ? null : Math.min(moment, timeline.moments - 1));
  const [hovered, selected] = [within(store.momentCursor.value), within(store.choices.value.moment)];
  useEffect(() => () => void (store.momentCursor.value = null), []);
  return { hovered, selected, moment: hovered ?? selected ?? timeline.peak };
}

function useSelection({ moments }: Timeline): readonly [number, number] | null {
  const { selection } = useStore().choices.value;
  return useMemo(() => selection && [Math.min(selection[0], moments - 1), Math.min(selection[1], moments - 1)], [selection, moments]);
}

function useTensor(timeline: Timeline, pointed: Pointed, moment: number) {
  const { tensor: selected } = useStore().choices.value;
  const largest = useMemo(() => largestTensor(timeline, moment), [timeline, moment]);
  const known = selected !== null && tensorOf(timeline, selected) !== null ? selected : null;
  const number = pointed.tensor ?? known ?? largest;
  const why: TensorWhy = pointed.tensor !== null ? "pointed" : known !== null ? "selected" : "largest";
  return { why, tensor: useMemo(() => (number === null ? null : tensorOf(timeline, number)), [timeline, number]) };
}

function useDownloads(timeline: Timeline, look: StepLook, range: { current: Range }): void {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  useExport({
    table: () => timelineFile(timeline),
    legend: () => look.labels.map((label, index) => ({ label, fill: look.fills[index] ?? { colour: "none", pattern: "plain" } })),
    drawing: () => {
      const spec = stepSpec(timeline, look, range.current, {
        choices,
        scheme,
        painter: new BlockPainter(),
        selected: [],
        selection: null,
        moving: false,
      });
      return <StepDrawing timeline={timeline} picture={{ ...look, spec }} scheme={scheme} />;
    },
  });
}

function StepTimeline({ timeline, children }: { timeline: Timeline; children: ComponentChildren }) {
  const { focus, hover } = useFocus();
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
    <div class="body" data-testid="timeline" data-step={timeline.step} data-moments={timeline.moments}>
      <div class="picture">
        {children}
        {look.tensors && <TensorBar timeline={timeline} tensors={look.tensors} />}
        <StepChart timeline={timeline} look={look} moments={moments} pointed={pointed} point={point} range={range} selection={selection} />
      </div>
      <MomentPanel
        timeline={timeline}
        look={look}
        moment={moment}
        why={hovered !== null ? "hover" : selected !== null ? "selected" : "peak"}
        pointed={pointed.part}
        focus={focus}
        hover={hover}
      />
      {selection && <SpanPanel timeline={timeline} total={look.layout.total} span={selection} />}
      <TensorPanel timeline={timeline} {...shown} />
      <LiveList timeline={timeline} moment={moment} unit={unitOf(timeline.in_use_bytes)} where={where} />
    </div>
  );
}

function whyNone({ step, not_available }: SnapshotSummary): string {
  const said = not_available.find((sentence) => sentence.includes("misses events"));
  const why = said ? "its trace misses events" : "it was not kept (long runs keep some timelines, very long steps have none)";
  return `No timeline of step ${step}: ${why}`;
}

function NoTimelines({ snapshots, run, phase }: { snapshots: readonly SnapshotSummary[]; run: RunInfo; phase: string }) {
  const traced = snapshots.filter((snapshot) => snapshot.phase === phase);
  const last = traced.at(-1);
  if (last) {
    return (
      <Nothing title={`${run.run} has no step timeline`}>
        <p>{whyNone(last)}.</p>
        <p>{plural(traced.length, "step was", "steps were")} traced; Overview and Layers show the breakdown at their peaks.</p>
      </Nothing>
    );
  }
  return (
    <Nothing title={`No ${phase} step of this run was traced on this device`}>
      <p>
        Step timelines come from traced steps. Tracing is off with <code>overhead=0</code> and for replicas; choose the steps with:
      </p>
      <pre tabIndex={0}>
        <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
      </pre>
    </Nothing>
  );
}

/** What to show while there is no timeline: an error, that something is loading, or why there is none. */
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
