/** The devices' stacked bars on one common scale. Pure. */

import { byteRange } from "../../charts/axis";
import { groupKey, type Group } from "../../model/categories";
import { stackedParts, type DeviceRow } from "../../model/devices";

interface BarSegment {
  key: string;
  group: Group;
  bytes: number;
  /** Of the scale, 0 to 1. */
  from: number;
  to: number;
}

interface DeviceBar {
  segments: BarSegment[];
  /** Places on the scale, 0 to 1; of a capacity that is off the scale null. */
  peak: number;
  capacity: number | null;
}

/** Bytes at the right end of all bars: the largest capacity, or the highest peak if that would squash the bars. */
export function barScale(devices: readonly DeviceRow[]): number {
  const peaks = devices.flatMap(({ peak_bytes, breakdown }) => [peak_bytes, breakdown?.peak_bytes ?? 0]);
  const highest = peaks.reduce((most, bytes) => Math.max(most, bytes), 1);
  const capacity = devices.reduce((most, { capacity_bytes }) => Math.max(most, capacity_bytes ?? 0), 0);
  return capacity > 0 && byteRange(highest, capacity).capacityInside ? Math.max(capacity, highest) : highest;
}

export function deviceBar({ breakdown, peak_bytes, capacity_bytes }: DeviceRow, scale: number): DeviceBar {
  let level = 0;
  const segments = (breakdown ? stackedParts(breakdown) : []).map(({ category, trainable, bytes }): BarSegment => {
    const group = { category, trainable };
    const from = level / scale;
    level += bytes;
    return { key: groupKey(group), group, bytes, from, to: level / scale };
  });
  return {
    segments,
    peak: peak_bytes / scale,
    capacity: capacity_bytes !== null && capacity_bytes <= scale ? capacity_bytes / scale : null,
  };
}
