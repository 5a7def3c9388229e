/**
 * The largest batch size that fits into the memory of common cards; simulated once it is opened.
 */

import { useState } from "preact/hooks";

import { formatBytes, formatCount } from "../../lib/bytes";
import { CARDS, rangeText } from "../../model/what-if";
import { useFetched, useStore } from "../shared/context";
import { TableHead } from "../shared/figures";
import { NoticeList } from "../shared/states";
import { tipOf } from "../shared/tips";
import { appliedOf } from "./conditions";
import { curveColour } from "./peak-curve";
import type { BatchLimit, RunInfo } from "../../schema";

const share = (size: number | null, most: number): string =>
  `${most > 0 ? (100 * (size ?? 0)) / most : 0}%`;

/** Up to which batch size a training fits, and up to which it may. */
function Bar({
  limit: { largest_batch_size: fits, may_fit_batch_size: mayFit },
  most,
}: {
  limit: BatchLimit;
  most: number;
}) {
  const background = curveColour();
  return (
    <div class="limit-bar">
      <i style={{ background, width: share(mayFit, most) }} />
      <b style={{ background, width: share(fits, most) }} />
    </div>
  );
}

interface RowProps {
  card: string;
  limit: BatchLimit | null;
  error: string | null;
  most: number;
}

function Row({ card, limit, error, most }: RowProps) {
  const store = useStore();
  const name = card.replace("GiB", " GiB");
  const fits = limit?.largest_batch_size ?? null;
  const set = () => {
    const { conditions } = store.choices.peek();
    store.choose({
      conditions: { ...conditions, capacity: card, batch_size: fits ? String(fits) : "" },
    });
  };
  const unknown = limit?.reason ?? error;
  return (
    <tr data-card={card} data-batch={fits ?? ""} aria-busy={limit === null && error === null}>
      <th scope="row">
        <button
          type="button"
          class="link"
          title="Set this capacity, and its largest batch size"
          onClick={set}
        >
          {name}
        </button>
      </th>
      {limit === null || fits === null ? (
        <td colSpan={4} class="small">
          {limit === null && error === null
            ? "simulating …"
            : `unknown${unknown === null ? "" : ": see below"}`}
        </td>
      ) : (
        <>
          <td class="number strong">{fits === 0 ? "none" : formatCount(fits)}</td>
          <td class="number">
            {limit.may_fit_batch_size === fits ? "–" : formatCount(limit.may_fit_batch_size ?? 0)}
          </td>
          <td class="limit">
            <Bar limit={limit} most={most} />
          </td>
          <td
            class="number"
            data-tip={
              limit.peak_bytes === null
                ? undefined
                : tipOf(limit.peak_bytes, `range: ${rangeText(limit)}`)
            }
          >
            {limit.peak_bytes === null ? "–" : formatBytes(limit.peak_bytes)}
          </td>
        </>
      )}
    </tr>
  );
}

function Table({ run, device }: { run: RunInfo; device: string }) {
  const store = useStore();
  const asked = { ...appliedOf(store), batch_size: "", budget: "" };
  const found = CARDS.map((capacity) =>
    useFetched(store.fetched.batchLimits, [run, device, { ...asked, capacity }]),
  );
  const most = Math.max(0, ...found.map(({ value }) => value?.may_fit_batch_size ?? 0));
  const reasons = found.flatMap(({ value, error }) => [value?.reason ?? error ?? []].flat());
  const done = found.filter(({ value, error }) => value !== null || error !== null).length;
  return (
    <>
      <table class="layers batch-limits" data-testid="batch-limits">
        <TableHead
          names={["capacity", "fits up to", "may fit up to", "batch size", "peak there"]}
          numbers={["fits up to", "may fit up to", "peak there"]}
        />
        <tbody>
          {CARDS.map((card, index) => (
            <Row
              key={card}
              card={card}
              limit={found[index]?.value ?? null}
              error={found[index]?.error ?? null}
              most={most}
            />
          ))}
        </tbody>
      </table>
      <NoticeList sentences={[...new Set(reasons)]} testid="batch-limit-reasons" />
      <p class="small" role="status">
        {done < CARDS.length
          ? `${done} of ${CARDS.length} capacities simulated`
          : "Each size is simulated at its capacity, which is the allocator's limit: TensorFlow leaves a part of a card free."}
      </p>
    </>
  );
}

export function BatchLimits({ run, device }: { run: RunInfo; device: string }) {
  const [isOpen, open] = useState(false);
  if (useStore().recordedOnly) return null;
  return (
    <section class="wide" aria-label="Batch size by capacity">
      <details class="known" onToggle={({ currentTarget }) => open(currentTarget.open)}>
        <summary>Largest batch size for 8 to 80 GiB</summary>
        {isOpen && <Table run={run} device={device} />}
      </details>
    </section>
  );
}
