/** What the chunks of a map are painted as: by category, by layer or by age. Pure. */

import type { BandFill } from "../charts/paint";
import { CATEGORIES, categoryMeaning, groupKey, groupLabel, type Category, type Group } from "../model/categories";
import { largestLayers, ownerOf, stateOf, type AllocatorMap, type Colouring } from "../model/allocator-map";
import { distinctNames } from "../model/names";
import { at } from "../model/overview";
import { INKS, LAYERS_TOLD_APART, ageColour, fillOf, layerColour, type Scheme } from "../theme/palette";

export interface Kind {
  name: string;
  label: string;
  /** What it is, in a sentence; empty where the label says it. */
  meaning: string;
  fill: BandFill;
  bytes: number;
  chunks: number;
}

export interface MapColours {
  /** Index into `kinds` of each chunk. */
  key: Uint16Array;
  kinds: Kind[];
}

const AGES = 6;

type Name = (map: AllocatorMap, chunk: number) => Named;

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
    const owner = ownerOf(map, chunk);
    if (!owner) return notSeen(scheme);
    const group: Group = { category: owner.category, trainable: owner.category === "weights" ? owner.trainable : null };
    const order = 2 * CATEGORIES.indexOf(group.category) + Number(group.trainable === true);
    const { category } = group;
    const fill = fillOf(category, group.trainable, scheme);
    return { name: groupKey(group), label: groupLabel(group), meaning: categoryMeaning(category), category, fill, order };
  };
}

const notSeen = (scheme: Scheme): Named => ({
  name: "not_seen",
  label: "in use, owner not seen",
  meaning: "handed out to tensors; no trace saw by whom",
  fill: fillOf("unattributed", null, scheme),
  order: 900,
});

function byLayer(map: AllocatorMap, scheme: Scheme): Name {
  const layers = largestLayers(map, LAYERS_TOLD_APART);
  const names = distinctNames(layers);
  return (_, chunk) => {
    const owner = ownerOf(map, chunk);
    if (!owner) return notSeen(scheme);
    const place = owner.layer === null ? -1 : layers.indexOf(owner.layer);
    if (place >= 0) {
      return {
        name: `layer:${layers[place]}`,
        label: names[place] ?? "",
        fill: { colour: layerColour(place, scheme), pattern: "plain" },
        order: place,
      };
    }
    const [name, label, order] = owner.layer === null ? ["no_layer", "of no layer", 801] : ["others", "other layers", 800];
    return { name, label, fill: { colour: INKS[scheme].faint, pattern: owner.layer === null ? "diagonal" : "plain" }, order };
  };
}

function byAge(map: AllocatorMap, scheme: Scheme): Name {
  const known = [...new Set(map.since.filter((step) => !Number.isNaN(step)))].sort((a, b) => a - b);
  return (_, chunk) => {
    const since = at(map.since, chunk);
    if (since === null) return { ...notSeen(scheme), name: "no_age", label: "in use, age not known" };
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
  const colour = INKS[scheme].idle;
  return state === "free"
    ? { name: "free", label: "free", meaning: "of the pool, not in use", fill: { colour, pattern: "plain" }, order: 950 }
    : { name: "unknown", label: "not known", meaning: "no traced step touched it", fill: { colour, pattern: "hatched" }, order: 960 };
}

/** `selected`: the category whose chunks stay as they are while the others are paler. */
export function mapColours(map: AllocatorMap, colouring: Colouring, scheme: Scheme, selected: Category | null = null): MapColours {
  const naming = colouring === "category" ? byCategory(scheme) : colouring === "layer" ? byLayer(map, scheme) : byAge(map, scheme);
  const mutes = colouring === "category" && selected !== null;
  const found = new Map<string, Kind & { order: number; index: number }>();
  const key = new Uint16Array(map.rows);
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    const state = stateOf(map, chunk);
    const { name, label, meaning = "", category, fill, order } = state === "in_use" ? naming(map, chunk) : ofNoOne(state, scheme);
    const muted = mutes && state === "in_use" && category !== selected;
    const kind = found.get(name) ?? { name, label, meaning, fill: { ...fill, muted }, order, bytes: 0, chunks: 0, index: found.size };
    kind.bytes += map.bytes[chunk] ?? 0;
    kind.chunks += 1;
    found.set(name, kind);
    key[chunk] = kind.index;
  }
  const kinds = [...found.values()].sort((a, b) => a.order - b.order);
  const places = new Map(kinds.map(({ index }, place) => [index, place]));
  return { key: key.map((index) => places.get(index) ?? 0), kinds };
}
