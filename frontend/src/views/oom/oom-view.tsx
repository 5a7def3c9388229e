/**
 * Post-mortems of failed allocations: request, verdict, possible fixes, memory by category and
 * layer.
 */

import { useMemo } from "preact/hooks";

import {
  unitOf,
  formatWallTime,
  unbroken,
  formatBytes,
  formatShare,
  totalBytes,
  sumsBy,
  grouped,
} from "../../lib/bytes";
import { verdictSentence, verdictWords, whenSentence } from "../../model/answer";
import { categoryLabel, WORDS } from "../../model/categories";
import { requestOf } from "../../model/overview";
import { NOT_TIED, distinctNames } from "../../model/run";
import { owners, sizesText } from "../../model/snapshot";
import { categoryFill, inks, freeFill, plainFill, type Fill, type Ink } from "../../theme/palette";
import { useStore } from "../shared/context";
import { useExport, Patterns, SvgDrawing, svgFill } from "../shared/export";
import {
  CategoryRows,
  Figure,
  FigureTable,
  Panel,
  WordFigure,
  useUnitName,
  TableHead,
} from "../shared/figures";
import { PossibleFixes, Requester } from "../shared/fixes";
import { TensorCells, Text } from "../shared/largest-layers";
import { MapView } from "../shared/memory-map/memory-map-view";
import { Fault, IMPORT, Known, NoticeList, Nothing, Skeleton } from "../shared/states";
import { figured } from "../shared/tips";
import { CATEGORIES, type Oom, type RequestContents, type RunInfo } from "../../schema";

const [WIDTH, LABEL, ROW] = [960, 190, 26];

interface Bar {
  label: string;
  name?: string;
  bytes: number;
  fill: Fill;
  from: number;
}

/**
 * The pool's parts one after another, then the request, then each category on a scale of its own.
 */
export function oomBars(oom: Oom): { pool: Bar[]; categories: Bar[] } {
  const ink = inks();
  const {
    in_use_bytes: used,
    free_bytes: free,
    largest_free_bytes: largest,
    requested_bytes: requested,
  } = oom;
  const bar = (label: string, name: string, bytes: number, fill: Fill, from = 0): Bar => ({
    ...{ label, name, bytes, fill, from },
  });
  const { free_largest, free_other } = WORDS;
  const parts =
    used === null || free === null || largest === null
      ? []
      : [
          bar("in use", "in_use_bytes", used, plainFill(ink.used)),
          bar(free_largest.label, "free_largest", largest, freeFill("largest"), used),
          bar(free_other.label, "free_other", free - largest, freeFill("other"), used + largest),
        ];
  const asked = { label: "requested", fill: plainFill(ink.accent), from: used ?? 0 };
  const rows = grouped(oom.ledger, ({ category }) => category);
  const categories = [...CATEGORIES]
    .reverse()
    .map((name) =>
      bar(categoryLabel(name), name, totalBytes(rows.get(name) ?? []), categoryFill(name)),
    );
  return {
    pool: [...parts, ...(requested === null ? [] : [{ ...asked, bytes: requested }])],
    categories: categories.filter(({ bytes }) => bytes > 0),
  };
}

function Bars({
  bars,
  top,
  ink,
  share,
}: {
  bars: readonly Bar[];
  top: number;
  ink: Ink;
  share: number | null;
}) {
  const most = Math.max(1, ...bars.map(({ from, bytes }) => from + bytes));
  const scale = (bytes: number): number => (bytes / most) * (WIDTH - LABEL - 130);
  return (
    <>
      {bars.map(({ label, bytes, fill, from }, index) => {
        const y = top + index * ROW;
        return (
          <g key={label}>
            <text x={LABEL - 10} y={y + 15} text-anchor="end" fill={ink.text}>
              {label}
            </text>
            <rect
              x={LABEL + scale(from)}
              y={y}
              width={Math.max(scale(bytes), 1.5)}
              height={ROW - 6}
              fill={svgFill(fill)}
              stroke={ink.faint}
            />
            <text x={LABEL + scale(from + bytes) + 6} y={y + 15} fill={ink.text}>
              {formatBytes(bytes)}
              {share !== null && `, ${formatShare(bytes / share)}`}
            </text>
          </g>
        );
      })}
    </>
  );
}

function OomDrawing({ oom }: { oom: Oom }) {
  const ink = inks();
  const { pool, categories } = oomBars(oom);
  const [first, second] = [36, 36 + pool.length * ROW + 44];
  const total = totalBytes(categories);
  return (
    <SvgDrawing
      title={`${whenSentence(oom)}.`}
      width={WIDTH}
      height={second + categories.length * ROW + 8}
      ink={ink}
    >
      <Patterns fills={[...pool, ...categories].map(({ fill }) => fill)} ground={ink.background} />
      <text x="8" y="14" fill={ink.text}>
        {verdictSentence(oom)}
      </text>
      <Bars bars={pool} top={first} ink={ink} share={null} />
      {categories.length > 0 && (
        <text x="8" y={second - 14} fill={ink.faint}>
          Memory at failure, by category
        </text>
      )}
      <Bars bars={categories} top={second} ink={ink} share={total} />
    </SvgDrawing>
  );
}

const LAYERS = 8;

/**
 * What was in use, by category if each byte has one, and what was free; the request is drawn on top
 * of what was in use.
 */
export function requestBar(oom: Oom) {
  const request = requestOf(oom, oom.capacity_bytes);
  if (request === null) return null;
  const { pool, categories } = oomBars(oom);
  const sum = totalBytes(categories);
  const used: Bar = {
    label: "in use",
    name: "in_use_bytes",
    bytes: request.low,
    fill: plainFill(inks().used),
    from: 0,
  };
  const parts = [
    ...(sum === request.low ? [...categories].reverse() : [used]),
    ...pool.slice(1, -1),
  ].filter(({ bytes }) => bytes > 0);
  return {
    ...request,
    children: (share: (bytes: number) => string) =>
      parts.map(({ label, name, bytes, fill: { colour, pattern } }) => (
        <i
          key={label}
          class={`fill ${pattern}`}
          style={{ width: share(bytes), "--fill": colour }}
          {...figured(name, bytes, label)}
        />
      )),
  };
}

const when = "at the failure";
const OF_REQUEST = ["requested_bytes", "free_bytes", "pool_bytes"] as const;

function RequestFacts({ oom }: { oom: Oom }) {
  const words: [string, string | null][] = [
    ["time", formatWallTime(oom.wall_time)],
    ["operation", oom.op],
    ["layer", oom.layer],
    ["line", oom.line],
    ["batch size", oom.batch_size === null ? null : String(oom.batch_size)],
    ["tensor", oom.shape],
  ];
  return (
    <Known sentence={unbroken(oom.reason)}>
      <FigureTable testid="oom-figures">
        <tbody>
          {OF_REQUEST.map((word) => (
            <WordFigure key={word} word={word} bytes={oom[word]} when={when} />
          ))}
          <WordFigure
            word="free_largest"
            name="largest_free_bytes"
            bytes={oom.largest_free_bytes}
            when={when}
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
    </Known>
  );
}

/** The largest tensors inside the request of a compiled module. */
function RequestTensors({ request: { sentence, tensors } }: { request: RequestContents }) {
  const size = `size, ${useUnitName()}`;
  return (
    <details class="known">
      <summary>Inside the request, by tensor</summary>
      <p class="small">{sentence}</p>
      <FigureTable testid="oom-request-tensors" kind="held">
        <TableHead names={["count", "shape", "dtype", size, "layers"]} />
        <tbody>
          {tensors.slice(0, LAYERS).map(({ shape, dtype, count, bytes, layers }) => (
            <tr
              key={`${sizesText(shape)} ${dtype}`}
              {...figured(
                `request_tensors:${JSON.stringify([shape, dtype])}`,
                bytes,
                ...layers,
                OF_MODULE,
              )}
            >
              <TensorCells {...{ shape, dtype, count, bytes }} />
              <Text kind="held-by" of={distinctNames(layers).join(", ") || NOT_TIED} />
            </tr>
          ))}
        </tbody>
      </FigureTable>
    </details>
  );
}

interface ByLayerProps {
  summary: string;
  ledger: Oom["ledger"];
  testid: string;
  source: string;
}

function ByLayer({ summary, ledger, testid, source }: ByLayerProps) {
  const layers = useMemo(() => owners(ledger), [ledger]);
  // Distinct among all layers, of which the largest are shown.
  const names = distinctNames(layers.map(({ layer }) => layer ?? NOT_TIED));
  const total = totalBytes(ledger);
  return (
    <details class="known">
      <summary>{summary}</summary>
      <FigureTable testid={testid}>
        <tbody>
          {layers.slice(0, LAYERS).map(({ layer, bytes }, index) => (
            <Figure
              key={layer}
              name={`layer:${layer ?? ""}`}
              label={names[index]}
              hint={`${layer ?? NOT_TIED}: total of all categories`}
              source={source}
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
const OF_MODULE = "from the compiler's buffer assignment, at the moment with most bytes";

function FailurePanel({ oom }: { oom: Oom }) {
  const unit = unitOf(oom.pool_bytes ?? oom.in_use_bytes ?? oom.requested_bytes ?? 0);
  const total = totalBytes(oom.ledger);
  const sums = sumsBy(
    oom.ledger,
    ({ category }) => category,
    ({ bytes }) => bytes,
  );
  const isKnown = oom.ledger.length > 0;
  return (
    <Panel label="Memory at the failure" title="At the failure" unit={unit}>
      {!isKnown && <p class="small">Breakdown unknown: no chunk has a known owner.</p>}
      <FigureTable testid="oom-categories">
        <tbody>
          <CategoryRows bytes={sums} total={total} source={() => SOURCE} />
        </tbody>
        <tbody class="totals">
          <WordFigure strong word="in_use_bytes" bytes={oom.in_use_bytes} when={when} />
          <WordFigure word="capacity_bytes" bytes={oom.capacity_bytes} when={when} />
        </tbody>
      </FigureTable>
      {oom.request && <RequestTensors request={oom.request} />}
      {oom.request_ledger.length > 0 && (
        <ByLayer
          summary="Inside the request, by layer"
          ledger={oom.request_ledger}
          testid="oom-request"
          source={OF_MODULE}
        />
      )}
      {isKnown && (
        <ByLayer summary="By layer" ledger={oom.ledger} testid="oom-layers" source={SOURCE} />
      )}
      <RequestFacts oom={oom} />
    </Panel>
  );
}

function PostMortem({ run, oom, index }: { run: RunInfo; oom: Oom; index: number }) {
  useExport({
    table: () => ({
      columns: ["layer", "category", "trainable", "bytes", "rounding_bytes"],
      rows: oom.ledger.map(({ layer, category, trainable, bytes, rounding_bytes }) => [
        layer,
        category,
        trainable,
        bytes,
        rounding_bytes,
      ]),
    }),
    drawing: () => <OomDrawing oom={oom} />,
    ...(oom.chunks !== null && { legend: () => [] }),
  });
  return (
    <div class="oom" data-testid="oom" data-verdict={oom.verdict ?? ""}>
      <div class="body">
        <div class="picture">
          <p class="small">
            {whenSentence(oom, run.devices.length > 1)} <Requester oom={oom} />
          </p>
          {/* The answers above have the figures. */}
          <h2 class="verdict">{verdictWords(oom.verdict)}</h2>
          <PossibleFixes run={run} oom={oom} index={index} request={requestBar(oom)} />
          <NoticeList sentences={oom.not_available} />
        </div>
        <FailurePanel oom={oom} />
      </div>
      {oom.chunks !== null && <MapView run={run} place={{ oom: index }} />}
    </div>
  );
}

const ABOUT_FAILURES = [
  "If a step fails under `tb_memplugin.MemoryCallback` or `tb_memplugin.MemoryRecorder`, this view shows the failed allocation, whether memory was too small or fragmented, memory by category and layer, and possible fixes.",
  "For a job that failed without them, import its log or its dump (`TF_BFC_MEMORY_DUMP`):",
];

const NoFailure = ({ run }: { run: RunInfo }) => (
  <Nothing
    title={`No step of ${run.run} ran out of memory`}
    sentences={ABOUT_FAILURES}
    code={IMPORT}
  />
);

export function OomView({ run }: { run: RunInfo }) {
  const store = useStore();
  if (run.ooms === 0) return <NoFailure run={run} />;
  const { value, error } = store.ooms.value;
  if (value === null) return error === null ? <Skeleton /> : <Fault sentence={error} />;
  const index = Math.min(store.choices.value.oom, value.length - 1);
  const oom = value[index];
  if (!oom) return <NoFailure run={run} />;
  return (
    <>
      {value.length > 1 && (
        <label class="select failures">
          <span>failure</span>
          <select
            value={index}
            onChange={(event) => store.choose({ oom: Number(event.currentTarget.value) })}
          >
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
