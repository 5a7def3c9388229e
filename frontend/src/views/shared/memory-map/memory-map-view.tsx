/** The memory map of a traced step or a failed allocation, and whether the next allocation would fit. */

import { useMemo, useState } from "preact/hooks";

import { formatBytes, plural } from "../../../lib/bytes";
import { COLOURINGS, chunkFacts, regionStarts, requestPlace, type MemoryMap, type Colouring, type Place } from "../../../model/memory-map";
import type { RunInfo } from "../../../model/run";
import { schemeOf, useStore } from "../context";
import { useFetched } from "../fetched";
import { Swatch } from "../figures";
import { Segments } from "../segments";
import { Fault, NoticeList, Skeleton } from "../states";
import { tipOf } from "../tips";
import { Bins, Blocking, WouldFit } from "./answers";
import { mapColours } from "./colours";
import { RequestChip } from "./request-chip";
import { Strip, StripAxis } from "./strip";

/** Regions drawn at first. */
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

interface StripsProps {
  map: MemoryMap;
  colouring: Colouring;
  /** Bytes of the failed request, null without a failure or if they are unknown. */
  requested: number | null;
}

function Strips({ map, colouring, requested }: StripsProps) {
  const store = useStore();
  const scheme = schemeOf(store);
  const [marked, mark] = useState<number | null>(null);
  const [asked, ask] = useState<number | null>(null);
  const { all } = store.choices.value;
  const { category } = store.choices.value;
  const colours = useMemo(() => mapColours(map, colouring, scheme, category), [map, colouring, scheme, category]);
  // The panel of a failure lists its categories.
  const kinds = requested === null || colouring !== "category" ? colours.kinds : colours.kinds.filter(({ name }) => name === "free");
  const starts = useMemo(() => regionStarts(map), [map]);
  const most = map.regions.reduce((largest, { bytes }) => Math.max(largest, bytes), 1);
  const shown = all ? map.regions.length : Math.min(map.regions.length, REGIONS);
  const ghost = asked === null || requested === null ? null : { chunk: asked, bytes: requested, ...requestPlace(map, asked, requested) };
  return (
    <>
      {requested !== null && <RequestChip map={map} requested={requested} starts={starts} chunk={asked} move={ask} />}
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
        <button type="button" class="quiet" onClick={() => store.choose({ all: true })}>
          Show {plural(map.regions.length - shown, "more region")}
        </button>
      )}
      <Chunk map={map} chunk={marked} />
      <ul class="map-legend" aria-label="Legend of the memory map" data-testid="map-legend">
        {kinds.map(({ name, label, meaning, fill, bytes, chunks }) => (
          <li key={name} data-figure={name} data-bytes={bytes} data-tip={tipOf(bytes, `in ${plural(chunks, "chunk")}`, meaning)}>
            <Swatch fill={fill} />
            {label} <span class="small">{formatBytes(bytes)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Bytes of the failure's request. */
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
  const store = useStore();
  const { colouring } = store.choices.value;
  const requested = useRequested(place);
  return (
    <section class="map" data-testid="map" data-chunks={map.rows} aria-label="Memory map">
      <header class="map-head">
        <h2>Memory map</h2>
        <span class="small">
          {"oom" in place ? "" : `at the peak of step ${place.step} · `}
          {plural(map.rows, "chunk")}
        </span>
        <Segments
          named={false}
          label="colour by"
          options={COLOURINGS}
          chosen={colouring}
          choose={(chosen) => store.choose({ colouring: chosen })}
        />
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
  return error === null ? <Skeleton /> : <Fault sentence={error} retry={() => void store.reload()} />;
}
