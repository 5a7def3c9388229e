/** The predicted peak over the batch size; a click sets the batch size. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { byteRange, type Range } from "../../charts/axis";
import { bandPainter, linePainter, diamondsPainter, pointsPainter } from "../../charts/paint";
import type { Undo, PlotSpec } from "../../charts/plot";
import { capacityPainter, ruleAcross } from "../../charts/rules";
import { later } from "../../lib/activity";
import { unbroken, formatBytes, formatCount } from "../../lib/bytes";
import { clamp, nearestIndex } from "../../lib/search";
import { curveWith, pointOf, pointText } from "../../model/what-if";
import { inks, dark } from "../../theme/palette";
import { Chart } from "../shared/chart";
import type { ChartMark } from "../shared/chart-props";
import { useStore } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { Fault, Progress, useLast } from "../shared/states";
import type { CurvePoint, WhatIf } from "../../schema";

const BAND = 0.22;

export const curveColour = (): string => (dark.value ? "#7ba2f5" : "#2453b8");

/** What is drawn: an answer, and the curve with its point. */
export type Drawn = WhatIf & { curve: readonly CurvePoint[] };

export const wholeRange = ({ curve }: Drawn): Range => [
  0,
  Math.max(curve.at(-1)?.batch_size ?? 1, 1) * 1.02,
];

export function measuredPoint({
  recorded: { batch_sizes, peak_bytes },
}: WhatIf): { x: number; y: number } | null {
  const x = batch_sizes.at(-1);
  return x === undefined || peak_bytes === null ? null : { x, y: peak_bytes };
}

export function largestMark({
  largest_batch_size: largest,
  capacity_bytes: capacity,
}: WhatIf): ChartMark[] {
  if (!largest) return [];
  const room = capacity === null ? "" : ` in ${formatBytes(capacity)}`;
  const sentence = `${formatCount(largest)} is the largest batch size at which every simulated step fits${room}.`;
  return [{ x: largest, step: largest, label: `largest: ${formatCount(largest)}`, sentence }];
}

/**
 * The range of a zoom inside the whole one; null if it is narrower than from one batch size to the
 * next.
 */
export function zoomedRange(from: number, to: number, whole: Range): Range | null {
  const [least, most] = [Math.max(from, whole[0]), Math.min(to, whole[1])];
  return most - least >= 1 ? [least, most] : null;
}

export function curveSpec(answer: Drawn, range: Range): PlotSpec {
  const { curve, capacity_bytes: capacity, largest_batch_size: largest } = answer;
  const ink = inks();
  const x = Float64Array.from(curve, ({ batch_size }) => batch_size);
  const [low, peak, high] = (["low_bytes", "peak_bytes", "high_bytes"] as const).map((name) =>
    Float64Array.from(curve, (one) => one[name]),
  ) as [Float64Array, Float64Array, Float64Array];
  const measured = measuredPoint(answer);
  // The first point right of the range counts: the curve leads up to it.
  const beyond = curve.findIndex(({ batch_size }) => batch_size >= range[1]);
  const seen = curve.slice(0, beyond < 0 ? undefined : beyond + 1);
  const top = Math.max(measured?.y ?? 0, ...seen.map(({ high_bytes }) => high_bytes));
  // The label stands away from where the curve meets the line.
  const end = largest !== null && 2 * largest > range[0] + range[1] ? "left" : "right";
  const { max, capacityInside } = byteRange(top, capacity);
  return {
    x,
    xKind: "step",
    range,
    yMax: max,
    headroom: 34,
    inks: inks(),
    painters: [
      bandPainter(x, low, high, curveColour(), BAND),
      ...(largest ? [ruleAcross(largest, ink.accent, [3, 3])] : []),
      ...capacityPainter(capacity, capacityInside, ink, end),
      linePainter(x, peak, curveColour(), 1.75),
      pointsPainter(x, peak, curveColour(), {
        rows: (row) => curve[row]?.fits !== true,
        ground: ink.background,
      }),
    ],
    lanes:
      measured && measured.x <= range[1] && measured.x >= range[0]
        ? [diamondsPainter([measured], ink.line, ink.background)]
        : [],
  };
}

const PAUSE_MS = 700;

function useZoom(answer: Drawn) {
  const [zoom, setZoom] = useState<Range | null>(null);
  const whole = useMemo(() => wholeRange(answer), [answer]);
  // Another answer may end before the zoom begins.
  const range = zoom !== null && zoom[0] < whole[1] ? zoom : whole;
  const onZoom = (from: number, to: number) => {
    const wanted = zoomedRange(from, to, whole);
    if (wanted !== null) setZoom(wanted);
  };
  return { range, whole, onZoom, onReset: () => setZoom(null) };
}

function Legend({ answer }: { answer: Drawn }) {
  const colour = curveColour();
  const measured = measuredPoint(answer);
  return (
    <p class="legend">
      <LegendItem kind="fill range" colour={colour} label="range" />
      {answer.curve.some(({ fits }) => fits !== true) && (
        <LegendItem kind="point hollow" colour={colour} label="no or maybe" />
      )}
      {measured && <LegendItem kind="diamond measured" label="measured" />}
    </p>
  );
}

interface BatchSliderProps {
  curve: readonly CurvePoint[];
  /** What the plot below shows. */
  range: Range;
  row: number;
  /** While it moves: the row whose figures are shown; null for those of the answer. */
  move: (row: number | null) => void;
  apply: (batchSize: number | undefined) => void;
}

/**
 * The row of the curve that a slider goes to from `row`: the nearest one to where it is dragged; by
 * a key, which moves it by one, the next one.
 */
export function sliderRow(sizes: readonly number[], row: number, value: number, held: boolean) {
  const nearest = nearestIndex(sizes, value);
  if (held || nearest !== row) return nearest;
  return clamp(row + Math.sign(value - (sizes[row] ?? value)), 0, sizes.length - 1);
}

/**
 * Moves through the batch sizes of the curve, above the places that they have in the plot; applies
 * on release, or after a pause of the keys.
 */
export function BatchSlider({ curve, range, row, move, apply }: BatchSliderProps) {
  const store = useStore();
  const isHeld = useRef(false);
  const cancel = useRef(() => {});
  useEffect(() => () => cancel.current(), []);
  const sizes = curve.map(({ batch_size }) => batch_size);
  const hold = (held: boolean) => {
    isHeld.current = held;
    store.fetched.hold(held);
  };
  const set = (at: number) => {
    cancel.current();
    apply(sizes[at]);
    move(null);
  };
  const rowOf = (slider: HTMLInputElement): number => {
    const at = sliderRow(sizes, row, slider.valueAsNumber, isHeld.current);
    slider.value = String(sizes[at]);
    return at;
  };
  return (
    <input
      type="range"
      class="batch-slider"
      aria-label="Batch size of the curve"
      aria-valuetext={curve[row] && pointText(curve[row])}
      min={range[0]}
      max={range[1]}
      step="any"
      value={sizes[row]}
      onPointerDown={() => hold(true)}
      onPointerUp={({ currentTarget }) => {
        const at = rowOf(currentTarget);
        hold(false);
        set(at);
      }}
      onPointerCancel={() => hold(false)}
      onInput={({ currentTarget }) => {
        cancel.current();
        const at = rowOf(currentTarget);
        move(at);
        if (!isHeld.current) cancel.current = later(PAUSE_MS, () => set(at));
      }}
    />
  );
}

function Curve({ answer }: { answer: Drawn }) {
  const store = useStore();
  const { curve } = answer;
  const [cursor, setCursor] = useState<number | null>(null);
  const { range, whole, onZoom, onReset } = useZoom(answer);
  const spec = useMemo(() => curveSpec(answer, range), [answer, range, dark.value]);
  const marks = useMemo(() => largestMark(answer), [answer]);
  const choose = (batchSize: number | undefined): Undo | null => {
    if (batchSize === undefined || store.recordedOnly) return null;
    return store.chooseWithUndo({
      conditions: { ...store.choices.peek().conditions, batch_size: String(batchSize) },
    });
  };
  const pin = pointOf(curve, answer.batch_size);
  const inside = (row: number | null): number | null =>
    row === null || row >= curve.length ? null : row;
  // The answer above says what is known of its own point.
  const point = curve[inside(cursor) ?? -1];
  const describe = (row: number): string => (curve[row] ? pointText(curve[row]) : "");
  return (
    <>
      {!store.recordedOnly && (
        <BatchSlider
          curve={curve}
          range={range}
          row={inside(cursor) ?? pin ?? 0}
          move={setCursor}
          apply={choose}
        />
      )}
      <p class="curve-point" data-testid="curve-point">
        {point && unbroken(pointText(point))}
      </p>
      <Chart
        height="medium"
        label="Predicted peak over batch size."
        spec={spec}
        marks={marks}
        cursor={inside(cursor)}
        pin={pin}
        describe={describe}
        onCursor={(row) => setCursor(row)}
        onPin={(row) => choose(curve[row]?.batch_size)}
        onMark={({ step }: ChartMark) => choose(step)}
        whole={whole}
        onZoom={onZoom}
        onReset={onReset}
        onHover={store.fetched.hold}
      />
      <Legend answer={answer} />
    </>
  );
}

/** As high while it is simulated. */
export function PeakCurve({ answer }: { answer: WhatIf }) {
  const { value, error } = useStore().curve.value;
  const last = useLast(value);
  const drawn = useMemo(
    () => last && { ...answer, curve: curveWith(last.curve, answer) },
    [answer, last],
  );
  if (drawn && drawn.curve.length < 2) return null;
  return (
    <section
      class="peak-curve"
      aria-label="Peak over batch size"
      aria-busy={!drawn && error === null}
    >
      <h3>Peak over batch size</h3>
      {drawn ? (
        <Curve answer={drawn} />
      ) : error === null ? (
        <Progress>Simulating batch sizes …</Progress>
      ) : (
        <Fault sentence={error} />
      )}
    </section>
  );
}
