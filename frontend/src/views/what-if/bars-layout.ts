/** Where the stacked bars of the measured and the predicted peak stand. Pure. */

import { byteRange } from "../../charts/axis";
import { groupKey, type Group } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import type { WhatIf } from "../../model/what-if";

interface Segment {
  key: string;
  group: Group;
  bytes: number;
  /** Levels of its lower and upper edge, in bytes. */
  low: number;
  high: number;
}

export interface StackedBar {
  name: "measured" | "predicted";
  /** The figure at its foot. */
  bytes: number | null;
  segments: Segment[];
}

interface BarsLayout {
  bars: StackedBar[];
  /** Upper end of the axis in bytes. */
  top: number;
  capacityInside: boolean;
}

function stacked(deltas: readonly GroupDelta[], bytesOf: (delta: GroupDelta) => number): Segment[] {
  let level = 0;
  return deltas.flatMap((delta) => {
    const bytes = bytesOf(delta);
    const low = level;
    level += bytes;
    return bytes > 0 ? [{ key: groupKey(delta.group), group: delta.group, bytes, low, high: level }] : [];
  });
}

export function barsLayout(answer: WhatIf, deltas: readonly GroupDelta[]): BarsLayout {
  const { measured, peak_bytes, high_bytes, capacity_bytes } = answer;
  const bars: StackedBar[] = [
    ...(measured
      ? [
          {
            name: "measured" as const,
            bytes: measured.in_use_bytes,
            segments: stacked(deltas, ({ from }) => from),
          },
        ]
      : []),
    { name: "predicted", bytes: peak_bytes, segments: stacked(deltas, ({ to }) => to) },
  ];
  const heights = bars.map(({ segments }) => segments.at(-1)?.high ?? 0);
  const { max, capacityInside } = byteRange(Math.max(high_bytes ?? 0, ...heights), capacity_bytes);
  return { bars, top: max, capacityInside };
}
