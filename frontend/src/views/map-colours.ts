/** What the chunks of a map are painted as: by category, by layer or by age. Pure. */

import type { BandFill } from "../charts/paint";
import { CATEGORIES, groupKey, groupLabel, type Group } from "../model/categories";
import { largestLayers, ownerOf, stateOf, type AllocatorMap, type Colouring } from "../model/allocator-map";
import { distinctNames } from "../model/names";
import { at } from "../model/overview";
import { INKS, LAYERS_TOLD_APART, ageColour, fillOf, layerColour, type Scheme } from "../theme/palette";

export interface Kind {
  name: string;
  label: string;
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

type Name = (map: AllocatorMap, chunk: number) => { name: string; label: string; fill: Omit<BandFill, "muted">; order: number };

function byCategory(scheme: Scheme): Name {
  return (map, chunk) => {
    const owner = ownerOf(map, chunk);
    if (!owner) return notSeen(scheme);
    const group: Group = { category: owner.category, trainable: owner.category === "weights" ? owner.trainable : null };
    const order = 2 * CATEGORIES.indexOf(group.category) + Number(group.trainable === true);
    return { name: groupKey(group), label: groupLabel(group), fill: fillOf(group.category, group.trainable, scheme), order };
  };
}

const notSeen = (scheme: Scheme): ReturnType<Name> => ({
  name: "not_seen",
  label: "in use, owner not seen",
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

export function mapColours(map: AllocatorMap, colouring: Colouring, scheme: Scheme): MapColours {
  const naming = colouring === "category" ? byCategory(scheme) : colouring === "layer" ? byLayer(map, scheme) : byAge(map, scheme);
  const found = new Map<string, Kind & { order: number; index: number }>();
  const key = new Uint16Array(map.rows);
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    const state = stateOf(map, chunk);
    const named =
      state === "in_use"
        ? naming(map, chunk)
        : state === "free"
          ? { name: "free", label: "free", fill: { colour: INKS[scheme].idle, pattern: "plain" as const }, order: 950 }
          : { name: "unknown", label: "not known", fill: { colour: INKS[scheme].idle, pattern: "hatched" as const }, order: 960 };
    const kind = found.get(named.name) ?? { ...named, fill: { ...named.fill, muted: false }, bytes: 0, chunks: 0, index: found.size };
    kind.bytes += map.bytes[chunk] ?? 0;
    kind.chunks += 1;
    found.set(named.name, kind);
    key[chunk] = kind.index;
  }
  const kinds = [...found.values()].sort((a, b) => a.order - b.order);
  const places = new Map(kinds.map(({ index }, place) => [index, place]));
  return { key: key.map((index) => places.get(index) ?? 0), kinds };
}
