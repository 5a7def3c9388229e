/** The parts of a step's memory, by category or by layer: labels and fills. Pure. */

import type { BandFill } from "../../charts/paint";
import { groupKey, groupLabel } from "../../model/categories";
import type { ChunkOwner } from "../../model/memory-map";
import { NOT_TIED, namesOf } from "../../model/run";
import { groupOfOwner, groupSeries, layerSeries, type Series, type Timeline } from "../../model/timeline";
import type { Choices, StackName } from "../../state/address";
import { INKS, LAYERS_TOLD_APART, fillOf, layerColour, type Scheme } from "../../theme/palette";
import { isMuted, type Focus } from "../shared/focus";

/** Parts of the figures, of the stack, and of the colors of tensors. */
type Parting = Exclude<StackName, "tensor">;

export const partingOf = ({ stack, tensorColouring }: Pick<Choices, "stack" | "tensorColouring">): Parting =>
  stack === "tensor" ? tensorColouring : stack;

export interface Parts {
  series: readonly Series[];
  labels: readonly string[];
}

export function stepParts(timeline: Timeline, stack: Parting): Parts {
  const series = stack === "category" ? groupSeries(timeline) : layerSeries(timeline, LAYERS_TOLD_APART);
  const names = namesOf(series.flatMap(({ layer }) => layer ?? []));
  const labels = series.map(({ key, group, layer }) =>
    group ? groupLabel(group) : layer !== null ? (names.get(layer) ?? layer) : key === "others" ? "other layers" : NOT_TIED,
  );
  return { series, labels };
}

/** The highlighted part of a stack: in a stack of layers, the selected layer. */
export function stepFocus(series: readonly Series[], focus: Focus, layer: string | null): Focus {
  if (series.some(({ group }) => group !== null)) return focus;
  const selected = series.find((part) => layer !== null && part.layer === layer)?.key ?? null;
  return { hovered: focus.hovered ?? selected, category: null };
}

/** Fills of the parts; while one is highlighted, the others are paler. */
export function stepFills(series: readonly Series[], focus: Focus, scheme: Scheme): BandFill[] {
  return series.map(({ key, group, layer }, place) => {
    const muted = isMuted(focus, [key], group?.category ?? null);
    if (group) return { ...fillOf(group.category, group.trainable, scheme), muted };
    if (layer !== null) return { colour: layerColour(place, scheme), pattern: "plain", muted };
    return { colour: INKS[scheme].faint, pattern: key === "others" ? "plain" : "diagonal", muted };
  });
}

/** The key of the part that an owner's memory belongs to. */
export function partOf(series: readonly Series[], { layer, category, trainable }: ChunkOwner): string {
  if (series.some(({ group }) => group !== null)) return groupKey(groupOfOwner({ category, trainable }));
  if (layer === null) return "no_layer";
  return series.some((part) => part.layer === layer) ? `layer:${layer}` : "others";
}
