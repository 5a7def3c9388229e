/** What all charts over steps share: x-axis, range, lanes and marks, cursor and selected step. */

import { useMemo } from "preact/hooks";

import {
  byteRange,
  cellEdges,
  endingEdges,
  gapsOf,
  withGaps,
  xValues,
  type Gap,
  type Range,
  type XKind,
} from "../../charts/axis";
import { markedSpans, stackLayout, type StackLayout } from "../../charts/layout";
import {
  blankPainter,
  stackPainter,
  stepPainter,
  type Painter,
  type BandFill,
} from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import {
  LANE_HEIGHT,
  capacitiesPainter,
  lanePainter,
  ruleAcross,
  type Outlined,
  type Span,
} from "../../charts/rules";
import { lowerBound, nearestIndex, clamp } from "../../lib/search";
import {
  effectSentence,
  effectTitle,
  effects,
  isFreezing,
  at,
  requestOf,
  rowSentence,
  type Overview,
} from "../../model/overview";
import { stopsOf } from "../../model/step-selection";
import type { Choices } from "../../state/address";
import { supports } from "../../state/views";
import { inks } from "../../theme/palette";
import type { ChartMark } from "./chart-props";
import { useStore, useChoices } from "./context";
import type { Phase, RunInfo } from "../../schema";

/** Where the rows of an overview and its steps lie on the x-axis. */
export interface Places {
  overview: Overview;
  x: Float64Array;
  edges: Float64Array;
  range: Range;
  rowAt?: (x: number) => number;
  /** The place of a step, NaN as for marks. */
  place: (step: number) => number;
  /** The edge before a step; on an axis of time, that of the nearest row. */
  edge: (step: number) => number;
  /**
   * The same for a mark, NaN for steps outside of the rows on an axis of time: it would stick to
   * the chart's end.
   */
  mark: (step: number) => number;
  /** Where steps are missing in the record. */
  gaps: readonly Gap[];
}

export interface Picture {
  spec: PlotSpec;
  places: Places;
  layout: StackLayout;
}

/** Wall time at which a run's relative time is 0. */
export const startOf = (overview: Overview): number =>
  overview.wall_time.find((time) => !Number.isNaN(time)) ?? 0;

export const edgesOf = (
  x: Float64Array,
  kind: XKind,
  phase: Phase,
  first: number | null,
): Float64Array =>
  phase === "validation"
    ? endingEdges(x, kind, kind === "step" && first !== null ? first - 0.5 : null)
    : cellEdges(x);

const cellAt =
  (edges: Float64Array) =>
  (x: number): number =>
    clamp(lowerBound(edges, x) - 1, 0, edges.length - 2);

export const tracedSpans = (
  { x, edges, rowAt }: Places,
  traced: Float64Array,
): [number, number][] =>
  rowAt
    ? [...traced.keys()]
        .filter((row) => traced[row] === 1)
        .map((row) => [edges[row] as number, edges[row + 1] as number])
    : markedSpans(x, edges, traced);

/** Places of an overview's rows; the range is that of the zoom, else of everything drawn. */
export function placesOf(
  overview: Overview,
  start: number,
  { axis, zoom }: Pick<Choices, "axis" | "zoom">,
): Places {
  const { step: steps, phase } = overview;
  const x = xValues(axis, steps, overview.wall_time, start);
  const edges = edgesOf(x, axis, phase, overview.epochs[0]?.first_step ?? null);
  const isOfSteps = axis === "step";
  const edge = (step: number): number =>
    isOfSteps ? step - 0.5 : (edges[lowerBound(steps, step)] ?? 0);
  const [first, last] = [steps[0] ?? NaN, steps[overview.rows - 1] ?? NaN];
  const mark = (step: number): number =>
    isOfSteps || (step >= first && step <= last + 1) ? edge(step) : NaN;
  const place = (step: number): number =>
    isOfSteps ? step : step <= last && step >= first ? (x[lowerBound(steps, step)] ?? NaN) : NaN;
  const [from, to] = zoom === null ? [0, 0] : [edge(zoom[0]), edge(zoom[1] + 1)];
  const range: Range = to > from ? [from, to] : rangeOf(edges);
  const rowAt = phase === "validation" && { rowAt: cellAt(edges) };
  // Of fewer rows than steps, each stands for several steps.
  const isWhole = overview.total_rows === overview.rows && phase !== "validation";
  const gaps = isWhole && isOfSteps ? gapsOf(steps) : [];
  return { overview, x, edges, range, place, edge, mark, gaps, ...rowAt };
}

export function rangeOf(edges: Float64Array): Range {
  const [first, last] = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  return last > first ? [first, last] : [first - 0.5, first + 0.5];
}

/**
 * The range of a chart of some steps only, such as the traced ones: that of the zoom, else from the
 * run's first to its last step; null if neither is given.
 */
export function rangeOfSome(
  steps: Float64Array,
  x: Float64Array,
  { axis, zoom }: Pick<Choices, "axis" | "zoom">,
  span: readonly [number, number] | null,
): Range | null {
  const [first, last] = zoom ?? span ?? [0, 0];
  if (axis === "step") return zoom === null && span === null ? null : [first - 0.5, last + 0.5];
  if (zoom === null) return null;
  const [from, to] = [x[lowerBound(steps, first)], x[lowerBound(steps, last + 1) - 1]];
  return from !== undefined && to !== undefined && to > from ? [from, to] : null;
}

/**
 * What a chart of columns over the steps begins with; `span` is from the run's first to its last
 * step.
 */
export function framed(
  { step, wall_time, phase }: { step: Float64Array; wall_time: Float64Array; phase: Phase },
  choices: Choices,
  span: readonly [number, number] | null,
) {
  const x = xValues(
    choices.axis,
    step,
    wall_time,
    wall_time.find((time) => !Number.isNaN(time)) ?? 0,
  );
  const edges = edgesOf(x, choices.axis, phase, null);
  const range = rangeOfSome(step, x, choices, span) ?? rangeOf(edges);
  const common = { x, xKind: choices.axis, range, inks: inks() };
  return {
    common: phase === "validation" ? { ...common, rowAt: cellAt(edges) } : common,
    edges,
    range,
  };
}

/**
 * First and last step of a span of the axis, null if there are fewer than two; `x` are the places
 * of `steps`.
 */
export function zoomOf(
  kind: XKind,
  steps: Float64Array,
  x: Float64Array,
  from: number,
  to: number,
): [number, number] | null {
  const [first, last] =
    kind === "step"
      ? [Math.max(Math.ceil(from), 0), Math.floor(to)]
      : [steps[lowerBound(x, from)], steps[lowerBound(x, to) - 1]];
  return first === undefined || last === undefined || last <= first ? null : [first, last];
}

export const changeMarks = ({ overview, mark }: Places): ChartMark[] =>
  effects(overview).map((effect) => ({
    x: mark(effect.step),
    step: effect.step,
    label: effectTitle(effect),
    sentence: effectSentence(effect),
  }));

export const failureMarks = ({ overview, mark }: Places): ChartMark[] =>
  overview.failures.map(({ oom, step, reason }) => ({
    x: mark(step),
    step,
    label: "out of memory",
    sentence: `Step ${step} ran out of memory. ${reason}`,
    oom,
  }));

export const failedRequests = ({ overview, mark }: Places): Outlined[] =>
  overview.failures.flatMap((failure) => {
    const request = requestOf(failure, lastKnown(overview.capacity_bytes));
    const { step } = failure;
    return request === null ? [] : [{ ...request, from: mark(step), to: mark(step + 1) }];
  });

export function changeRules({ overview, mark }: Places): Painter[] {
  const { accent, faint, capacity } = inks();
  const changed = effects(overview).map((effect) => {
    const x = mark(effect.step);
    return isFreezing(effect) ? ruleAcross(x, accent, []) : ruleAcross(x, faint, [3, 3]);
  });
  const restarted = overview.sessions
    .slice(1)
    .flatMap(({ first_step: step }) =>
      step === null ? [] : [ruleAcross(mark(step), faint, [1, 3])],
    );
  const failed = overview.failures.map(({ step }) => ruleAcross(mark(step), capacity, []));
  return [...changed, ...restarted, ...failed];
}

function epochLane({ overview, edge, mark }: Places): Painter {
  const { panel, shade, faint, text } = inks();
  const spans: Span[] = overview.epochs.map(({ epoch, first_step, last_step }) => ({
    from: edge(first_step),
    to: edge(last_step + 1),
    name: epoch,
  }));
  const notches = overview.validations.map(({ after_step }) => mark(after_step + 1));
  return lanePainter(spans, notches, { ground: panel, shade, text: faint, mark: text });
}

/** The peaks of validations after the steps that they follow. */
export const validationPoints = ({ overview, range, place }: Places): { x: number; y: number }[] =>
  overview.validations
    .flatMap(({ after_step, peak_bytes: y }) => (y === null ? [] : [{ x: place(after_step), y }]))
    .filter(({ x }) => x >= range[0] && x <= range[1]);

export const headroom = (marks: boolean, lane: boolean): number =>
  8 + (marks ? 26 : 0) + (lane ? LANE_HEIGHT + 4 : 0);

export function highest(column: Float64Array, x: Float64Array, range: Range): number {
  let most = 0;
  for (
    let row = lowerBound(x, range[0]);
    row < x.length && (x[row] as number) <= range[1];
    row += 1
  ) {
    const value = column[row] as number;
    if (value > most) most = value;
  }
  return most;
}

export const lastKnown = (column: Float64Array): number | null => {
  for (let row = column.length - 1; row >= 0; row -= 1) {
    const value = at(column, row);
    if (value !== null) return value;
  }
  return null;
};

interface Stacked {
  columns: readonly Float64Array[];
  fills: readonly BandFill[];
  peak: number;
  /** Below and above the lines of changes. */
  under?: readonly Painter[];
  over?: readonly Painter[];
  lanes?: readonly Painter[];
}

export function stackedPicture(places: Places, stack: Stacked, xKind: XKind): Picture {
  const { columns, fills, peak, under = [], over = [], lanes = [] } = stack;
  const { overview, x, edges, range, rowAt, mark, gaps } = places;
  const ink = inks();
  const layout = stackLayout(edges, columns);
  const capacity = highest(overview.capacity_bytes, x, range) || null;
  const { max, capacityInside } = byteRange(peak, capacity);
  const hasLane = overview.epochs.length > 0;
  // The other half than that of a failure with its request.
  const isEarly = overview.failures.some(({ step }) => 2 * mark(step) < range[0] + range[1]);
  const end = isEarly ? "right" : "left";
  const painters = [
    stackPainter(layout, fills, tracedSpans(places, overview.traced), ink.background),
    ...under,
    ...gaps.map(({ from, to }) => blankPainter(from, to, max, ink.background)),
    ...changeRules(places),
    ...over,
    stepPainter(...withGaps(edges, overview.peak_bytes, gaps), { colour: ink.line, width: 1.5 }),
    // No byte is above the capacity.
    ...capacitiesPainter(edges, overview.capacity_bytes, capacityInside, ink, end),
  ];
  const spec: PlotSpec = {
    x,
    xKind,
    range,
    yMax: max,
    headroom: headroom(effects(overview).length + overview.failures.length > 0, hasLane),
    inks: ink,
    ...(rowAt && { rowAt }),
    painters,
    lanes: [...(hasLane ? [epochLane(places)] : []), ...lanes],
  };
  return { places, layout, spec };
}

interface Stack {
  x: Float64Array;
  xKind: XKind;
  range: Range;
  layout: StackLayout;
  fills: readonly BandFill[];
  full: Parameters<typeof stackPainter>[2];
}

export function stackSpec({ x, xKind, range, layout, fills, full }: Stack): PlotSpec {
  const ink = inks();
  const top = layout.tops.at(-1)?.reduce((most, value) => Math.max(most, value), 1) ?? 1;
  const painters = [stackPainter(layout, fills, full, ink.background)];
  return { x, xKind, range, yMax: top * 1.08, inks: ink, painters };
}

/** From the first to the last step of the shown run; null if they are unknown. */
export function useRunSpan(): readonly [number, number] | null {
  const { first_step: first = null, last_step: last = null } = useStore().primary.value ?? {};
  return useMemo(() => (first === null || last === null ? null : [first, last]), [first, last]);
}

/**
 * Where the axis of steps begins and ends for all runs; undefined if that is unknown, as it is on
 * other axes while zoomed.
 */
function wholeOf(axis: XKind, runs: readonly (RunInfo | null)[]): Range | undefined {
  const known = runs.flatMap((run) =>
    run?.first_step == null || run.last_step === null
      ? []
      : [[run.first_step, run.last_step] as const],
  );
  if (axis !== "step" || known.length === 0) return undefined;
  return [
    Math.min(...known.map(([first]) => first)) - 0.5,
    Math.max(...known.map(([, last]) => last)) + 0.5,
  ];
}

/**
 * Rows of the cursor, of the step that the user selected and of the shown one among `steps`, and
 * handlers that move them; `x` are the places of the steps. A selected step outside of the steps
 * has no row. `runs` are those whose steps the chart shows.
 */
export function useStepsChart(steps: Float64Array, x: Float64Array, runs?: readonly RunInfo[]) {
  const store = useStore();
  const { axis, step: pinned, view } = useChoices();
  const whole = store.whole.value.value;
  const stops = useMemo(() => (whole ? stopsOf(whole) : []), [whole]);
  const selected = pinned ?? store.shownStep.value?.step ?? null;
  const rowOf = (step: number | null): number | null =>
    step === null || steps.length === 0 ? null : nearestIndex(steps, step);
  const isInside = (step: number | null): boolean =>
    step !== null && step >= (steps[0] ?? NaN) && step <= (steps[steps.length - 1] ?? NaN);
  const stepOf = (row: number | null): number | null =>
    row === null ? null : (steps[row] ?? null);
  const rest = rowOf(selected);
  const ends = [whole?.step[0] ?? 0, whole?.step.at(-1) ?? 0] as const;
  const handle = selected !== null &&
    stops.length > 0 && {
      step: selected,
      stops,
      ends,
      choose: (step: number) => store.choose({ step }),
    };
  return {
    marks: [] as readonly ChartMark[],
    whole: wholeOf(axis, runs ?? [store.primary.value]),
    cursor: rowOf(store.cursor.value),
    pin: isInside(pinned) ? rowOf(pinned) : null,
    ...(rest !== null && { rest }),
    ...(handle && supports(view, "step") && { handle }),
    onCursor: (row: number | null) => {
      store.cursor.value = stepOf(row);
    },
    onPin: (row: number) => store.chooseWithUndo({ step: stepOf(row) }),
    onZoom: (from: number, to: number) => {
      const zoom = zoomOf(axis, steps, x, from, to);
      if (zoom) store.choose({ zoom });
    },
    onReset: () => store.choose({ zoom: null }),
    onHover: store.fetched.hold,
  };
}

export interface OverviewRow {
  overview: Overview;
  row: number;
}

/**
 * The same for a picture of an overview: with its marks, the row of the selected step, and that of
 * the step to show.
 */
export function useOverviewChart(overview: Overview, places: Places) {
  const store = useStore();
  const shared = useStepsChart(overview.step, places.x);
  const marks = useMemo(() => {
    const all = [...changeMarks(places), ...failureMarks(places)];
    return all.sort((a, b) => a.x - b.x);
  }, [overview, places]);
  const describe = (row: number): string => rowSentence(overview, row);
  const onMark = ({ step, oom }: ChartMark): void =>
    store.choose(oom === undefined ? { step } : { view: "oom", oom });
  const selected: OverviewRow = store.shownStep.value ?? { overview, row: 0 };
  const shown: OverviewRow = shared.cursor === null ? selected : { overview, row: shared.cursor };
  return { chart: { ...shared, marks, describe, onMark }, selected, shown };
}
