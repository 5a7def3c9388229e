/**
 * Possible fixes of a failure: each that is a condition or a budget is a button that opens What if
 * with it filled in.
 */

import type { ComponentChildren } from "preact";

import { unbroken, formatBytes } from "../../lib/bytes";
import { fixConditions, fixWord } from "../../model/answer";
import { rangeText, type PeakRange } from "../../model/what-if";
import { useStore, useFetched } from "./context";
import { Choose } from "./controls";
import { Code, CopyButton, Fault } from "./states";
import type { Fix, Fixes, Oom, RunInfo } from "../../schema";

/** What to change; all figures are in the tooltip. */
function Change({ fix, oom }: { fix: Fix; oom: Oom }) {
  const store = useStore();
  const text = unbroken(fix.change);
  const conditions = store.recordedOnly ? null : fixConditions(fix, oom);
  if (conditions === null)
    return (
      <span data-tip={fix.sentence}>
        {text} {/* A report has no other conditions to open. */}
        {store.recordedOnly && <CopyButton text={() => fix.code ?? fix.sentence} />}
      </span>
    );
  const open = () => store.choose({ view: "what-if", conditions, device: oom.device });
  return (
    <button
      type="button"
      class="fix"
      data-tip={`${fix.sentence}\nOpen What if with it filled in`}
      onClick={open}
    >
      {text}
    </button>
  );
}

/**
 * Those that fit are enough; a fix says whether it fits, unless the one before it said the same.
 */
function BriefFixes({ fixes, oom }: { fixes: readonly Fix[]; oom: Oom }) {
  const fits = fixes.filter(({ enough }) => enough);
  const shown = fits.length > 0 ? fits : fixes;
  return (
    <ul class="fixes brief" data-testid="fixes">
      {shown.map((fix, index) => (
        <li key={fix.kind} data-fix={fix.kind}>
          {fix.enough !== shown[index - 1]?.enough && (
            <span class={fixWord(fix)}>{fixWord(fix)}</span>
          )}
          <Change fix={fix} oom={oom} />
        </li>
      ))}
    </ul>
  );
}

/**
 * A peak as a bar, its range as a line on it, and the capacity where it is that of no other bar.
 */
function PeakBar({
  peak,
  share,
  limit = null,
}: {
  peak: PeakRange;
  share: (bytes: number) => string;
  limit?: number | null;
}) {
  const { peak_bytes: bytes, low_bytes: low, high_bytes: high } = peak;
  return (
    <>
      {bytes !== null && <i class="peak" style={{ width: share(bytes) }} />}
      {low !== null && high !== null && (
        <i class="range" style={{ left: share(low), width: share(high - low) }} />
      )}
      {limit !== null && (
        <i class="limit own" style={{ width: share(limit) }}>
          {formatBytes(limit)}
        </i>
      )}
    </>
  );
}

const figureOf = (peak: PeakRange): string =>
  peak.peak_bytes === null ? rangeText(peak).replace(" to ", " – ") : formatBytes(peak.peak_bytes);

/**
 * The failure, the training as it was, and each fix, as bars on one scale with the capacity across
 * them.
 */
function FixBars({
  found,
  oom,
  request,
}: {
  found: Fixes | null;
  oom: Oom;
  request: Outlined | null;
}) {
  const { fixes, unchanged } = found ?? { fixes: [], unchanged: null };
  const { capacity_bytes: capacity } = oom;
  const ends = [unchanged, ...fixes].flatMap((peak) => [
    peak?.high_bytes ?? 0,
    peak?.peak_bytes ?? 0,
  ]);
  const most =
    Math.max(
      request?.high ?? 0,
      capacity ?? 0,
      ...fixes.map((one) => one.capacity_bytes ?? 0),
      ...ends,
    ) * 1.02;
  const share = (bytes: number): string => `${((bytes / most) * 100).toFixed(3)}%`;
  return (
    <ul
      class="fixes bars"
      aria-label="Possible fixes, with their peaks"
      data-testid="fixes"
      style={{ "--capacity": capacity === null ? "-1px" : share(capacity) }}
    >
      {capacity !== null && (
        <li class="limits">
          <span />
          <span class="track">
            <i
              class="limit"
              style={{ width: share(capacity) }}
            >{`capacity ${formatBytes(capacity)}`}</i>
          </span>
        </li>
      )}
      {request && (
        <li>
          <span>failure</span>
          <span class="track">
            {request.children(share)}
            <i
              class="asked"
              style={{ left: share(request.low), width: share(request.high - request.low) }}
            />
          </span>
          <span class="number">{request.label}</span>
        </li>
      )}
      {unchanged && (
        <li
          data-tip={`Simulated peak without a limit: ${formatBytes(unchanged.peak_bytes)} (${rangeText(unchanged)})`}
        >
          <span>unchanged</span>
          <span class="track">
            <PeakBar peak={unchanged} share={share} />
          </span>
          <span class="number">{formatBytes(unchanged.peak_bytes)}</span>
        </li>
      )}
      {fixes.map((fix) => (
        <li key={fix.kind} data-fix={fix.kind} class={fixWord(fix)}>
          <span>
            <Change fix={fix} oom={oom} />
            <span class="unseen">, {fixWord(fix)}</span>
          </span>
          <span class="track">
            <PeakBar peak={fix} share={share} limit={fix.capacity_bytes} />
          </span>
          <span class="number">{figureOf(fix)}</span>
          {fix.code !== null && <Code title="Apply it">{fix.code}</Code>}
        </li>
      ))}
    </ul>
  );
}

/** What failed, on top of what was in use, and what fills that. */
interface Outlined {
  low: number;
  high: number;
  label: string;
  children: (share: (bytes: number) => string) => ComponentChildren;
}

/** With a request, null if it is unknown, as bars; otherwise in brief. */
export function PossibleFixes({
  run,
  oom,
  index,
  request,
}: {
  run: RunInfo;
  oom: Oom;
  index: number;
  request?: Outlined | null;
}) {
  const isBrief = request === undefined;
  const store = useStore();
  const { value, error } = useFetched(store.fetched.fixes, [run, index]);
  return (
    <>
      {!isBrief && (request || value?.unchanged) && (
        <FixBars found={value} oom={oom} request={request} />
      )}
      {isBrief && value !== null && value.fixes.length > 0 && (
        <BriefFixes fixes={value.fixes} oom={oom} />
      )}
      {value !== null && value.note !== null && (
        <p class="small" data-testid="fixes-note">
          {unbroken(value.note)}
        </p>
      )}
      {error !== null && <Fault sentence={error} />}
      {value === null && error === null && (
        <p class="small simulating" role="status">
          Simulating training steps…
        </p>
      )}
    </>
  );
}

export function Requester({ oom }: { oom: Oom }) {
  const { op, layer, line, step } = oom;
  return (
    <>
      {layer !== null && (
        <>
          in{" "}
          <Choose class="link" title="Open the layer" these={{ view: "layer", layer, step }}>
            {layer}
          </Choose>
        </>
      )}
      {op !== null && (
        <>
          {" "}
          (
          <Choose class="link" title={`${op}: open the step`} these={{ view: "step", step, layer }}>
            {op.split("/").at(-1)}
          </Choose>
          )
        </>
      )}
      {line !== null && (
        <>
          , <code>{line}</code>
        </>
      )}
    </>
  );
}
