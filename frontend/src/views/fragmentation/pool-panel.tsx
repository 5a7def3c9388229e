/** The figures of the pool at one step, and what fills the device's memory. */

import { useRef } from "preact/hooks";

import { byteRange } from "../../charts/axis";
import {
  barsPainter,
  betweenPainter,
  pointsPainter,
  stepPainter,
  type BandFill,
  type Painter,
} from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacitiesPainter } from "../../charts/rules";
import { unitOf, formatShare, shareOf, formatBytes, unbroken, totalBytes } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { WORDS, type WordName } from "../../model/categories";
import { instantOf } from "../../model/overview";
import {
  figureSource,
  fragmentationText,
  instantText,
  poolFacts,
  poolProvenance,
  unchangedPool,
  usualInstant,
  type PoolFacts,
  type PoolSteps,
  deviceMemorySentence,
  inPool,
  segmentKey,
  segmentLabel,
  segmentMeaning,
  demandParts,
} from "../../model/pool";
import type { Choices } from "../../state/address";
import { fillOf, categoryFill, inks, freeFill, outsideFill, type Fill } from "../../theme/palette";
import { useStore, useFetched } from "../shared/context";
import { Figure, FigureTable, Swatch, Panel } from "../shared/figures";
import { highest, lastKnown, framed } from "../shared/frame";
import { Known } from "../shared/states";
import { figured } from "../shared/tips";
import type { DeviceMemory, MemorySegment, RunInfo } from "../../schema";

type PoolSeries = keyof PoolFacts & WordName;

export const PARTS = [
  "allocated_bytes",
  "free_other",
  "free_largest",
  "unreserved",
] as const satisfies readonly PoolSeries[];
export const RATIOS = ["fragmentation", "utilisation"] as const satisfies readonly PoolSeries[];

export function seriesFill(name: PoolSeries): Fill {
  const { used, accent, line } = inks();
  if (name === "unreserved") return freeFill(name);
  if (name === "free_largest" || name === "free_other")
    return freeFill(name === "free_other" ? "other" : "largest");
  const colour =
    name === "fragmentation"
      ? accent
      : name === "allocated_bytes" || name === "utilisation"
        ? used
        : line;
  return { colour, pattern: "plain" };
}

const where = (column: Float64Array, keep: (row: number) => boolean): Float64Array =>
  column.map((value, row) => (keep(row) ? value : NaN));

/** Known rows without a neighbour of the same source: their cells may be too narrow to see. */
const singleRows = (facts: readonly PoolFacts[]): number[] =>
  Array.from(facts.keys()).filter((row) => {
    const source = facts[row]?.source;
    return (
      source !== "unknown" && facts[row - 1]?.source !== source && facts[row + 1]?.source !== source
    );
  });

const columnOf = (facts: readonly PoolFacts[], name: PoolSeries): Float64Array =>
  Float64Array.from(facts, (one) => one[name] ?? NaN);

function partPainters(
  edges: Float64Array,
  single: readonly number[],
  low: Float64Array,
  high: Float64Array,
  fill: Fill,
  ground: string,
): Painter[] {
  const band: BandFill = { ...fill };
  return [
    betweenPainter(edges, low, high, band, ground, 1),
    barsPainter(edges, single, low, high, band, ground),
  ];
}

export const showsCapacity = (pool: PoolSteps): boolean => {
  const capacity = lastKnown(pool.capacity_bytes);
  const most = [pool.peak_bytes, pool.pool_bytes].map((column) =>
    column.reduce((found, value) => (value > found ? value : found), 0),
  );
  return byteRange(Math.max(...most), capacity).capacityInside;
};

const everyStep = (pool: PoolSteps): Float64Array =>
  usualInstant(pool) === "peak" ? pool.peak_bytes : pool.in_use_bytes;

export function showsUnknown(pool: PoolSteps): boolean {
  const every = everyStep(pool);
  return unchangedPool(pool).some((value, row) => value > (every[row] ?? NaN));
}

const everyFacts = (pool: PoolSteps) =>
  Array.from({ length: pool.rows }, (_, row) => poolFacts(pool, row));

export function sizesSpec(
  pool: PoolSteps,
  choices: Choices,
  span: readonly [number, number] | null,
): PlotSpec {
  const { common, edges, range } = framed(pool, choices, span);
  const { background, faint, line } = inks();
  const facts = everyFacts(pool);
  const isKnown = (row: number): boolean => facts[row]?.source !== "unknown";
  const every = everyStep(pool);
  const allocated = where(columnOf(facts, "allocated_bytes"), isKnown);
  const split = allocated.map((value, row) => value + (facts[row]?.free_other ?? NaN));
  const capacity = highest(pool.capacity_bytes, common.x, range) || null;
  const unchanged = unchangedPool(pool);
  const top = Math.max(
    ...[every, allocated, pool.pool_bytes].map((column) => highest(column, common.x, range)),
  );
  const { max, capacityInside } = byteRange(top, capacity);
  const zero = new Float64Array(pool.rows);
  const solid = { colour: line, width: 1.5 };
  const single = singleRows(facts);
  const part = (name: PoolSeries, low: Float64Array, high: Float64Array): Painter[] =>
    partPainters(edges, single, low, high, seriesFill(name), background);
  const painters = [
    betweenPainter(edges, zero, every, { ...seriesFill("allocated_bytes") }, background, 0.3),
    // The pool is the same on both sides; the split of its free bytes is unknown.
    betweenPainter(
      edges,
      every,
      unchanged,
      { colour: faint, pattern: "hatched" },
      background,
      0.45,
    ),
    ...(capacityInside
      ? part("unreserved", pool.pool_bytes, where(pool.capacity_bytes, isKnown))
      : []),
    ...part("allocated_bytes", zero, allocated),
    ...part("free_other", allocated, split),
    ...part("free_largest", split, pool.pool_bytes),
    stepPainter(edges, every, { colour: inks().used, width: 1.75 }),
    stepPainter(edges, unchanged, { ...solid, colour: faint, width: 1 }),
    stepPainter(edges, pool.pool_bytes, solid),
  ];
  painters.push(...capacitiesPainter(edges, pool.capacity_bytes, capacityInside, inks()));
  return { ...common, yMax: max, painters };
}

export function ratiosSpec(
  pool: PoolSteps,
  choices: Choices,
  span: readonly [number, number] | null,
): PlotSpec {
  const { common, edges } = framed(pool, choices, span);
  const facts = everyFacts(pool);
  const single = new Set(singleRows(facts));
  const painters = RATIOS.flatMap((name) => {
    const column = columnOf(facts, name);
    const style = { colour: seriesFill(name).colour, width: 1.75 };
    const lines = (["traced", "measured", "failed"] as const).map((source) =>
      stepPainter(
        edges,
        where(column, (row) => facts[row]?.source === source && !single.has(row)),
        style,
      ),
    );
    const points = where(column, (row) => single.has(row));
    return [...lines, pointsPainter(common.x, points, style.colour)];
  });
  return { ...common, yKind: "share", yMax: 1.04, painters };
}

function Ratios({ facts }: { facts: PoolFacts }) {
  const text = {
    utilisation: facts.utilisation === null ? "–" : formatShare(facts.utilisation),
    fragmentation: fragmentationText(facts),
  };
  return (
    <tbody class="totals">
      {RATIOS.map((name) => (
        <tr
          key={name}
          data-figure={name}
          data-value={facts[name] ?? ""}
          data-tip={[text[name], WORDS[name].meaning, figureSource(name, facts)].join("\n")}
        >
          <th scope="row">
            <Swatch fill={seriesFill(name)} />
            <span class="label">{WORDS[name].label}</span>
          </th>
          <td class="figure">{text[name]}</td>
          <td class="share" />
        </tr>
      ))}
    </tbody>
  );
}

const TOTALS = [
  "pool_bytes",
  "free_bytes",
  "capacity_bytes",
] as const satisfies readonly PoolSeries[];

function Sizes({ facts }: { facts: PoolFacts }) {
  const figure = (name: PoolSeries) => ({
    name,
    label: WORDS[name].label,
    hint: WORDS[name].meaning,
    source: figureSource(name, facts),
    bytes: facts[name],
  });
  const share = (name: PoolSeries) => shareOf(facts[name], facts.capacity_bytes);
  return (
    <>
      <tbody>
        {[...PARTS].reverse().map((name) => (
          <Figure key={name} {...figure(name)} share={share(name)} fill={seriesFill(name)} />
        ))}
      </tbody>
      <tbody class="totals">
        {TOTALS.map((name) => (
          <Figure key={name} {...figure(name)} share={share(name)} />
        ))}
        {/* Shown even if unknown, so that the panel keeps its height while the pointer moves. */}
        <Figure {...figure("rounding_bytes")} label="measured rounding" />
      </tbody>
    </>
  );
}

const ABOUT_SHARES =
  "Shares are relative to the capacity. Fragmentation is the share of free bytes outside the largest free chunk: 0 % when all free bytes form one chunk, 0/0 when nothing is free. Read it together with the utilisation.";

export function PoolPanel({
  pool,
  facts,
  mode,
}: {
  pool: PoolSteps;
  facts: PoolFacts;
  mode: string | null;
}) {
  return (
    <Panel
      label="Figures of one step"
      step={facts.step}
      unit={unitOf(Math.max(maximum(pool.pool_bytes), maximum(pool.peak_bytes)))}
      about={
        <>
          {pool.phase}
          {mode !== null && ` · traced (${mode})`} · {instantText(facts.instant)}
        </>
      }
    >
      <p class={`provenance ${facts.source}`} data-testid="provenance" data-kind={facts.source}>
        <span class="said" title={poolProvenance(facts)}>
          {poolProvenance(facts)}
        </span>
      </p>
      <FigureTable testid="pool">
        <Sizes facts={facts} />
        <Ratios facts={facts} />
      </FigureTable>
      <Known sentence={ABOUT_SHARES} />
    </Panel>
  );
}

function segmentFill({ part, category, trainable }: MemorySegment): Fill {
  if (part === "in_use") return fillOf({ category: category ?? "unattributed", trainable });
  if (part === "process_other" || part === "others") return outsideFill(part);
  if (part === "free_other") return freeFill("other");
  return freeFill(part === "free_largest" || part === "pool_free" ? "largest" : "unreserved");
}

function Bar({ memory }: { memory: DeviceMemory }) {
  const total = totalBytes(memory.segments);
  return (
    <>
      <div class="memory-bar" aria-hidden="true">
        {memory.segments.map((segment) => {
          const fill = segmentFill(segment);
          const style = { "--fill": fill.colour, width: `${(segment.bytes / total) * 100}%` };
          return (
            <i
              key={segmentKey(segment)}
              class={`fill ${fill.pattern} ${inPool(segment) ? "pool" : ""}`}
              style={style}
              {...figured(segmentKey(segment), segment.bytes, segmentLabel(segment))}
            />
          );
        })}
      </div>
      <ul class="map-legend" aria-label="Parts of the device's memory" data-testid="device-memory">
        {memory.segments.map((segment) => (
          <li
            key={segmentKey(segment)}
            {...figured(
              segmentKey(segment),
              segment.bytes,
              segmentMeaning(segment),
              `step ${memory.step}`,
            )}
          >
            <Swatch fill={segmentFill(segment)} />
            {segmentLabel(segment)}{" "}
            <span class="small">
              {formatBytes(segment.bytes)} · {formatShare(segment.bytes / total)}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Driver({ memory }: { memory: DeviceMemory }) {
  const {
    driver_total_bytes: total,
    driver_used_bytes: used,
    driver_process_bytes: process,
  } = memory;
  if (total === null && used === null && process === null) return null;
  const figures: [string, number | null][] = [
    ["this process", process],
    ["all processes", used],
    ["device", total],
  ];
  const known = figures.filter((figure): figure is [string, number] => figure[1] !== null);
  return (
    <span class="small">
      Driver: {known.map(([name, bytes]) => `${name} ${formatBytes(bytes)}`).join(", ")}.
    </span>
  );
}

export function DeviceMemoryBar({ device, step }: { device: string; step: number | null }) {
  const store = useStore();
  const run = store.primary.value;
  const { value: loaded } = useFetched(store.fetched.deviceMemories, run && [run, device, step]);
  // The step before stays, under its own number, until the next one is there: what stands below
  // keeps its place.
  const kept = useRef<{ of: string; memory: DeviceMemory } | null>(null);
  const of = JSON.stringify([run?.run, device]);
  if (loaded) kept.current = { of, memory: loaded };
  const memory = kept.current?.of === of ? kept.current.memory : null;
  return (
    <section class="device-memory" aria-label="Device memory">
      <h2>
        Memory of {device} {memory && <span class="small">{instantOf(memory)}</span>}
      </h2>
      {memory && (
        <>
          {memory.segments.length > 0 && <Bar memory={memory} />}
          <p>
            {unbroken(deviceMemorySentence(memory, formatBytes))} <Driver memory={memory} />
          </p>
          {memory.notes.map((note) => (
            <p key={note} class="small">
              {note}
            </p>
          ))}
        </>
      )}
    </section>
  );
}

/** Of all categories together, so in the colour of none. */
const demandFill = (name: "demand" | "rounding" | "unsplit"): Fill =>
  name === "demand"
    ? seriesFill("allocated_bytes")
    : name === "rounding"
      ? categoryFill("rounding")
      : freeFill("other");

export function DemandSection({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const { value } = useFetched(store.fetched.demands, [run, device]);
  const demand = value?.demand;
  if (!demand) return null;
  const parts = demandParts(demand);
  return (
    <details class="known demand" data-testid="demand">
      <summary>Demand of the peak of step {demand.step}</summary>
      <div class="memory-bar" aria-hidden="true">
        {parts.map(({ name, share }) => {
          const { colour, pattern } = demandFill(name);
          const style = { "--fill": colour, width: `${100 * share}%` };
          return <span key={name} class={`fill ${pattern}`} style={style} />;
        })}
      </div>
      <ul class="map-legend" aria-label="Parts of the demand">
        {parts.map(({ name, label, bytes }) => (
          <li key={name} {...figured(`${name}_bytes`, bytes, label)}>
            <Swatch fill={demandFill(name)} />
            {label} <span class="small">{formatBytes(bytes)}</span>
          </li>
        ))}
      </ul>
      <p>{unbroken(demand.sentences.at(-1) ?? "")}</p>
    </details>
  );
}
