/**
 * The allocator's pool over the steps: allocated bytes, free chunks, fragmentation, and how it
 * grew.
 */

import { useMemo } from "preact/hooks";

import type { PlotSpec } from "../../charts/plot";
import { unbroken, formatBytes, type Table } from "../../lib/bytes";
import { WORDS } from "../../model/categories";
import { failureOf, modeLabel } from "../../model/overview";
import {
  instantText,
  poolFacts,
  poolFinding,
  poolRowOf,
  poolSentence,
  usualInstant,
  poolGrows,
  POOL_INSTANTS,
  atInstant,
  hasInstants,
  type PoolFacts,
  type PoolSteps,
} from "../../model/pool";
import { isGpu } from "../../model/run";
import { dark } from "../../theme/palette";
import { Chart } from "../shared/chart";
import type { ChartProps } from "../shared/chart-props";
import { useStore, useChoices } from "../shared/context";
import { ChoiceSegments, LegendItem } from "../shared/controls";
import { useExport } from "../shared/export";
import { useStepsChart, lastKnown, useRunSpan } from "../shared/frame";
import { MapView } from "../shared/memory-map/memory-map-view";
import {
  Fault,
  Findings,
  NoSteps,
  Nothing,
  NoticeList,
  Sentence,
  TRACE_STEPS,
} from "../shared/states";
import {
  DemandSection,
  DeviceMemoryBar,
  PoolPanel,
  PARTS,
  RATIOS,
  ratiosSpec,
  seriesFill,
  showsCapacity,
  showsUnknown,
  sizesSpec,
} from "./pool-panel";
import type { PoolSource, RunInfo, SnapshotSummary } from "../../schema";

const SENTENCES = 5;

const ofDriver = (run: RunInfo): string[] =>
  run.notes.filter((note) => note.includes("cuda_malloc_async"));

function Missing({ run, list }: { run: RunInfo; list: readonly SnapshotSummary[] }) {
  const told = [...ofDriver(run), ...list.flatMap(({ not_available }) => not_available)];
  const untold = list.some(({ pool_bytes }) => pool_bytes === null) && told.length === 0;
  const own =
    "The pool and its free chunks are unknown at some traced steps: their traces do not contain them.";
  return <NoticeList sentences={[...new Set(untold ? [own] : told)]} testid="not-available" />;
}

const UNTRACED =
  "The pool was not measured, and free chunks are known at traced steps only. Tracing is off with `overhead=0` and for replicas; choose the steps with:";
const OF_DRIVER =
  "With `TF_GPU_ALLOCATOR=cuda_malloc_async`, TensorFlow allocates from the CUDA driver's memory pool. That allocator reports statistics only: pool size, free chunks, memory maps, layers and the chunks of a failed allocation are unknown. Bytes in use and peaks are measured at every step.";
const WITH_GROWTH = unbroken(
  "With memory growth (`tf.config.experimental.set_memory_growth` or `TF_FORCE_GPU_ALLOW_GROWTH=true`) the pool starts with a region of 2 MiB and reserves another, usually twice as large, when no free chunk is large enough. On a GPU the allocator releases regions only if an allocation would fail otherwise; on the CPU it never does. Free chunks do not span regions, so a grown pool has more and smaller free chunks. Without growth, the pool is one region.",
);

function NoSnapshots({ run }: { run: RunInfo }) {
  const why = ofDriver(run);
  const title = "No step of this run was traced on this device";
  return why.length > 0 ? (
    <Nothing title={title} sentences={[...why, OF_DRIVER]} />
  ) : (
    <Nothing title={title} sentences={[UNTRACED]} code={TRACE_STEPS} />
  );
}

function PoolGrowth({ pool }: { pool: PoolSteps }) {
  const { sentences } = pool;
  if (sentences.length === 0) return null;
  const [earlier, shown] = [sentences.slice(0, -SENTENCES), sentences.slice(-SENTENCES)];
  const items = (some: readonly string[]) =>
    some.map((sentence) => <li key={sentence}>{unbroken(sentence)}</li>);
  return (
    <div class="pool-growth">
      {earlier.length > 0 && (
        <details>
          <summary>{earlier.length} earlier</summary>
          <ul>{items(earlier)}</ul>
        </details>
      )}
      <ul data-testid="pool-growth">{items(shown)}</ul>
    </div>
  );
}

function AboutGrowth({ pool }: { pool: PoolSteps }) {
  const grows = poolGrows(pool);
  const gpu = isGpu(pool.device);
  const capacity = lastKnown(pool.capacity_bytes);
  const limit = capacity === null ? "its limit" : `its limit of ${formatBytes(capacity)}`;
  const own = unbroken(
    {
      true: `This pool grows on demand${gpu ? " (memory growth is on)" : ", as the CPU's always does"}. Other processes can use unreserved memory.`,
      false: `This pool was at ${limit} from the first known step: without memory growth, TensorFlow reserves all of it at the start. The driver counts it all as used by this process.`,
      null: "",
    }[String(grows) as "true" | "false" | "null"],
  );
  return (
    <details class="folded about-growth" data-testid="about-growth" data-grows={String(grows)}>
      <summary>Effect of memory growth</summary>
      {[own, WITH_GROWTH, OF_DRIVER].filter(Boolean).map((sentence) => (
        <p key={sentence}>
          <Sentence of={sentence} />
        </p>
      ))}
    </details>
  );
}

function SnapshotMap({ run, snapshot }: { run: RunInfo; snapshot: SnapshotSummary }) {
  const store = useStore();
  const { device, step, phase } = snapshot;
  const { value, error } = store.mapList.value;
  if (error !== null) return <Fault sentence={error} />;
  if (value === null) return null;
  if (value.some((map) => map.step === step && map.phase === phase))
    return <MapView run={run} place={{ device, step, phase }} />;
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

const hasSource = (pool: PoolSteps, source: PoolSource): boolean =>
  pool.pool_source.includes(pool.sources.indexOf(source));

function SizesLegend({ pool }: { pool: PoolSteps }) {
  const instant = usualInstant(pool);
  const known =
    hasSource(pool, "measured") || hasSource(pool, "traced") || hasSource(pool, "failed");
  return (
    <p class="legend">
      <LegendItem
        kind="line colour"
        colour={seriesFill("allocated_bytes").colour}
        label={`allocated ${instantText(instant)}`}
      />
      {known && (
        <>
          <LegendItem
            kind="fill"
            colour={seriesFill("free_largest").colour}
            label={WORDS.free_largest.label}
          />
          <LegendItem
            kind="fill striped"
            colour={seriesFill("free_other").colour}
            label={WORDS.free_other.label}
          />
          {showsCapacity(pool) && (
            <LegendItem
              kind="fill outlined"
              colour={seriesFill("unreserved").colour}
              label={WORDS.unreserved.label}
            />
          )}
          <LegendItem kind="line" label="pool" />
        </>
      )}
      {showsUnknown(pool) && <LegendItem kind="hatched" label="fragmentation unknown" />}
    </p>
  );
}

function RatiosLegend() {
  return (
    <p class="legend">
      {RATIOS.map((name) => (
        <LegendItem
          key={name}
          kind="line colour"
          colour={seriesFill(name).colour}
          label={WORDS[name].label}
        />
      ))}
    </p>
  );
}

function Charts({
  pool,
  specs,
  shared,
}: {
  pool: PoolSteps;
  specs: Specs;
  shared: Omit<ChartProps, "label" | "spec">;
}) {
  const known = pool.pool_source.some((source) => pool.sources[source] !== "unknown");
  const label = known
    ? "Pool over steps: allocated bytes and free chunks."
    : "Allocated bytes over steps.";
  return (
    <>
      <Chart {...shared} height="tall" label={label} spec={specs.sizes} />
      <SizesLegend pool={pool} />
      {known && (
        <>
          <Chart
            {...shared}
            height="small"
            label="Fragmentation and utilisation of the pool over steps."
            spec={specs.ratios}
          />
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

function useSpecs(pool: PoolSteps): Specs {
  const choices = useChoices();
  const span = useRunSpan();
  return useMemo(
    () => ({ sizes: sizesSpec(pool, choices, span), ratios: ratiosSpec(pool, choices, span) }),
    [pool, choices.axis, choices.zoom, dark.value, span],
  );
}

interface FragmentationProps {
  pool: PoolSteps;
  /** The traced steps of the device, of all phases. */
  list: readonly SnapshotSummary[];
}

export function FragmentationView({ pool: recorded, list }: FragmentationProps) {
  const store = useStore();
  const run = store.primary.value;
  const ofPhase = useMemo(
    () => list.filter(({ phase }) => phase === recorded.phase).sort((a, b) => a.step - b.step),
    [list, recorded.phase],
  );
  const recordedWhole = store.wholePool.value.value ?? recorded;
  const { instant } = useChoices();
  const [pool, whole] = useMemo(
    () => [atInstant(recorded, ofPhase, instant), atInstant(recordedWhole, ofPhase, instant)],
    [recorded, recordedWhole, ofPhase, instant],
  );
  const specs = useSpecs(pool);
  const shared = {
    ...useStepsChart(pool.step, specs.sizes.x),
    describe: (row: number) => poolSentence(poolFacts(pool, row)),
  };
  useExport({
    table: () => poolFile(pool),
    legend: () =>
      [...PARTS, ...RATIOS].map((name) => ({ label: WORDS[name].label, fill: seriesFill(name) })),
  });
  if (!run) return null;
  if (list.length === 0 && pool.growths.length === 0) return <NoSnapshots run={run} />;
  if (pool.rows === 0) return <NoSteps of={pool} />;
  const selection = store.shownStep.value;
  const fixed = poolRowOf([pool, whole], selection?.step ?? 0) ?? { pool, row: 0 };
  const shown = shared.cursor === null ? fixed : { pool, row: shared.cursor };
  const traced = ofPhase.find(({ step }) => step === selection?.snapshot?.step);
  const snapshot = ofPhase.find(({ step }) => step === shown.pool.step[shown.row]);
  const failure = traced?.at_failure
    ? selection && failureOf(selection.overview, traced.step)
    : undefined;
  // Of the selected step, not of each that the pointer passes: below it are more charts.
  const finding = poolFinding(poolFacts(fixed.pool, fixed.row));
  return (
    <>
      <div class="body">
        <div class="picture">
          <Missing run={run} list={ofPhase} />
          {hasInstants(recordedWhole, ofPhase) && (
            <ChoiceSegments of="instant" label="pool at" options={POOL_INSTANTS} />
          )}
          <Charts pool={pool} specs={specs} shared={shared} />
          {/* Of the selected step, so not above the charts: a click there would move them. */}
          {traced && <DeviceMemoryBar device={traced.device} step={traced.step} />}
          <DemandSection run={run} device={pool.device} />
          {pool.growths.length > 0 && (
            <details class="known pool-growth-section">
              <summary>Pool growth</summary>
              <PoolGrowth pool={pool} />
              <AboutGrowth pool={pool} />
            </details>
          )}
          {finding && <Findings sentences={[finding]} />}
        </div>
        <PoolPanel
          pool={shown.pool}
          facts={poolFacts(shown.pool, shown.row)}
          mode={snapshot && !snapshot.at_failure ? modeLabel(snapshot.mode) : null}
        />
      </div>
      {traced &&
        (failure ? (
          <MapView run={run} place={{ oom: failure.oom }} />
        ) : (
          <SnapshotMap run={run} snapshot={traced} />
        ))}
    </>
  );
}
