/** Predicted peaks with their ranges: as stacked bars beside the measured one, and those of a plan against the time of a step. */

import type { ComponentChildren } from "preact";

import { byteRange } from "../../charts/axis";
import { FONT } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel } from "../../model/categories";
import type { GroupSums } from "../../model/compare";
import { planPoint, pointSentence, rangeText, timeText, type NamedPeak, type PeakRange } from "../../model/what-if";
import { INKS, fillOf, type Ink, type Scheme } from "../../theme/palette";
import { isMuted, useSize, type Focus } from "../shared/context";
import { ByteAxis, Patterns, svgFill } from "../shared/export";
import { tipOf } from "../shared/tips";
import type { Plan, PlanPoint } from "../../schema";

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
    <svg xmlns="http://www.w3.org/2000/svg" {...box} font-family={FONT} font-size="12" role={role} aria-label={said}>
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
    {inside && <line x1={left} x2={right} y1={y(bytes)} y2={y(bytes)} stroke={ink.capacity} stroke-width="1.25" stroke-dasharray="6 4" />}
    <text x={right} y={inside ? y(bytes) - 5 : top - 8} text-anchor="end" fill={ink.capacity} font-size="11">
      {inside ? "" : "↑ "}
      {name} {formatBytes(bytes)}
    </text>
  </>
);

const whisker = (x: number, low: number, high: number, cap: number): string =>
  `M${x} ${low}V${high}M${x - cap} ${low}H${x + cap}M${x - cap} ${high}H${x + cap}`;

function Sized({ testid, children }: { testid: string; children: (size: Size) => ComponentChildren }) {
  const { host, width, height } = useSize();
  return (
    <div class={testid} ref={host} data-testid={testid}>
      {width > 0 && children({ width: Math.floor(width), height: Math.floor(height) })}
    </div>
  );
}

export function barsLayout(peaks: readonly NamedPeak[], categories: readonly GroupSums[], capacity: number | null) {
  const bars = peaks.map((peak, index) => {
    let level = 0;
    const segments = categories.flatMap(({ group, bytes: { [index]: bytes = 0 } }) => {
      const low = level;
      level += bytes;
      return bytes > 0 ? [{ key: groupKey(group), group, bytes, low, high: level }] : [];
    });
    return { peak, segments, level };
  });
  const { max, capacityInside } = byteRange(Math.max(...bars.map(({ peak, level }) => Math.max(peak.high_bytes ?? 0, level))), capacity);
  return { bars, top: max, capacityInside };
}

const BARS = { left: 4, right: 12, top: 22, bottom: 28, widest: 150, cap: 9 };

interface BarsProps {
  peaks: readonly NamedPeak[];
  categories: readonly GroupSums[];
  capacity: number | null;
  focus: Focus;
  scheme: Scheme;
}

function ErrorBar({ range, x, y, ink }: { range: PeakRange; x: number; y: Level; ink: Ink }) {
  const { low_bytes: low, high_bytes: high, peak_bytes: peak } = range;
  if (low === null || high === null || peak === null) return null;
  const { cap } = BARS;
  const path = `${whisker(x, y(low), y(high), cap)}M${x - cap / 2} ${y(peak)}H${x + cap / 2}`;
  return (
    <g fill="none" data-figure="peak_bytes" data-bytes={peak} data-tip={tipOf(peak, `range: ${rangeText(range)}`)}>
      <path d={path} stroke={ink.background} stroke-width="4.5" />
      <path d={path} stroke={ink.line} stroke-width="1.75" />
    </g>
  );
}

export function PeakBarsDrawing({ peaks, categories, capacity, focus, scheme, width, height }: BarsProps & Size) {
  const ink = INKS[scheme];
  const { left, top, bottom } = BARS;
  const right = width - BARS.right;
  const layout = barsLayout(peaks, categories, capacity);
  const y: Level = (bytes) => top + (1 - bytes / layout.top) * (height - top - bottom);
  const slot = (right - left) / layout.bars.length;
  const breadth = Math.min(slot * 0.6, BARS.widest);
  const labelOf = ({ name, peak_bytes: bytes }: NamedPeak): string => `${name} ${bytes === null ? "" : formatBytes(bytes)}`;
  const said = peaks.map((peak) => [labelOf(peak), rangeText(peak)].filter(Boolean).join(", ")).join("; ");
  return (
    <Picture {...{ width, height, ink }} said={`Peak: ${said}`}>
      <Patterns fills={categories.map(({ group }) => fillOf(group.category, group.trainable, scheme))} ground={ink.background} />
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
                fill={svgFill(fillOf(group.category, group.trainable, scheme))}
                opacity={isMuted(focus, [key], group.category) ? 0.3 : 1}
                data-figure={key}
                data-bytes={bytes}
                data-tip={tipOf(bytes, `${groupLabel(group)}, ${peak.name}`)}
              />
            ))}
            <text x={middle} y={height - bottom + 18} text-anchor="middle" fill={ink.text} font-weight="500">
              {labelOf(peak)}
            </text>
            <ErrorBar range={peak} x={middle} y={y} ink={ink} />
          </g>
        );
      })}
      {capacity !== null && <Limit name="capacity" bytes={capacity} inside={layout.capacityInside} {...{ left, right, top, y, ink }} />}
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

/** Points from the recorded training on, the right end of the time axis as a share of the recorded step, and the axes. */
export function curveLayout({ curve, budget_bytes }: Pick<Plan, "curve" | "budget_bytes">) {
  const points = [...curve].sort((a, b) => a.extra_time - b.extra_time);
  const time = Math.max(LEAST_TIME, (points.at(-1)?.extra_time ?? 0) * 1.1);
  const step = TIME_STEPS.find((one) => time / one <= MOST_TICKS) ?? time;
  const ticks = Array.from({ length: Math.floor(time / step) + 1 }, (_, index) => index * step);
  const { max, capacityInside } = byteRange(Math.max(1, ...points.map(({ high_bytes }) => high_bytes)), budget_bytes || null);
  return { points, time, ticks, top: max, budgetInside: capacityInside };
}

const CURVE = { left: 76, right: 20, top: 22, bottom: 44, cap: 5 };

interface CurveProps {
  plan: Plan;
  scheme: Scheme;
  choose?: ((point: PlanPoint) => void) | undefined;
}

interface PointProps extends Pick<CurveProps, "choose"> {
  point: PlanPoint;
  isPlan: boolean;
  x: number;
  y: Level;
  ink: Ink;
}

function Point({ point, isPlan, x, y, ink, choose }: PointProps) {
  const [peak, low, high] = [y(point.peak_bytes), y(point.low_bytes), y(point.high_bytes)];
  const size = isPlan ? 7 : 4;
  const events = choose && {
    tabindex: 0, // an attribute of SVG, whose names have a case
    role: "button" as const,
    "aria-label": `Set the budget for ${pointSentence(point)}`,
    style: { cursor: "pointer" },
    onClick: () => choose(point),
    onKeyDown: (event: KeyboardEvent): void => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(point);
    },
  };
  return (
    <g
      data-figure={isPlan ? "plan" : "point"}
      data-bytes={point.peak_bytes}
      data-segments={point.segments}
      data-tip={tipOf(point.peak_bytes, pointSentence(point), isPlan ? "the plan" : null, choose && "Click to set the budget")}
      {...events}
    >
      <rect x={x - 10} y={high - 6} width={20} height={low - high + 12} fill="transparent" />
      <path d={whisker(x, low, high, CURVE.cap)} fill="none" stroke={ink.line} stroke-width="1.25" opacity="0.55" />
      <path
        d={`M${x - size} ${peak}L${x} ${peak - size}L${x + size} ${peak}L${x} ${peak + size}Z`}
        fill={isPlan ? ink.accent : ink.line}
        stroke={ink.background}
        stroke-width="1"
      />
    </g>
  );
}

export function PlanCurveDrawing({ plan, scheme, choose, width, height }: CurveProps & Size) {
  const ink = INKS[scheme];
  const { left, top, bottom } = CURVE;
  const right = width - CURVE.right;
  const layout = curveLayout(plan);
  const chosen = plan.curve[planPoint(plan) ?? -1];
  const x = (time: number): number => left + (time / layout.time) * (right - left);
  const y: Level = (bytes) => top + (1 - bytes / layout.top) * (height - top - bottom);
  const line = layout.points.map(({ extra_time, peak_bytes }) => `${x(extra_time)} ${y(peak_bytes)}`).join("L");
  const said = layout.points.map(pointSentence).join("; ");
  return (
    <Picture {...{ width, height, ink, said }} role={choose ? "group" : "img"}>
      <ByteAxis top={layout.top} height={height - top - bottom} left={left} right={right} y={y} ink={ink} />
      {layout.ticks.map((time) => (
        <text key={time} x={x(time)} y={height - bottom + 18} text-anchor="middle" fill={ink.faint}>
          {timeText(time)}
        </text>
      ))}
      <text x={(left + right) / 2} y={height - bottom + 36} text-anchor="middle" fill={ink.faint}>
        step time
      </text>
      <path d={`M${line}`} fill="none" stroke={ink.line} stroke-width="1.75" stroke-linejoin="round" />
      <Limit name="budget" bytes={plan.budget_bytes} inside={layout.budgetInside} {...{ left, right, top, y, ink }} />
      {layout.points.map((point) => (
        <Point key={point.extra_time} point={point} isPlan={point === chosen} x={x(point.extra_time)} y={y} ink={ink} choose={choose} />
      ))}
    </Picture>
  );
}

export const PlanCurve = (props: CurveProps) => (
  <section aria-label="Peak against step time">
    <h3>
      Peak against step time <span class="small">{planPoint(props.plan) === null && "of recomputation alone"}</span>
    </h3>
    <Sized testid="plan-curve">{(size) => <PlanCurveDrawing {...props} {...size} />}</Sized>
  </section>
);
