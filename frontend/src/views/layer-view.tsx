/** A layer's own page: what it holds over the traced steps, its shapes, and the formula behind each figure. */

import { useLayoutEffect, useMemo } from "preact/hooks";

import type { PlotSpec } from "../charts/plot";
import { formatBytes, formatCount, formatExact, unitOf } from "../lib/bytes";
import { formatShare } from "../lib/format";
import type { Table } from "../lib/table";
import { categoryLabel, categoryMeaning, type Category } from "../model/categories";
import { formulaText } from "../model/formula";
import { outputFacts, shapeText } from "../model/layer-figures";
import type { LayerRow } from "../model/layers";
import type { LedgerTotals } from "../model/ledger-totals";
import { shortName } from "../model/names";
import { at } from "../model/overview";
import { fillOf } from "../theme/palette";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { Figure, FigureTable, UnitButton, useExact } from "./figures";
import { useCategoryRow, useFocus, type Focus } from "./focus";
import { layerSpec, layerSteps, totalOf, type LayerSteps } from "./layer-spec";
import { Nothing } from "./states";
import { useStepsChart } from "./steps-chart";
import { tipOf } from "./tips";

interface TableProps {
  steps: LayerSteps;
  row: number;
  table: LayerRow | null;
  optimizer: string | null;
  focus: Focus;
  hover: (key: string | null) => void;
}

/** The formula behind each figure. */
function Formulas({ steps, row, table, optimizer }: Pick<TableProps, "steps" | "row" | "table" | "optimizer">) {
  return (
    <dl class="facts" data-testid="formulas">
      {steps.parts
        .map(({ category, bytes, rounding_bytes }) => ({ category, bytes: bytes[row] ?? 0, rounding: rounding_bytes[row] ?? 0 }))
        .filter(({ bytes }) => bytes > 0)
        .map(({ category, bytes, rounding }) => (
          <div key={category}>
            <dt>
              {categoryLabel(category)} {formatBytes(bytes)}
            </dt>
            <dd>{formulaText(category, table, optimizer, bytes, rounding)}</dd>
          </div>
        ))}
    </dl>
  );
}

function Figures({ steps, row, table, optimizer, focus, hover }: TableProps) {
  const scheme = schemeOf(useStore());
  const total = totalOf(steps, row);
  const whole = at(steps.in_use_bytes, row);
  const unit = unitOf(total);
  const common = { unit };
  const ofCategory = useCategoryRow(hover);
  const traced = `traced at the peak of step ${at(steps.step, row) ?? "?"}`;
  const learned = (category: Category, bytes: number, rounding: number): string =>
    bytes === 0 ? traced : `${formulaText(category, table, optimizer, bytes, rounding)}\n${traced}`;
  return (
    <aside class="panel" aria-label="Figures of the layer at one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={at(steps.step, row) ?? ""}>
          Step {at(steps.step, row) ?? "?"}
          <UnitButton unit={unit} />
        </h2>
        <p class="small">as traced at the step's peak{whole && total > 0 && ` · ${formatShare(total / whole)} of it`}</p>
      </header>
      <FigureTable testid="layer-figures">
        <tbody>
          {steps.parts.map(({ category, bytes, rounding_bytes }) => (
            <Figure
              {...common}
              key={category}
              name={category}
              label={categoryLabel(category)}
              hint={categoryMeaning(category)}
              learned={learned(category, bytes[row] ?? 0, rounding_bytes[row] ?? 0)}
              bytes={bytes[row] ?? null}
              share={total ? (bytes[row] ?? 0) / total : null}
              fill={fillOf(category, null, scheme)}
              focused={focus.hovered === category}
              {...ofCategory(category, category)}
            />
          ))}
        </tbody>
        <tbody class="totals">
          <Figure {...common} strong name="total" label="all of it" hint="sum of its categories" learned={traced} bytes={total} />
        </tbody>
      </FigureTable>
      <Formulas steps={steps} row={row} table={table} optimizer={optimizer} />
    </aside>
  );
}

function Output({ of }: { of: LayerRow }) {
  const { output_bytes: bytes } = of;
  const text = useExact() ? formatExact : formatBytes;
  return (
    <span class="together" data-testid="output" data-bytes={bytes ?? ""} data-tip={tipOf(bytes, ...outputFacts(of))}>
      {bytes === null ? "size not known" : `${text(bytes)} for one batch`}
    </span>
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
  const [from, to] = [store.primary.value?.first_step ?? null, store.primary.value?.last_step ?? null];
  return useMemo(() => {
    const span = from === null || to === null ? null : ([from, to] as const);
    return layerSpec(steps, { choices, scheme, focus, span });
  }, [steps, choices.axis, choices.zoom, scheme, focus, from, to]);
}

export function LayerView({ totals, layer }: { totals: LedgerTotals; layer: string }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const { focus, hover } = useFocus();
  const steps = useMemo(() => layerSteps(totals), [totals]);
  const spec = useSpec(steps, focus);
  const chart = useStepsChart(steps.step, spec.x);
  const row = chart.cursor ?? chart.pin ?? steps.step.length - 1;
  const step = at(steps.step, row) ?? store.choices.value.step ?? 0;
  useLayoutEffect(() => store.wantLayers(step), [step]);
  const tables = store.layersAt(step).value;
  const table = tables?.layers.find(({ path }) => path === layer) ?? null;
  useExport({
    table: () => stepsFile(steps),
    legend: () => steps.parts.map(({ category }) => ({ label: categoryLabel(category), fill: fillOf(category, null, scheme) })),
  });
  return (
    <>
      <Head layer={layer} table={table} />
      {steps.parts.length === 0 ? (
        <Nothing title={`What ${shortName(layer)} holds over the steps is not available`}>
          <p>No traced step of this phase names it as an owner.</p>
        </Nothing>
      ) : (
        <div class="body">
          <div class="picture">
            <Chart
              label={`Bytes of ${layer} by category at traced steps.`}
              spec={spec}
              {...chart}
              describe={(index) => `step ${at(steps.step, index) ?? "?"}: ${formatBytes(totalOf(steps, index))}`}
            />
            <p class="legend">
              <span>The full lines are traced steps, where it was measured; after each it is shown, lighter, up to the next.</span>
              <span class="hint">Drag to zoom, double-click for all, click to pin a step, Esc to clear</span>
            </p>
          </div>
          <Figures steps={steps} row={row} table={table} optimizer={tables?.optimizer ?? null} focus={focus} hover={hover} />
        </div>
      )}
    </>
  );
}
