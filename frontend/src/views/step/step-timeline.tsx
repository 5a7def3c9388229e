/** The chart of a step's timeline, with the figures and the live allocations of one moment, and all that is known of one tensor. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import { BlockPainter } from "../../charts/timeline-block-paint";
import { unitOf } from "../../lib/bytes";
import type { Timeline } from "../../model/timeline";
import { timelineFile, largestTensor, tensorOf, timeText } from "../../model/timeline-text";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { useFocus, type Focus } from "../shared/focus";
import { LiveList } from "./live-list";
import { MomentPanel } from "./moment-panel";
import { SpanPanel } from "./span-panel";
import { TensorBar } from "./step-bars";
import { NOWHERE, StepChart, type Pointed } from "./step-chart";
import { StepDrawing } from "./step-drawing";
import { partingOf, stepParts } from "./step-parts";
import { stepLook, stepSpec, type StepLook } from "./step-spec";
import { tensorBlocks } from "./tensor-blocks";
import { TensorPanel, type TensorWhy } from "./tensor-panel";

/** The parts, the tensors and their fills for the current choices. */
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

/** The moment under the pointer or the keyboard, the selected one, and the one that is shown. */
function useMoment(timeline: Timeline) {
  const store = useStore();
  const within = (moment: number | null): number | null => (moment === null ? null : Math.min(moment, timeline.moments - 1));
  const [hovered, selected] = [within(store.momentCursor.value), within(store.choices.value.moment)];
  useEffect(() => () => void (store.momentCursor.value = null), []);
  return { hovered, selected, moment: hovered ?? selected ?? timeline.peak };
}

/** The selected span, within the step. */
function useSelection({ moments }: Timeline): readonly [number, number] | null {
  const { selection } = useStore().choices.value;
  return useMemo(() => selection && [Math.min(selection[0], moments - 1), Math.min(selection[1], moments - 1)], [selection, moments]);
}

/** The tensor that the panel describes. */
function useTensor(timeline: Timeline, pointed: Pointed, moment: number) {
  const { tensor: selected } = useStore().choices.value;
  const largest = useMemo(() => largestTensor(timeline, moment), [timeline, moment]);
  const known = selected !== null && tensorOf(timeline, selected) !== null ? selected : null;
  const number = pointed.tensor ?? known ?? largest;
  const why: TensorWhy = pointed.tensor !== null ? "pointed" : known !== null ? "selected" : "largest";
  return { why, tensor: useMemo(() => (number === null ? null : tensorOf(timeline, number)), [timeline, number]) };
}

/** The view's downloads. */
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

export function StepTimeline({ timeline, children }: { timeline: Timeline; children: ComponentChildren }) {
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
