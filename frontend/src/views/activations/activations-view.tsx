/** Activation bytes that the training script recorded, by layer over steps. */

import { useMemo, useState } from "preact/hooks";

import { cellEdges, xValues } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import type { BandFill } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { formatBytes, unitOf, formatDuration, plural, shareOf } from "../../lib/bytes";
import { at } from "../../model/overview";
import { distinctNames } from "../../model/run";
import { topLayers, totalAt, type Activations, type LayerSeries } from "../../model/snapshot";
import type { Choices } from "../../state/address";
import { inks, dark, sequence, NO_FILL } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { useStore, useChoices } from "../shared/context";
import { useExport } from "../shared/export";
import { Figure, FigureTable, Panel } from "../shared/figures";
import { rangeOf, rangeOfSome, stackSpec, useStepsChart } from "../shared/frame";
import { Sentence } from "../shared/states";

const LAYERS = 12;

const ABOUT =
  "Activation bytes recorded with `tb_memplugin.summary.layer_activations`, largest layer at the bottom.";

const keyOf = (series: LayerSeries): string =>
  series.layer === null ? "others" : `layer:${series.layer}`;
const nameOf = (series: LayerSeries): string =>
  series.layer === null ? `other ${plural(series.count, "layer")}` : series.layer;

export function fillsOf(series: readonly LayerSeries[], focus: string | null): BandFill[] {
  const colours = sequence(series.length);
  return series.map((one, index) => ({
    colour: colours[index] ?? inks().faint,
    pattern: one.layer === null ? "hatched" : "plain",
    muted: focus !== null && focus !== keyOf(one),
  }));
}

function specOf(
  activations: Activations,
  series: readonly LayerSeries[],
  choices: Choices,
  fills: readonly BandFill[],
): PlotSpec {
  const { step, wall_time } = activations;
  const x = xValues(choices.axis, step, wall_time, wall_time[0] ?? 0);
  const layout = stackLayout(
    cellEdges(x),
    series.map(({ bytes }) => bytes),
  );
  const range = rangeOfSome(activations.step, x, choices, null) ?? rangeOf(layout.edges);
  return stackSpec({ x, xKind: choices.axis, range, layout, fills, full: "all" });
}

interface PanelProps {
  activations: Activations;
  series: readonly LayerSeries[];
  fills: readonly BandFill[];
  row: number;
  focus: string | null;
  onFocus: (key: string | null) => void;
}

function Figures({ activations, series, fills, row, focus, onFocus }: PanelProps) {
  const total = totalAt(series, row);
  const source = `recorded by the training script at step ${activations.step[row] ?? "?"}`;
  const names = useMemo(() => distinctNames(series.map(nameOf)), [series]);
  return (
    <FigureTable testid="activations">
      <tbody>
        {series.map((one, index) => {
          const bytes = at(one.bytes, row);
          const key = keyOf(one);
          return (
            <Figure
              key={key}
              source={source}
              name={key}
              label={names[index]}
              hint={`${nameOf(one)}: recorded activation bytes`}
              bytes={bytes}
              share={shareOf(bytes, total)}
              fill={fills[index] ?? NO_FILL}
              focused={focus === key}
              onFocus={(focused) => onFocus(focused ? key : null)}
            />
          );
        })}
      </tbody>
      <tbody class="totals">
        <Figure
          source={source}
          strong
          name="total"
          label={`all ${plural(activations.layers.length, "layer")}`}
          hint="sum of the layers"
          bytes={total}
        />
      </tbody>
    </FigureTable>
  );
}

function StepFigures(props: PanelProps) {
  const { activations, series, row } = props;
  const { cursor, choices } = useStore();
  const time = (activations.wall_time[row] ?? 0) - (activations.wall_time[0] ?? 0);
  const why = choices.value.step !== null ? "selected" : "last recorded";
  return (
    <Panel
      label="Recorded activation bytes of one step"
      step={at(activations.step, row)}
      why={<span class="why">{cursor.value !== null ? "" : why}</span>}
      unit={unitOf(series[0]?.max_bytes ?? 0)}
      about={`${formatDuration(time)} after start · recorded by the training script`}
    >
      <Figures {...props} />
    </Panel>
  );
}

export function ActivationsView({ activations }: { activations: Activations }) {
  const choices = useChoices();
  const [focus, setFocus] = useState<string | null>(null);
  const series = useMemo(() => topLayers(activations, LAYERS), [activations]);
  const fills = useMemo(() => fillsOf(series, focus), [series, dark.value, focus]);
  const spec = useMemo(
    () => specOf(activations, series, choices, fills),
    [activations, series, fills, choices.axis, choices.zoom, dark.value],
  );
  useExport({
    table: () => ({
      columns: ["step", ...activations.layers],
      rows: [...activations.step].map((step, index) => [
        step,
        ...activations.bytes.map((bytes) => bytes[index] ?? null),
      ]),
    }),
    legend: () =>
      series.map((one, index) => ({ label: nameOf(one), fill: fills[index] ?? NO_FILL })),
  });
  const chart = useStepsChart(activations.step, spec.x);
  const row = chart.cursor ?? chart.pin ?? activations.rows - 1;
  return (
    <div class="body">
      <div class="picture">
        <Chart
          label={`Recorded activation bytes of ${activations.run} by layer over steps.`}
          spec={spec}
          {...chart}
          describe={(index) =>
            `step ${activations.step[index] ?? "unknown"}: ${formatBytes(totalAt(series, index) ?? 0)} in total`
          }
        />
        <p class="legend">
          <span>
            <Sentence of={ABOUT} />
          </span>
        </p>
      </div>
      <StepFigures
        activations={activations}
        series={series}
        fills={fills}
        row={row}
        focus={focus}
        onFocus={setFocus}
      />
    </div>
  );
}
