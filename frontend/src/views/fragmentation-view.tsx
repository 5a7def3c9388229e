/** The allocator's pool over the steps: how much of it is used, how much of the rest is in one piece, and how it grew. */

import { useLayoutEffect, useMemo } from "preact/hooks";

import type { PlotSpec } from "../charts/plot";
import { unbroken } from "../lib/format";
import { nearestIndex } from "../lib/search";
import type { Table } from "../lib/table";
import { modeLabel } from "../model/overview";
import { poolFacts, poolFinding, poolSentence, type PoolFacts, type PoolSteps } from "../model/pool";
import type { RunInfo } from "../model/run";
import type { SnapshotSummary } from "../model/snapshot";
import { WORDS } from "../model/words";
import { CardBar } from "./card-bar";
import { Chart, type ChartProps } from "./chart";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { LegendItem } from "./legend";
import { MapView } from "./map-view";
import { PoolPanel } from "./pool-panel";
import { RATIOS, SIZES, ratiosSpec, regionsSpec, seriesColour, seriesFill, sizesSpec } from "./pool-spec";
import { AboutGrowth, Missing, NoSnapshots, PoolGrowth } from "./pool-words";
import { Fault, Nothing } from "./states";
import { useStepsChart } from "./steps-chart";

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

const POOL_FIGURES = ["source", "in_use_bytes", "low_bytes", "high_bytes", "idle", "free_largest", "free_rest", "unreserved"] as const;
const MORE_FIGURES = ["rounding_bytes", "fragmentation", "utilisation"] as const;

function poolFile(pool: PoolSteps): Table {
  const names: readonly (keyof PoolFacts)[] = [...POOL_FIGURES, ...MORE_FIGURES];
  return {
    columns: ["step", ...names],
    rows: Array.from({ length: pool.rows }, (_, row) => {
      const facts = poolFacts(pool, row);
      return [facts.step, ...names.map((name) => facts[name])];
    }),
  };
}

function SizesLegend({ pool }: { pool: PoolSteps }) {
  const scheme = schemeOf(useStore());
  const has = (source: PoolFacts["source"]): boolean => pool.pool_source.includes(pool.sources.indexOf(source));
  return (
    <p class="legend">
      <LegendItem kind="line colour" colour={seriesColour("in_use_bytes", scheme)}>
        in use at the peak, every step
      </LegendItem>
      {(has("traced") || has("inferred")) && <LegendItem kind="line">pool, measured or inferred</LegendItem>}
      {has("traced") && (
        <>
          <LegendItem kind="fill" colour={seriesColour("free_largest", scheme)}>
            traced step: largest free block
          </LegendItem>
          <LegendItem kind="fill striped" colour={seriesColour("free_rest", scheme)}>
            and the rest of the free
          </LegendItem>
        </>
      )}
      {(has("inferred") || has("bounded")) && (
        <LegendItem kind="fill" colour={seriesColour("idle", scheme)}>
          between: idle pool, its split not known
        </LegendItem>
      )}
      {has("bounded") && <LegendItem kind="hatched">the pool may have had this as well</LegendItem>}
      <span class="hint">Drag to zoom, double-click for all, click to pin a step</span>
    </p>
  );
}

function RatiosLegend() {
  const scheme = schemeOf(useStore());
  const [utilisation, fragmentation] = RATIOS.map((name) => seriesColour(name, scheme));
  return (
    <p class="legend">
      <LegendItem kind="line colour" {...(utilisation ? { colour: utilisation } : {})}>
        utilisation, where the pool is known
      </LegendItem>
      <LegendItem kind="point" {...(fragmentation ? { colour: fragmentation } : {})}>
        fragmentation (TensorFlow's own), at traced steps
      </LegendItem>
    </p>
  );
}

/** The row to show without a cursor or a pin: the last traced one, else the last. */
function lastTraced(pool: PoolSteps, traced: readonly SnapshotSummary[]): number {
  const row = pool.step.indexOf(traced.at(-1)?.step ?? -1);
  return row < 0 ? pool.rows - 1 : row;
}

function Regions({ pool, chart }: { pool: PoolSteps; chart: Omit<ChartProps, "label"> }) {
  return (
    <section class="regions" aria-label="The pool's regions">
      <h2>
        The pool's regions <span class="small">as they came, the oldest at the bottom</span>
      </h2>
      {pool.bands.length > 1 && (
        <>
          <Chart {...chart} height="medium" label="The pool's regions over the steps." />
          <p class="legend">
            <LegendItem kind="full">there</LegendItem>
            <LegendItem kind="light">came between two traced steps, perhaps already here</LegendItem>
          </p>
        </>
      )}
      <PoolGrowth pool={pool} />
      <AboutGrowth pool={pool} />
    </section>
  );
}

/** The three charts of the pool; `shared` is their cursor, pin and zoom. */
function Charts({ pool, specs, shared }: { pool: PoolSteps; specs: Specs; shared: Omit<ChartProps, "label" | "spec"> }) {
  if (pool.growths.length === 0) {
    return (
      <>
        <Chart {...shared} height="medium" label="In use at the peak over the steps." spec={specs.sizes} />
        <SizesLegend pool={pool} />
      </>
    );
  }
  return (
    <>
      <Chart
        {...shared}
        height="medium"
        label="The pool over the steps: in use at the peak, idle, and its free blocks."
        spec={specs.sizes}
      />
      <SizesLegend pool={pool} />
      <Chart {...shared} height="small" label="Utilisation and fragmentation of the pool over the steps." spec={specs.ratios} />
      <RatiosLegend />
    </>
  );
}

interface Specs {
  sizes: PlotSpec;
  ratios: PlotSpec;
  regions: PlotSpec;
}

function useSpecs(pool: PoolSteps, run: RunInfo | null): Specs {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [first, last] = [run?.first_step ?? null, run?.last_step ?? null];
  return useMemo(() => {
    const span = first === null || last === null ? null : ([first, last] as const);
    const of = (spec: typeof sizesSpec): PlotSpec => spec(pool, choices, scheme, span);
    return { sizes: of(sizesSpec), ratios: of(ratiosSpec), regions: of(regionsSpec) };
  }, [pool, choices.axis, choices.zoom, scheme, first, last]);
}

export function FragmentationView({ pool, list }: { pool: PoolSteps; list: readonly SnapshotSummary[] }) {
  const run = useStore().primary.value;
  const specs = useSpecs(pool, run);
  const ofPhase = useMemo(() => list.filter(({ phase }) => phase === pool.phase).sort((a, b) => a.step - b.step), [list, pool.phase]);
  const shared = { ...useStepsChart(pool.step, specs.sizes.x), describe: (row: number) => poolSentence(poolFacts(pool, row)) };
  const scheme = schemeOf(useStore());
  useExport({
    table: () => poolFile(pool),
    legend: () => [...SIZES, ...RATIOS].map((name) => ({ label: WORDS[name].label, fill: seriesFill(name, scheme) })),
  });
  if (!run) return null;
  if (list.length === 0) return <NoSnapshots run={run} />;
  if (pool.rows === 0) {
    return (
      <Nothing title={`No ${pool.phase} step of ${pool.run} was recorded on ${pool.device}`}>
        <p>Choose another phase or device above.</p>
      </Nothing>
    );
  }
  const fixed = shared.pin ?? lastTraced(pool, ofPhase);
  const row = shared.cursor ?? fixed;
  const nearest =
    ofPhase[
      nearestIndex(
        Float64Array.from(ofPhase, ({ step }) => step),
        pool.step[fixed] ?? 0,
      )
    ];
  const snapshot = ofPhase.find(({ step }) => step === pool.step[row]);
  const finding = poolFinding(poolFacts(pool, row));
  return (
    <>
      <div class="body">
        <div class="picture">
          {nearest && <CardBar device={nearest.device} step={nearest.step} />}
          <Missing run={run} list={ofPhase} />
          <Charts pool={pool} specs={specs} shared={shared} />
          {finding && (
            <ul class="findings">
              <li>
                <span class="sentence">{unbroken(finding)}</span>
              </li>
            </ul>
          )}
          {pool.growths.length > 0 && <Regions pool={pool} chart={{ ...shared, spec: specs.regions }} />}
        </div>
        <PoolPanel pool={pool} row={row} mode={snapshot ? modeLabel(snapshot.mode) : null} />
      </div>
      {nearest && <SnapshotMap run={run} snapshot={nearest} />}
    </>
  );
}
