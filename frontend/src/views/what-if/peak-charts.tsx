/**
 * Predicted peaks with their ranges: as stacked bars beside the measured one, and those of a plan
 * against the time of a step.
 */

import type { ComponentChildren } from "preact";

import { byteRange } from "../../charts/axis";
import { FONT } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import type { GroupSums } from "../../model/compare";
import {
  planDots,
  rangeText,
  timeText,
  type NamedPeak,
  type PeakRange,
  type PlanDot,
} from "../../model/what-if";
import { fillOf, inks, type Ink } from "../../theme/palette";
import { isMuted, useSize, type Focus } from "../shared/context";
import { ByteAxis, Patterns, svgFill } from "../shared/export";
import { onPressed } from "../shared/figures";
import { figured } from "../shared/tips";
import type { Plan } from "../../schema";

interface Size {
  width: number;
  height: number;
}
type Level = (bytes: number) => number;

interface PictureProps extends Size {
  said: string;
  ink: Ink;
  role?: "img" | "group";
  children: ComponentChildren;
}

function Picture({ width, height, said, ink, role = "img", children }: PictureProps) {
  const box = { width, height, viewBox: `0 0 ${width} ${height}` };
  return (
    <svg
      xmlns="http://www.w3.org/2000/svg"
      {...box}
      font-family={FONT}
      font-size="12"
      role={role}
      aria-label={said}
    >
      <rect width={width} height={height} fill={ink.background} />
      {children}
    </svg>
  );
}

interface LimitProps {
  name: string;
  bytes: number;
  inside: boolean;
  left: number;
  right: number;
  top: number;
  y: Level;
  ink: Ink;
}

const Limit = ({ name, bytes, inside, left, right, top, y, ink }: LimitProps) => (
  <>
    {inside && (
      <line
        x1={left}
        x2={right}
        y1={y(bytes)}
        y2={y(bytes)}
        stroke={ink.capacity}
        stroke-width="1.25"
        stroke-dasharray="6 4"
      />
    )}
    <text
      x={right}
      y={inside ? y(bytes) - 5 : top - 8}
      text-anchor="end"
      fill={ink.capacity}
      font-size="11"
      {...haloOf(ink)}
    >
      {inside ? "" : "↑ "}
      {name} {formatBytes(bytes)}
    </text>
  </>
);

/** So that no line strikes a label through. */
const haloOf = (ink: Ink) => ({
  stroke: ink.background,
  "stroke-width": 4,
  "stroke-linejoin": "round" as const,
  "paint-order": "stroke",
});

const whisker = (x: number, low: number, high: number, cap: number): string =>
  `M${x} ${low}V${high}M${x - cap} ${low}H${x + cap}M${x - cap} ${high}H${x + cap}`;

function Sized({
  testid,
  children,
}: {
  testid: string;
  children: (size: Size) => ComponentChildren;
}) {
  const { host, width, height } = useSize();
  return (
    <div class={testid} ref={host} data-testid={testid}>
      {width > 0 && children({ width: Math.floor(width), height: Math.floor(height) })}
    </div>
  );
}

export function barsLayout(
  peaks: readonly NamedPeak[],
  categories: readonly GroupSums[],
  capacity: number | null,
) {
  const bars = peaks.map((peak, index) => {
    let level = 0;
    const segments = categories.flatMap(({ group, bytes: { [index]: bytes = 0 } }) => {
      const low = level;
      level += bytes;
      return bytes > 0 ? [{ key: groupKey(group), group, bytes, low, high: level }] : [];
    });
    return { peak, segments, level };
  });
  const { max, capacityInside } = byteRange(
    Math.max(...bars.map(({ peak, level }) => Math.max(peak.high_bytes ?? 0, level))),
    capacity,
  );
  return { bars, top: max, capacityInside };
}

const BARS = { left: 4, right: 12, top: 22, bottom: 44, widest: 150, cap: 9 };

interface BarsProps {
  peaks: readonly NamedPeak[];
  categories: readonly GroupSums[];
  capacity: number | null;
  focus: Focus;
}

function ErrorBar({ range, x, y, ink }: { range: PeakRange; x: number; y: Level; ink: Ink }) {
  const { low_bytes: low, high_bytes: high, peak_bytes: peak } = range;
  if (low === null || high === null || peak === null) return null;
  const { cap } = BARS;
  const path = `${whisker(x, y(low), y(high), cap)}M${x - cap / 2} ${y(peak)}H${x + cap / 2}`;
  return (
    <g fill="none" {...figured("peak_bytes", peak, `range: ${rangeText(range)}`)}>
      <path d={path} stroke={ink.background} stroke-width="4.5" />
      <path d={path} stroke={ink.line} stroke-width="1.75" />
    </g>
  );
}

export function PeakBarsDrawing({
  peaks,
  categories,
  capacity,
  focus,
  width,
  height,
}: BarsProps & Size) {
  const ink = inks();
  const { left, top, bottom } = BARS;
  const right = width - BARS.right;
  const layout = barsLayout(peaks, categories, capacity);
  const y: Level = (bytes) => top + (1 - bytes / layout.top) * (height - top - bottom);
  const slot = (right - left) / layout.bars.length;
  const breadth = Math.min(slot * 0.6, BARS.widest);
  const labelOf = ({ label, peak_bytes: bytes }: NamedPeak): string =>
    `${label} ${bytes === null ? "" : formatBytes(bytes)}`;
  const said = peaks
    .map((peak) => [labelOf(peak), peak.moment, rangeText(peak)].filter(Boolean).join(", "))
    .join("; ");
  return (
    <Picture {...{ width, height, ink }} said={`Peak: ${said}`}>
      <Patterns fills={categories.map(({ group }) => fillOf(group))} ground={ink.background} />
      <line x1={left} x2={right} y1={y(0)} y2={y(0)} stroke={ink.grid} />
      {layout.bars.map(({ peak, segments }, index) => {
        const middle = left + slot * (index + 0.5);
        return (
          <g key={peak.name} data-bar={peak.name}>
            {segments.map(({ key, group, bytes, low, high }) => (
              <rect
                key={key}
                x={middle - breadth / 2}
                width={breadth}
                y={y(high)}
                height={Math.max(y(low) - y(high), 0.5)}
                fill={svgFill(fillOf(group))}
                opacity={isMuted(focus, [key], group.category) ? 0.3 : 1}
                {...figured(key, bytes, `${groupLabel(group)}, ${peak.label}`)}
              />
            ))}
            <text
              x={middle}
              y={height - bottom + 18}
              text-anchor="middle"
              fill={ink.text}
              font-weight="500"
            >
              {labelOf(peak)}
            </text>
            <text x={middle} y={height - bottom + 34} text-anchor="middle" fill={ink.faint}>
              {peak.moment}
            </text>
            <ErrorBar range={peak} x={middle} y={y} ink={ink} />
          </g>
        );
      })}
      {capacity !== null && (
        <Limit
          name="capacity"
          bytes={capacity}
          inside={layout.capacityInside}
          {...{ left, right, top, y, ink }}
        />
      )}
    </Picture>
  );
}

export const PeakBars = (props: BarsProps) => (
  <section aria-label="Peak by category">
    <Sized testid="peak-bars">{(size) => <PeakBarsDrawing {...props} {...size} />}</Sized>
  </section>
);

/** Least width of the time axis, so that a cheap plan does not look expensive. */
const LEAST_TIME = 0.1;
const TIME_STEPS = [0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5];
const MOST_TICKS = 6;
/** Room for one of them. */
const TICK_WIDTH = 48;

/** At most `most` ticks after the first one. */
export function timeTicks(time: number, most: number): number[] {
  const step = TIME_STEPS.find((one) => time / one <= most) ?? time;
  return Array.from({ length: Math.floor(time / step) + 1 }, (_, index) => index * step);
}

/** Every change, the right end of the time axis as a share of the recorded step, and the axes. */
export function dotsLayout(plan: Plan) {
  const dots = planDots(plan);
  const time = Math.max(LEAST_TIME, ...dots.map(({ time: one }) => (one ?? 0) * 1.1));
  const { max, capacityInside } = byteRange(
    Math.max(1, ...dots.map(({ high_bytes }) => high_bytes)),
    plan.budget_bytes || null,
  );
  return { dots, time, top: max, budgetInside: capacityInside };
}

/**
 * Places at least `gap` apart, in the same order and as near as possible to the wanted ones, which
 * ascend.
 */
export function spread(wanted: readonly number[], gap: number, end: number): number[] {
  const places: number[] = [];
  for (const one of wanted) places.push(Math.max(one, (places.at(-1) ?? -Infinity) + gap));
  for (let [index, limit] = [places.length - 1, end]; index >= 0; index -= 1, limit -= gap)
    places[index] = Math.min(places[index] as number, limit);
  return places;
}

const DOTS = { left: 76, right: 8, top: 22, bottom: 44, cap: 4, lane: 210, apart: 13, line: 14 };

interface DotsProps {
  plan: Plan;
  choose?: ((budget: string) => void) | undefined;
}

interface DotProps extends Pick<DotsProps, "choose"> {
  dot: PlanDot;
  x: number;
  y: Level;
  ink: Ink;
}

function Dot({ dot, x, y, ink, choose }: DotProps) {
  const { isPlan, budget, sentence } = dot;
  const [peak, low, high] = [y(dot.peak_bytes), y(dot.low_bytes), y(dot.high_bytes)];
  const size = isPlan ? 7 : 4;
  const set = choose && budget !== null ? (): void => choose(budget) : null;
  const events = set && {
    tabindex: 0, // an attribute of SVG, whose names have a case
    role: "button" as const,
    "aria-label": `Set the budget for ${sentence}`,
    style: { cursor: "pointer" },
    onClick: set,
    onKeyDown: onPressed(set),
  };
  return (
    <g
      {...figured(
        isPlan ? "plan" : "point",
        dot.peak_bytes,
        sentence,
        isPlan ? "the plan" : null,
        set && "Click to set the budget",
      )}
      {...events}
    >
      <rect x={x - 6} y={high - 6} width={12} height={low - high + 12} fill="transparent" />
      <path
        d={whisker(x, low, high, DOTS.cap)}
        fill="none"
        stroke={ink.line}
        stroke-width="1.25"
        opacity="0.4"
      />
      <path
        d={`M${x - size} ${peak}L${x} ${peak - size}L${x + size} ${peak}L${x} ${peak + size}Z`}
        fill={isPlan ? ink.accent : ink.line}
        stroke={ink.background}
        stroke-width="1"
      />
    </g>
  );
}

interface AxesProps {
  layout: ReturnType<typeof dotsLayout>;
  ticks: readonly number[];
  /** Ends of the times, of the lane of unknown ones, and of the picture. */
  end: number;
  lane: number;
  right: number;
  height: number;
  x: (time: number) => number;
  y: Level;
  ink: Ink;
}

function DotAxes({ layout: { top: most }, ticks, end, lane, right, height, x, y, ink }: AxesProps) {
  const { left, top, bottom } = DOTS;
  const middle = (from: number, to: number) => ({
    x: (from + to) / 2,
    y: height - bottom + 36,
    "text-anchor": "middle" as const,
  });
  return (
    <>
      <ByteAxis
        top={most}
        height={height - top - bottom}
        left={left}
        right={right}
        y={y}
        ink={ink}
      />
      {ticks.map((time) => (
        <text key={time} x={x(time)} y={height - bottom + 18} text-anchor="middle" fill={ink.faint}>
          {timeText(time)}
        </text>
      ))}
      <text {...middle(left, end)} fill={ink.faint}>
        step time
      </text>
      {lane < right && (
        <>
          <rect
            x={lane}
            y={top}
            width={right - lane}
            height={height - top - bottom}
            fill={ink.line}
            opacity="0.06"
          />
          <text {...middle(lane, right)} fill={ink.faint}>
            time unknown
          </text>
        </>
      )}
    </>
  );
}

export function PlanDotsDrawing({ plan, choose, width, height }: DotsProps & Size) {
  const ink = inks();
  const { left, top, bottom, apart, line } = DOTS;
  const layout = dotsLayout(plan);
  const right = width - DOTS.right;
  const timed = layout.dots.filter(({ time }) => time !== null);
  const others = layout.dots.filter(({ time }) => time === null);
  const lane = others.length > 0 ? right - Math.min(DOTS.lane, (right - left) * 0.58) : right;
  const end = lane - (others.length > 0 ? 16 : 70);
  const x = (time: number): number => left + 10 + (time / layout.time) * (end - left - 10);
  const y: Level = (bytes) => top + (1 - bytes / layout.top) * (height - top - bottom);
  const heights = others.map(({ peak_bytes }) => y(peak_bytes));
  const places = spread(heights, line, height - bottom);
  const said = layout.dots.map(({ sentence }) => sentence).join("; ");
  const shown = [
    ...timed.map((dot) => {
      const [at, isLeft] = [x(dot.time ?? 0), 2 * x(dot.time ?? 0) < left + end];
      return {
        dot,
        at,
        label: {
          x: at + (isLeft ? 9 : -9),
          y: y(dot.peak_bytes),
          "text-anchor": isLeft ? "start" : "end",
        } as const,
      };
    }),
    ...others.map((dot, index) => ({
      dot,
      at: lane + 10 + index * apart,
      label: {
        x: lane + 8 + others.length * apart,
        y: places[index] ?? 0,
        "text-anchor": "start",
      } as const,
    })),
  ];
  return (
    <Picture {...{ width, height, ink, said }} role={choose ? "group" : "img"}>
      <DotAxes
        ticks={timeTicks(layout.time, Math.min(MOST_TICKS, (end - left) / TICK_WIDTH))}
        {...{ layout, end, lane, right, height, x, y, ink }}
      />
      <Limit
        name="budget"
        bytes={plan.budget_bytes}
        inside={layout.budgetInside}
        {...{ left, right, top, y, ink }}
      />
      {shown.map(({ dot, at }) => (
        <Dot key={dot.sentence} dot={dot} x={at} y={y} ink={ink} choose={choose} />
      ))}
      {shown.map(({ dot, label }) => (
        <text
          key={dot.sentence}
          {...label}
          y={label.y + 4}
          fill={ink.text}
          font-size="11"
          font-weight={dot.isPlan ? 600 : 400}
          {...haloOf(ink)}
        >
          {dot.label}
        </text>
      ))}
    </Picture>
  );
}

export const PlanDots = (props: DotsProps) => (
  <section aria-label="Peak against step time">
    <h3>
      Peak against step time <span class="small">of each change</span>
    </h3>
    <Sized testid="plan-dots">{(size) => <PlanDotsDrawing {...props} {...size} />}</Sized>
  </section>
);
