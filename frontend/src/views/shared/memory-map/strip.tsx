/** The strips of a memory map and the colours of its chunks, by category, layer or age. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { byteTicks, type Range } from "../../../charts/axis";
import {
  chunkAt,
  clamped,
  dragged,
  panned,
  stripCells,
  zoomed,
  paintStrip,
} from "../../../charts/map-layout";
import type { BandFill } from "../../../charts/paint";
import { touch } from "../../../lib/activity";
import { formatBytes } from "../../../lib/bytes";
import { clamp } from "../../../lib/search";
import {
  categoryMeaning,
  groupKey,
  groupLabel,
  groupOfOwner,
  stackOrder,
} from "../../../model/categories";
import {
  chunkFacts,
  type MemoryMap,
  largestLayers,
  ownerOf,
  stateOf,
  type Colouring,
} from "../../../model/memory-map";
import { at } from "../../../model/overview";
import { NOT_TIED, distinctNames } from "../../../model/run";
import {
  fillOf,
  categoryFill,
  inks,
  freeFill,
  layerColour,
  LAYERS_TOLD_APART,
  ageColour,
  plainFill,
} from "../../../theme/palette";
import { useStore, useSize, useChoices } from "../context";
import { actOnKey, zoomKeys } from "../controls";
import type { Category, Group } from "../../../schema";

interface StripProps {
  map: MemoryMap;
  colours: MapColours;
  index: number;
  first: number;
  end: number;
  most: number;
  marked: number | null;
  onMark: (chunk: number | null) => void;
  request: { chunk: number; bytes: number; holds: boolean | null } | null;
}

function useView({ map, index, first, end, marked }: StripProps) {
  const region = map.regions[index] ?? { address: 0, bytes: 1 };
  const whole: Range = [region.address, region.address + region.bytes];
  const store = useStore();
  const { mapZooms } = useChoices();
  const isHere = ([from]: Range): boolean => from >= whole[0] && from < whole[1];
  const chosen = mapZooms.find(isHere) ?? null;
  const view = chosen === null ? whole : clamped(chosen, whole);
  const choose = (next: Range | null) => {
    const others = store.choices.peek().mapZooms.filter((zoom) => !isHere(zoom));
    store.choose({
      mapZooms: next === null ? others : [...others, [Math.round(next[0]), Math.round(next[1])]],
    });
  };
  return {
    view,
    /** The marked chunk, if it is in this region. */
    own: marked !== null && marked >= first && marked < end ? marked : null,
    isZoomed: chosen !== null,
    /** The region over the full width: as if zoomed, but all of it. */
    widen: (): void => choose(whole),
    zoom: (around: number, factor: number) => {
      const next = zoomed(view, whole, around, factor);
      choose(next[1] - next[0] >= whole[1] - whole[0] ? null : next);
    },
    pan: (share: number): void => choose(panned(view, whole, share)),
    show: (from: number, to: number): void => choose(clamped([from, to], whole)),
    reset: (): void => choose(null),
    chunkAt: (address: number): number => clamp(chunkAt(map, first, end, address), first, end - 1),
  };
}

type View = ReturnType<typeof useView>;

function useStripKeys({ map, first, end, onMark }: StripProps, view: View) {
  return (event: KeyboardEvent) => {
    const { own } = view;
    const now = own ?? view.chunkAt(view.view[0]);
    const middleOf = (chunk: number): number =>
      (map.address[chunk] ?? 0) + (map.bytes[chunk] ?? 0) / 2;
    const move = (chunk: number) => {
      const next = clamp(chunk, first, end - 1);
      onMark(next);
      const [from, to] = view.view;
      const middle = middleOf(next);
      if (middle < from || middle > to)
        view.show(middle - (to - from) / 2, middle + (to - from) / 2);
    };
    const stride = event.shiftKey ? 10 : 1;
    const [address, bytes] = [map.address[now] ?? 0, map.bytes[now] ?? 0];
    actOnKey(event, {
      ArrowLeft: () => move(own === null ? now : now - stride),
      ArrowRight: () => move(own === null ? now : now + stride),
      Home: () => move(first),
      End: () => move(end - 1),
      Enter: () => view.show(address - bytes / 8, address + (9 * bytes) / 8),
      ...zoomKeys((factor) => view.zoom(middleOf(now), factor), view.pan, view.reset),
    });
  };
}

/**
 * Hover marks a chunk, a drag zooms, double-click shows all; the wheel zooms only with Ctrl,
 * because the page scrolls too.
 */
function useStripPointer(props: StripProps, view: View) {
  const [drag, setDrag] = useState<Range | null>(null);
  const address = (event: MouseEvent): number => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return view.view[0] + ((event.clientX - box.left) / box.width) * (view.view[1] - view.view[0]);
  };
  return {
    drag,
    events: {
      onPointerDown: (event: PointerEvent): void => setDrag([address(event), address(event)]),
      onPointerMove: (event: PointerEvent) => {
        props.onMark(view.chunkAt(address(event)));
        if (drag) setDrag([drag[0], address(event)]);
      },
      onPointerUp: (event: PointerEvent) => {
        if (!drag) return;
        setDrag(null);
        const marked = dragged(drag[0], address(event), view.view);
        if (marked) view.show(...marked);
      },
      onPointerLeave: () => {
        setDrag(null);
        props.onMark(null);
      },
      onDblClick: view.reset,
      onWheel: (event: WheelEvent) => {
        if (!event.ctrlKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
        event.preventDefault();
        if (event.ctrlKey) view.zoom(address(event), event.deltaY > 0 ? 1.25 : 0.8);
        else view.pan(event.deltaX / 600);
      },
    },
  };
}

interface OverlaysProps {
  map: MemoryMap;
  request: StripProps["request"];
  view: Range;
  drag: Range | null;
}

function Overlays({ map, request, view: [from, to], drag }: OverlaysProps) {
  const place = (address: number): string => `${((address - from) / (to - from)) * 100}%`;
  return (
    <>
      {request && (
        <i
          class={`strip-request ${request.holds === true ? "holds" : "fails"}`}
          style={{
            left: place(map.address[request.chunk] ?? 0),
            width: `${(100 * request.bytes) / (to - from)}%`,
          }}
          aria-hidden="true"
        />
      )}
      {drag && (
        <i
          class="strip-drag"
          style={{
            left: place(Math.min(...drag)),
            right: `calc(100% - ${place(Math.max(...drag))})`,
          }}
          aria-hidden="true"
        />
      )}
    </>
  );
}

function StripLabel({ index, bytes, view }: { index: number; bytes: number; view: View }) {
  const { isZoomed } = view;
  return (
    <span class="strip-label">
      <button
        type="button"
        class="quiet"
        aria-pressed={isZoomed}
        title={`Region ${index + 1}: show at ${isZoomed ? "the scale of all regions" : "full width"}`}
        aria-label={`region ${index + 1}, ${formatBytes(bytes)}`}
        onClick={isZoomed ? view.reset : view.widen}
      >
        {formatBytes(bytes)}
      </button>
      <span class="small">{isZoomed && `${formatBytes(view.view[1] - view.view[0])} shown`}</span>
    </span>
  );
}

export function Strip(props: StripProps) {
  const { map, colours, index, first, end, most, request } = props;
  const ink = inks();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { host, width } = useSize();
  const view = useView(props);
  const pointer = useStripPointer(props, view);
  const ratio = window.devicePixelRatio || 1;
  const chunks = useMemo(
    () => ({ address: map.address, bytes: map.bytes, key: colours.key }),
    [map, colours],
  );
  const cells = useMemo(
    () => stripCells(chunks, first, end, view.view, Math.max(Math.round(width * ratio), 1)),
    [chunks, first, end, view.view[0], view.view[1], width],
  );
  const { own } = view;
  useLayoutEffect(() => {
    if (!canvas.current || width === 0) return;
    const fills = colours.kinds.map(({ fill }) => fill);
    paintStrip(canvas.current, cells, fills, own, {
      ground: ink.background,
      text: ink.text,
      focus: ink.accent,
    });
    touch();
  }, [cells, colours, own, ink, width]);
  const bytes = map.regions[index]?.bytes ?? 0;
  const facts = own === null ? null : chunkFacts(map, own);
  return (
    <div class="strip">
      <StripLabel index={index} bytes={bytes} view={view} />
      <div
        ref={host}
        class={view.isZoomed ? "strip-plot zoomed" : "strip-plot"}
        style={view.isZoomed ? {} : { width: `${(100 * bytes) / most}%` }}
        data-region={index}
        data-begin={view.view[0]}
        data-end={view.view[1]}
        role="slider"
        tabIndex={0}
        aria-label={`Region ${index + 1}, ${formatBytes(bytes)}, ${end - first} chunks`}
        aria-valuemin={0}
        aria-valuemax={Math.max(end - first - 1, 0)}
        aria-valuenow={own === null ? 0 : own - first}
        aria-valuetext={facts ? [facts.title, ...facts.facts].join(", ") : "no chunk selected"}
        onKeyDown={useStripKeys(props, view)}
        onBlur={() => props.onMark(null)}
        {...pointer.events}
      >
        <canvas
          ref={canvas}
          width={Math.max(Math.round(width * ratio), 1)}
          height={Math.round(30 * ratio)}
        />
        <Overlays map={map} request={request} view={view.view} drag={pointer.drag} />
      </div>
    </div>
  );
}

export function StripAxis({ most }: { most: number }) {
  const { host, width } = useSize();
  const { values, labels } = byteTicks(most, Math.max(width / 220, 1));
  return (
    <div class="strip strip-axis" aria-hidden="true">
      <span />
      <div ref={host} data-testid="strip-axis">
        {values.map((value, index) => (
          <span
            key={value}
            class={value > 0.93 * most ? "last" : ""}
            data-tick={value}
            style={{ left: `${(100 * value) / most}%` }}
          >
            {labels[index]}
          </span>
        ))}
      </div>
    </div>
  );
}

/** What chunks of one colour have in common. */
interface Kind {
  name: string;
  label: string;
  meaning?: string;
  category?: Category;
  fill: BandFill;
  order: number;
}

export type MapColours = ReturnType<typeof mapColours>;

const AGES = 6;

type Naming = (map: MemoryMap, chunk: number) => Kind;

const ofGroup = (group: Group): Kind => ({
  name: groupKey(group),
  label: groupLabel(group),
  meaning: categoryMeaning(group.category),
  category: group.category,
  fill: fillOf(group),
  order: stackOrder(group),
});

const byCategory: Naming = (map, chunk) =>
  // Chunks without a known owner are the ledger's category "unattributed".
  ofGroup(groupOfOwner(ownerOf(map, chunk) ?? { category: "unattributed", trainable: null }));

const ownerUnknown = (): Kind => ({
  name: "owner_unknown",
  label: "owner unknown",
  meaning: "in use; no trace shows the owner",
  fill: categoryFill("unattributed"),
  order: 900,
});

function byLayer(map: MemoryMap): Naming {
  const layers = largestLayers(map, LAYERS_TOLD_APART);
  const names = distinctNames(layers);
  return (_, chunk) => {
    const owner = ownerOf(map, chunk);
    if (!owner) return ownerUnknown();
    const place = owner.layer === null ? -1 : layers.indexOf(owner.layer);
    if (place >= 0) {
      return {
        name: `layer:${layers[place]}`,
        label: names[place] ?? "",
        fill: plainFill(layerColour(place)),
        order: place,
      };
    }
    const [name, label, order] =
      owner.layer === null ? ["no_layer", NOT_TIED, 801] : ["others", "other layers", 800];
    return {
      name,
      label,
      fill: { colour: inks().faint, pattern: owner.layer === null ? "diagonal" : "plain" },
      order,
    };
  };
}

function byAge(map: MemoryMap): Naming {
  const known = [...new Set(map.since.filter((step) => !Number.isNaN(step)))].sort((a, b) => a - b);
  return (_, chunk) => {
    const since = at(map.since, chunk);
    if (since === null) return { ...ownerUnknown(), name: "no_age", label: "age unknown" };
    const place = known.length < 2 ? 0 : Math.floor((known.indexOf(since) / known.length) * AGES);
    const first = known[Math.ceil((place * known.length) / AGES)] ?? since;
    const last = known[Math.ceil(((place + 1) * known.length) / AGES) - 1] ?? since;
    const steps = known.length < 2 || first >= last ? `step ${first}` : `steps ${first} to ${last}`;
    return {
      name: `age:${place}`,
      label: `since ${steps}`,
      fill: plainFill(ageColour(place / (AGES - 1))),
      order: place,
    };
  };
}

function ofNoOne(state: "free" | "unknown"): Kind {
  const fill = freeFill("free");
  return state === "free"
    ? { name: "free", label: "free", meaning: "free chunks of the pool", fill, order: 950 }
    : {
        name: "unknown",
        label: "unknown",
        meaning: "no traced step touched it",
        fill: { ...fill, pattern: "hatched" },
        order: 960,
      };
}

const roundingOf = (map: MemoryMap, chunk: number): number => {
  const requested = at(map.requested_bytes, chunk);
  return requested === null ? 0 : Math.max((map.bytes[chunk] ?? 0) - requested, 0);
};

/**
 * The colour of each chunk, by its index in `kinds`. By category, bytes are those of ledgers:
 * rounding is a kind of its own, a part of the chunks of others.
 */
export function mapColours(map: MemoryMap, colouring: Colouring, selected: Category | null = null) {
  const ofCategories = colouring === "category";
  const naming = ofCategories ? byCategory : colouring === "layer" ? byLayer(map) : byAge(map);
  const found = new Map<string, Kind & { bytes: number; chunks: number; index: number }>();
  const counted = (kind: Kind, bytes: number): number => {
    const { name, category } = kind;
    const muted =
      ofCategories && selected !== null && category !== undefined && category !== selected;
    const fill = { ...kind.fill, muted };
    const one = found.get(name) ?? { ...kind, fill, bytes: 0, chunks: 0, index: found.size };
    one.bytes += bytes;
    one.chunks += 1;
    found.set(name, one);
    return one.index;
  };
  const rounded = ofGroup({ category: "rounding", trainable: null });
  const meaning = `${rounded.meaning}; part of the chunks of other categories`;
  const key = Uint16Array.from(map.bytes, (bytes, chunk) => {
    const state = stateOf(map, chunk);
    if (state !== "in_use") return counted(ofNoOne(state), bytes);
    const rounding = ofCategories ? roundingOf(map, chunk) : 0;
    if (rounding > 0) counted({ ...rounded, meaning }, rounding);
    return counted(naming(map, chunk), bytes - rounding);
  });
  const kinds = [...found.values()].sort((a, b) => a.order - b.order);
  const places = new Map(kinds.map(({ index }, place) => [index, place]));
  return { key: key.map((index) => places.get(index) ?? 0), kinds };
}
