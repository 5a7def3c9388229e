/** A layer's own page: its bytes over traced steps, its shapes, and the formula of each figure. */

import { useEffect, useMemo } from "preact/hooks";

import { cellEdges, xValues, type Range } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import {
  formatBytes,
  formatCount,
  formatExact,
  unitOf,
  formatShare,
  type Table,
} from "../../lib/bytes";
import { lowerBound, maximum, nearestIndex } from "../../lib/search";
import { categoryLabel } from "../../model/categories";
import { formula, outputFacts, shapeText, trainingOf, type FormulaStep } from "../../model/layers";
import { at, measuredAt, type Overview } from "../../model/overview";
import { shortName } from "../../model/run";
import type { LedgerTotals } from "../../model/snapshot";
import { batchSizeAt } from "../../model/step-selection";
import type { Choices } from "../../state/address";
import { categoryFill, dark } from "../../theme/palette";
import { Chart } from "../shared/chart";
import type { ChartMark } from "../shared/chart-props";
import { useStore, useFetched, useFocus, isMuted, type Focus, useChoices } from "../shared/context";
import { LegendItem, Choose } from "../shared/controls";
import { useExport } from "../shared/export";
import { CategoryRows, Figure, FigureTable, Panel, useExact } from "../shared/figures";
import {
  changeMarks,
  changeRules,
  headroom,
  placesOf,
  rangeOf,
  rangeOfSome,
  stackSpec,
  startOf,
  useStepsChart,
  useRunSpan,
} from "../shared/frame";
import { Known, Nothing } from "../shared/states";
import { tipOf } from "../shared/tips";
import { CATEGORIES, type Category, type Layer, type SnapshotRef } from "../../schema";

type LayerSteps = ReturnType<typeof layerSteps>;

/** A step that was not traced, and the traced one that describes it. */
interface Asked {
  step: number;
  wall_time: number;
  traced: number;
}

/**
 * The totals by category alone: whether it was trainable changes over the steps, the category of
 * its bytes does not. An asked step stands among the traced ones, with the figures of its own.
 */
export function layerSteps(totals: LedgerTotals, asked: Asked | null = null) {
  const { groups } = totals;
  const rows = [...totals.step.keys()];
  const place = asked === null ? 0 : lowerBound(totals.step, asked.step);
  const added = asked !== null && rows.length > 0 && totals.step[place] !== asked.step ? place : -1;
  if (asked && added >= 0) rows.splice(added, 0, nearestIndex(totals.step, asked.traced));
  const take = (column: Float64Array): Float64Array =>
    Float64Array.from(rows, (row) => column[row] ?? NaN);
  const [step, wall_time, traced] = [take(totals.step), take(totals.wall_time), take(totals.step)];
  if (asked && added >= 0) [step[added], wall_time[added]] = [asked.step, asked.wall_time];
  const summed = (category: Category): Float64Array =>
    Float64Array.from(rows, (row) =>
      groups.reduce(
        (sum, group, index) =>
          sum + (group.category === category ? (totals.bytes[index]?.[row] ?? 0) : 0),
        0,
      ),
    );
  const parts = CATEGORIES.map((category) => ({ category, bytes: summed(category) }));
  const used = parts.filter(({ bytes }) => bytes.some((value) => value > 0));
  return { step, wall_time, traced, in_use_bytes: take(totals.in_use_bytes), parts: used };
}

export const totalOf = ({ parts }: LayerSteps, row: number): number =>
  parts.reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0);

export const usedAt = (
  { parts }: LayerSteps,
  row: number,
): { category: Category; bytes: number }[] =>
  [...parts]
    .reverse()
    .map(({ category, bytes }) => ({ category, bytes: bytes[row] ?? 0 }))
    .filter(({ bytes }) => bytes > 0);

interface Look {
  choices: Choices;
  focus: Focus;
  /** The first step that a traced one describes. */
  firstSteps: ReadonlyMap<number, number>;
  span: readonly [number, number] | null;
  whole: Overview | null;
}

/**
 * Where the traced steps' areas begin and end. As in the overview, each covers the steps from the
 * first one that it describes; the first also covers those before it.
 */
export const layerEdges = (
  edges: Float64Array,
  x: Float64Array,
  step: Float64Array,
  firstSteps: ReadonlyMap<number, number>,
  range: Range,
): Float64Array =>
  edges.map((edge, index) => {
    if (index === 0) return Math.min(edge, range[0]);
    if (index === edges.length - 1) return Math.max(edge, range[1]);
    const [before, own] = [step[index - 1] as number, step[index] as number];
    const [from, to] = [x[index - 1] as number, x[index] as number];
    return own > before
      ? to - ((to - from) * (own - Math.max(firstSteps.get(own) ?? own, before))) / (own - before)
      : to;
  });

export function layerSpec(
  { step, wall_time, traced, parts }: LayerSteps,
  { choices, focus, firstSteps, span, whole }: Look,
) {
  const start = whole ? startOf(whole) : (wall_time[0] ?? 0);
  const x = xValues(choices.axis, step, wall_time, start);
  const cells = cellEdges(x);
  const range: Range = rangeOfSome(step, x, choices, span) ?? rangeOf(x.length > 1 ? x : cells);
  const edges = layerEdges(cells, x, step, firstSteps, range);
  const layout = stackLayout(
    edges,
    parts.map(({ bytes }) => bytes),
  );
  const fills = parts.map(({ category }) => ({
    ...categoryFill(category),
    muted: isMuted(focus, [category], category),
  }));
  const full = [...x]
    .map((place) => [place, place] as const)
    .filter((_, row) => traced[row] === step[row]);
  const spec = stackSpec({ x, xKind: choices.axis, range, layout, fills, full });
  if (whole === null) return { spec, marks: [] };
  const places = placesOf(whole, start, choices);
  const marks = changeMarks(places);
  const painters = [...spec.painters, ...changeRules(places)];
  return { spec: { ...spec, painters, headroom: headroom(marks.length > 0, false) }, marks };
}

const NO_SNAPSHOTS: readonly SnapshotRef[] = [];

interface Moment extends FormulaStep {
  steps: LayerSteps;
  row: number;
  isMissing: boolean;
  table: Layer | null;
}

/**
 * The formula of each figure that follows from shapes, at the selected step: the list does not
 * change its length under the pointer.
 */
const Formulas = ({ steps, row, table, optimizer, batch_size }: Moment) => (
  <section>
    <h3>
      Formulas <span class="small">step {at(steps.step, row) ?? "?"}</span>
    </h3>
    <dl class="facts" data-testid="formulas">
      {usedAt(steps, row).map(({ category, bytes }) => {
        const made = formula(category, table, bytes, { optimizer, batch_size }, formatExact);
        return (
          made !== null && (
            <div key={category}>
              <dt>
                {categoryLabel(category)} {formatBytes(bytes)}
              </dt>
              <dd>{made}</dd>
            </div>
          )
        );
      })}
    </dl>
  </section>
);

function Figures({ shown, fixed }: { shown: Moment; fixed: Moment }) {
  const { steps, row, table, optimizer, batch_size } = shown;
  const total = totalOf(steps, row);
  const whole = at(steps.in_use_bytes, row);
  const figures = new Map(steps.parts.map(({ category, bytes }) => [category, bytes[row] ?? null]));
  const highest = new Map(steps.parts.map(({ category, bytes: all }) => [category, maximum(all)]));
  const highestTotal = maximum(steps.step.map((_, index) => totalOf(steps, index)));
  const [step, from] = [at(steps.step, row), at(steps.traced, row)];
  const failed =
    useStore().whole.value.value?.snapshots.some((one) => one.at_failure && one.step === from) ??
    false;
  const traced = measuredAt({ step: from ?? 0, at_failure: failed });
  const source = (category: Category, bytes: number): string =>
    [formula(category, table, bytes, { optimizer, batch_size }), traced].filter(Boolean).join("\n");
  return (
    <Panel
      label="Figures of the layer at one step"
      step={step}
      unit={unitOf(total)}
      about={
        <>
          {from !== step
            ? traced
            : failed
              ? "measured at the failed allocation"
              : "traced at the peak"}
          {whole && total > 0 && ` · ${formatShare(total / whole)} of it`}
        </>
      }
    >
      <FigureTable testid="layer-figures">
        <tbody>
          <CategoryRows {...{ highest, total, source }} bytes={figures} whole={highestTotal} />
        </tbody>
        <tbody class="totals">
          <Figure
            strong
            name="total"
            label="total"
            hint="sum of all categories"
            source={traced}
            bytes={total}
          />
        </tbody>
      </FigureTable>
      <Known>
        <Formulas {...fixed} />
      </Known>
    </Panel>
  );
}

function Output({ of }: { of: Layer }) {
  const { output_bytes: bytes } = of;
  const text = useExact() ? formatExact : formatBytes;
  return (
    <span
      class="together"
      data-testid="output"
      data-bytes={bytes ?? ""}
      data-tip={tipOf(bytes, ...outputFacts(of))}
    >
      {bytes === null ? "size unknown" : `${text(bytes)} per batch`}
    </span>
  );
}

function Head({ layer, table }: { layer: string; table: Layer | null }) {
  const known = table && [
    table.type,
    trainingOf(table),
    `${formatCount(table.parameters)} parameters`,
    `output ${shapeText(table) || "unknown"}`,
  ];
  return (
    <header class="layer-head">
      <Choose class="quiet" these={{ view: "layers" }}>
        ← All layers
      </Choose>
      <h2 title={layer}>{shortName(layer)}</h2>
      <p class="small">
        {layer} · {known ? known.join(" · ") : "not in the layer table"}
        {table && (
          <>
            , <Output of={table} />
          </>
        )}
      </p>
    </header>
  );
}

const stepsFile = ({ step, parts }: LayerSteps): Table => ({
  columns: ["step", ...parts.map(({ category }) => category)],
  rows: [...step].map((one, index) => [one, ...parts.map(({ bytes }) => bytes[index] ?? null)]),
});

function useSpec(steps: LayerSteps, focus: Focus) {
  const store = useStore();
  const choices = useChoices();
  const whole = store.whole.value.value;
  const span = useRunSpan();
  return useMemo(() => {
    const firstSteps = new Map(
      (whole?.snapshots ?? NO_SNAPSHOTS).map(({ step, first_step }) => [step, first_step]),
    );
    return layerSpec(steps, { choices, focus, firstSteps, span, whole });
  }, [steps, choices.axis, choices.zoom, dark.value, focus, whole, span]);
}

function useMomentOf(steps: LayerSteps, row: number, layer: string): Moment {
  const store = useStore();
  const step = at(steps.step, row) ?? store.choices.value.step ?? 0;
  const run = store.primary.value;
  const { value: tables } = useFetched(
    store.fetched.layers,
    run && [run, store.device.value, step],
  );
  const table = tables?.layers.find(({ path }) => path === layer) ?? null;
  const batch_size = batchSizeAt(
    store.whole.value.value?.snapshots ?? NO_SNAPSHOTS,
    at(steps.traced, row) ?? step,
  );
  const isMissing = tables !== null && table === null;
  return { steps, row, table, isMissing, optimizer: tables?.optimizer ?? null, batch_size };
}

/** The layer's steps, the selected one among them, and its row. */
function useLayerSteps(totals: LedgerTotals) {
  const { overview, row, step, snapshot } = useStore().shownStep.value ?? {};
  const time = (overview && at(overview.wall_time, row ?? 0)) ?? NaN;
  const traced = snapshot?.step;
  const steps = useMemo(
    () =>
      layerSteps(
        totals,
        step === undefined || traced === undefined ? null : { step, wall_time: time, traced },
      ),
    [totals, step, time, traced],
  );
  return {
    steps,
    pinned: step === undefined ? steps.step.length - 1 : nearestIndex(steps.step, step),
  };
}

export function LayerView({ totals, layer }: { totals: LedgerTotals; layer: string }) {
  const store = useStore();
  const focus = useFocus();
  const { steps, pinned } = useLayerSteps(totals);
  const { spec, marks } = useSpec(steps, focus);
  const chart = {
    ...useStepsChart(steps.step, spec.x),
    marks,
    onMark: ({ step }: ChartMark) => store.choose({ step }),
  };
  const fixed = useMomentOf(steps, pinned, layer);
  const shown = useMomentOf(steps, chart.cursor ?? pinned, layer);
  const isUnknown = fixed.isMissing && steps.parts.length === 0;
  useEffect(() => {
    // Of another run, which has no such layer.
    if (isUnknown) store.replace({ view: "layers", layer: null });
  }, [isUnknown]);
  useExport({
    table: () => stepsFile(steps),
    legend: () =>
      steps.parts.map(({ category }) => ({
        label: categoryLabel(category),
        fill: categoryFill(category),
      })),
  });
  return (
    <>
      <Head layer={layer} table={fixed.table} />
      {steps.parts.length === 0 ? (
        <Nothing
          title={`The memory of ${shortName(layer)} is unknown`}
          sentences={["No traced step of this phase has it as an owner."]}
        />
      ) : (
        <div class="body">
          <div class="picture">
            <Chart
              label={`Bytes of ${layer} by category at traced steps.`}
              spec={spec}
              {...chart}
              pin={chart.pin === null ? null : pinned}
              rest={pinned}
              describe={(index) =>
                `step ${at(steps.step, index) ?? "?"}: ${formatBytes(totalOf(steps, index))}`
              }
            />
            <p class="legend">
              <LegendItem kind="full" label="measured" />
              <LegendItem kind="light" label="inferred" />
            </p>
          </div>
          <Figures shown={shown} fixed={fixed} />
        </div>
      )}
    </>
  );
}
