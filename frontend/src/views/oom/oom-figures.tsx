/** The parts of a post-mortem: the request beside the pool, and the panel of figures. */

import { useMemo } from "preact/hooks";

import { unitOf, formatWallTime, unbroken, type Unit } from "../../lib/bytes";
import type { Oom } from "../../model/answer";
import type { Category } from "../../model/categories";
import { NOT_TIED, distinctNames } from "../../model/run";
import { owners } from "../../model/snapshot";
import { WORDS } from "../../model/words";
import { INKS } from "../../theme/palette";
import { CategoryRows } from "../shared/category-rows";
import { schemeOf, useStore } from "../shared/context";
import { Figure, FigureTable, UnitButton, WordFigure } from "../shared/figures";
import { tipOf } from "../shared/tips";

const LAYERS = 8;

/** The pool at the failure beside the request, all on one scale. */
export function Request({ oom }: { oom: Oom }) {
  const scheme = schemeOf(useStore());
  const { in_use_bytes: used, largest_free_bytes: largest, free_bytes: free, requested_bytes: requested } = oom;
  if (used === null || largest === null || free === null || requested === null) return null;
  const total = Math.max(used + free, requested);
  const width = (bytes: number) => ({ width: `${(bytes / total) * 100}%` });
  const rest = free - largest;
  return (
    <div class="request" aria-hidden="true">
      <span class="small">pool</span>
      <div class="memory-bar">
        <i
          class="fill plain pool"
          style={{ ...width(used), "--fill": INKS[scheme].used }}
          data-figure="in_use_bytes"
          data-bytes={used}
          data-tip={tipOf(used, WORDS.in_use_bytes.meaning)}
        />
        <i
          class="fill plain pool"
          style={{ ...width(largest), "--fill": INKS[scheme].free }}
          data-figure="free_largest"
          data-bytes={largest}
          data-tip={tipOf(largest, WORDS.free_largest.meaning)}
        />
        {rest > 0 && (
          <i
            class="fill diagonal pool"
            style={{ ...width(rest), "--fill": INKS[scheme].free }}
            data-figure="free_other"
            data-bytes={rest}
            data-tip={tipOf(rest, WORDS.free_other.meaning)}
          />
        )}
      </div>
      <span class="small">request</span>
      <div class="memory-bar bare">
        <i
          class="fill plain"
          style={{
            ...width(requested),
            "--fill": INKS[scheme].accent,
            marginLeft: `${(Math.min(used, total - requested) / total) * 100}%`,
          }}
        />
      </div>
    </div>
  );
}

const when = "at the failure";
const OF_REQUEST = ["requested_bytes", "free_bytes", "pool_bytes"] as const;

/** The request, and what made it. */
function RequestFacts({ oom, unit }: { oom: Oom; unit: Unit }) {
  const words: [string, string | null][] = [
    ["time", formatWallTime(oom.wall_time)],
    ["operation", oom.op],
    ["layer", oom.layer],
    ["line", oom.line],
    ["batch size", oom.batch_size === null ? null : String(oom.batch_size)],
    ["tensor", oom.shape],
  ];
  return (
    <details class="known">
      <summary>How is this known?</summary>
      <p class="small">{unbroken(oom.reason)}</p>
      <FigureTable testid="oom-figures">
        <tbody>
          {OF_REQUEST.map((word) => (
            <WordFigure key={word} word={word} bytes={oom[word]} unit={unit} when={when} />
          ))}
          <Figure
            name="largest_free_bytes"
            label={WORDS.free_largest.label}
            hint={WORDS.free_largest.meaning}
            source={`${WORDS.free_largest.source}, ${when}`}
            bytes={oom.largest_free_bytes}
            unit={unit}
          />
        </tbody>
      </FigureTable>
      <dl class="facts">
        {words.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value ?? "unknown"}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function ByLayer({ oom, total, unit }: { oom: Oom; total: number; unit: Unit }) {
  const layers = useMemo(() => owners(oom.ledger).slice(0, LAYERS), [oom]);
  const names = distinctNames(layers.map(({ layer }) => layer ?? NOT_TIED));
  return (
    <details class="known">
      <summary>By layer</summary>
      <FigureTable testid="oom-layers">
        <tbody>
          {layers.map(({ layer, bytes }, index) => (
            <Figure
              key={layer}
              name={`layer:${layer ?? ""}`}
              label={names[index]}
              hint={`${layer ?? NOT_TIED}: total of all categories`}
              source={SOURCE}
              unit={unit}
              bytes={bytes}
              share={bytes / total}
              pictured
            />
          ))}
        </tbody>
      </FigureTable>
    </details>
  );
}

const SOURCE = `from the owners of the chunks, ${when}`;

/** Memory at the failure: by category and layer, then the request and the pool. */
export function FailurePanel({ oom }: { oom: Oom }) {
  const unit: Unit = unitOf(oom.pool_bytes ?? oom.in_use_bytes ?? oom.requested_bytes ?? 0);
  const total = oom.ledger.reduce((sum, { bytes }) => sum + bytes, 0);
  const sums = new Map<Category, number>();
  for (const { category, bytes } of oom.ledger) sums.set(category, (sums.get(category) ?? 0) + bytes);
  const isKnown = oom.ledger.length > 0;
  return (
    <aside class="panel" aria-label="Memory at the failure">
      <header class="panel-head">
        <h2>
          At the failure
          <UnitButton unit={unit} />
        </h2>
      </header>
      {!isKnown && <p class="small">Breakdown unknown: no chunk has a known owner.</p>}
      <FigureTable testid="oom-categories">
        <tbody>
          <CategoryRows bytes={sums} total={total} unit={unit} source={() => SOURCE} />
        </tbody>
        <tbody class="totals">
          <WordFigure strong word="in_use_bytes" bytes={oom.in_use_bytes} unit={unit} when={when} />
          <WordFigure word="capacity_bytes" bytes={oom.capacity_bytes} unit={unit} when={when} />
        </tbody>
      </FigureTable>
      {isKnown && <ByLayer oom={oom} total={total} unit={unit} />}
      <RequestFacts oom={oom} unit={unit} />
    </aside>
  );
}
