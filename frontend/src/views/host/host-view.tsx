/**
 * Host memory of the shown device's worker: RSS and its parts over the steps, and whether it grows.
 */

import { useMemo } from "preact/hooks";

import { byteRange } from "../../charts/axis";
import { barsPainter, betweenPainter, stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { unitOf, shareOf, type Unit, type Table } from "../../lib/bytes";
import { maximum, nearestIndex } from "../../lib/search";
import { WORDS, type WordName } from "../../model/categories";
import { at } from "../../model/overview";
import {
  hostFacts,
  hostSentence,
  listedParts,
  shownParts,
  isMeasured,
  type HostFacts,
  type HostMemory,
  type HostPart,
} from "../../model/pool";
import { HOST_PARTS, type RunInfo } from "../../schema";
import type { Choices } from "../../state/address";
import { INKS, type Fill, type Scheme } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { useExport } from "../shared/export";
import { Figure, FigureTable, UnitButton } from "../shared/figures";
import { useStepsChart, highest, framed } from "../shared/frame";
import { Findings, Known } from "../shared/states";

const COLOURS: Record<Scheme, Record<HostPart, string>> = {
  light: {
    pinned_pool_bytes: "#8a4fb0",
    tf_data_bytes: "#2453b8",
    cpu_bytes: "#0f8a60",
    other_bytes: "#b9650b",
  },
  dark: {
    pinned_pool_bytes: "#c79bea",
    tf_data_bytes: "#7ba2f5",
    cpu_bytes: "#4fd0a0",
    other_bytes: "#f7b552",
  },
};

const hostFill = (name: HostPart, scheme: Scheme): Fill => ({
  colour: COLOURS[scheme][name],
  pattern: name === "other_bytes" ? "diagonal" : "plain",
});

/** The upper edge of each part from the bottom up, NaN where the parts were not measured. */
export function boundaries(host: HostMemory, parts: readonly HostPart[]): Float64Array[] {
  let below = host.other_bytes.map((bytes) => bytes * 0);
  return parts.map((name) => {
    below = below.map((low, row) => low + (at(host[name], row) ?? 0));
    return below;
  });
}

function hostSpec(
  host: HostMemory,
  choices: Choices,
  scheme: Scheme,
  span: readonly [number, number] | null,
): PlotSpec {
  const { common, edges, range } = framed(host, choices, scheme, span);
  const { background, faint, line } = INKS[scheme];
  const parts = shownParts(host);
  const tops = boundaries(host, parts);
  const measured = Array.from(common.x.keys()).filter((row) => isMeasured(host, row));
  const zero = new Float64Array(host.rows);
  const painters: Painter[] = [
    betweenPainter(
      edges,
      zero,
      host.host_resident_bytes,
      { colour: faint, pattern: "hatched", muted: false },
      background,
      0.3,
    ),
    ...parts.map((name, index) => {
      const band = { ...hostFill(name, scheme), muted: false };
      return barsPainter(
        edges,
        measured,
        tops[index - 1] ?? zero,
        tops[index] ?? zero,
        band,
        background,
      );
    }),
  ];
  painters.push(
    stepPainter(edges, host.host_resident_bytes, { colour: line, width: 1.75, dash: [] }),
  );
  const { max } = byteRange(highest(host.host_resident_bytes, common.x, range), null);
  return { ...common, yKind: "bytes", yMax: max, painters };
}

function Legend({ host }: { host: HostMemory }) {
  const scheme = schemeOf(useStore());
  return (
    <p class="legend">
      <LegendItem kind="line" label={`${WORDS.host_resident_bytes.label}, every step`} />
      {shownParts(host).map((name) => {
        const { colour, pattern } = hostFill(name, scheme);
        return (
          <LegendItem
            key={name}
            kind={pattern === "plain" ? "fill" : "fill striped"}
            colour={colour}
            label={WORDS[name].label}
          />
        );
      })}
      {host.other_bytes.some(Number.isNaN) && (
        <LegendItem kind="hatched" label="parts not measured" />
      )}
    </p>
  );
}

/** The rows are the same at every step. */
interface PanelProps {
  host: HostMemory;
  facts: HostFacts;
  unit: Unit;
}

function Figures({ host, facts, unit }: PanelProps) {
  const scheme = schemeOf(useStore());
  const when =
    facts.measured_step === null
      ? "not measured up to this step"
      : `after step ${facts.measured_step}`;
  const common = (name: WordName) => ({
    name,
    unit,
    label: WORDS[name].label,
    hint: WORDS[name].meaning,
  });
  return (
    <FigureTable testid="host-memory">
      <tbody>
        {listedParts(host).map((name) => (
          <Figure
            key={name}
            {...common(name)}
            bytes={facts.parts[name]}
            share={shareOf(facts.parts[name], facts.measured_bytes)}
            fill={hostFill(name, scheme)}
            source={`${WORDS[name].source}, ${when}`}
          />
        ))}
      </tbody>
      <tbody class="totals">
        <Figure
          {...common("parts_sum")}
          bytes={facts.measured_bytes}
          share={null}
          source={`${WORDS.parts_sum.source}, ${when}`}
        />
        <Figure
          {...common("host_resident_bytes")}
          bytes={facts.host_resident_bytes}
          share={null}
          source={`${WORDS.host_resident_bytes.source}, step ${facts.step ?? "?"}`}
        />
      </tbody>
    </FigureTable>
  );
}

function Panel({ host, facts, unit }: PanelProps) {
  const parts =
    facts.measured_step === null
      ? "parts not measured up to this step"
      : `parts measured after step ${facts.measured_step}`;
  return (
    <aside class="panel" aria-label="Host memory at one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={facts.step ?? ""}>
          Step {facts.step ?? "?"}
          <UnitButton unit={unit} />
        </h2>
        <p class="small one-line" data-testid="host-step">
          {parts}
        </p>
      </header>
      <Figures host={host} facts={facts} unit={unit} />
      <Known>
        <p class="small">
          The parts sum to host RSS. They are allocated memory; where they exceed RSS, because some
          of it is not resident, they are unknown.
        </p>
      </Known>
    </aside>
  );
}

function hostFile(host: HostMemory): Table {
  const columns = ["step", "host_resident_bytes", ...HOST_PARTS] as const;
  return {
    columns: [...columns],
    rows: Array.from({ length: host.rows }, (_, row) => columns.map((name) => at(host[name], row))),
  };
}

export function HostView({ run, host }: { run: RunInfo; host: HostMemory }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [first, last] = [run.first_step, run.last_step];
  const spec = useMemo(
    () => hostSpec(host, choices, scheme, first === null || last === null ? null : [first, last]),
    [host, choices.axis, choices.zoom, scheme, first, last],
  );
  const shared = useStepsChart(host.step, spec.x);
  const facts = hostFacts(
    host,
    shared.cursor ?? nearestIndex(host.step, store.shownStep.value?.step ?? 0),
  );
  useExport({
    table: () => hostFile(host),
    legend: () =>
      shownParts(host).map((name) => ({ label: WORDS[name].label, fill: hostFill(name, scheme) })),
  });
  return (
    <section class="body" aria-label="Host memory">
      <div class="picture">
        <Chart
          {...shared}
          label={`Resident memory of the training process (host RSS)${host.worker === "" ? "" : ` of worker ${host.worker}`} over steps.`}
          spec={spec}
          describe={(row: number) => hostSentence(host, row)}
        />
        <Legend host={host} />
      </div>
      <div class="beside">
        <Panel host={host} facts={facts} unit={unitOf(maximum(host.host_resident_bytes))} />
        {host.summary && <Findings sentences={[host.summary.sentence]} said="host-growth" />}
      </div>
    </section>
  );
}
