/** Inside one traced step: what is live from moment to moment, and at any moment the list of it. */

import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";

import { partAt, spanOfRange } from "../charts/timeline-layout";
import { formatBytes, formatCount, unitOf } from "../lib/bytes";
import { formatMilliseconds, plural } from "../lib/format";
import type { Table } from "../lib/table";
import { categoryMeaning } from "../model/categories";
import { at, modeLabel } from "../model/overview";
import type { RunInfo } from "../model/run";
import type { SnapshotSummary } from "../model/snapshot";
import {
  bandLabel,
  bandMeaning,
  bandOf,
  chosenTimeline,
  isPlanned,
  momentSentence,
  opOfRow,
  ownerOfRow,
  timeText,
  type Timeline,
  type TimelineRef,
} from "../model/timeline";
import { INSIDE_AXES, STACKS } from "../state/address";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { Figure, FigureTable, UnitButton, WordFigure } from "./figures";
import { useCategoryRow, useFocus, type Focus } from "./focus";
import { InsideDrawing } from "./inside-drawing";
import { insideParts, insidePicture, type InsidePicture } from "./inside-spec";
import { LegendItem } from "./legend";
import { LiveList } from "./live-list";
import { Fault, Nothing, Skeleton } from "./states";
import { Segments } from "./toolbar";

const timelineFile = (timeline: Timeline): Table => ({
  columns: ["layer", "category", "trainable", "operation", "bytes", "rounding_bytes", "count", "since_ns", "until_ns", "live_at_peak"],
  rows: Array.from({ length: timeline.rows }, (_, row) => {
    const { layer, category, trainable } = ownerOfRow(timeline, row);
    const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
    return [
      layer,
      category,
      trainable,
      opOfRow(timeline, row),
      timeline.bytes[row] ?? null,
      at(timeline.rounding_bytes, row),
      timeline.count[row] ?? null,
      start === 0 ? null : (timeline.time_ns[start] ?? null),
      end >= timeline.moments ? null : (timeline.time_ns[end] ?? null),
      start <= timeline.peak && timeline.peak < end,
    ];
  }),
});

/** Which step is shown, and the ways to another. */
function Chooser({ list, shown }: { list: readonly TimelineRef[]; shown: TimelineRef }) {
  const store = useStore();
  const choices = store.choices.value;
  const steps = [...new Set(list.map(({ step }) => step))].sort((a, b) => a - b);
  const place = steps.indexOf(shown.step);
  const go = (step: number | undefined): void => {
    if (step !== undefined) store.choose({ step });
  };
  return (
    <div class="inside-bar">
      <label class="select">
        <span>inside step</span>
        <select value={String(shown.step)} onChange={(event) => go(Number(event.currentTarget.value))}>
          {steps.map((step) => (
            <option key={step} value={String(step)}>
              {step}
            </option>
          ))}
        </select>
      </label>
      <span class="segments" role="group" aria-label="other traced steps">
        <button type="button" aria-label="The traced step before" disabled={place <= 0} onClick={() => go(steps[place - 1])}>
          ←
        </button>
        <button type="button" aria-label="The next traced step" disabled={place >= steps.length - 1} onClick={() => go(steps[place + 1])}>
          →
        </button>
      </span>
      <Segments label="stack by" options={STACKS} chosen={choices.stack} choose={(stack) => store.choose({ stack })} />
      <Segments label="x-axis" options={INSIDE_AXES} chosen={choices.insideAxis} choose={(insideAxis) => store.choose({ insideAxis })} />
      <button type="button" class="quiet" disabled={choices.span === null} onClick={() => store.choose({ span: null })}>
        Whole step
      </button>
    </div>
  );
}

/** Says so where another step than the selected one is shown, and why. */
function Nearest({ shown, snapshots }: { shown: TimelineRef; snapshots: readonly SnapshotSummary[] | null }) {
  const { step } = useStore().choices.value;
  if (step === null || step === shown.step) return null;
  const traced = snapshots?.find((snapshot) => snapshot.step === step && snapshot.phase === shown.phase);
  const why = traced ? whyNone(traced) : `Step ${step} was not traced`;
  return (
    <p class="small inside-note" data-testid="nearest">
      {why}; step {shown.step}, the nearest one with a timeline, is shown.
    </p>
  );
}

function whyNone({ step, not_available }: SnapshotSummary): string {
  const said = not_available.find((sentence) => sentence.includes("misses events"));
  const why = said
    ? "its trace misses events"
    : "it was not kept: long runs keep some of them, earlier versions kept none, and very long steps have none";
  return `The inside of step ${step} is not available, because ${why}`;
}

function NoTimelines({ snapshots, run, phase }: { snapshots: readonly SnapshotSummary[]; run: RunInfo; phase: string }) {
  const traced = snapshots.filter((snapshot) => snapshot.phase === phase);
  const last = traced.at(-1);
  if (last) {
    return (
      <Nothing title={`The inside of the traced steps of ${run.run} is not available`}>
        <p>{whyNone(last)}.</p>
        <p>
          {plural(traced.length, "step was", "steps were")} traced; what was in use at their peaks is in the overview and in the layers'
          view.
        </p>
      </Nothing>
    );
  }
  return (
    <Nothing title={`No ${phase} step of this run was traced on this device`}>
      <p>
        What is live inside a step is read at traced steps. Tracing is on unless <code>overhead=0</code> was given; name steps to trace
        with:
      </p>
      <pre tabIndex={0}>
        <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
      </pre>
    </Nothing>
  );
}

interface PanelProps {
  timeline: Timeline;
  picture: InsidePicture;
  moment: number;
  /** How the moment came to be shown. */
  why: "hover" | "chosen" | "peak";
  pointed: string | null;
  focus: Focus;
  hover: (key: string | null) => void;
}

const whenAt = (timeline: Timeline, moment: number): string => `step ${timeline.step}, ${timeText(timeline, moment)} after its start`;

/** Where the figures of a moment were learned. */
const learnedAt = (timeline: Timeline, moment: number): string =>
  `the ${isPlanned(timeline, moment) ? "trace and the compiler's plan (XLA plan)" : "trace"}, ${whenAt(timeline, moment)}`;

function PanelHead({ timeline, moment, why, unit }: PanelProps & { unit: ReturnType<typeof unitOf> }) {
  const store = useStore();
  const band = bandOf(timeline, moment);
  return (
    <header class="panel-head">
      <h2 data-testid="moment" data-moment={moment} data-step={timeline.step}>
        {moment === timeline.peak ? "The peak" : timeText(timeline, moment)}
        <span class="why">
          {why === "chosen" && (
            <>
              chosen
              <button
                type="button"
                class="unpin"
                aria-label="Let go of the moment"
                title="Let go (Escape)"
                onClick={() => store.choose({ moment: null })}
              >
                ×
              </button>
            </>
          )}
        </span>
        <UnitButton unit={unit} />
      </h2>
      <p class="small inside-when">
        {moment === timeline.peak && `${timeText(timeline, moment)} · `}
        <span title={band ? bandMeaning(band.name) : ""}>{band ? bandLabel(band.name) : "outside of the passes"}</span>
        {isPlanned(timeline, moment) && " · XLA plan"}
        {` · after ${formatCount(timeline.event[moment] ?? 0)} of ${formatCount(timeline.events)} allocator events`}
      </p>
    </header>
  );
}

/** The parts of the stack at the moment, the uppermost first; each selects what it is. */
function Composition({ timeline, picture, moment, pointed, focus, hover }: PanelProps) {
  const store = useStore();
  const { layer: selected } = store.choices.value;
  const ofCategory = useCategoryRow(hover);
  const ofLayer = (key: string, layer: string) => ({
    chosen: layer === selected,
    onChoose: (): void => store.choose({ layer: layer === selected ? null : layer }),
    onFocus: (focused: boolean): void => hover(focused ? key : null),
  });
  const total = picture.layout.total[moment] ?? 0;
  const rows = picture.series.map((part, index) => ({ part, index })).reverse();
  return (
    <tbody>
      {rows.map(({ part: { key, group, layer, bytes }, index }) => (
        <Figure
          key={key}
          name={key}
          label={picture.labels[index] ?? ""}
          hint={group ? categoryMeaning(group.category) : (layer ?? "")}
          learned={learnedAt(timeline, moment)}
          bytes={bytes[moment] ?? 0}
          share={total ? (bytes[moment] ?? 0) / total : null}
          unit={unitOf(timeline.in_use_bytes)}
          fill={picture.fills[index] ?? { colour: "", pattern: "plain" }}
          focused={(pointed ?? focus.hovered) === key}
          {...(group ? ofCategory(key, group.category) : layer !== null ? ofLayer(key, layer) : {})}
        />
      ))}
    </tbody>
  );
}

function Panel(props: PanelProps) {
  const { timeline, picture, moment } = props;
  const unit = unitOf(timeline.in_use_bytes);
  return (
    <aside class="panel" aria-label="Figures of one moment">
      <PanelHead {...props} unit={unit} />
      <FigureTable testid="inside-composition">
        <Composition {...props} />
        <tbody class="totals">
          <WordFigure unit={unit} strong word="in_use_bytes" when={whenAt(timeline, moment)} bytes={picture.layout.total[moment] ?? 0} />
          <WordFigure unit={unit} word="peak_bytes" when={whenAt(timeline, timeline.peak)} bytes={timeline.in_use_bytes} />
        </tbody>
      </FigureTable>
      <p class="small">
        {`Step ${timeline.step} · ${timeline.phase} · ${modeLabel(timeline.mode)} · ${plural(timeline.rows, "allocation")} in `}
        {formatMilliseconds(timeline.duration_ns / 1e6)}
      </p>
    </aside>
  );
}

/** The picture for what is chosen and looked at. */
function usePicture(timeline: Timeline, focus: Focus): InsidePicture {
  const store = useStore();
  const scheme = schemeOf(store);
  const { stack, insideAxis, span, layer } = store.choices.value;
  const parts = useMemo(() => insideParts(timeline, stack), [timeline, stack]);
  return useMemo(
    () => insidePicture(timeline, parts, { stack, insideAxis, span, layer }, scheme, focus),
    [timeline, parts, insideAxis, span?.[0], span?.[1], layer, scheme, focus],
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

function Inside({ timeline, children }: { timeline: Timeline; children: preact.ComponentChildren }) {
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
    drawing: () => <InsideDrawing timeline={timeline} picture={picture} scheme={scheme} />,
  });
  const where = moment === timeline.peak ? "at the peak" : `at ${timeText(timeline, moment)}`;
  return (
    <div class="body" data-testid="inside" data-step={timeline.step} data-moments={timeline.moments}>
      <div class="picture">
        {children}
        <Chart
          height="inside"
          label={`What is live inside step ${timeline.step}, by ${choices.stack}. Peak ${formatBytes(timeline.in_use_bytes)}.`}
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
          onInside={store.hold}
        />
        <p class="legend">
          <LegendItem kind="line">bytes in use</LegendItem>
          <LegendItem kind="peak">the peak</LegendItem>
          {choices.stack === "category" && choices.layer !== null && <LegendItem kind="layer">the selected layer</LegendItem>}
          <span class="hint">Drag to zoom, double-click for all, click to choose a moment, Esc to clear</span>
        </p>
      </div>
      <Panel
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

function Missing({ sentences }: { sentences: readonly string[] }) {
  if (sentences.length === 0) return null;
  return (
    <ul class="notices" data-testid="not-available">
      {sentences.map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

export function InsideView({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const phase = store.phase.value;
  useLayoutEffect(() => store.wantTimelinesIn(run, device), [run, device]);
  const listed = store.timelinesIn(run, device);
  const snapshots = store.snapshotList.value;
  const list = listed.value?.filter((timeline) => timeline.phase === phase) ?? null;
  const shown = list && chosenTimeline(list, store.choices.value.step);
  const at = shown && `${shown.phase}/${shown.step}`;
  useLayoutEffect(() => {
    if (shown) store.wantTimelineIn(run, device, shown);
  }, [run, device, at]);
  const retry = (): void => void store.reload();
  if (list === null) return listed.error === null ? <Skeleton /> : <Fault sentence={listed.error} retry={retry} />;
  if (!shown) {
    if (snapshots.value === null) return snapshots.error === null ? <Skeleton /> : <Fault sentence={snapshots.error} retry={retry} />;
    return <NoTimelines snapshots={snapshots.value} run={run} phase={phase} />;
  }
  const { value, error } = store.timelineIn(run, device, shown);
  return (
    <>
      {listed.error !== null && <Fault sentence={`Not up to date: ${listed.error}`} retry={retry} />}
      {value ? (
        <Inside key={`${run.run}/${device}/${at}`} timeline={value}>
          <Chooser list={list} shown={shown} />
          <Nearest shown={shown} snapshots={snapshots.value} />
          <Missing sentences={value.not_available} />
        </Inside>
      ) : (
        <>
          <div class="inside-alone">
            <Chooser list={list} shown={shown} />
          </div>
          {error === null ? <Skeleton /> : <Fault sentence={error} retry={retry} />}
        </>
      )}
    </>
  );
}
