/** The allocator's pool over the steps: allocated bytes, free chunks, fragmentation, and how it grew. */

import { useMemo } from "preact/hooks";

import type { PlotSpec } from "../../charts/plot";
import { unbroken, type Table } from "../../lib/bytes";
import { failureOf, modeLabel } from "../../model/overview";
import {
  instantText,
  poolFacts,
  poolFinding,
  poolRowOf,
  poolSentence,
  usualInstant,
  type PoolFacts,
  type PoolSource,
  type PoolSteps,
} from "../../model/pool";
import type { RunInfo } from "../../model/run";
import type { SnapshotSummary } from "../../model/snapshot";
import { WORDS } from "../../model/words";
import { Chart, type ChartProps } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { useExport } from "../shared/export";
import { LegendItem } from "../shared/legend";
import { MapView } from "../shared/memory-map/memory-map-view";
import { Fault, Nothing } from "../shared/states";
import { useStepsChart } from "../shared/steps-chart";
import { DemandSection } from "./demand-section";
import { DeviceMemoryBar } from "./device-memory-bar";
import { PoolPanel } from "./pool-panel";
import { PARTS, RATIOS, ratiosSpec, seriesFill, showsCapacity, showsUnknown, sizesSpec } from "./pool-spec";
import { AboutGrowth, Missing, NoSnapshots, PoolGrowth } from "./pool-words";

/** The memory map of a traced step, or why there is none. */
function SnapshotMap({ run, snapshot }: { run: RunInfo; snapshot: SnapshotSummary }) {
  const store = useStore();
  const { device, step, phase } = snapshot;
  const { value, error } = store.mapList.value;
  if (error !== null) return <Fault sentence={error} retry={() => void store.reload()} />;
  if (value === null) return null;
  if (value.some((map) => map.step === step && map.phase === phase)) return <MapView run={run} place={{ device, step, phase }} />;
  const others = value.flatMap((map) => (map.step === null ? [] : [map.step]));
  return (
    <section class="map" aria-label="Memory map">
      <h2>Memory map</h2>
      <p class="small" data-testid="no-map">
        {others.length === 0
          ? "Unknown: no traced step of this device has a memory map."
          : `Unknown: the trace of step ${step} has no memory map. Memory maps exist for ${
              others.length > 8 ? `${others.length} other steps` : `steps ${others.join(", ")}`
            }.`}
      </p>
    </section>
  );
}

const FIGURES = [
  "source",
  "instant",
  "allocated_bytes",
  "pool_bytes",
  "free_bytes",
  "free_largest",
  "free_other",
  "unreserved",
  "fragmentation",
  "utilisation",
  "rounding_bytes",
] as const satisfies readonly (keyof PoolFacts)[];

function poolFile(pool: PoolSteps): Table {
  return {
    columns: ["step", ...FIGURES],
    rows: Array.from({ length: pool.rows }, (_, row) => {
      const facts = poolFacts(pool, row);
      return [facts.step, ...FIGURES.map((name) => facts[name])];
    }),
  };
}

const hasSource = (pool: PoolSteps, source: PoolSource): boolean => pool.pool_source.includes(pool.sources.indexOf(source));

function SizesLegend({ pool }: { pool: PoolSteps }) {
  const scheme = schemeOf(useStore());
  const instant = usualInstant(pool);
  const known = hasSource(pool, "measured") || hasSource(pool, "traced") || hasSource(pool, "failed");
  return (
    <p class="legend">
      <LegendItem kind="line colour" colour={seriesFill("allocated_bytes", scheme).colour}>
        allocated {instantText(instant)}, every step
      </LegendItem>
      {known && (
        <>
          <LegendItem kind="fill" colour={seriesFill("free_largest", scheme).colour}>
            {WORDS.free_largest.label}
          </LegendItem>
          <LegendItem kind="fill striped" colour={seriesFill("free_other", scheme).colour}>
            {WORDS.free_other.label}
          </LegendItem>
          {showsCapacity(pool) && (
            <LegendItem kind="fill outlined" colour={seriesFill("unreserved", scheme).colour}>
              {WORDS.unreserved.label}
            </LegendItem>
          )}
          <LegendItem kind="line">pool</LegendItem>
        </>
      )}
      {instant === "step end" && hasSource(pool, "traced") && <span>traced steps: at the peak</span>}
      {showsUnknown(pool) && <LegendItem kind="hatched">fragmentation unknown</LegendItem>}
    </p>
  );
}

function RatiosLegend() {
  const scheme = schemeOf(useStore());
  return (
    <p class="legend">
      {RATIOS.map((name) => (
        <LegendItem key={name} kind="line colour" colour={seriesFill(name, scheme).colour}>
          {WORDS[name].label}
        </LegendItem>
      ))}
    </p>
  );
}

/** The charts of the pool; `shared` is their cursor, pin and zoom. */
function Charts({ pool, specs, shared }: { pool: PoolSteps; specs: Specs; shared: Omit<ChartProps, "label" | "spec"> }) {
  const known = pool.pool_source.some((source) => pool.sources[source] !== "unknown");
  const label = known ? "Pool over steps: allocated bytes and free chunks." : "Allocated bytes over steps.";
  return (
    <>
      <Chart {...shared} height="tall" label={label} spec={specs.sizes} />
      <SizesLegend pool={pool} />
      {known && (
        <>
          <Chart {...shared} height="small" label="Fragmentation and utilisation of the pool over steps." spec={specs.ratios} />
          <RatiosLegend />
        </>
      )}
    </>
  );
}

interface Specs {
  sizes: PlotSpec;
  ratios: PlotSpec;
}

function useSpecs(pool: PoolSteps, run: RunInfo | null): Specs {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [first, last] = [run?.first_step ?? null, run?.last_step ?? null];
  return useMemo(() => {
    const span = first === null || last === null ? null : ([first, last] as const);
    return { sizes: sizesSpec(pool, choices, scheme, span), ratios: ratiosSpec(pool, choices, scheme, span) };
  }, [pool, choices.axis, choices.zoom, scheme, first, last]);
}

/** `list` are the traced steps of the device, of all phases. */
export function FragmentationView({ pool, list }: { pool: PoolSteps; list: readonly SnapshotSummary[] }) {
  const store = useStore();
  const run = store.primary.value;
  const specs = useSpecs(pool, run);
  const ofPhase = useMemo(() => list.filter(({ phase }) => phase === pool.phase).sort((a, b) => a.step - b.step), [list, pool.phase]);
  const shared = { ...useStepsChart(pool.step, specs.sizes.x), describe: (row: number) => poolSentence(poolFacts(pool, row)) };
  const scheme = schemeOf(store);
  useExport({
    table: () => poolFile(pool),
    legend: () => [...PARTS, ...RATIOS].map((name) => ({ label: WORDS[name].label, fill: seriesFill(name, scheme) })),
  });
  if (!run) return null;
  if (list.length === 0 && pool.growths.length === 0) return <NoSnapshots run={run} />;
  if (pool.rows === 0) {
    return (
      <Nothing title={`No ${pool.phase} step of ${pool.run} was recorded on ${pool.device}`}>
        <p>Choose another phase or device above.</p>
      </Nothing>
    );
  }
  const selection = store.shownStep.value;
  const fixed = poolRowOf([pool, store.wholePool.value.value ?? pool], selection?.step ?? 0) ?? { pool, row: 0 };
  const shown = shared.cursor === null ? fixed : { pool, row: shared.cursor };
  const traced = ofPhase.find(({ step }) => step === selection?.snapshot?.step);
  const snapshot = ofPhase.find(({ step }) => step === shown.pool.step[shown.row]);
  const failure = traced?.at_failure ? selection && failureOf(selection.overview, traced.step) : undefined;
  // Of the selected step, not of each that the pointer passes: below it are more charts.
  const finding = poolFinding(poolFacts(fixed.pool, fixed.row));
  return (
    <>
      <div class="body">
        <div class="picture">
          <Missing run={run} list={ofPhase} />
          <Charts pool={pool} specs={specs} shared={shared} />
          {/* Of the selected step, so it may not stand above the charts: a click there would move them. */}
          {traced && <DeviceMemoryBar device={traced.device} step={traced.step} />}
          <DemandSection run={run} device={pool.device} />
          {pool.growths.length > 0 && (
            <section class="pool-growth-section" aria-label="Pool growth">
              <h2>Pool growth</h2>
              <PoolGrowth pool={pool} />
              <AboutGrowth pool={pool} />
            </section>
          )}
          {finding && (
            <ul class="findings">
              <li>
                <span class="sentence">{unbroken(finding)}</span>
              </li>
            </ul>
          )}
        </div>
        <PoolPanel {...shown} mode={snapshot && !snapshot.at_failure ? modeLabel(snapshot.mode) : null} />
      </div>
      {traced && (failure ? <MapView run={run} place={{ oom: failure.oom }} /> : <SnapshotMap run={run} snapshot={traced} />)}
    </>
  );
}
