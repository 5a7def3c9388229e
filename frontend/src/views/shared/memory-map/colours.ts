/** Colours of the chunks of a memory map, by category, layer or age. Pure. */

import type { BandFill } from "../../../charts/paint";
import { categoryLabel, categoryMeaning, groupKey, groupLabel, stackOrder } from "../../../model/categories";
import { largestLayers, ownerOf, stateOf, type MemoryMap, type Colouring } from "../../../model/memory-map";
import { at } from "../../../model/overview";
import { NOT_TIED, distinctNames } from "../../../model/run";
import { INKS, LAYERS_TOLD_APART, ageColour, fillOf, freeFill, layerColour, type Scheme } from "../../../theme/palette";
import type { Category, Group } from "../../../schema";

interface Kind {
  name: string;
  label: string;
  meaning: string;
  fill: BandFill;
  bytes: number;
  chunks: number;
}

export interface MapColours {
  key: Uint16Array;
  kinds: Kind[];
}

const AGES = 6;

type Name = (map: MemoryMap, chunk: number) => Named;

interface Named {
  name: string;
  label: string;
  meaning?: string;
  /** Of the chunk, where chunks are coloured by it. */
  category?: Category;
  fill: Omit<BandFill, "muted">;
  order: number;
}

function byCategory(scheme: Scheme): Name {
  return (map, chunk) => {
    // Chunks without a known owner are the ledger's category "unattributed".
    const { category: its, trainable } = ownerOf(map, chunk) ?? { category: "unattributed" as const, trainable: null };
    const group: Group = { category: its, trainable: its === "weights" ? trainable : null };
    const order = stackOrder(group);
    const { category } = group;
    const fill = fillOf(category, group.trainable, scheme);
    return { name: groupKey(group), label: groupLabel(group), meaning: categoryMeaning(category), category, fill, order };
  };
}

const ownerUnknown = (scheme: Scheme): Named => ({
  name: "owner_unknown",
  label: "owner unknown",
  meaning: "in use; no trace shows the owner",
  fill: fillOf("unattributed", null, scheme),
  order: 900,
});

function byLayer(map: MemoryMap, scheme: Scheme): Name {
  const layers = largestLayers(map, LAYERS_TOLD_APART);
  const names = distinctNames(layers);
  return (_, chunk) => {
    const owner = ownerOf(map, chunk);
    if (!owner) return ownerUnknown(scheme);
    const place = owner.layer === null ? -1 : layers.indexOf(owner.layer);
    if (place >= 0) {
      return {
        name: `layer:${layers[place]}`,
        label: names[place] ?? "",
        fill: { colour: layerColour(place, scheme), pattern: "plain" },
        order: place,
      };
    }
    const [name, label, order] = owner.layer === null ? ["no_layer", NOT_TIED, 801] : ["others", "other layers", 800];
    return { name, label, fill: { colour: INKS[scheme].faint, pattern: owner.layer === null ? "diagonal" : "plain" }, order };
  };
}

function byAge(map: MemoryMap, scheme: Scheme): Name {
  const known = [...new Set(map.since.filter((step) => !Number.isNaN(step)))].sort((a, b) => a - b);
  return (_, chunk) => {
    const since = at(map.since, chunk);
    if (since === null) return { ...ownerUnknown(scheme), name: "no_age", label: "age unknown" };
    const place = known.length < 2 ? 0 : Math.floor((known.indexOf(since) / known.length) * AGES);
    const first = known[Math.ceil((place * known.length) / AGES)] ?? since;
    const last = known[Math.ceil(((place + 1) * known.length) / AGES) - 1] ?? since;
    const steps = known.length < 2 || first >= last ? `step ${first}` : `steps ${first} to ${last}`;
    return {
      name: `age:${place}`,
      label: `since ${steps}`,
      fill: { colour: ageColour(place / (AGES - 1), scheme), pattern: "plain" },
      order: place,
    };
  };
}

function ofNoOne(state: "free" | "unknown", scheme: Scheme): Named {
  const fill = freeFill("free", scheme);
  return state === "free"
    ? { name: "free", label: "free", meaning: "free chunks of the pool", fill, order: 950 }
    : { name: "unknown", label: "unknown", meaning: "no traced step touched it", fill: { ...fill, pattern: "hatched" }, order: 960 };
}

const roundingOf = (map: MemoryMap, chunk: number): number => {
  const requested = at(map.requested_bytes, chunk);
  return requested === null ? 0 : Math.max((map.bytes[chunk] ?? 0) - requested, 0);
};

/** By category, bytes are those of ledgers: rounding is a kind of its own, without chunks of its own. */
const roundingKind = (scheme: Scheme, muted: boolean): Omit<Kind, "bytes" | "chunks"> & { order: number } => ({
  name: "rounding",
  label: categoryLabel("rounding"),
  meaning: `${categoryMeaning("rounding")}; part of the chunks of other categories`,
  fill: { ...fillOf("rounding", null, scheme), muted },
  order: stackOrder({ category: "rounding", trainable: null }),
});

/** `selected`: the category that is highlighted while the others are paler. */
export function mapColours(map: MemoryMap, colouring: Colouring, scheme: Scheme, selected: Category | null = null): MapColours {
  const naming = colouring === "category" ? byCategory(scheme) : colouring === "layer" ? byLayer(map, scheme) : byAge(map, scheme);
  const mutes = colouring === "category" && selected !== null;
  const found = new Map<string, Kind & { order: number; index: number }>();
  const key = new Uint16Array(map.rows);
  const rounded = { bytes: 0, chunks: 0 };
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    const state = stateOf(map, chunk);
    const { name, label, meaning = "", category, fill, order } = state === "in_use" ? naming(map, chunk) : ofNoOne(state, scheme);
    const rounding = colouring === "category" && state === "in_use" ? roundingOf(map, chunk) : 0;
    const muted = mutes && state === "in_use" && category !== selected;
    const kind = found.get(name) ?? { name, label, meaning, fill: { ...fill, muted }, order, bytes: 0, chunks: 0, index: found.size };
    kind.bytes += (map.bytes[chunk] ?? 0) - rounding;
    rounded.bytes += rounding;
    rounded.chunks += Number(rounding > 0);
    kind.chunks += 1;
    found.set(name, kind);
    key[chunk] = kind.index;
  }
  if (rounded.bytes > 0)
    found.set("rounding", { ...roundingKind(scheme, mutes && selected !== "rounding"), ...rounded, index: found.size });
  const kinds = [...found.values()].sort((a, b) => a.order - b.order);
  const places = new Map(kinds.map(({ index }, place) => [index, place]));
  return { key: key.map((index) => places.get(index) ?? 0), kinds };
}
