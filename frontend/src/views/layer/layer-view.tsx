/** A layer's own page: its bytes over traced steps, its shapes, and the formula of each figure. */

import { useEffect, useMemo } from "preact/hooks";

import { cellEdges, xValues, type Range } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import type { PlotSpec } from "../../charts/plot";
import { formatBytes, formatCount, formatExact, unitOf, formatShare, type Table } from "../../lib/bytes";
import { maximum, nearestIndex } from "../../lib/search";
import { categoryLabel } from "../../model/categories";
import { formula, outputFacts, shapeText, trainingOf, type FormulaStep } from "../../model/layers";
import { at, measuredAt } from "../../model/overview";
import { shortName } from "../../model/run";
import type { LedgerTotals } from "../../model/snapshot";
import { batchSizeAt } from "../../model/step-selection";
import type { Choices } from "../../state/address";
import { fillOf, type Scheme } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { schemeOf, useStore, useFetched, useFocus, isMuted, type Focus } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { useExport } from "../shared/export";
import { CategoryRows, Figure, FigureTable, Panel, useExact } from "../shared/figures";
import { useStepsChart, rangeOf, rangeOfSome, stackSpec } from "../shared/frame";
import { Known, Nothing } from "../shared/states";
import { tipOf } from "../shared/tips";
import { CATEGORIES, type Category, type Layer, type SnapshotRef } from "../../schema";

type LayerSteps = ReturnType<typeof layerSteps>;

/** The totals by category alone: whether it was trainable changes over the steps, the category of its bytes does not. */
export function layerSteps(totals: LedgerTotals) {
  const { step, wall_time, in_use_bytes, groups } = totals;
  const summed = (category: Category): Float64Array =>
    Float64Array.from(step, (_, row) =>
      groups.reduce((sum, group, index) => sum + (group.category === category ? (totals.bytes[index]?.[row] ?? 0) : 0), 0),
    );
  const parts = CATEGORIES.map((category) => ({ category, bytes: summed(category) }));
  return { step, wall_time, in_use_bytes, parts: parts.filter(({ bytes }) => bytes.some((value) => value > 0)) };
}

export const totalOf = ({ parts }: LayerSteps, row: number): number => parts.reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0);

export const usedAt = ({ parts }: LayerSteps, row: number): { category: Category; bytes: number }[] =>
  [...parts]
    .reverse()
    .map(({ category, bytes }) => ({ category, bytes: bytes[row] ?? 0 }))
    .filter(({ bytes }) => bytes > 0);

interface Look {
  choices: Choices;
  scheme: Scheme;
  focus: Focus;
  firstSteps: readonly number[];
  span: readonly [number, number] | null;
}

/**
 * Where the traced steps' areas begin and end. As in the overview, each covers the steps from the first one that it describes; the first
 * also covers those before it.
 */
export const layerEdges = (
  edges: Float64Array,
  x: Float64Array,
  step: Float64Array,
  firstSteps: readonly number[],
  range: Range,
): Float64Array =>
  edges.map((edge, index) => {
    if (index === 0) return Math.min(edge, range[0]);
    if (index === edges.length - 1) return Math.max(edge, range[1]);
    const [before, own] = [step[index - 1] as number, step[index] as number];
    const [from, to] = [x[index - 1] as number, x[index] as number];
    return own > before ? to - ((to - from) * (own - (firstSteps[index] ?? own))) / (own - before) : to;
  });

export function layerSpec({ step, wall_time, parts }: LayerSteps, { choices, scheme, focus, firstSteps, span }: Look): PlotSpec {
  const x = xValues(choices.axis, step, wall_time, wall_time[0] ?? 0);
  const columns = parts.map(({ bytes }) => bytes);
  const stack = stackLayout(x, columns);
  const range: Range = rangeOfSome(step, x, choices, span) ?? rangeOf(x.length > 1 ? x : cellEdges(x));
  const edges = layerEdges(stack.edges, x, step, firstSteps, range);
  const layout = { ...stack, edges };
  const fills = parts.map(({ category }) => ({ ...fillOf(category, null, scheme), muted: isMuted(focus, [category], category) }));
  const full = [...x].map((place) => [place, place] as const);
  return stackSpec({ x, xKind: choices.axis, range, layout, fills, full }, scheme);
}

const NO_SNAPSHOTS: readonly SnapshotRef[] = [];

interface Moment extends FormulaStep {
  steps: LayerSteps;
  row: number;
  isMissing: boolean;
  table: Layer | null;
}

interface TableProps {
  shown: Moment;
  fixed: Moment;
  focus: Focus;
  hover: (key: string | null) => void;
}

/** The formula of each figure at the selected step: the list does not change its length under the pointer. */
const Formulas = ({ steps, row, table, optimizer, batch_size }: Moment) => (
  <section>
    <h3>
      Formulas <span class="small">step {at(steps.step, row) ?? "?"}</span>
    </h3>
    <dl class="facts" data-testid="formulas">
      {usedAt(steps, row).map(({ category, bytes }) => (
        <div key={category}>
          <dt>
            {categoryLabel(category)} {formatBytes(bytes)}
          </dt>
          <dd>{formula(category, table, bytes, { optimizer, batch_size })}</dd>
        </div>
      ))}
    </dl>
  </section>
);

function Figures({ shown, fixed, focus, hover }: TableProps) {
  const { steps, row, table, optimizer, batch_size } = shown;
  const total = totalOf(steps, row);
  const whole = at(steps.in_use_bytes, row);
  const unit = unitOf(total);
  const figures = new Map(steps.parts.map(({ category, bytes }) => [category, bytes[row] ?? null]));
  const highest = new Map(steps.parts.map(({ category, bytes: all }) => [category, maximum(all)]));
  const highestTotal = maximum(steps.step.map((_, index) => totalOf(steps, index)));
  const step = at(steps.step, row);
  const failed = useStore().whole.value.value?.snapshots.some((one) => one.at_failure && one.step === step) ?? false;
  const traced = measuredAt({ step: step ?? 0, at_failure: failed });
  const source = (category: Category, bytes: number): string =>
    bytes === 0 ? traced : `${formula(category, table, bytes, { optimizer, batch_size })}\n${traced}`;
  return (
    <Panel
      label="Figures of the layer at one step"
      step={step}
      unit={unit}
      about={
        <>
          {failed ? "measured at the failed allocation" : "traced at the peak"}
          {whole && total > 0 && ` · ${formatShare(total / whole)} of it`}
        </>
      }
    >
      <FigureTable testid="layer-figures">
        <tbody>
          <CategoryRows {...{ bytes: figures, highest, total, whole: highestTotal, unit, source, hover }} hovered={focus.hovered} />
        </tbody>
        <tbody class="totals">
          <Figure strong name="total" label="total" hint="sum of all categories" source={traced} bytes={total} unit={unit} />
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
    <span class="together" data-testid="output" data-bytes={bytes ?? ""} data-tip={tipOf(bytes, ...outputFacts(of))}>
      {bytes === null ? "size unknown" : `${text(bytes)} per batch`}
    </span>
  );
}

function Head({ layer, table }: { layer: string; table: Layer | null }) {
  const store = useStore();
  const known = table && [
    table.type,
    trainingOf(table),
    `${formatCount(table.parameters)} parameters`,
    `output ${shapeText(table) || "unknown"}`,
  ];
  return (
    <header class="layer-head">
      <button type="button" class="quiet" onClick={() => store.choose({ view: "layers" })}>
        ← All layers
      </button>
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

function useSpec(steps: LayerSteps, focus: Focus): PlotSpec {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const snapshots = store.whole.value.value?.snapshots ?? NO_SNAPSHOTS;
  const [from, to] = [store.primary.value?.first_step ?? null, store.primary.value?.last_step ?? null];
  return useMemo(() => {
    const span = from === null || to === null ? null : ([from, to] as const);
    const firstSteps = snapshots.map(({ first_step }) => first_step);
    return layerSpec(steps, { choices, scheme, focus, firstSteps, span });
  }, [steps, choices.axis, choices.zoom, scheme, focus, snapshots, from, to]);
}

function useMomentOf(steps: LayerSteps, row: number, layer: string): Moment {
  const store = useStore();
  const step = at(steps.step, row) ?? store.choices.value.step ?? 0;
  const run = store.primary.value;
  const { value: tables } = useFetched(store.fetched.layers, run && [run, store.device.value, step]);
  const table = tables?.layers.find(({ path }) => path === layer) ?? null;
  const batch_size = batchSizeAt(store.whole.value.value?.snapshots ?? NO_SNAPSHOTS, step);
  const isMissing = tables !== null && table === null;
  return { steps, row, table, isMissing, optimizer: tables?.optimizer ?? null, batch_size };
}

export function LayerView({ totals, layer }: { totals: LedgerTotals; layer: string }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { focus, hover } = useFocus();
  const steps = useMemo(() => layerSteps(totals), [totals]);
  const spec = useSpec(steps, focus);
  const chart = useStepsChart(steps.step, spec.x);
  const traced = store.shownStep.value?.snapshot?.step;
  const pinned = traced === undefined ? steps.step.length - 1 : nearestIndex(steps.step, traced);
  const fixed = useMomentOf(steps, pinned, layer);
  const shown = useMomentOf(steps, chart.cursor ?? pinned, layer);
  const isUnknown = fixed.isMissing && steps.parts.length === 0;
  useEffect(() => {
    // Of another run, which has no such layer.
    if (isUnknown) store.replace({ view: "layers", layer: null });
  }, [isUnknown]);
  useExport({
    table: () => stepsFile(steps),
    legend: () => steps.parts.map(({ category }) => ({ label: categoryLabel(category), fill: fillOf(category, null, scheme) })),
  });
  return (
    <>
      <Head layer={layer} table={fixed.table} />
      {steps.parts.length === 0 ? (
        <Nothing title={`The memory of ${shortName(layer)} is unknown`}>
          <p>No traced step of this phase has it as an owner.</p>
        </Nothing>
      ) : (
        <div class="body">
          <div class="picture">
            <Chart
              label={`Bytes of ${layer} by category at traced steps.`}
              spec={spec}
              {...chart}
              pin={chart.pin === null ? null : pinned}
              rest={pinned}
              describe={(index) => `step ${at(steps.step, index) ?? "?"}: ${formatBytes(totalOf(steps, index))}`}
            />
            <p class="legend">
              <LegendItem kind="full" label="measured" />
              <LegendItem kind="light" label="inferred" />
            </p>
          </div>
          <Figures shown={shown} fixed={fixed} focus={focus} hover={hover} />
        </div>
      )}
    </>
  );
}
