/** What a map says about the next allocation: would it fit, which chunks are in the way, how large the free blocks are. */

import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { formatBytes, formatCount, formatExact } from "../lib/bytes";
import { plural, unbroken } from "../lib/format";
import { pinSentence, type AllocatorMap, type Place } from "../model/allocator-map";
import type { RunInfo } from "../model/run";
import { useStore } from "./context";

const MIB = 2 ** 20;
const PINS = 5;

/** The value once it has not changed for a moment: not a request for every key. */
function useSettled<T>(value: T): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => settle(value), 250);
    return () => window.clearTimeout(timer);
  }, [value]);
  return settled;
}

export function WouldFit({ run, place, map }: { run: RunInfo; place: Place; map: AllocatorMap }) {
  const store = useStore();
  const [typed, type] = useState(String(Math.max(Math.floor(map.summary.largest_free_bytes / MIB), 0) + 1));
  const settled = useSettled(typed);
  const bytes = Math.round(Number(settled) * MIB);
  const asked = settled.trim() !== "" && Number.isFinite(bytes) && bytes > 0 && bytes < 2 ** 50;
  useLayoutEffect(() => {
    if (asked) store.wantFitIn(run, place, bytes);
  }, [asked, bytes, run]);
  const { value, error } = asked ? store.fitIn(run, place, bytes) : { value: null, error: null };
  const word = value === null ? "" : value.fits === null ? "Not known." : value.fits ? "Yes." : "No.";
  return (
    <section class="fits">
      <h3>
        <label>
          Would a tensor of <input type="number" min="0" step="any" value={typed} onInput={(event) => type(event.currentTarget.value)} />{" "}
          MiB fit?
        </label>
      </h3>
      <p data-testid="fits" data-fits={String(value?.fits ?? "")} aria-live="polite">
        {!asked && "Type a size above 0."}
        {error !== null && <span class="warn">{error}</span>}
        {value && (
          <>
            <strong>{word}</strong> {unbroken(value.reason.replace(/^That is not known: /, ""))}
          </>
        )}
      </p>
      {value?.allocated_bytes !== null && value?.allocated_bytes !== undefined && (
        <p class="small">
          {formatExact(value.requested_bytes)} asked for, {formatExact(value.rounded_bytes)} after rounding,{" "}
          {formatExact(value.allocated_bytes)} given.
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
            <li key={pin.owner} data-bytes={pin.joined_bytes}>
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
              title={`${formatExact(free_bytes)} in ${plural(chunks, "block")}`}
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
