/** What a map says about the next allocation: would it fit, which chunks are in the way, how large the free blocks are. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { formatBytes, formatCount, formatExact } from "../lib/bytes";
import { plural, unbroken } from "../lib/format";
import { pinSentence, type AllocatorMap } from "../model/allocator-map";
import { wouldFit } from "../model/fit";
import { useStore } from "./context";
import { tipOf } from "./tips";

const MIB = 2 ** 20;
const PINS = 5;

/** The text that was typed; the size of a shown address takes its place when another one is shown. */
function useTyped(chosen: number | null, otherwise: number) {
  const [typed, type] = useState(String(chosen ?? otherwise));
  useEffect(() => {
    if (chosen !== null && Number(typed) !== chosen) type(String(chosen));
  }, [chosen]);
  return [typed, type] as const;
}

export function WouldFit({ map }: { map: AllocatorMap }) {
  const store = useStore();
  const { fitMib } = store.choices.value;
  const [typed, type] = useTyped(fitMib, Math.max(Math.floor(map.summary.largest_free_bytes / MIB), 0) + 1);
  const bytes = Math.round(Number(typed) * MIB);
  const asked = typed.trim() !== "" && Number.isFinite(bytes) && bytes > 0 && bytes < 2 ** 50;
  const fit = useMemo(() => (asked ? wouldFit(map, bytes) : null), [asked, bytes, map]);
  const word = fit === null ? "" : fit.fits === null ? "Not known." : fit.fits ? "Yes." : "No.";
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
          "Type a size above 0."
        ) : (
          <>
            <strong>{word}</strong> {unbroken(fit.reason.replace(/^That is not known: /, ""))}
          </>
        )}
      </p>
      {fit?.allocated_bytes !== null && fit?.allocated_bytes !== undefined && (
        <p class="small">
          {formatExact(fit.requested_bytes)} asked for, {formatExact(fit.rounded_bytes)} after rounding, {formatExact(fit.allocated_bytes)}{" "}
          given.
        </p>
      )}
    </section>
  );
}

export function Pins({ map }: { map: AllocatorMap }) {
  const { pins } = map.summary;
  return (
    <section class="pins">
      <h3>What keeps free blocks apart</h3>
      {pins.length === 0 ? (
        <p class="small">
          {map.complete
            ? "No chunk in use lies alone between two free blocks."
            : "As far as was seen, no chunk in use lies alone between two free blocks."}
        </p>
      ) : (
        <ul data-testid="pins">
          {pins.slice(0, PINS).map((pin) => (
            <li key={pin.owner} data-bytes={pin.joined_bytes} data-tip={tipOf(pin.joined_bytes, "the free block that there would be")}>
              {unbroken(pinSentence(map, pin))}
            </li>
          ))}
          {pins.length > PINS && <li class="small">and {plural(pins.length - PINS, "more owner")}</li>}
        </ul>
      )}
    </section>
  );
}

export function Bins({ map }: { map: AllocatorMap }) {
  const { bins, free_bytes: free } = map.summary;
  const most = Math.max(1, ...bins.map(({ free_bytes }) => free_bytes));
  if (bins.length === 0) return null;
  return (
    <section class="bins">
      <h3>
        Free blocks by size <span class="small">{formatBytes(free)} free as far as was seen</span>
      </h3>
      <table data-testid="bins">
        <thead class="unseen">
          <tr>
            <th scope="col">block of</th>
            <th scope="col">blocks</th>
            <th scope="col">free bytes</th>
          </tr>
        </thead>
        <tbody>
          {bins.map(({ bin_bytes, chunks, free_bytes }) => (
            <tr
              key={bin_bytes}
              data-figure={bin_bytes}
              data-bytes={free_bytes}
              data-tip={tipOf(
                free_bytes,
                `in ${plural(chunks, "block")}`,
                `free blocks of the pool from ${formatBytes(bin_bytes)} to twice that`,
              )}
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
