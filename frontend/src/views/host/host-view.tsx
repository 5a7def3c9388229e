/**
 * Host memory of the shown device's worker: RSS and its parts over the steps, and whether it grows.
 */

import { useMemo } from "preact/hooks";

import { byteRange } from "../../charts/axis";
import { barsPainter, betweenPainter, stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { unitOf, shareOf, type Table } from "../../lib/bytes";
import { maximum, nearestIndex } from "../../lib/search";
import { WORDS } from "../../model/categories";
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
import type { Choices } from "../../state/address";
import { inks, dark, type Fill } from "../../theme/palette";
import { Chart } from "../shared/chart";
import { useStore, useChoices } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { useExport } from "../shared/export";
import { FigureTable, Panel, WordFigure } from "../shared/figures";
import { useStepsChart, highest, framed, useRunSpan } from "../shared/frame";
import { Findings, Known } from "../shared/states";
import { HOST_PARTS } from "../../schema";

const COLOURS: Record<HostPart, readonly [light: string, dark: string]> = {
  pinned_pool_bytes: ["#8a4fb0", "#c79bea"],
  tf_data_bytes: ["#2453b8", "#7ba2f5"],
  cpu_bytes: ["#0f8a60", "#4fd0a0"],
  other_bytes: ["#b9650b", "#f7b552"],
};

const hostFill = (name: HostPart): Fill => ({
  colour: COLOURS[name][dark.value ? 1 : 0],
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
  span: readonly [number, number] | null,
): PlotSpec {
  const { common, edges, range } = framed(host, choices, span);
  const { background, faint, line } = inks();
  const parts = shownParts(host);
  const tops = boundaries(host, parts);
  const measured = Array.from(common.x.keys()).filter((row) => isMeasured(host, row));
  const zero = new Float64Array(host.rows);
  const painters: Painter[] = [
    betweenPainter(
      edges,
      zero,
      host.host_resident_bytes,
      { colour: faint, pattern: "hatched" },
      background,
      0.3,
    ),
    ...parts.map((name, index) => {
      const band = { ...hostFill(name) };
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
  painters.push(stepPainter(edges, host.host_resident_bytes, { colour: line, width: 1.75 }));
  const { max } = byteRange(highest(host.host_resident_bytes, common.x, range), null);
  return { ...common, yMax: max, painters };
}

function Legend({ host }: { host: HostMemory }) {
  return (
    <p class="legend">
      <LegendItem kind="line" label={`${WORDS.host_resident_bytes.label}, every step`} />
      {shownParts(host).map((name) => {
        const { colour, pattern } = hostFill(name);
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

const LINE: object = { "data-testid": "host-step" };

/** The rows are the same at every step. */
function Figures({ host, facts }: { host: HostMemory; facts: HostFacts }) {
  const when =
    facts.measured_step === null
      ? "not measured up to this step"
      : `after step ${facts.measured_step}`;
  return (
    <FigureTable testid="host-memory">
      <tbody>
        {listedParts(host).map((name) => (
          <WordFigure
            key={name}
            word={name}
            when={when}
            bytes={facts.parts[name]}
            share={shareOf(facts.parts[name], facts.measured_bytes)}
            fill={hostFill(name)}
          />
        ))}
      </tbody>
      <tbody class="totals">
        <WordFigure word="parts_sum" when={when} bytes={facts.measured_bytes} />
        <WordFigure
          word="host_resident_bytes"
          when={`step ${facts.step ?? "?"}`}
          bytes={facts.host_resident_bytes}
        />
      </tbody>
    </FigureTable>
  );
}

const ABOUT_PARTS =
  "The parts sum to host RSS. They are allocated memory; where they exceed RSS, because some of it is not resident, they are unknown.";

function hostFile(host: HostMemory): Table {
  const columns = ["step", "host_resident_bytes", ...HOST_PARTS] as const;
  return {
    columns: [...columns],
    rows: Array.from({ length: host.rows }, (_, row) => columns.map((name) => at(host[name], row))),
  };
}

export function HostView({ host }: { host: HostMemory }) {
  const store = useStore();
  const choices = useChoices();
  const span = useRunSpan();
  const spec = useMemo(
    () => hostSpec(host, choices, span),
    [host, choices.axis, choices.zoom, dark.value, span],
  );
  const shared = useStepsChart(host.step, spec.x);
  const facts = hostFacts(
    host,
    shared.cursor ?? nearestIndex(host.step, store.shownStep.value?.step ?? 0),
  );
  useExport({
    table: () => hostFile(host),
    legend: () =>
      shownParts(host).map((name) => ({ label: WORDS[name].label, fill: hostFill(name) })),
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
        <Panel
          label="Host memory at one step"
          step={facts.step}
          unit={unitOf(maximum(host.host_resident_bytes))}
          about={
            facts.measured_step === null
              ? "parts not measured up to this step"
              : `parts measured after step ${facts.measured_step}`
          }
          line={LINE}
        >
          <Figures host={host} facts={facts} />
          <Known sentence={ABOUT_PARTS} />
        </Panel>
        {host.summary && <Findings sentences={[host.summary.sentence]} said="host-growth" />}
      </div>
    </section>
  );
}
