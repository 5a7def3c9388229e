/** The predicted peak over the batch size; a click sets the batch size. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Range } from "../../charts/axis";
import type { Undo } from "../../charts/plot";
import { later } from "../../lib/activity";
import { unbroken } from "../../lib/bytes";
import { pointOf, pointText, type CurvePoint, type WhatIf } from "../../model/what-if";
import { Chart, type ChartMark } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { LegendItem } from "../shared/legend";
import { curveColour, curveSpec, largestMark, measuredPoint, wholeRange, zoomedRange } from "./curve-spec";

/** Pause of the keys after which the slider applies. */
const PAUSE_MS = 700;

function useZoom(answer: WhatIf) {
  const [zoom, setZoom] = useState<Range | null>(null);
  const whole = useMemo(() => wholeRange(answer), [answer]);
  // Another answer may end before the zoom begins.
  const range = zoom !== null && zoom[0] < whole[1] ? zoom : whole;
  const onZoom = (from: number, to: number): void => {
    const wanted = zoomedRange(from, to, whole);
    if (wanted !== null) setZoom(wanted);
  };
  return { range, whole, onZoom, onReset: () => setZoom(null) };
}

function Legend({ answer }: { answer: WhatIf }) {
  const store = useStore();
  const colour = curveColour(schemeOf(store));
  const measured = measuredPoint(answer);
  return (
    <p class="legend">
      <LegendItem kind="fill range" colour={colour}>
        range
      </LegendItem>
      {answer.curve.some(({ fits }) => fits !== true) && (
        <LegendItem kind="point hollow" colour={colour}>
          does not or may not fit
        </LegendItem>
      )}
      {measured && <LegendItem kind="diamond measured">measured</LegendItem>}
    </p>
  );
}

interface BatchSliderProps {
  curve: readonly CurvePoint[];
  row: number;
  /** While it moves: the row whose figures are shown; null for those of the answer. */
  move: (row: number | null) => void;
  apply: (batchSize: number | undefined) => void;
}

/** Moves through the batch sizes of the curve; applies when it is let go, or after a pause of the keys. */
function BatchSlider({ curve, row, move, apply }: BatchSliderProps) {
  const store = useStore();
  const isHeld = useRef(false);
  const cancel = useRef(() => {});
  useEffect(() => () => cancel.current(), []);
  const hold = (held: boolean): void => {
    isHeld.current = held;
    store.fetched.hold(held);
  };
  const set = (at: number): void => {
    cancel.current();
    apply(curve[at]?.batch_size);
    move(null);
  };
  return (
    <input
      type="range"
      class="batch-slider"
      aria-label="Batch size of the curve"
      aria-valuetext={curve[row] && pointText(curve[row])}
      min={0}
      max={curve.length - 1}
      step={1}
      value={row}
      onPointerDown={() => hold(true)}
      onPointerUp={({ currentTarget: { valueAsNumber } }) => {
        hold(false);
        set(valueAsNumber);
      }}
      onPointerCancel={() => hold(false)}
      onInput={({ currentTarget: { valueAsNumber } }) => {
        cancel.current();
        move(valueAsNumber);
        if (!isHeld.current) cancel.current = later(PAUSE_MS, () => set(valueAsNumber));
      }}
    />
  );
}

export function PeakCurve({ answer }: { answer: WhatIf }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { curve } = answer;
  const [cursor, setCursor] = useState<number | null>(null);
  const { range, whole, onZoom, onReset } = useZoom(answer);
  const spec = useMemo(() => curveSpec(answer, range, scheme), [answer, range, scheme]);
  const marks = useMemo(() => largestMark(answer), [answer]);
  if (curve.length < 2) return null;
  const choose = (batchSize: number | undefined): Undo | null => {
    if (batchSize === undefined || store.recordedOnly) return null;
    return store.chooseWithUndo({ conditions: { ...store.choices.peek().conditions, batch_size: String(batchSize) } });
  };
  const pin = pointOf(curve, answer.batch_size);
  const inside = (row: number | null): number | null => (row === null || row >= curve.length ? null : row);
  // The answer above says what is known of its own point.
  const point = curve[inside(cursor) ?? -1];
  const describe = (row: number): string => (curve[row] ? pointText(curve[row]) : "");
  return (
    <section aria-label="Peak over batch size">
      <h3>Peak over batch size</h3>
      {!store.recordedOnly && <BatchSlider curve={curve} row={inside(cursor) ?? pin ?? 0} move={setCursor} apply={choose} />}
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
    </section>
  );
}
