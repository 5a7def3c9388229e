/** The next allocation in a memory map: whether it would fit, which chunks split free memory, sizes of free chunks. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { formatBytes, formatCount, formatExact, plural, unbroken } from "../../../lib/bytes";
import { blockingSentence, wouldFit, type MemoryMap } from "../../../model/memory-map";
import { useStore } from "../context";
import { tipOf } from "../tips";

const MIB = 2 ** 20;
/** Owners of blocking chunks that are listed. */
const SHOWN = 5;

/** The typed text; replaced by the size in the page's address when that changes. */
function useTyped(chosen: number | null, otherwise: number) {
  const [typed, type] = useState(String(chosen ?? otherwise));
  useEffect(() => {
    if (chosen !== null && Number(typed) !== chosen) type(String(chosen));
  }, [chosen]);
  return [typed, type] as const;
}

export function WouldFit({ map }: { map: MemoryMap }) {
  const store = useStore();
  const { fitMib } = store.choices.value;
  const [typed, type] = useTyped(fitMib, Math.max(Math.floor(map.summary.largest_free_bytes / MIB), 0) + 1);
  const bytes = Math.round(Number(typed) * MIB);
  const valid = typed.trim() !== "" && Number.isFinite(bytes) && bytes > 0 && bytes < 2 ** 50;
  const fit = useMemo(() => (valid ? wouldFit(map, bytes) : null), [valid, bytes, map]);
  const word = fit === null ? "" : fit.fits === null ? "Unknown." : fit.fits ? "Yes." : "No.";
  const ask = (text: string): void => {
    type(text);
    const size = Number(text);
    store.choose({ fitMib: text.trim() !== "" && Number.isFinite(size) && size > 0 ? size : null });
  };
  return (
    <section class="fits">
      <h3>
        <label>
          Would a tensor of <input type="number" min="0" step="any" value={typed} onInput={(event) => ask(event.currentTarget.value)} /> MiB
          fit?
        </label>
      </h3>
      <p data-testid="fits" data-fits={String(fit?.fits ?? "")} aria-live="polite">
        {fit === null ? (
          "Enter a size above 0."
        ) : (
          <>
            <strong>{word}</strong> {unbroken(fit.reason.replace(/^Unknown: t/, "T"))}
          </>
        )}
      </p>
      {fit?.allocated_bytes !== null && fit?.allocated_bytes !== undefined && (
        <p class="small">
          {formatExact(fit.requested_bytes)} requested, {formatExact(fit.rounded_bytes)} after rounding, {formatExact(fit.allocated_bytes)}{" "}
          allocated.
        </p>
      )}
    </section>
  );
}

export function Blocking({ map }: { map: MemoryMap }) {
  const { blocking_chunks: blocking } = map.summary;
  return (
    <section class="blocking">
      <h3>Chunks that split free memory</h3>
      {blocking.length === 0 ? (
        <p class="small">
          {map.complete ? "No chunk in use lies between two free chunks." : "No chunk known to be in use lies between two free chunks."}
        </p>
      ) : (
        <ul data-testid="blocking-chunks">
          {blocking.slice(0, SHOWN).map((one) => (
            <li
              key={one.owner}
              data-figure={`joined:${one.owner}`}
              data-bytes={one.joined_bytes}
              data-tip={tipOf(one.joined_bytes, "the free chunk that would form")}
            >
              {unbroken(blockingSentence(map, one))}
            </li>
          ))}
          {blocking.length > SHOWN && <li class="small">and {plural(blocking.length - SHOWN, "more owner")}</li>}
        </ul>
      )}
    </section>
  );
}

export function Bins({ map }: { map: MemoryMap }) {
  const { bins, free_bytes: free } = map.summary;
  const most = Math.max(1, ...bins.map(({ free_bytes }) => free_bytes));
  if (bins.length === 0) return null;
  return (
    <section class="bins">
      <h3>
        Free chunks by size{" "}
        <span class="small">
          {formatBytes(free)} free{map.complete ? "" : ", known chunks only"}
        </span>
      </h3>
      <table data-testid="bins">
        <thead class="unseen">
          <tr>
            <th scope="col">chunk size</th>
            <th scope="col">chunks</th>
            <th scope="col">free bytes</th>
          </tr>
        </thead>
        <tbody>
          {bins.map(({ bin_bytes, chunks, free_bytes }) => (
            <tr
              key={bin_bytes}
              data-figure={bin_bytes}
              data-bytes={free_bytes}
              data-tip={tipOf(free_bytes, `in ${plural(chunks, "chunk")}`, `free chunks from ${formatBytes(bin_bytes)} to twice that`)}
            >
              <th scope="row">from {formatBytes(bin_bytes)}</th>
              <td>{formatCount(chunks)} ×</td>
              <td class="bin-bar">
                <i style={{ "--share": free_bytes / most }} aria-hidden="true" />
                <span>{formatBytes(free_bytes)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
