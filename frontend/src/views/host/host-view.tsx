/** Host memory of the shown device's worker: RSS and its parts over the steps, and whether it grows. */

import { useMemo } from "preact/hooks";

import { unitOf, shareOf, unbroken, type Unit, type Table } from "../../lib/bytes";
import { maximum, nearestIndex } from "../../lib/search";
import { HOST_PARTS, hostFacts, hostSentence, listedParts, shownParts, type HostFacts, type HostMemory } from "../../model/host-memory";
import { at } from "../../model/overview";
import type { RunInfo } from "../../model/run";
import { WORDS, type WordName } from "../../model/words";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { LegendItem } from "../shared/controls";
import { useExport } from "../shared/export";
import { Figure, FigureTable, UnitButton } from "../shared/figures";
import { useStepsChart } from "../shared/frame";
import { Known } from "../shared/states";
import { hostFill, hostSpec } from "./host-spec";

function Legend({ host }: { host: HostMemory }) {
  const scheme = schemeOf(useStore());
  return (
    <p class="legend">
      <LegendItem kind="line">{WORDS.host_resident_bytes.label}, every step</LegendItem>
      {shownParts(host).map((name) => {
        const { colour, pattern } = hostFill(name, scheme);
        return (
          <LegendItem key={name} kind={pattern === "plain" ? "fill" : "fill striped"} colour={colour}>
            {WORDS[name].label}
          </LegendItem>
        );
      })}
      {host.other_bytes.some(Number.isNaN) && <LegendItem kind="hatched">parts not measured</LegendItem>}
    </p>
  );
}

function Figures({ facts, unit }: { facts: HostFacts; unit: Unit }) {
  const scheme = schemeOf(useStore());
  const when = facts.measured_step === null ? "not measured up to this step" : `after step ${facts.measured_step}`;
  const common = (name: WordName) => ({ name, unit, label: WORDS[name].label, hint: WORDS[name].meaning });
  return (
    <FigureTable testid="host-memory">
      <tbody>
        {listedParts(facts).map((name) => (
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
        {facts.measured_step !== null && facts.measured_step !== facts.step && (
          <Figure {...common("parts_sum")} bytes={facts.measured_bytes} share={null} source={`${WORDS.parts_sum.source}, ${when}`} />
        )}
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

/** The figures of one step: of the one under the pointer, otherwise of the selected one. */
function Panel({ facts, unit }: { facts: HostFacts; unit: Unit }) {
  const parts = facts.measured_step === null ? "parts not measured up to this step" : `parts measured after step ${facts.measured_step}`;
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
      <Figures facts={facts} unit={unit} />
      <Known>
        <p class="small">
          The parts sum to host RSS. They are allocated memory; where they exceed RSS, because some of it is not resident, they are unknown.
        </p>
      </Known>
    </aside>
  );
}

function hostFile(host: HostMemory): Table {
  const columns = ["step", "host_resident_bytes", ...HOST_PARTS] as const;
  return { columns: [...columns], rows: Array.from({ length: host.rows }, (_, row) => columns.map((name) => at(host[name], row))) };
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
  const facts = hostFacts(host, shared.cursor ?? nearestIndex(host.step, store.shownStep.value?.step ?? 0));
  useExport({
    table: () => hostFile(host),
    legend: () => shownParts(host).map((name) => ({ label: WORDS[name].label, fill: hostFill(name, scheme) })),
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
        {host.summary && (
          <ul class="findings">
            <li>
              <span class="sentence" data-testid="host-growth">
                {unbroken(host.summary.sentence)}
              </span>
            </li>
          </ul>
        )}
      </div>
      <Panel facts={facts} unit={unitOf(maximum(host.host_resident_bytes))} />
    </section>
  );
}
