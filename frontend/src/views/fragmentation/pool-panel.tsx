/** The figures of the pool at one step. */

import { unitOf, formatShare, shareOf, type Unit } from "../../lib/bytes";
import { maximum } from "../../lib/search";
import { figureSource, fragmentationText, instantText, poolFacts, poolProvenance, type PoolFacts, type PoolSteps } from "../../model/pool";
import { WORDS } from "../../model/words";
import { schemeOf, useStore } from "../shared/context";
import { Figure, FigureTable, Swatch, UnitButton } from "../shared/figures";
import { Known } from "../shared/known";
import { PARTS, RATIOS, seriesFill, type PoolSeries } from "./pool-spec";

function Ratios({ facts }: { facts: PoolFacts }) {
  const scheme = schemeOf(useStore());
  const text = { utilisation: facts.utilisation === null ? "–" : formatShare(facts.utilisation), fragmentation: fragmentationText(facts) };
  return (
    <tbody class="totals">
      {RATIOS.map((name) => (
        <tr
          key={name}
          data-figure={name}
          data-value={facts[name] ?? ""}
          data-tip={[facts[name] ?? text[name], WORDS[name].meaning, figureSource(name, facts)].join("\n")}
        >
          <th scope="row">
            <Swatch fill={seriesFill(name, scheme)} />
            <span class="label">{WORDS[name].label}</span>
          </th>
          <td class="figure">{text[name]}</td>
          <td class="share" />
        </tr>
      ))}
    </tbody>
  );
}

const TOTALS = ["pool_bytes", "free_bytes", "capacity_bytes"] as const satisfies readonly PoolSeries[];

function Sizes({ facts, unit }: { facts: PoolFacts; unit: Unit }) {
  const scheme = schemeOf(useStore());
  const common = (name: PoolSeries) => ({
    name,
    unit,
    label: WORDS[name].label,
    hint: WORDS[name].meaning,
    source: figureSource(name, facts),
  });
  return (
    <>
      <tbody>
        {[...PARTS].reverse().map((name) => (
          <Figure
            key={name}
            {...common(name)}
            bytes={facts[name]}
            share={shareOf(facts[name], facts.capacity_bytes)}
            fill={seriesFill(name, scheme)}
          />
        ))}
      </tbody>
      <tbody class="totals">
        {TOTALS.map((name) => (
          <Figure key={name} {...common(name)} bytes={facts[name]} share={shareOf(facts[name], facts.capacity_bytes)} />
        ))}
        {/* Shown even if unknown, so that the panel keeps its height while the pointer moves. */}
        <Figure {...common("rounding_bytes")} label="measured rounding" bytes={facts.rounding_bytes} share={null} />
      </tbody>
    </>
  );
}

export function PoolPanel({ pool, row, mode }: { pool: PoolSteps; row: number; mode: string | null }) {
  const facts = poolFacts(pool, row);
  const unit: Unit = unitOf(Math.max(maximum(pool.pool_bytes), maximum(pool.peak_bytes)));
  return (
    <aside class="panel" aria-label="Figures of one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={facts.step ?? ""}>
          Step {facts.step ?? "?"}
          <UnitButton unit={unit} />
        </h2>
        <p class="small one-line">
          {pool.phase}
          {mode !== null && ` · traced (${mode})`} · {instantText(facts.instant)}
        </p>
      </header>
      <p class={`provenance ${facts.source}`} data-testid="provenance" data-kind={facts.source}>
        <span class="said" title={poolProvenance(facts)}>
          {poolProvenance(facts)}
        </span>
      </p>
      <FigureTable testid="pool">
        <Sizes facts={facts} unit={unit} />
        <Ratios facts={facts} />
      </FigureTable>
      <Known>
        <p class="small">
          Shares are relative to the capacity. Fragmentation is the share of free bytes outside the largest free chunk: 0 % when all free
          bytes form one chunk, 0/0 when nothing is free. Read it together with the utilisation.
        </p>
      </Known>
    </aside>
  );
}
