/** Details of a traced step: tensors that Python keeps alive, and the result of the replay. */

import { formatBytes, formatCount } from "../lib/bytes";
import type { HeldTensorGroup, Replay } from "./snapshot";

export const MAX_GROUPS = 8;

interface HeldTensors {
  /** Largest first, at most `MAX_GROUPS`. */
  groups: HeldTensorGroup[];
  /** "and 3 more, 1.2 MiB"; null if all groups are shown. */
  more: string | null;
}

export function heldTensors(groups: readonly HeldTensorGroup[]): HeldTensors {
  const ordered = [...groups].sort((a, b) => b.bytes - a.bytes);
  const rest = ordered.slice(MAX_GROUPS);
  const bytes = rest.reduce((sum, group) => sum + group.bytes, 0);
  return {
    groups: ordered.slice(0, MAX_GROUPS),
    more: rest.length > 0 ? `and ${formatCount(rest.length)} more, ${formatBytes(bytes)}` : null,
  };
}

/** What holds the tensors of a shape: the path to them, or the holder; null if unknown or if there are several. */
export function holderOf(groups: readonly HeldTensorGroup[], { shape, dtype }: Pick<HeldTensorGroup, "shape" | "dtype">): string | null {
  const [group, ...others] = groups.filter((one) => one.dtype === dtype && sizesText(one.shape) === sizesText(shape));
  return group && others.length === 0 ? (group.retaining_path ?? group.held_by) : null;
}

/** "(32, 10)"; "()" for a scalar. */
export const sizesText = (shape: readonly number[]): string => `(${shape.join(", ")})`;

/** "replay: 3,080 of 3,080 addresses, 659 of 659 chunks". */
export function replayText({ addresses, of_addresses, chunks, of_chunks }: Replay): string {
  const [placed, allocations, same, all] = [addresses, of_addresses, chunks, of_chunks].map(formatCount);
  return `replay: ${placed} of ${allocations} addresses, ${same} of ${all} chunks`;
}
