/** The devices' stacked bars on one common scale, and all of them as a saved drawing. */

import { byteRange } from "../../charts/axis";
import { formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import { stackedParts, groupsOf, sortedDevices, type Devices, type DeviceSort } from "../../model/devices";
import { INKS, fillOf, type Fill, type Scheme } from "../../theme/palette";
import { Patterns, SvgDrawing, svgFill } from "../shared/svg";
import type { DeviceRow, Group } from "../../schema";

interface BarSegment {
  key: string;
  group: Group;
  bytes: number;
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

const [WIDTH, LEFT, RIGHT, ROW, BAR] = [1100, 190, 200, 24, 16];
const [LEGEND_COLUMN, LEGEND_ROW] = [220, 20];

export function DevicesDrawing({ devices, sort, scheme }: { devices: Devices; sort: DeviceSort; scheme: Scheme }) {
  const ink = INKS[scheme];
  const groups = groupsOf(devices.devices);
  const scale = barScale(devices.devices);
  const unknown: Fill = { colour: ink.faint, pattern: "hatched" };
  const fills = [unknown, ...groups.map(({ category, trainable }) => fillOf(category, trainable, scheme))];
  const rows = sortedDevices(devices.devices, sort);
  const x = (share: number): number => LEFT + share * (WIDTH - LEFT - RIGHT);
  const across = Math.floor((WIDTH - 16) / LEGEND_COLUMN);
  const height = rows.length * ROW + (Math.ceil(groups.length / across) + 1) * LEGEND_ROW;
  return (
    <SvgDrawing title={`Devices of ${devices.run}, ${devices.phase}`} width={WIDTH} height={height} ink={ink}>
      <Patterns fills={fills} ground={ink.background} />
      {rows.map((row, index) => {
        const { segments, peak, capacity } = deviceBar(row, scale);
        const top = index * ROW + (ROW - BAR) / 2;
        return (
          <g key={row.device}>
            <text x={LEFT - 8} y={top + 12} text-anchor="end" fill={ink.text}>
              {row.device}
            </text>
            {row.breakdown === null && <rect x={LEFT} y={top} width={x(peak) - LEFT} height={BAR} fill={svgFill(unknown)} />}
            {segments.map(({ key, group, from, to }) => {
              const fill = svgFill(fillOf(group.category, group.trainable, scheme));
              return <rect key={key} x={x(from)} y={top} width={x(to) - x(from)} height={BAR} fill={fill} />;
            })}
            <path d={`M${x(peak)} ${top - 2}v${BAR + 4}`} stroke={ink.line} stroke-width="2" />
            {capacity !== null && (
              <path d={`M${x(capacity)} ${top - 2}v${BAR + 4}`} stroke={ink.capacity} stroke-width="1.5" stroke-dasharray="3 2" />
            )}
            <text x={WIDTH - RIGHT + 10} y={top + 12} fill={ink.text}>
              {formatBytes(row.peak_bytes)}
              {row.capacity_bytes === null ? "" : ` of ${formatBytes(row.capacity_bytes)}`}
            </text>
          </g>
        );
      })}
      {groups.map((group, index) => {
        const [left, top] = [8 + (index % across) * LEGEND_COLUMN, rows.length * ROW + (Math.floor(index / across) + 0.5) * LEGEND_ROW];
        return (
          <g key={groupKey(group)}>
            <rect x={left} y={top} width="12" height="12" fill={svgFill(fillOf(group.category, group.trainable, scheme))} />
            <text x={left + 18} y={top + 10} fill={ink.faint}>
              {groupLabel(group)}
            </text>
          </g>
        );
      })}
    </SvgDrawing>
  );
}
