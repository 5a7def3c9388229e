/** The allocator's pool over the traced steps: how much of it is used, and how much of the rest is in one piece. */

import { useMemo } from "preact/hooks";

import { unitOf, type Unit } from "../lib/bytes";
import { formatShare, unbroken } from "../lib/format";
import { nearestIndex } from "../lib/search";
import { modeLabel } from "../model/overview";
import type { SnapshotSummary } from "../model/snapshot";
import { Chart } from "./chart";
import { schemeOf, useStore } from "./context";
import { Figure, UnitButton } from "./figures";
import { RATIOS, SIZES, lineColour, poolFinding, poolSentence, ratiosSpec, sizesSpec, snapshotColumns, type Snapshots } from "./fragmentation-spec";
import { LegendItem } from "./legend";
import { Nothing } from "./states";
import { exactBytes } from "./step-panel";

function Panel({ snapshots, row }: { snapshots: Snapshots; row: number }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const snapshot = snapshots.list[row];
  const parts = snapshots.parts[row];
  if (!snapshot || !parts) return null;
  const unit: Unit = unitOf(Math.max(...snapshots.parts.map(({ pool_bytes, in_use_bytes }) => pool_bytes ?? in_use_bytes)));
  const common = { unit, exact: exactBytes.value };
  const fill = (name: keyof typeof parts) => ({ colour: lineColour(name, scheme), pattern: "plain" as const });
  return (
    <aside class="panel" aria-label="Figures of one traced step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={snapshot.step}>
          Step {snapshot.step}
          <span class="why">{store.cursor.value === null ? (store.choices.value.step === null ? "last traced" : "nearest traced") : ""}</span>
          <UnitButton unit={unit} exact={exactBytes.value} toggle={() => (exactBytes.value = !exactBytes.value)} />
        </h2>
        <p class="small">{snapshot.phase} · traced ({modeLabel(snapshot.mode)}) · at the step's peak</p>
      </header>
      <table class={exactBytes.value ? "figures exact" : "figures"} data-testid="pool">
        <tbody>
          {SIZES.map(({ name, label, hint }) => (
            <Figure key={name} {...common} name={name} label={label} hint={hint} bytes={parts[name]} share={parts.pool_bytes && parts[name] !== null ? parts[name] / parts.pool_bytes : null} fill={fill(name)} />
          ))}
        </tbody>
        <tbody class="totals">
          <Figure {...common} name="capacity_bytes" label="capacity" hint="the allocator's limit" bytes={snapshot.capacity_bytes} />
          <Figure {...common} name="unreserved" label="not yet in the pool" hint="capacity − pool" bytes={parts.unreserved} />
          <Figure {...common} name="rounding_bytes" label="rounding" hint="allocated but not asked for: 256-byte rounding and chunks that were not split" bytes={snapshot.rounding_bytes} />
        </tbody>
        <tbody class="totals">
          {RATIOS.map(({ name, label, hint }) => (
            <tr key={name} title={hint} data-figure={name} data-value={parts[name] ?? ""}>
              <th scope="row"><span class="swatch plain" style={{ "--fill": lineColour(name, scheme) }} aria-hidden="true" /><span class="label">{label}</span></th>
              <td class="figure">{parts[name] === null ? "–" : formatShare(parts[name])}</td>
              <td class="share" />
            </tr>
          ))}
        </tbody>
      </table>
      <p class="small">Shares are of the pool. Fragmentation is the share of the free bytes that is outside of the largest free block; read it beside the utilisation.</p>
    </aside>
  );
}

function Missing({ list }: { list: readonly SnapshotSummary[] }) {
  const sentences = [...new Set(list.flatMap(({ not_available }) => not_available))];
  if (sentences.length === 0) return null;
  return <ul class="notices" data-testid="not-available">{sentences.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>;
}

function NoSnapshots() {
  return (
    <Nothing title="No step of this run was traced on this device">
      <p>The pool and its free blocks are read at traced steps. Tracing is on unless <code>overhead=0</code> was given; name steps to trace with:</p>
      <pre tabIndex={0}><code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code></pre>
    </Nothing>
  );
}

export function FragmentationView({ list }: { list: readonly SnapshotSummary[] }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const run = store.primary.value;
  const span = run && run.first_step !== null && run.last_step !== null ? ([run.first_step, run.last_step] as const) : null;
  const snapshots = useMemo(() => snapshotColumns(list), [list]);
  const sizes = useMemo(() => sizesSpec(snapshots, choices, scheme, span), [snapshots, choices.axis, choices.zoom, scheme, span?.[1]]);
  const ratios = useMemo(() => ratiosSpec(snapshots, choices, scheme, span), [snapshots, choices.axis, choices.zoom, scheme, span?.[1]]);
  if (list.length === 0) return <NoSnapshots />;
  const rowOf = (step: number | null): number | null => (step === null ? null : nearestIndex(snapshots.step, step));
  const cursor = rowOf(store.cursor.value);
  const pin = rowOf(choices.step);
  const row = cursor ?? pin ?? list.length - 1;
  const stepOf = (index: number | null): number | null => (index === null ? null : (snapshots.step[index] ?? null));
  const hasPool = snapshots.parts.some(({ pool_bytes }) => pool_bytes !== null);
  const shared = {
    marks: [],
    cursor,
    pin,
    describe: (index: number) => poolSentence(snapshots, index),
    onCursor: (index: number | null) => (store.cursor.value = stepOf(index)),
    onPin: (index: number) => store.choose({ step: stepOf(index) }),
    onZoom: (from: number, to: number) => {
      const inside = [...snapshots.step].filter((_, index) => (sizes.x[index] ?? 0) >= from && (sizes.x[index] ?? 0) <= to);
      const [first, last] = choices.axis === "step" ? [Math.max(Math.ceil(from), 0), Math.floor(to)] : [inside[0] ?? 0, inside.at(-1) ?? 0];
      if (last > first) store.choose({ zoom: [first, last] });
    },
    onReset: () => store.choose({ zoom: null }),
    onInside: store.hold,
  };
  const finding = snapshots.list[row] ? poolFinding(snapshots.list[row]) : null;
  return (
    <div class="body">
      <div class="picture">
        <Missing list={list} />
        <Chart {...shared} height={hasPool ? "medium" : "large"} label="Pool, bytes in use and free blocks at traced steps." spec={sizes} />
        <p class="legend">
          {SIZES.filter(({ name }) => hasPool || name === "in_use_bytes").map(({ name, label }) => <LegendItem key={name} kind="point" colour={lineColour(name, scheme)}>{label}</LegendItem>)}
          <span class="hint">Points are traced steps; the light lines only join them.</span>
        </p>
        {hasPool && <Chart {...shared} height="small" label="Fragmentation and utilisation of the pool at traced steps." spec={ratios} />}
        {hasPool && (
          <p class="legend">
            {RATIOS.map(({ name, label }) => <LegendItem key={name} kind="point" colour={lineColour(name, scheme)}>{label}</LegendItem>)}
          </p>
        )}
        {finding && <ul class="findings"><li><span class="sentence">{unbroken(finding)}</span></li></ul>}
      </div>
      <Panel snapshots={snapshots} row={row} />
    </div>
  );
}
