/** Post-mortems: what was asked for, why it failed, who held the memory, and what would have let it pass. */

import { useLayoutEffect, useMemo } from "preact/hooks";

import { formatBytes, unitOf, type Unit } from "../lib/bytes";
import { formatWallTime, unbroken } from "../lib/format";
import { CATEGORIES, categoryLabel, categoryMeaning, type Category } from "../model/categories";
import { distinctNames } from "../model/names";
import { verdictSentence, whenSentence, type Oom } from "../model/oom";
import type { RunInfo } from "../model/run";
import { owners } from "../model/snapshot";
import { WORDS } from "../model/words";
import { INKS, fillOf } from "../theme/palette";
import { schemeOf, useStore } from "./context";
import { useExport } from "./export";
import { Figure, FigureTable, UnitButton, WordFigure } from "./figures";
import { useCategoryRow } from "./focus";
import { OomDrawing } from "./oom-drawing";
import { MapView } from "./map-view";
import { Fault, Nothing, Skeleton } from "./states";
import { tipOf } from "./tips";

const LAYERS = 12;

/** The pool at the failure beside the request, all on one scale. */
function Request({ oom }: { oom: Oom }) {
  const scheme = schemeOf(useStore());
  const { in_use_bytes: used, largest_free_bytes: largest, free_bytes: free, requested_bytes: asked } = oom;
  if (used === null || largest === null || free === null || asked === null) return null;
  const total = Math.max(used + free, asked);
  const width = (bytes: number) => ({ width: `${(bytes / total) * 100}%` });
  const rest = free - largest;
  return (
    <div class="request" aria-hidden="true">
      <span class="small">pool</span>
      <div class="card-bar">
        <i
          class="fill plain pool"
          style={{ ...width(used), "--fill": INKS[scheme].faint }}
          data-tip={tipOf(used, WORDS.in_use_bytes.meaning)}
        />
        <i
          class="fill plain pool"
          style={{ ...width(largest), "--fill": INKS[scheme].idle }}
          data-tip={tipOf(largest, WORDS.free_largest.meaning)}
        />
        {rest > 0 && (
          <i
            class="fill diagonal pool"
            style={{ ...width(rest), "--fill": INKS[scheme].idle }}
            data-tip={tipOf(rest, WORDS.free_rest.meaning)}
          />
        )}
      </div>
      <span class="small">request</span>
      <div class="card-bar bare">
        <i
          class="fill plain"
          style={{ ...width(asked), "--fill": INKS[scheme].accent, marginLeft: `${(Math.min(used, total - asked) / total) * 100}%` }}
        />
      </div>
    </div>
  );
}

const POOL_WORDS = ["requested_bytes", "in_use_bytes", "free_bytes", "pool_bytes", "capacity_bytes"] as const;

function Facts({ oom }: { oom: Oom }) {
  const unit: Unit = unitOf(oom.pool_bytes ?? oom.in_use_bytes ?? oom.requested_bytes ?? 0);
  const when = "at the failure";
  const words: [string, string | null][] = [
    ["operation", oom.op],
    ["layer", oom.layer],
    ["tensor", oom.shape],
  ];
  return (
    <aside class="panel" aria-label="Figures of the failure">
      <header class="panel-head">
        <h2>
          At the failure
          <UnitButton unit={unit} />
        </h2>
        <p class="small">{formatWallTime(oom.wall_time)}</p>
      </header>
      <FigureTable testid="oom-figures">
        <tbody>
          {POOL_WORDS.map((word) => (
            <WordFigure key={word} word={word} bytes={oom[word]} unit={unit} when={when} />
          ))}
          <Figure
            name="largest_free_bytes"
            label={WORDS.free_largest.label}
            hint="what could be given in one piece"
            learned={`${WORDS.free_largest.learned}, ${when}`}
            bytes={oom.largest_free_bytes}
            unit={unit}
          />
        </tbody>
      </FigureTable>
      <dl class="facts">
        {words.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value ?? "not known"}</dd>
          </div>
        ))}
      </dl>
    </aside>
  );
}

function Holders({ oom }: { oom: Oom }) {
  const store = useStore();
  const scheme = schemeOf(store);
  const unit = unitOf(oom.in_use_bytes ?? 0);
  const total = oom.ledger.reduce((sum, { bytes }) => sum + bytes, 0);
  const sums = new Map<Category, number>();
  for (const { category, bytes } of oom.ledger) sums.set(category, (sums.get(category) ?? 0) + bytes);
  const layers = useMemo(() => owners(oom.ledger).slice(0, LAYERS), [oom]);
  const names = distinctNames(layers.map(({ layer }) => layer ?? "no layer"));
  const common = { unit, learned: "by the owners of the chunks, at the failure" };
  const ofCategory = useCategoryRow();
  if (oom.ledger.length === 0) return <p class="small">Who held the memory is not available, because no chunk's owner was seen.</p>;
  return (
    <div class="holders">
      <FigureTable testid="oom-categories">
        <caption>Who held it, by category</caption>
        <tbody>
          {CATEGORIES.filter((category) => sums.has(category)).map((category) => {
            const bytes = sums.get(category) ?? 0;
            const fill = fillOf(category, null, scheme);
            return (
              <Figure
                {...common}
                key={category}
                name={category}
                label={categoryLabel(category)}
                hint={categoryMeaning(category)}
                {...ofCategory(category, category)}
                bytes={bytes}
                share={bytes / total}
                fill={fill}
              />
            );
          })}
        </tbody>
      </FigureTable>
      <FigureTable testid="oom-layers">
        <caption>and by layer</caption>
        <tbody>
          {layers.map(({ layer, bytes }, index) => (
            <Figure
              {...common}
              key={layer}
              name={`layer:${layer ?? ""}`}
              label={names[index]}
              hint={`${layer ?? "belongs to no layer"}: all categories together`}
              bytes={bytes}
              share={bytes / total}
            />
          ))}
        </tbody>
      </FigureTable>
    </div>
  );
}

function Remedies({ oom }: { oom: Oom }) {
  if (oom.remedies.length === 0) return <p class="small">What would have let it pass is not known.</p>;
  return (
    <ul class="remedies" data-testid="remedies">
      {oom.remedies.map(({ kind, sentence, bytes, enough }) => (
        <li key={kind} data-bytes={bytes} data-tip={tipOf(bytes, sentence, "worked out from the chunks at the failure")} tabIndex={0}>
          <span class={enough ? "enough" : "short"}>{enough ? "enough" : "not enough alone"}</span>
          <span>{unbroken(sentence)}</span>
          <span class="figure">{formatBytes(bytes)}</span>
        </li>
      ))}
    </ul>
  );
}

function PostMortem({ run, oom, index }: { run: RunInfo; oom: Oom; index: number }) {
  const scheme = schemeOf(useStore());
  useExport({
    table: () => ({
      columns: ["layer", "category", "trainable", "bytes", "rounding_bytes"],
      rows: oom.ledger.map(({ layer, category, trainable, bytes, rounding_bytes }) => [layer, category, trainable, bytes, rounding_bytes]),
    }),
    drawing: () => <OomDrawing oom={oom} scheme={scheme} />,
    ...(oom.chunks !== null && { legend: () => [] }),
  });
  return (
    <div class="oom" data-testid="oom" data-verdict={oom.verdict ?? ""}>
      <div class="body">
        <div class="picture">
          <p class="small">{whenSentence(oom)}</p>
          <h2 class="verdict">
            {oom.verdict !== null && <span class="verdict-word">{oom.verdict}</span>} {verdictSentence(oom)}
          </h2>
          <p>{unbroken(oom.reason)}</p>
          <Request oom={oom} />
          <h3>What would have let it pass</h3>
          <Remedies oom={oom} />
          <Holders oom={oom} />
          {oom.not_available.length > 0 && (
            <ul class="notices">
              {oom.not_available.map((sentence) => (
                <li key={sentence}>{sentence}</li>
              ))}
            </ul>
          )}
        </div>
        <Facts oom={oom} />
      </div>
      {oom.chunks !== null && <MapView run={run} place={{ oom: index }} />}
    </div>
  );
}

function Calm({ run }: { run: RunInfo }) {
  return (
    <Nothing title={`No step of ${run.run} died for lack of memory`}>
      <p>
        Should one die under <code>tb_memplugin.MemoryCallback</code> or <code>tb_memplugin.MemoryRecorder</code>, its post-mortem stands
        here: whether the memory was too small or in pieces, who held it, and what would have let the step pass.
      </p>
      <p>
        A job that died without them is examined from its log or its dump (<code>TF_BFC_MEMORY_DUMP</code>):
      </p>
      <pre tabIndex={0}>
        <code>tb-memplugin import training.log --logdir runs</code>
      </pre>
    </Nothing>
  );
}

export function OomView({ run }: { run: RunInfo }) {
  const store = useStore();
  useLayoutEffect(() => {
    if (run.ooms > 0) store.wantOomsIn(run);
  }, [run]);
  if (run.ooms === 0) return <Calm run={run} />;
  const { value, error } = store.oomsIn(run);
  if (value === null) return error === null ? <Skeleton /> : <Fault sentence={error} retry={() => void store.reload()} />;
  const index = Math.min(store.choices.value.oom, value.length - 1);
  const oom = value[index];
  if (!oom) return <Calm run={run} />;
  return (
    <>
      {value.length > 1 && (
        <label class="select failures">
          <span>failure</span>
          <select value={index} onChange={(event) => store.choose({ oom: Number(event.currentTarget.value) })}>
            {value.map((one, place) => (
              <option key={place} value={place}>
                {whenSentence(one)}
              </option>
            ))}
          </select>
        </label>
      )}
      <PostMortem key={`${run.run} ${index}`} run={run} oom={oom} index={index} />
    </>
  );
}
