/** The chart of a step's timeline, with the figures and the live allocations of one moment. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { partAt, spanOfRange } from "../../charts/timeline-layout";
import { formatBytes, unitOf } from "../../lib/bytes";
import type { Table } from "../../lib/table";
import { opOfRow, ownerOfRow, type Timeline } from "../../model/timeline";
import { momentSentence, timeText } from "../../model/timeline-text";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { useFocus, type Focus } from "../shared/focus";
import { LegendItem } from "../shared/legend";
import { LiveList } from "./live-list";
import { MomentPanel } from "./moment-panel";
import { StepDrawing } from "./step-drawing";
import { stepParts, stepPicture, type StepPicture } from "./step-spec";

const timelineFile = (timeline: Timeline): Table => ({
  columns: ["layer", "category", "trainable", "operation", "bytes", "count", "since_ns", "until_ns", "live_at_peak"],
  rows: Array.from({ length: timeline.rows }, (_, row) => {
    const { layer, category, trainable } = ownerOfRow(timeline, row);
    const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
    return [
      layer,
      category,
      trainable,
      opOfRow(timeline, row),
      timeline.bytes[row] ?? null,
      // An allocation is counted once, not again with its rounding.
      category === "rounding" ? 0 : (timeline.count[row] ?? null),
      start === 0 ? null : (timeline.time_ns[start] ?? null),
      end >= timeline.moments ? null : (timeline.time_ns[end] ?? null),
      start <= timeline.peak && timeline.peak < end,
    ];
  }),
});

/** The chart for the current choices. */
function usePicture(timeline: Timeline, focus: Focus): StepPicture {
  const store = useStore();
  const scheme = schemeOf(store);
  const { stack, timelineAxis, span, layer } = store.choices.value;
  const parts = useMemo(() => stepParts(timeline, stack), [timeline, stack]);
  return useMemo(
    () => stepPicture(timeline, parts, { stack, timelineAxis, span, layer }, scheme, focus),
    [timeline, parts, timelineAxis, span?.[0], span?.[1], layer, scheme, focus],
  );
}

/** The moment under the pointer or the keyboard, the chosen one, and the one that is shown. */
function useMoment(timeline: Timeline) {
  const store = useStore();
  const within = (moment: number | null): number | null => (moment === null ? null : Math.min(moment, timeline.moments - 1));
  const [hovered, chosen] = [within(store.momentCursor.value), within(store.choices.value.moment)];
  useEffect(() => () => void (store.momentCursor.value = null), []);
  return { hovered, chosen, moment: hovered ?? chosen ?? timeline.peak };
}

export function StepTimeline({ timeline, children }: { timeline: Timeline; children: ComponentChildren }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const { focus, hover } = useFocus();
  const [pointed, point] = useState<string | null>(null);
  const picture = usePicture(timeline, focus);
  const { hovered, chosen, moment } = useMoment(timeline);
  const { layout } = picture;
  useExport({
    table: () => timelineFile(timeline),
    legend: () => picture.labels.map((label, index) => ({ label, fill: picture.fills[index] ?? { colour: "none", pattern: "plain" } })),
    drawing: () => <StepDrawing timeline={timeline} picture={picture} scheme={scheme} />,
  });
  const where = moment === timeline.peak ? "at the peak" : `at ${timeText(timeline, moment)}`;
  return (
    <div class="body" data-testid="timeline" data-step={timeline.step} data-moments={timeline.moments}>
      <div class="picture">
        {children}
        <Chart
          height="timeline"
          label={`Timeline of step ${timeline.step} by ${choices.stack}. Peak ${formatBytes(timeline.in_use_bytes)}.`}
          spec={picture.spec}
          marks={[]}
          cursor={hovered}
          pin={chosen}
          rest={timeline.peak}
          describe={(row) => momentSentence(timeline, picture.series, picture.labels, row)}
          onCursor={(row, value) => {
            store.momentCursor.value = row;
            const part = row === null || value === null ? -1 : partAt(layout, row, value);
            point(picture.series[part]?.key ?? null);
          }}
          onPin={(row) => store.choose({ moment: row })}
          onZoom={(from, to) => store.choose({ span: spanOfRange(layout.edges, from, to) })}
          onReset={() => store.choose({ span: null })}
          onHover={store.hold}
        />
        <p class="legend">
          <LegendItem kind="line">bytes in use</LegendItem>
          <LegendItem kind="peak">peak</LegendItem>
          {choices.stack === "category" && choices.layer !== null && <LegendItem kind="layer">selected layer</LegendItem>}
          <span class="hint">Drag to zoom, double-click for all, click to choose a moment, Esc to clear</span>
        </p>
      </div>
      <MomentPanel
        timeline={timeline}
        picture={picture}
        moment={moment}
        why={hovered !== null ? "hover" : chosen !== null ? "chosen" : "peak"}
        pointed={pointed}
        focus={focus}
        hover={hover}
      />
      <LiveList timeline={timeline} moment={moment} unit={unitOf(timeline.in_use_bytes)} where={where} />
    </div>
  );
}
