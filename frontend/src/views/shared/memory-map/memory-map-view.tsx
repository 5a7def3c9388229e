/**
 * The memory map of a traced step or a failed allocation, and whether the next allocation would
 * fit.
 */

import { useMemo, useState, useEffect, useRef } from "preact/hooks";

import { chunkAt } from "../../../charts/map-layout";
import { formatBytes, plural, formatCount, formatExact, unbroken } from "../../../lib/bytes";
import { clamp } from "../../../lib/search";
import {
  COLOURINGS,
  chunkFacts,
  regionStarts,
  requestPlace,
  blockingSentence,
  wouldFit,
  freeBySize,
  type MemoryMap,
  type Colouring,
  type Place,
} from "../../../model/memory-map";
import { dark } from "../../../theme/palette";
import { useStore, useFetched, useChoices } from "../context";
import { ChoiceSegments, Choose } from "../controls";
import { Heads, Swatch } from "../figures";
import { Fault, NoticeList, Skeleton } from "../states";
import { figured } from "../tips";
import { mapColours, Strip, StripAxis } from "./strip";
import type { RunInfo } from "../../../schema";

const MIB = 2 ** 20;
const SHOWN = 5;

/** The typed text; replaced by the size in the page's address when that changes. */
function useTyped(chosen: number | null, otherwise: number) {
  const [typed, type] = useState(String(chosen ?? otherwise));
  useEffect(() => {
    if (chosen !== null && Number(typed) !== chosen) type(String(chosen));
  }, [chosen]);
  return [typed, type] as const;
}

function WouldFit({ map }: { map: MemoryMap }) {
  const store = useStore();
  const { fitMib } = useChoices();
  const [typed, type] = useTyped(
    fitMib,
    Math.max(Math.floor(map.summary.largest_free_bytes / MIB), 0) + 1,
  );
  const bytes = Math.round(Number(typed) * MIB);
  const valid = typed.trim() !== "" && Number.isFinite(bytes) && bytes > 0 && bytes < 2 ** 50;
  const fit = useMemo(() => (valid ? wouldFit(map, bytes) : null), [valid, bytes, map]);
  const word = fit === null ? "" : fit.fits === null ? "Unknown." : fit.fits ? "Yes." : "No.";
  const ask = (text: string) => {
    type(text);
    const size = Number(text);
    store.choose({ fitMib: text.trim() !== "" && Number.isFinite(size) && size > 0 ? size : null });
  };
  return (
    <section class="fits">
      <h3>
        <label>
          Would a tensor of{" "}
          <input
            type="number"
            min="0"
            step="any"
            value={typed}
            onInput={(event) => ask(event.currentTarget.value)}
          />{" "}
          MiB fit?
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
          {formatExact(fit.requested_bytes)} requested, {formatExact(fit.rounded_bytes)} after
          rounding, {formatExact(fit.allocated_bytes)} allocated.
        </p>
      )}
    </section>
  );
}

function Blocking({ map }: { map: MemoryMap }) {
  const { blocking_chunks: blocking } = map.summary;
  return (
    <section class="blocking">
      <h3>Chunks that split free memory</h3>
      {blocking.length === 0 ? (
        <p class="small">
          {map.complete
            ? "No chunk in use lies between two free chunks."
            : "No chunk known to be in use lies between two free chunks."}
        </p>
      ) : (
        <ul data-testid="blocking-chunks">
          {blocking.slice(0, SHOWN).map((one) => (
            <li
              key={one.owner}
              {...figured(
                `joined:${one.owner}`,
                one.joined_bytes,
                "the free chunk that would form",
              )}
            >
              {unbroken(blockingSentence(map, one))}
            </li>
          ))}
          {blocking.length > SHOWN && (
            <li class="small">and {plural(blocking.length - SHOWN, "more owner")}</li>
          )}
        </ul>
      )}
    </section>
  );
}

function Bins({ map }: { map: MemoryMap }) {
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
            <Heads names={["chunk size", "chunks", "free bytes"]} />
          </tr>
        </thead>
        <tbody>
          {bins.map(({ bin_bytes, chunks, free_bytes }) => (
            <tr
              key={bin_bytes}
              {...figured(
                bin_bytes,
                free_bytes,
                `in ${plural(chunks, "chunk")}`,
                `free chunks from ${formatBytes(bin_bytes)} to twice that`,
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

interface RequestChipProps {
  map: MemoryMap;
  requested: number;
  starts: readonly number[];
  chunk: number | null;
  move: (chunk: number | null) => void;
}

function chunkUnder(
  map: MemoryMap,
  starts: readonly number[],
  x: number,
  y: number,
): number | null {
  const strip = document.elementFromPoint(x, y)?.closest<HTMLElement>("[data-region]");
  if (!strip) return null;
  const { region, begin, end: upto } = strip.dataset;
  const [first, end] = [starts[Number(region)] ?? 0, starts[Number(region) + 1] ?? 0];
  const box = strip.getBoundingClientRect();
  const address = Number(begin) + ((x - box.left) / box.width) * (Number(upto) - Number(begin));
  return end > first ? clamp(chunkAt(map, first, end, address), first, end - 1) : null;
}

function RequestChip({ map, requested, starts, chunk, move }: RequestChipProps) {
  const free = useMemo(() => freeBySize(map), [map]);
  const isHeld = useRef(false);
  const place = chunk === null ? null : requestPlace(map, chunk, requested);
  const said = place?.sentence ?? wouldFit(map, requested).reason;
  const at = chunk === null ? -1 : free.indexOf(chunk);
  const keys: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowDown: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at - 1,
    Home: 0,
    End: free.length - 1,
  };
  return (
    <div class="request-row">
      <span
        class="request-chip"
        role="slider"
        tabIndex={0}
        aria-label={`Request of ${formatBytes(requested)} over the free chunks, the largest first`}
        aria-valuemin={0}
        aria-valuemax={free.length}
        aria-valuenow={at + 1}
        aria-valuetext={said}
        onKeyDown={(event) => {
          const next = event.key === "Escape" ? -1 : keys[event.key];
          if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
          event.preventDefault();
          event.stopPropagation();
          move(free[Math.min(next, free.length - 1)] ?? null);
        }}
        onPointerDown={(event) => {
          isHeld.current = true;
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={({ clientX, clientY }) =>
          isHeld.current && move(chunkUnder(map, starts, clientX, clientY))
        }
        onPointerUp={() => (isHeld.current = false)}
        onPointerCancel={() => (isHeld.current = false)}
      >
        request {formatBytes(requested)}
      </span>
      <p data-testid="request-place" data-holds={String(place?.holds ?? "")} role="status">
        {chunk === null ? <span class="small">Drag over the map.</span> : unbroken(said)}
      </p>
    </div>
  );
}

const REGIONS = 16;

function Chunk({ map, chunk }: { map: MemoryMap; chunk: number | null }) {
  if (chunk === null) {
    return <p class="chunk" />;
  }
  const { title, facts } = chunkFacts(map, chunk);
  return (
    <p class="chunk" data-testid="chunk">
      <strong>{title}</strong> {facts.join(" · ")}
    </p>
  );
}

function Strips({
  map,
  colouring,
  requested,
}: {
  map: MemoryMap;
  colouring: Colouring;
  requested: number | null;
}) {
  const [marked, mark] = useState<number | null>(null);
  const [asked, ask] = useState<number | null>(null);
  const { all } = useChoices();
  const { category } = useChoices();
  const colours = useMemo(
    () => mapColours(map, colouring, category),
    [map, colouring, dark.value, category],
  );
  // The panel of a failure lists its categories.
  const kinds =
    requested === null || colouring !== "category"
      ? colours.kinds
      : colours.kinds.filter(({ name }) => name === "free");
  const starts = useMemo(() => regionStarts(map), [map]);
  const most = map.regions.reduce((largest, { bytes }) => Math.max(largest, bytes), 1);
  const shown = all ? map.regions.length : Math.min(map.regions.length, REGIONS);
  const ghost =
    asked === null || requested === null
      ? null
      : { chunk: asked, bytes: requested, ...requestPlace(map, asked, requested) };
  return (
    <>
      {requested !== null && (
        <RequestChip map={map} requested={requested} starts={starts} chunk={asked} move={ask} />
      )}
      <div class="strips">
        {map.regions.slice(0, shown).map((region, index) => (
          <Strip
            key={region.address}
            map={map}
            colours={colours}
            index={index}
            first={starts[index] ?? 0}
            end={starts[index + 1] ?? 0}
            most={most}
            marked={marked}
            onMark={mark}
            request={ghost !== null && map.region[ghost.chunk] === index ? ghost : null}
          />
        ))}
        <StripAxis most={most} />
      </div>
      {shown < map.regions.length && (
        <Choose class="quiet" these={{ all: true }}>
          Show {plural(map.regions.length - shown, "more region")}
        </Choose>
      )}
      <Chunk map={map} chunk={marked} />
      <ul class="map-legend" aria-label="Legend of the memory map" data-testid="map-legend">
        {kinds.map(({ name, label, meaning, fill, bytes, chunks }) => (
          <li key={name} {...figured(name, bytes, `in ${plural(chunks, "chunk")}`, meaning)}>
            <Swatch fill={fill} />
            {label} <span class="small">{formatBytes(bytes)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function useRequested(place: Place): number | null {
  const store = useStore();
  const failures = store.ooms.value.value;
  return "oom" in place ? (failures?.[place.oom]?.requested_bytes ?? null) : null;
}

const MapAnswers = ({ map }: { map: MemoryMap }) => (
  <div class="map-answers">
    <WouldFit map={map} />
    <Blocking map={map} />
    <Bins map={map} />
  </div>
);

function MapBody({ place, map }: { place: Place; map: MemoryMap }) {
  const { colouring } = useChoices();
  const requested = useRequested(place);
  return (
    <section class="map" data-testid="map" data-chunks={map.rows} aria-label="Memory map">
      <header class="map-head">
        <h2>Memory map</h2>
        <span class="small">
          {"oom" in place ? "" : `at the peak of step ${place.step} · `}
          {plural(map.rows, "chunk")}
        </span>
        <ChoiceSegments of="colouring" named={false} label="colour by" options={COLOURINGS} />
      </header>
      <NoticeList sentences={map.not_available} />
      <Strips map={map} colouring={colouring} requested={requested} />
      {requested === null ? (
        <MapAnswers map={map} />
      ) : (
        <details class="known">
          <summary>Free chunks</summary>
          <MapAnswers map={map} />
        </details>
      )}
    </section>
  );
}

export function MapView({ run, place }: { run: RunInfo; place: Place }) {
  const store = useStore();
  const at = JSON.stringify(place);
  const { value, error } = useFetched(store.fetched.maps, [run, place]);
  if (value) return <MapBody key={`${run.run}${at}`} place={place} map={value} />;
  return error === null ? <Skeleton /> : <Fault sentence={error} />;
}
