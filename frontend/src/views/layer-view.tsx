/** A layer's own page: what it holds over the traced steps, its shapes, and the formula behind each figure. */

import { useLayoutEffect, useMemo, useState } from "preact/hooks";

import { cellEdges, xValues, type Range } from "../charts/axis";
import { stackPainter } from "../charts/paint";
import type { PlotSpec } from "../charts/plot";
import { stackLayout } from "../charts/stack-layout";
import { formatBytes, formatCount, unitOf } from "../lib/bytes";
import { formatShare } from "../lib/format";
import type { Table } from "../lib/table";
import { nearestIndex } from "../lib/search";
import { CATEGORIES, categoryLabel, categoryMeaning, type Category } from "../model/categories";
import { formula, roundingText } from "../model/formula";
import { chosenSnapshots } from "../model/frozen";
import { shapeText } from "../model/layer-figures";
import type { LayerRow } from "../model/layers";
import { shortName } from "../model/names";
import type { Overview } from "../model/overview";
import type { Snapshot } from "../model/snapshot";
import type { Choices } from "../state/address";
import { INKS, fillOf, type Scheme } from "../theme/palette";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { Figure, UnitButton } from "./figures";
import { rangeOf } from "./frame";
import { AXIS_INKS } from "./overview-spec";
import { Nothing, Skeleton } from "./states";
import { exactBytes } from "./step-panel";

/** Traced steps fetched for one page: more would not be told apart, and each is a request. */
const SNAPSHOTS = 48;

export interface LayerSteps {
  snapshots: readonly Snapshot[];
  step: Float64Array;
  /** Bytes of the layer by category, at each of the steps; categories that it never holds are left out. */
  bytes: { category: Category; values: Float64Array }[];
}

export function layerSteps(snapshots: readonly Snapshot[], layer: string): LayerSteps {
  const bytes = CATEGORIES.map((category) => ({
    category,
    values: Float64Array.from(snapshots, ({ ledger }) =>
      ledger.filter((row) => row.layer === layer && row.category === category).reduce((sum, row) => sum + row.bytes, 0),
    ),
  }));
  const step = Float64Array.from(snapshots, (snapshot) => snapshot.step);
  return { snapshots, step, bytes: bytes.filter(({ values }) => values.some((value) => value > 0)) };
}

function useLayerSteps(overview: Overview, layer: string): { steps: LayerSteps; ready: boolean } {
  const store = useStore();
  const refs = useMemo(
    () => chosenSnapshots(overview.snapshots.length, SNAPSHOTS).flatMap((index) => overview.snapshots[index] ?? []),
    [overview],
  );
  useLayoutEffect(() => refs.forEach((ref) => store.wantSnapshot(ref)), [refs]);
  const loaded = refs.map((ref) => store.snapshotOf(ref));
  const arrived = loaded.flatMap(({ value }) => value ?? []);
  const steps = useMemo(() => layerSteps(arrived, layer), [arrived.length, refs, layer]);
  return { steps, ready: loaded.every(({ value, error }) => (value ?? error) !== null) };
}

interface Look {
  choices: Choices;
  scheme: Scheme;
  focus: Category | null;
  /** First and last step of the run, null if not known. */
  span: readonly [number, number] | null;
}

function specOf({ snapshots, step, bytes }: LayerSteps, { choices, scheme, focus, span }: Look): PlotSpec {
  const times = Float64Array.from(snapshots, ({ wall_time }) => wall_time);
  const x = xValues(choices.axis, step, times, times[0] ?? 0);
  const stack = stackLayout(
    x,
    bytes.map(({ values }) => values),
  );
  const range: Range = choices.axis === "step" && span !== null ? [span[0] - 0.5, span[1] + 0.5] : rangeOf(x.length > 1 ? x : cellEdges(x));
  // The first and the last traced step stand for everything before and after them.
  const edges = stack.edges.map((edge, index, all) => (index === 0 ? range[0] : index === all.length - 1 ? range[1] : edge));
  const layout = { ...stack, edges };
  const top = layout.tops.at(-1)?.reduce((most, value) => Math.max(most, value), 1) ?? 1;
  const fills = bytes.map(({ category }) => ({ ...fillOf(category, null, scheme), muted: focus !== null && focus !== category }));
  const spans = [...x].map((place) => [place, place] as const);
  return {
    x,
    xKind: choices.axis,
    range,
    yKind: "bytes",
    yMax: top * 1.08,
    headroom: 8,
    inks: AXIS_INKS[scheme],
    painters: [stackPainter(layout, fills, spans, INKS[scheme].background)],
    lanes: [],
  };
}

interface TableProps {
  steps: LayerSteps;
  row: number;
  layer: string;
  table: LayerRow | null;
  optimizer: string | null;
  focus: Category | null;
  onFocus: (category: Category | null) => void;
}

function Figures({ steps, row, layer, table, optimizer, focus, onFocus }: TableProps) {
  const scheme = schemeOf(useStore());
  const snapshot = steps.snapshots[row];
  const own = snapshot?.ledger.filter((one) => one.layer === layer) ?? [];
  const total = own.reduce((sum, { bytes }) => sum + bytes, 0);
  const unit = unitOf(total);
  const common = { unit, exact: exactBytes.value };
  return (
    <aside class="panel" aria-label="Figures of the layer at one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={snapshot?.step ?? ""}>
          Step {snapshot?.step ?? "?"}
          <UnitButton unit={unit} exact={exactBytes.value} toggle={() => (exactBytes.value = !exactBytes.value)} />
        </h2>
        <p class="small">as traced at the step's peak{snapshot && total > 0 && ` · ${formatShare(total / snapshot.in_use_bytes)} of it`}</p>
      </header>
      <table class={exactBytes.value ? "figures exact" : "figures"} data-testid="layer-figures">
        <tbody>
          {steps.bytes.map(({ category, values }) => (
            <Figure
              {...common}
              key={category}
              name={category}
              label={categoryLabel(category)}
              hint={categoryMeaning(category)}
              bytes={values[row] ?? null}
              share={total ? (values[row] ?? 0) / total : null}
              fill={fillOf(category, null, scheme)}
              focused={focus === category}
              onFocus={(focused) => onFocus(focused ? category : null)}
            />
          ))}
        </tbody>
        <tbody class="totals">
          <Figure {...common} strong name="total" label="all of it" bytes={total} />
        </tbody>
      </table>
      <dl class="facts" data-testid="formulas">
        {steps.bytes
          .filter(({ values }) => (values[row] ?? 0) > 0)
          .map(({ category, values }) => {
            const rounding = own.filter((one) => one.category === category).reduce((sum, one) => sum + (one.rounding_bytes ?? 0), 0);
            return (
              <div key={category}>
                <dt>
                  {categoryLabel(category)} {formatBytes(values[row] ?? 0)}
                </dt>
                <dd>
                  {[formula(category, table, optimizer, (values[row] ?? 0) - rounding), roundingText(rounding)].filter(Boolean).join("; ")}
                </dd>
              </div>
            );
          })}
      </dl>
    </aside>
  );
}

function Head({ layer, table }: { layer: string; table: LayerRow | null }) {
  const store = useStore();
  const known = table && [
    table.type,
    table.trainable ? "trainable" : "frozen",
    `${formatCount(table.parameters)} parameters`,
    `output ${shapeText(table) || "not known"}`,
  ];
  return (
    <header class="layer-head">
      <button type="button" class="quiet" onClick={() => store.choose({ view: "layers" })}>
        ← All layers
      </button>
      <h2 title={layer}>{shortName(layer)}</h2>
      <p class="small">
        {layer} · {known ? known.join(" · ") : "not in the layer table"}
      </p>
    </header>
  );
}

const stepsFile = ({ step, bytes }: LayerSteps): Table => ({
  columns: ["step", ...bytes.map(({ category }) => category)],
  rows: [...step].map((one, index) => [one, ...bytes.map(({ values }) => values[index] ?? null)]),
});

function useSpec(steps: LayerSteps, focus: Category | null): PlotSpec {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [from, to] = [store.primary.value?.first_step ?? null, store.primary.value?.last_step ?? null];
  return useMemo(() => {
    const span = from === null || to === null ? null : ([from, to] as const);
    return specOf(steps, { choices, scheme, focus, span });
  }, [steps, choices.axis, scheme, focus, from, to]);
}

export function LayerView({ overview, layer }: { overview: Overview; layer: string }) {
  const store = useStore();
  const choices = store.choices.value;
  const [focus, setFocus] = useState<Category | null>(null);
  const { steps, ready } = useLayerSteps(overview, layer);
  const spec = useSpec(steps, focus);
  const rowOf = (step: number | null): number | null => (step === null || steps.step.length === 0 ? null : nearestIndex(steps.step, step));
  const cursor = rowOf(store.cursor.value);
  const pin = rowOf(choices.step);
  const row = cursor ?? pin ?? steps.step.length - 1;
  const step = steps.snapshots[row]?.step ?? choices.step ?? 0;
  useLayoutEffect(() => store.wantLayers(step), [step]);
  const tables = store.layersAt(step).value;
  const table = tables?.layers.find(({ path }) => path === layer) ?? null;
  const totalAt = (index: number): number => steps.bytes.reduce((sum, { values }) => sum + (values[index] ?? 0), 0);
  useExport("canvas", () => stepsFile(steps));
  if (!ready) return <Skeleton />;
  return (
    <>
      <Head layer={layer} table={table} />
      {steps.bytes.length === 0 ? (
        <Nothing title={`What ${shortName(layer)} holds over the steps is not available`}>
          <p>No traced step of this phase names it as an owner.</p>
        </Nothing>
      ) : (
        <div class="body">
          <div class="picture">
            <Chart
              label={`Bytes of ${layer} by category at traced steps.`}
              spec={spec}
              marks={[]}
              cursor={cursor}
              pin={pin}
              describe={(index) => `step ${steps.step[index] ?? "?"}: ${formatBytes(totalAt(index))}`}
              onCursor={(index) => (store.cursor.value = index === null ? null : (steps.step[index] ?? null))}
              onPin={(index) => store.choose({ step: steps.step[index] ?? null })}
              onZoom={() => undefined}
              onReset={() => undefined}
              onInside={store.hold}
            />
            <p class="legend">
              <span>The full lines are traced steps, where it was measured; between them the nearest one is shown, lighter.</span>
            </p>
          </div>
          <Figures
            steps={steps}
            row={row}
            layer={layer}
            table={table}
            optimizer={tables?.optimizer ?? null}
            focus={focus}
            onFocus={setFocus}
          />
        </div>
      )}
    </>
  );
}
