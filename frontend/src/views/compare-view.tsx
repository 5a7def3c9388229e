/** A against B: two runs, or two steps of one. */

import { useLayoutEffect, useMemo } from "preact/hooks";

import { formatBytes, unitOf } from "../lib/bytes";
import { unbroken } from "../lib/format";
import type { Table } from "../lib/table";
import { groupKey, groupLabel } from "../model/categories";
import { groupDeltas, layerDeltas, type GroupDelta, type LayerDelta } from "../model/compare";
import { layerFigures, type LayerFigures } from "../model/layer-figures";
import { at, composition, peakRow, provenance, rowSentence, type Overview } from "../model/overview";
import type { RunInfo } from "../model/run";
import { fillOf, runColour } from "../theme/palette";
import { Bridge } from "./bridge";
import { Chart } from "./chart";
import { compareSpec, rowFor, type Curve } from "./compare-spec";
import { CompareTable, Size, signed } from "./compare-table";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { Swatch, UnitButton } from "./figures";
import { cursorRow, stepsBetween } from "./frame";
import { exactBytes } from "./step-panel";

/** What each layer holds at a row: by the trace that describes it, and the layer table of that step. */
function useLayers(run: RunInfo, overview: Overview, row: number): readonly LayerFigures[] | null {
  const store = useStore();
  const source = provenance(overview, row);
  const ref = source.kind === "layer table" ? null : source.snapshot;
  const step = ref?.step ?? at(overview.step, row) ?? 0;
  useLayoutEffect(() => {
    if (ref) store.wantSnapshotIn(run, overview.device, ref);
    store.wantLayersIn(run, step);
  }, [run, overview.device, ref?.step, ref?.phase, step]);
  const table = store.layersIn(run, step);
  const snapshot = ref ? store.snapshotIn(run, overview.device, ref) : null;
  const ready = (table.value ?? table.error) !== null && (snapshot === null || (snapshot.value ?? snapshot.error) !== null);
  const ledger = snapshot?.value?.ledger ?? null;
  return useMemo(() => (ready ? layerFigures(table.value, ledger) : null), [ready, table.value, ledger]);
}

interface SideProps {
  letter: "A" | "B";
  run: RunInfo;
  overview: Overview;
  row: number;
  colour: string;
  step: number | null;
  chooseRun: (run: string) => void;
  chooseStep: (step: number | null) => void;
}

function Side({ letter, run, overview, row, colour, step, chooseRun, chooseStep }: SideProps) {
  const store = useStore();
  const source = provenance(overview, row);
  const traced =
    source.kind === "layer table" ? "" : source.kind === "traced" ? ", traced" : `, described by the trace of step ${source.snapshot.step}`;
  return (
    <div class="side">
      <span class="letter" style={{ borderColor: colour }}>
        {letter}
      </span>
      <select aria-label={`Run ${letter}`} value={run.run} onChange={(event) => chooseRun(event.currentTarget.value)}>
        {store.runs.value
          .filter(({ devices }) => devices.length > 0)
          .map(({ run: name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
      </select>
      <label>
        step{" "}
        <input
          type="number"
          min="0"
          placeholder="peak"
          aria-label={`Step of ${letter}; empty for that of the highest peak`}
          value={step ?? ""}
          onChange={(event) => chooseStep(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}
        />
      </label>
      <span class="small" data-testid={`side-${letter}`} data-step={at(overview.step, row) ?? ""}>
        {overview.device}, {step === null ? "highest peak, " : ""}step {at(overview.step, row) ?? "?"}
        {traced}
      </span>
    </div>
  );
}

function Categories({ deltas, a, b }: { deltas: readonly GroupDelta[]; a: number | null; b: number | null }) {
  const scheme = schemeOf(useStore());
  const unit = unitOf(Math.max(a ?? 0, b ?? 0));
  return (
    <aside class="panel" aria-label="Categories of A and B">
      <header class="panel-head">
        <h2>
          By category
          <UnitButton unit={unit} exact={exactBytes.value} toggle={() => (exactBytes.value = !exactBytes.value)} />
        </h2>
        <p class="small">at the measured peak of each step</p>
      </header>
      <table class={`figures versus ${exactBytes.value ? "exact" : ""}`} data-testid="versus">
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col">A</th>
            <th scope="col">B</th>
            <th scope="col">B − A</th>
          </tr>
        </thead>
        <tbody>
          {[...deltas].reverse().map(({ group, from, to, delta }) => (
            <tr
              key={groupKey(group)}
              data-figure={groupKey(group)}
              data-from={from}
              data-to={to}
              class={from === 0 && to === 0 ? "zero" : ""}
            >
              <th scope="row">
                <Swatch fill={fillOf(group.category, group.trainable, scheme)} />
                <span class="label">{groupLabel(group)}</span>
              </th>
              <Size bytes={from} unit={unit} />
              <Size bytes={to} unit={unit} />
              <td class="number">{signed(delta, unit)}</td>
            </tr>
          ))}
        </tbody>
        <tbody class="totals">
          <tr class="strong" data-figure="peak_bytes" data-from={a ?? ""} data-to={b ?? ""}>
            <th scope="row">measured peak</th>
            <Size bytes={a} unit={unit} />
            <Size bytes={b} unit={unit} />
            <td class="number">{a === null || b === null ? "–" : signed(b - a, unit)}</td>
          </tr>
        </tbody>
      </table>
    </aside>
  );
}

function deltaTable(layers: readonly LayerDelta[]): Table {
  return {
    columns: ["layer_a", "layer_b", "matched", "bytes_a", "bytes_b", "delta_bytes"],
    rows: layers.map(({ from, to, match, delta }) => [
      from?.path ?? null,
      to?.path ?? null,
      match,
      from?.total ?? null,
      to?.total ?? null,
      delta,
    ]),
  };
}

/** "B needs 180 MiB more at its peak: mostly activations (+98 MiB)…" */
function summary(deltas: readonly GroupDelta[], a: number | null, b: number | null): string {
  if (a === null || b === null) return "A peak is not known, because it was not measured.";
  const largest = [...deltas].sort((x, y) => Math.abs(y.delta) - Math.abs(x.delta)).filter(({ delta }) => delta !== 0);
  if (a === b && largest.length === 0) return "A and B hold the same. Choose another run or step above.";
  const word = b > a ? "more" : "less";
  const named = largest
    .slice(0, 3)
    .map(({ group, delta }) => `${groupLabel(group)} ${delta > 0 ? "+" : "−"}${formatBytes(Math.abs(delta))}`);
  const head = a === b ? "A and B have the same peak" : `B needs ${formatBytes(Math.abs(b - a))} ${word} than A`;
  return `${head}: ${named.join(", ")}.`;
}

interface CompareProps {
  a: Overview;
  b: Overview;
  run: RunInfo;
  other: RunInfo;
}

function Sides({
  a,
  b,
  run,
  other,
  rows,
  colours,
}: CompareProps & { rows: readonly [number, number]; colours: readonly [string, string] }) {
  const store = useStore();
  const { step, otherStep } = store.choices.value;
  const swap = { primary: other.run, other: run.run, step: otherStep, otherStep: step, session: null };
  return (
    <div class="sides">
      <Side
        letter="A"
        run={run}
        overview={a}
        row={rows[0]}
        colour={colours[0]}
        step={step}
        chooseRun={(name) => store.choose({ primary: name, step: null, session: null })}
        chooseStep={(chosen) => store.choose({ step: chosen })}
      />
      <Side
        letter="B"
        run={other}
        overview={b}
        row={rows[1]}
        colour={colours[1]}
        step={otherStep}
        chooseRun={(name) => store.choose({ other: name, otherStep: null })}
        chooseStep={(chosen) => store.choose({ otherStep: chosen })}
      />
      <button type="button" class="quiet" onClick={() => store.choose(swap)}>
        Swap A and B
      </button>
    </div>
  );
}

function Curves({
  a,
  b,
  run,
  other,
  rows,
  colours,
}: CompareProps & { rows: readonly [number, number]; colours: readonly [string, string] }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const spec = useMemo(() => {
    const curves: [Curve, Curve] = [
      { overview: a, colour: colours[0], dash: [], row: rows[0] },
      { overview: b, colour: colours[1], dash: run === other ? [4, 3] : [], row: rows[1] },
    ];
    return compareSpec(...curves, choices, scheme);
  }, [a, b, ...rows, choices.axis, choices.zoom, scheme, ...colours]);
  const stepOf = (index: number | null): number | null => (index === null ? null : (a.step[index] ?? null));
  return (
    <Chart
      height="medium"
      label={`Measured peaks of ${run.run} and ${other.run} over steps.`}
      spec={spec}
      marks={[]}
      cursor={cursorRow(a, store.cursor.value)}
      pin={null}
      describe={(index) => rowSentence(a, index)}
      onCursor={(index) => (store.cursor.value = stepOf(index))}
      onPin={(index) => store.choose({ step: stepOf(index) })}
      onZoom={(from, to) => {
        const zoom = stepsBetween(a, spec.x, from, to);
        if (zoom) store.choose({ zoom });
      }}
      onReset={() => store.choose({ zoom: null })}
      onInside={store.hold}
    />
  );
}

export function CompareView(props: CompareProps) {
  const { a, b, run, other } = props;
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const rows = [rowFor(a, choices.step, peakRow(a)), rowFor(b, choices.otherStep, peakRow(b))] as const;
  const colour = (name: string): string => runColour(store.colours.value.get(name) ?? 0, scheme);
  const colours = [colour(run.run), colour(other.run)] as const;
  const deltas = useMemo(() => groupDeltas(composition(a, rows[0]), composition(b, rows[1])), [a, b, ...rows]);
  const [ofA, ofB] = [useLayers(run, a, rows[0]), useLayers(other, b, rows[1])];
  const layers = useMemo(() => (ofA && ofB ? layerDeltas(ofA, ofB) : null), [ofA, ofB]);
  const [peakA, peakB] = [at(a.peak_bytes, rows[0]), at(b.peak_bytes, rows[1])];
  useExport("svg", () => deltaTable(layers ?? []));
  return (
    <div class="compare">
      <Sides {...props} rows={rows} colours={colours} />
      <div class="body">
        <div class="picture">
          <h2 class="verdict" data-testid="difference">
            {unbroken(summary(deltas, peakA, peakB))}
          </h2>
          <Bridge
            deltas={deltas}
            from={{ name: `A: ${run.run}`, colour: colours[0] }}
            to={{ name: `B: ${other.run}`, colour: colours[1] }}
          />
          <Curves {...props} rows={rows} colours={colours} />
          <p class="legend">
            <span>Measured peaks; the dotted lines are the steps compared. A click chooses that of A.</span>
          </p>
        </div>
        <Categories deltas={deltas} a={peakA} b={peakB} />
      </div>
      {layers && <CompareTable deltas={layers} />}
    </div>
  );
}
