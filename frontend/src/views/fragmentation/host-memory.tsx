/** Host memory of the shown device's worker: RSS and its parts over the steps, and whether it grows. */

import { useMemo } from "preact/hooks";

import { unitOf, type Unit } from "../../lib/bytes";
import { shareOf, unbroken } from "../../lib/format";
import { nearestIndex } from "../../lib/search";
import { maximum } from "../../lib/search";
import { HOST_ALLOCATED, hostFacts, hostSentence, listedParts, shownParts, type HostFacts, type HostMemory } from "../../model/host-memory";
import type { RunInfo } from "../../model/run";
import { WORDS, type WordName } from "../../model/words";
import { Chart } from "../shared/chart";
import { schemeOf, useStore } from "../shared/context";
import { Figure, FigureTable, UnitButton } from "../shared/figures";
import { LegendItem } from "../shared/legend";
import { useStepsChart } from "../shared/steps-chart";
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
        {HOST_ALLOCATED.map((name) => (
          <Figure key={name} {...common(name)} bytes={facts.parts[name]} share={null} source={`${WORDS[name].source}, ${when}`} />
        ))}
      </tbody>
    </FigureTable>
  );
}

function Picture({ run, host }: { run: RunInfo; host: HostMemory }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const choices = store.choices.value;
  const [first, last] = [run.first_step, run.last_step];
  const spec = useMemo(
    () => hostSpec(host, choices, scheme, first === null || last === null ? null : [first, last]),
    [host, choices.axis, choices.zoom, scheme, first, last],
  );
  const shared = useStepsChart(host.step, spec.x);
  const row = nearestIndex(host.step, store.shownStep.value?.step ?? 0);
  const facts = hostFacts(host, row);
  const unit = unitOf(maximum(host.host_resident_bytes));
  return (
    <>
      <Chart
        {...shared}
        height="small"
        label="Resident memory of the training process (host RSS) over steps."
        spec={spec}
        describe={(at: number) => hostSentence(host, at)}
      />
      <Legend host={host} />
      <p class="small" data-testid="host-step">
        Step {facts.step ?? "?"}
        {facts.measured_step === null
          ? ": parts not measured up to this step."
          : `, parts measured after step ${facts.measured_step}.`}{" "}
        <UnitButton unit={unit} />
      </p>
      <Figures facts={facts} unit={unit} />
      <p class="small">
        The parts sum to host RSS. The C heap and the buffers of tf.data are allocated memory, resident or not: they lie in the parts above
        and overlap.
      </p>
    </>
  );
}

export function HostMemorySection({ run }: { run: RunInfo }) {
  const host = useStore().hostMemory.value.value;
  if (!host || host.rows === 0) return null;
  return (
    <section class="host-memory" aria-label="Host memory">
      <h2>
        Host memory <span class="small">{host.worker === "" ? "of the training process" : `of worker ${host.worker}`}</span>
      </h2>
      {host.summary && <p data-testid="host-growth">{unbroken(host.summary.sentence)}</p>}
      <Picture run={run} host={host} />
    </section>
  );
}
