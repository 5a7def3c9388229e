/** The allocator's pool over the traced steps: how much of it is used, and how much of the rest is in one piece. */

import { useLayoutEffect, useMemo } from "preact/hooks";

import { unitOf, type Unit } from "../lib/bytes";
import { formatShare, unbroken } from "../lib/format";
import type { Table } from "../lib/table";
import { modeLabel } from "../model/overview";
import type { PoolParts, SnapshotSummary } from "../model/snapshot";
import type { RunInfo } from "../model/run";
import { WORDS } from "../model/words";
import { CardBar } from "./card-bar";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { FigureTable, Swatch, UnitButton, WordFigure } from "./figures";
import {
  RATIOS,
  SIZES,
  lineColour,
  poolFinding,
  poolSentence,
  ratiosSpec,
  sizesSpec,
  snapshotColumns,
  type PoolSeries,
  type Snapshots,
} from "./fragmentation-spec";
import { LegendItem } from "./legend";
import { MapView } from "./map-view";
import { Fault, Nothing } from "./states";
import { useStepsChart } from "./steps-chart";

function Ratios({ parts, when }: { parts: PoolParts; when: string }) {
  const scheme = schemeOf(useStore());
  return (
    <tbody class="totals">
      {RATIOS.map(({ name, label }) => (
        <tr
          key={name}
          data-figure={name}
          data-value={parts[name] ?? ""}
          data-tip={[parts[name] ?? "not known", WORDS[name].meaning, `${WORDS[name].learned}, ${when}`].join("\n")}
        >
          <th scope="row">
            <Swatch fill={{ colour: lineColour(name, scheme), pattern: "plain" }} />
            <span class="label">{label}</span>
          </th>
          <td class="figure">{parts[name] === null ? "–" : formatShare(parts[name])}</td>
          <td class="share" />
        </tr>
      ))}
    </tbody>
  );
}

function Sizes({ snapshot, parts, unit, when }: { snapshot: SnapshotSummary; parts: PoolParts; unit: Unit; when: string }) {
  const scheme = schemeOf(useStore());
  const common = { unit, when };
  const shareOf = (bytes: number | null): number | null => (parts.pool_bytes && bytes !== null ? bytes / parts.pool_bytes : null);
  return (
    <>
      <tbody>
        {SIZES.map(({ name }) => {
          const fill = { colour: lineColour(name, scheme), pattern: "plain" as const };
          return <WordFigure key={name} {...common} word={name} bytes={parts[name]} share={shareOf(parts[name])} fill={fill} />;
        })}
      </tbody>
      <tbody class="totals">
        <WordFigure {...common} word="capacity_bytes" bytes={snapshot.capacity_bytes} />
        <WordFigure {...common} word="unreserved" bytes={parts.unreserved} />
        <WordFigure {...common} word="rounding_bytes" bytes={snapshot.rounding_bytes} />
      </tbody>
    </>
  );
}

function Panel({ snapshots, row }: { snapshots: Snapshots; row: number }) {
  const store = useStore();
  const snapshot = snapshots.list[row];
  const parts = snapshots.parts[row];
  if (!snapshot || !parts) return null;
  const when = `at the peak of step ${snapshot.step}`;
  const unit: Unit = unitOf(Math.max(...snapshots.parts.map(({ pool_bytes, in_use_bytes }) => pool_bytes ?? in_use_bytes)));
  const why = store.cursor.value !== null ? "" : store.choices.value.step === null ? "last traced" : "nearest traced";
  return (
    <aside class="panel" aria-label="Figures of one traced step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={snapshot.step}>
          Step {snapshot.step}
          <span class="why">{why}</span>
          <UnitButton unit={unit} />
        </h2>
        <p class="small">
          {snapshot.phase} · traced ({modeLabel(snapshot.mode)}) · at the step's peak
        </p>
      </header>
      <FigureTable testid="pool">
        <Sizes snapshot={snapshot} parts={parts} unit={unit} when={when} />
        <Ratios parts={parts} when={when} />
      </FigureTable>
      <p class="small">
        Shares are of the pool. Fragmentation is the share of the free bytes that is outside of the largest free block; read it beside the
        utilisation.
      </p>
    </aside>
  );
}

/** The recorder's sentences on what is missing; one of our own where figures are missing without any. */
function Missing({ snapshots }: { snapshots: Snapshots }) {
  const told = snapshots.list.flatMap(({ not_available }) => not_available);
  const untold = snapshots.parts.some(({ pool_bytes }) => pool_bytes === null) && told.length === 0;
  const own = "The pool and its free blocks are not available at some of these steps, because their traces do not hold them.";
  const sentences = [...new Set(untold ? [own] : told)];
  if (sentences.length === 0) return null;
  return (
    <ul class="notices" data-testid="not-available">
      {sentences.map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

function NoSnapshots() {
  return (
    <Nothing title="No step of this run was traced on this device">
      <p>
        The pool and its free blocks are read at traced steps. Tracing is on unless <code>overhead=0</code> was given; name steps to trace
        with:
      </p>
      <pre tabIndex={0}>
        <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
      </pre>
    </Nothing>
  );
}

function SeriesLegend({ series, hint }: { series: readonly PoolSeries[]; hint?: string }) {
  const scheme = schemeOf(useStore());
  return (
    <p class="legend">
      {series.map(({ name, label }) => (
        <LegendItem key={name} kind="point" colour={lineColour(name, scheme)}>
          {label}
        </LegendItem>
      ))}
      {hint && <span class="hint">{hint}</span>}
    </p>
  );
}

/** The map of a traced step, or why there is none. */
function SnapshotMap({ run, snapshot }: { run: RunInfo; snapshot: SnapshotSummary }) {
  const store = useStore();
  const { device, step, phase } = snapshot;
  useLayoutEffect(() => store.wantMapsIn(run, device), [run, device]);
  const { value, error } = store.mapsIn(run, device);
  if (error !== null) return <Fault sentence={error} retry={() => void store.reload()} />;
  if (value === null) return null;
  if (value.some((map) => map.step === step && map.phase === phase)) return <MapView run={run} place={{ device, step, phase }} />;
  const others = value.flatMap((map) => (map.step === null ? [] : [map.step]));
  return (
    <section class="map" aria-label="The allocator's map">
      <h2>The allocator's map</h2>
      <p class="small" data-testid="no-map">
        The map is not available at step {step}, because {others.length === 0 ? "no traced step of this device" : "that trace"} holds{" "}
        {others.length === 0 ? "one" : "none"}
        {others.length > 0 &&
          `; there are maps of ${others.length > 8 ? `${others.length} other steps` : `the steps ${others.join(", ")}`}`}
        .
      </p>
    </section>
  );
}

const POOL_FIGURES = ["in_use_bytes", "free_largest", "free_rest", "pool_bytes", "unreserved", "fragmentation", "utilisation"] as const;

const poolFile = ({ list, parts }: Snapshots): Table => ({
  columns: ["step", "phase", "device", ...POOL_FIGURES],
  rows: list.map(({ step, phase, device }, index) => [step, phase, device, ...POOL_FIGURES.map((name) => parts[index]?.[name] ?? null)]),
});

export function FragmentationView({ list }: { list: readonly SnapshotSummary[] }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const run = store.primary.value;
  const [first, last] = [run?.first_step ?? null, run?.last_step ?? null];
  const snapshots = useMemo(() => snapshotColumns(list), [list]);
  const [sizes, ratios] = useMemo(() => {
    const span = first === null || last === null ? null : ([first, last] as const);
    return [sizesSpec(snapshots, choices, scheme, span), ratiosSpec(snapshots, choices, scheme, span)];
  }, [snapshots, choices.axis, choices.zoom, scheme, first, last]);
  const shared = { ...useStepsChart(snapshots.step, sizes.x), describe: (index: number) => poolSentence(snapshots, index) };
  useExport({
    table: () => poolFile(snapshots),
    legend: () => [...SIZES, ...RATIOS].map(({ name, label }) => ({ label, fill: { colour: lineColour(name, scheme), pattern: "plain" } })),
  });
  if (list.length === 0) return <NoSnapshots />;
  const row = shared.cursor ?? shared.pin ?? list.length - 1;
  const shown = snapshots.list[row];
  const finding = shown ? poolFinding(shown) : null;
  const hasPool = snapshots.parts.some(({ pool_bytes }) => pool_bytes !== null);
  const ratiosKnown = RATIOS.filter(({ name }) => snapshots.parts.some((parts) => parts[name] !== null));
  const hasRatios = ratiosKnown.length > 0;
  const fixed = snapshots.list[shared.pin ?? list.length - 1];
  return (
    <>
      <div class="body">
        <div class="picture">
          {fixed && <CardBar device={fixed.device} step={fixed.step} />}
          <Missing snapshots={snapshots} />
          <Chart
            {...shared}
            height={hasRatios ? "medium" : "large"}
            label="Pool, bytes in use and free blocks at traced steps."
            spec={sizes}
          />
          <SeriesLegend
            series={SIZES.filter(({ name }) => hasPool || name === "in_use_bytes")}
            hint="Points are traced steps; the light lines only join them."
          />
          {hasRatios && (
            <Chart {...shared} height="small" label="Fragmentation and utilisation of the pool at traced steps." spec={ratios} />
          )}
          {hasRatios && <SeriesLegend series={ratiosKnown} />}
          {finding && (
            <ul class="findings">
              <li>
                <span class="sentence">{unbroken(finding)}</span>
              </li>
            </ul>
          )}
        </div>
        <Panel snapshots={snapshots} row={row} />
      </div>
      {run && fixed && <SnapshotMap run={run} snapshot={fixed} />}
    </>
  );
}
