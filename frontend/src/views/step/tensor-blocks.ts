/** The tensors of a step as blocks of its chart, and their colors. Pure. */

import type { BlockFills } from "../../charts/timeline-block-paint";
import { placedBlocks, stackedBlocks, type Blocks } from "../../charts/timeline-blocks";
import type { Series, Timeline } from "../../model/timeline";
import { addressPlaces, stackOrder, type AddressPlaces } from "../../model/timeline-order";
import type { Placement } from "../../state/address";
import { INKS, type Scheme } from "../../theme/palette";
import type { Focus } from "../shared/focus";
import { partOf, stepFills } from "./step-parts";

export interface TensorBlocks {
  blocks: Blocks;
  /** Null if the tensors are stacked. */
  addresses: AddressPlaces | null;
}

export const hasAddresses = ({ address }: Timeline): boolean => address.some((value) => !Number.isNaN(value));

/** The tensors at their addresses, if wanted and known, else stacked. */
export function tensorBlocks(timeline: Timeline, placement: Placement): TensorBlocks {
  const addresses = placement === "by address" ? addressPlaces(timeline) : null;
  const blocks = addresses
    ? placedBlocks(timeline, addresses.place, timeline.moments)
    : stackedBlocks(timeline, stackOrder(timeline), timeline.moments);
  return { blocks, addresses };
}

/**
 * Fills of the rows. With a category, a layer or a part highlighted, all other rows are paler: the first half of the fills is that of the
 * parts, the second half the same paler.
 */
export function tensorFills(timeline: Timeline, series: readonly Series[], focus: Focus, layer: string | null, scheme: Scheme): BlockFills {
  const own = stepFills(series, { hovered: null, category: null }, scheme);
  const places = new Map(series.map(({ key }, index) => [key, index]));
  const ofOwner = timeline.owners.map((owner) => {
    const key = partOf(series, owner);
    const muted =
      focus.hovered !== null
        ? focus.hovered !== key
        : (focus.category !== null && focus.category !== owner.category) || (layer !== null && layer !== owner.layer);
    return (places.get(key) ?? 0) + (muted ? series.length : 0);
  });
  const unknown = places.get("unattributed") ?? places.get("no_layer") ?? 0;
  const styles = Uint8Array.from(timeline.owner, (owner) => ofOwner[owner] ?? unknown);
  const fills = [...own, ...own.map((fill) => ({ ...fill, muted: true }))];
  return { fills, styles, ground: INKS[scheme].background };
}
