/** Activation bytes that the training script recorded, by layer over steps. */

import { useMemo, useState } from "preact/hooks";

import { xValues } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import type { BandFill } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { formatBytes, unitOf, formatDuration, plural, shareOf, type Unit } from "../../lib/bytes";
import { at } from "../../model/overview";
import { distinctNames } from "../../model/run";
import { topLayers, totalAt, type Activations, type LayerSeries } from "../../model/snapshot";
import type { Choices } from "../../state/address";
import { INKS, sequence, type Scheme } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { Figure, FigureTable, UnitButton } from "../shared/figures";
import { rangeOf, rangeOfSome, stackSpec, useStepsChart } from "../shared/frame";

const LAYERS = 12;

const keyOf = (series: LayerSeries): string =>
  series.layer === null ? "others" : `layer:${series.layer}`;
const nameOf = (series: LayerSeries): string =>
  series.layer === null ? `other ${plural(series.count, "layer")}` : series.layer;

export function fillsOf(
  series: readonly LayerSeries[],
  scheme: Scheme,
  focus: string | null,
): BandFill[] {
  const colours = sequence(series.length, scheme);
  return series.map((one, index) => ({
    colour: colours[index] ?? INKS[scheme].faint,
    pattern: one.layer === null ? "hatched" : "plain",
    muted: focus !== null && focus !== keyOf(one),
  }));
}

function specOf(
  activations: Activations,
  series: readonly LayerSeries[],
  choices: Choices,
  fills: readonly BandFill[],
  scheme: Scheme,
): PlotSpec {
  const x = xValues(
    choices.axis,
    activations.step,
    activations.wall_time,
    activations.wall_time[0] ?? 0,
  );
  const columns = series.map(({ bytes }) => bytes);
  const layout = stackLayout(x, columns);
  const range = rangeOfSome(activations.step, x, choices, null) ?? rangeOf(layout.edges);
  return stackSpec({ x, xKind: choices.axis, range, layout, fills, full: "all" }, scheme);
}

interface PanelProps {
  activations: Activations;
  series: readonly LayerSeries[];
  fills: readonly BandFill[];
  row: number;
  focus: string | null;
  onFocus: (key: string | null) => void;
}

function Figures({
  activations,
  series,
  fills,
  row,
  focus,
  onFocus,
  unit,
}: PanelProps & { unit: Unit }) {
  const total = totalAt(series, row);
  const common = {
    unit,
    source: `recorded by the training script at step ${activations.step[row] ?? "?"}`,
  };
  const names = useMemo(() => distinctNames(series.map(nameOf)), [series]);
  const all = `all ${plural(activations.layers.length, "layer")}`;
  return (
    <FigureTable testid="activations">
      <tbody>
        {series.map((one, index) => {
          const bytes = at(one.bytes, row);
          const key = keyOf(one);
          return (
            <Figure
              key={key}
              {...common}
              name={key}
              label={names[index]}
              hint={`${nameOf(one)}: recorded activation bytes`}
              bytes={bytes}
              share={shareOf(bytes, total)}
              fill={fills[index] ?? { colour: "", pattern: "plain" }}
              focused={focus === key}
              onFocus={(focused) => onFocus(focused ? key : null)}
            />
          );
        })}
      </tbody>
      <tbody class="totals">
        <Figure
          {...common}
          strong
          name="total"
          label={all}
          hint="sum of the layers"
          bytes={total}
        />
      </tbody>
    </FigureTable>
  );
}

function Panel(props: PanelProps) {
  const { activations, series, row } = props;
  const store = useStore();
  const unit: Unit = unitOf(series[0]?.max_bytes ?? 0);
  const time = (activations.wall_time[row] ?? 0) - (activations.wall_time[0] ?? 0);
  return (
    <aside class="panel" aria-label="Recorded activation bytes of one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={activations.step[row] ?? ""}>
          Step {activations.step[row] ?? "?"}
          <span class="why">
            {store.cursor.value !== null
              ? ""
              : store.choices.value.step !== null
                ? "selected"
                : "last recorded"}
          </span>
          <UnitButton unit={unit} />
        </h2>
        <p class="small one-line">
          {formatDuration(time)} after start · recorded by the training script
        </p>
      </header>
      <Figures {...props} unit={unit} />
    </aside>
  );
}

export function ActivationsView({ activations }: { activations: Activations }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [focus, setFocus] = useState<string | null>(null);
  const series = useMemo(() => topLayers(activations, LAYERS), [activations]);
  const fills = useMemo(() => fillsOf(series, scheme, focus), [series, scheme, focus]);
  const spec = useMemo(
    () => specOf(activations, series, choices, fills, scheme),
    [activations, series, fills, choices.axis, choices.zoom, scheme],
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
      series.map((one, index) => ({
        label: nameOf(one),
        fill: fills[index] ?? { colour: INKS[scheme].faint, pattern: "plain" },
      })),
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
            Activation bytes recorded with <code>tb_memplugin.summary.layer_activations</code>,
            largest layer at the bottom.
          </span>
        </p>
      </div>
      <Panel
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
