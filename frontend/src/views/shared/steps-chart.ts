/** Cursor, pinned step and zoom, shared by all charts over steps. */

import { useMemo } from "preact/hooks";

import { nearestIndex } from "../../lib/search";
import { peakRow, rowSentence, type Overview } from "../../model/overview";
import type { ChartMark } from "./chart";
import { useStore } from "./context";
import { changeMarks, zoomOf, type Places } from "./frame";

/** Rows of the cursor and the pinned step among `steps`, and handlers that move them; `x` are the places of the steps. */
export function useStepsChart(steps: Float64Array, x: Float64Array) {
  const store = useStore();
  const { axis, step: pinned } = store.choices.value;
  const rowOf = (step: number | null): number | null => (step === null || steps.length === 0 ? null : nearestIndex(steps, step));
  const stepOf = (row: number | null): number | null => (row === null ? null : (steps[row] ?? null));
  return {
    marks: [] as readonly ChartMark[],
    cursor: rowOf(store.cursor.value),
    pin: rowOf(pinned),
    onCursor: (row: number | null): void => {
      store.cursor.value = stepOf(row);
    },
    onPin: (row: number): void => store.choose({ step: stepOf(row) }),
    onZoom: (from: number, to: number): void => {
      const zoom = zoomOf(axis, steps, x, from, to);
      if (zoom) store.choose({ zoom });
    },
    onReset: (): void => store.choose({ zoom: null }),
    onHover: store.hold,
  };
}

/** The same for a picture of an overview: with its marks, the row of the selected step, and that of the step to show. */
export function useOverviewChart(overview: Overview, places: Places) {
  const store = useStore();
  const { axis } = store.choices.value;
  const shared = useStepsChart(overview.step, places.x);
  const marks = useMemo(() => changeMarks(overview, places, axis), [overview, places]);
  const describe = (row: number): string => rowSentence(overview, row);
  const onMark = ({ step }: ChartMark): void => store.choose({ step });
  const selected = shared.pin ?? Math.max(peakRow(overview), 0);
  return { chart: { ...shared, marks, describe, onMark }, selected, row: shared.cursor ?? selected };
}
