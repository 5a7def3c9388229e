/** The figures of the pool at one step. */

import { unitOf, type Unit } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { figureSource, fragmentationText, poolFacts, poolProvenance, type PoolFacts, type PoolSteps } from "../model/pool";
import { WORDS } from "../model/words";
import { schemeOf, useStore } from "./context";
import { Figure, FigureTable, Swatch, UnitButton } from "./figures";
import { RATIOS, SIZES, seriesFill, type PoolSeries } from "./pool-spec";

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

const OTHERS = ["capacity_bytes", "unreserved", "rounding_bytes"] as const satisfies readonly PoolSeries[];

function Sizes({ facts, unit }: { facts: PoolFacts; unit: Unit }) {
  const scheme = schemeOf(useStore());
  const shareOf = (bytes: number | null): number | null => (facts.pool_bytes && bytes !== null ? bytes / facts.pool_bytes : null);
  const common = (name: PoolSeries) => ({
    name,
    unit,
    label: WORDS[name].label,
    hint: WORDS[name].meaning,
    learned: figureSource(name, facts),
  });
  return (
    <>
      <tbody>
        {SIZES.map((name) => (
          <Figure key={name} {...common(name)} bytes={facts[name]} share={shareOf(facts[name])} fill={seriesFill(name, scheme)} />
        ))}
      </tbody>
      <tbody class="totals">
        {OTHERS.map((name) => (
          <Figure key={name} {...common(name)} bytes={facts[name]} />
        ))}
      </tbody>
    </>
  );
}

const most = (column: Float64Array): number => column.reduce((found, value) => (value > found ? value : found), 0);

export function PoolPanel({ pool, row, mode }: { pool: PoolSteps; row: number; mode: string | null }) {
  const store = useStore();
  const facts = poolFacts(pool, row);
  const unit: Unit = unitOf(Math.max(most(pool.pool_low_bytes), most(pool.peak_bytes)));
  const why = store.cursor.value !== null ? "" : store.choices.value.step !== null ? "pinned" : mode !== null ? "last traced" : "last";
  return (
    <aside class="panel" aria-label="Figures of one step">
      <header class="panel-head">
        <h2 data-testid="step" data-step={facts.step ?? ""}>
          Step {facts.step ?? "?"}
          <span class="why">{why}</span>
          <UnitButton unit={unit} />
        </h2>
        <p class="small">
          {pool.phase}
          {mode !== null && ` · traced (${mode})`} · at the step's peak
        </p>
      </header>
      <p class={`provenance ${facts.source}`} data-testid="provenance" data-kind={facts.source}>
        {poolProvenance(facts)}
      </p>
      <FigureTable testid="pool">
        <Sizes facts={facts} unit={unit} />
        <Ratios facts={facts} />
      </FigureTable>
      <p class="small">
        Shares are of the pool. Fragmentation is TensorFlow's own figure: the share of the free bytes that is outside of the largest free
        block. Read it beside the utilisation: it is 0 % however much lies idle in one piece, and 0/0 when the pool is full.
      </p>
    </aside>
  );
}
