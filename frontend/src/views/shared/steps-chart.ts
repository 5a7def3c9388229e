/** Cursor, selected step and zoom, shared by all charts over steps. */

import { useMemo } from "preact/hooks";

import type { Range, XKind } from "../../charts/axis";
import { nearestIndex } from "../../lib/search";
import { rowSentence, type Overview } from "../../model/overview";
import type { RunInfo } from "../../model/run";
import type { ChartMark } from "./chart";
import { useStore } from "./context";
import { changeMarks, failureMarks, zoomOf, type Places } from "./frame";

/** Where the axis of steps begins and ends for all runs; undefined if that is unknown, as it is on other axes while zoomed. */
function wholeOf(axis: XKind, runs: readonly (RunInfo | null)[]): Range | undefined {
  const known = runs.flatMap((run) =>
    run?.first_step == null || run.last_step === null ? [] : [[run.first_step, run.last_step] as const],
  );
  if (axis !== "step" || known.length === 0) return undefined;
  return [Math.min(...known.map(([first]) => first)) - 0.5, Math.max(...known.map(([, last]) => last)) + 0.5];
}

/**
 * Rows of the cursor, of the step that the user selected and of the shown one among `steps`, and handlers that move them; `x` are the
 * places of the steps. A selected step outside of the steps has no row. `runs` are those whose steps the chart shows.
 */
export function useStepsChart(steps: Float64Array, x: Float64Array, runs?: readonly RunInfo[]) {
  const store = useStore();
  const { axis, step: pinned } = store.choices.value;
  const selected = pinned ?? store.shownStep.value?.step ?? null;
  const rowOf = (step: number | null): number | null => (step === null || steps.length === 0 ? null : nearestIndex(steps, step));
  const isInside = (step: number | null): boolean => step !== null && step >= (steps[0] ?? NaN) && step <= (steps[steps.length - 1] ?? NaN);
  const stepOf = (row: number | null): number | null => (row === null ? null : (steps[row] ?? null));
  const rest = rowOf(selected);
  return {
    marks: [] as readonly ChartMark[],
    whole: wholeOf(axis, runs ?? [store.primary.value]),
    cursor: rowOf(store.cursor.value),
    pin: isInside(pinned) ? rowOf(pinned) : null,
    ...(rest !== null && { rest }),
    onCursor: (row: number | null): void => {
      store.cursor.value = stepOf(row);
    },
    onPin: (row: number) => store.chooseWithUndo({ step: stepOf(row) }),
    onZoom: (from: number, to: number): void => {
      const zoom = zoomOf(axis, steps, x, from, to);
      if (zoom) store.choose({ zoom });
    },
    onReset: (): void => store.choose({ zoom: null }),
    onHover: store.fetched.hold,
  };
}

/** A row of an overview. */
export interface OverviewRow {
  overview: Overview;
  row: number;
}

/** The same for a picture of an overview: with its marks, the row of the selected step, and that of the step to show. */
export function useOverviewChart(overview: Overview, places: Places) {
  const store = useStore();
  const { axis } = store.choices.value;
  const shared = useStepsChart(overview.step, places.x);
  const marks = useMemo(() => {
    const all = [...changeMarks(overview, places, axis), ...failureMarks(overview, places, axis)];
    return all.sort((a, b) => a.x - b.x);
  }, [overview, places]);
  const describe = (row: number): string => rowSentence(overview, row);
  const onMark = ({ step, oom }: ChartMark): void => store.choose(oom === undefined ? { step } : { view: "oom", oom });
  const selected: OverviewRow = store.shownStep.value ?? { overview, row: 0 };
  const shown: OverviewRow = shared.cursor === null ? selected : { overview, row: shared.cursor };
  return { chart: { ...shared, marks, describe, onMark }, selected, shown };
}
