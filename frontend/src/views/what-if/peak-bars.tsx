/** The measured and the predicted peak as stacked bars, with the range of the prediction and the capacity. */

import { byteRange } from "../../charts/axis";
import { FONT } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import { groupLabel, groupKey } from "../../model/categories";
import type { GroupDelta } from "../../model/compare";
import { rangeText } from "../../model/what-if";
import { INKS, fillOf, type Ink, type Scheme } from "../../theme/palette";
import { isMuted, useSize, type Focus } from "../shared/context";
import { Patterns, svgFill } from "../shared/svg";
import { tipOf } from "../shared/tips";
import type { Group, WhatIf } from "../../schema";

interface Segment {
  key: string;
  group: Group;
  bytes: number;
  /** Levels of its lower and upper edge, in bytes. */
  low: number;
  high: number;
}

interface StackedBar {
  name: "measured" | "predicted";
  bytes: number | null;
  segments: Segment[];
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

export function barsLayout(answer: WhatIf, deltas: readonly GroupDelta[]): { bars: StackedBar[]; top: number; capacityInside: boolean } {
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

const [LEFT, RIGHT, TOP, BOTTOM] = [4, 12, 22, 28];
const [WIDEST, CAP] = [150, 9];

interface PeakBarsProps {
  answer: WhatIf;
  deltas: readonly GroupDelta[];
  focus: Focus;
  scheme: Scheme;
}

type Drawing = PeakBarsProps & { width: number; height: number };
type Level = (bytes: number) => number;

interface StackProps {
  bar: StackedBar;
  middle: number;
  breadth: number;
  y: Level;
  focus: Focus;
  scheme: Scheme;
  height: number;
}

function Stack({ bar: { name, bytes, segments }, middle, breadth, y, focus, scheme, height }: StackProps) {
  const ink = INKS[scheme];
  return (
    <g data-bar={name}>
      {segments.map(({ key, group, bytes: size, low, high }) => (
        <rect
          key={key}
          x={middle - breadth / 2}
          width={breadth}
          y={y(high)}
          height={Math.max(y(low) - y(high), 0.5)}
          fill={svgFill(fillOf(group.category, group.trainable, scheme))}
          opacity={isMuted(focus, [key], group.category) ? 0.3 : 1}
          data-figure={key}
          data-bytes={size}
          data-tip={tipOf(size, `${groupLabel(group)}, ${name}`)}
        />
      ))}
      <text x={middle} y={height - BOTTOM + 18} text-anchor="middle" fill={ink.text} font-weight="500">
        {name} {bytes === null ? "" : formatBytes(bytes)}
      </text>
    </g>
  );
}

/** From the lower to the upper end of the range, with a tick at the predicted peak. */
function ErrorBar({ answer, x, y, ink }: { answer: WhatIf; x: number; y: Level; ink: Ink }) {
  const { low_bytes: low, high_bytes: high, peak_bytes: peak } = answer;
  if (low === null || high === null || peak === null) return null;
  const path = `M${x} ${y(low)}V${y(high)}M${x - CAP} ${y(low)}H${x + CAP}M${x - CAP} ${y(high)}H${x + CAP}M${x - CAP / 2} ${y(peak)}H${x + CAP / 2}`;
  return (
    <g fill="none" data-figure="peak_bytes" data-bytes={peak} data-tip={tipOf(peak, `range: ${rangeText(low, high)}`)}>
      <path d={path} stroke={ink.background} stroke-width="4.5" />
      <path d={path} stroke={ink.line} stroke-width="1.75" />
    </g>
  );
}

function Capacity({ bytes, inside, width, y, ink }: { bytes: number; inside: boolean; width: number; y: Level; ink: Ink }) {
  return (
    <>
      {inside && (
        <line x1={LEFT} x2={width - RIGHT} y1={y(bytes)} y2={y(bytes)} stroke={ink.capacity} stroke-width="1.25" stroke-dasharray="6 4" />
      )}
      <text x={LEFT + 2} y={inside ? y(bytes) - 5 : TOP - 8} fill={ink.capacity} font-size="11">
        {inside ? "" : "↑ "}capacity {formatBytes(bytes)}
      </text>
    </>
  );
}

export function PeakBarsDrawing({ answer, deltas, focus, scheme, width, height }: Drawing) {
  const ink = INKS[scheme];
  const { bars, top, capacityInside } = barsLayout(answer, deltas);
  const y: Level = (bytes) => TOP + (1 - bytes / top) * (height - TOP - BOTTOM);
  const slot = (width - LEFT - RIGHT) / bars.length;
  const breadth = Math.min(slot * 0.6, WIDEST);
  const middle = (index: number): number => LEFT + slot * (index + 0.5);
  const range = rangeText(answer.low_bytes, answer.high_bytes);
  const said = bars.map(({ name, bytes }) => `${name} ${bytes === null ? "unknown" : formatBytes(bytes)}`).join("; ");
  const box = { width, height, viewBox: `0 0 ${width} ${height}` };
  return (
    <svg xmlns="http://www.w3.org/2000/svg" {...box} font-family={FONT} font-size="12" role="img" aria-label={`Peak: ${said}, ${range}`}>
      <Patterns fills={deltas.map(({ group }) => fillOf(group.category, group.trainable, scheme))} ground={ink.background} />
      <rect width={width} height={height} fill={ink.background} />
      <line x1={LEFT} x2={width - RIGHT} y1={y(0)} y2={y(0)} stroke={ink.grid} />
      {bars.map((bar, index) => (
        <Stack key={bar.name} bar={bar} middle={middle(index)} {...{ breadth, y, focus, scheme, height }} />
      ))}
      <ErrorBar answer={answer} x={middle(bars.length - 1)} y={y} ink={ink} />
      {answer.capacity_bytes !== null && <Capacity bytes={answer.capacity_bytes} inside={capacityInside} {...{ width, y, ink }} />}
    </svg>
  );
}

export function PeakBars(props: PeakBarsProps) {
  const { host, width, height } = useSize();
  return (
    <section aria-label="Peak by category">
      <div class="peak-bars" ref={host} data-testid="peak-bars">
        {width > 0 && <PeakBarsDrawing {...props} width={Math.floor(width)} height={Math.floor(height)} />}
      </div>
    </section>
  );
}
