/** The peak against the time of a step: each point recomputes more than the one before. */

import { byteRange } from "../../charts/axis";
import { FONT } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import { planPoint, pointSentence, timeText } from "../../model/what-if";
import { INKS, type Ink, type Scheme } from "../../theme/palette";
import { useSize } from "../shared/context";
import { ByteAxis } from "../shared/svg";
import { tipOf } from "../shared/tips";
import type { Plan, PlanPoint } from "../../schema";

/** Least width of the time axis, so that a cheap plan does not look expensive. */
const LEAST_TIME = 0.1;
const TIME_STEPS = [0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5];
const MOST_TICKS = 6;

interface CurveLayout {
  points: PlanPoint[];
  /** Right end of the time axis, as a share of the recorded step, and its ticks. */
  time: number;
  ticks: number[];
  top: number;
  budgetInside: boolean;
}

export function curveLayout({ curve, budget_bytes }: Pick<Plan, "curve" | "budget_bytes">): CurveLayout {
  const points = [...curve].sort((a, b) => a.extra_time - b.extra_time);
  const time = Math.max(LEAST_TIME, (points.at(-1)?.extra_time ?? 0) * 1.1);
  const step = TIME_STEPS.find((one) => time / one <= MOST_TICKS) ?? time;
  const ticks = Array.from({ length: Math.floor(time / step) + 1 }, (_, index) => index * step);
  const { max, capacityInside } = byteRange(Math.max(1, ...points.map(({ high_bytes }) => high_bytes)), budget_bytes || null);
  return { points, time, ticks, top: max, budgetInside: capacityInside };
}

const [LEFT, RIGHT, TOP, BOTTOM] = [76, 20, 22, 44];
const CAP = 5;

interface CurveProps {
  plan: Plan;
  scheme: Scheme;
  /** Called with the point that was chosen; undefined if none can be. */
  choose?: ((point: PlanPoint) => void) | undefined;
}

type Drawing = CurveProps & { width: number; height: number };
interface Scales {
  x: (time: number) => number;
  y: (bytes: number) => number;
}

function Axes({
  layout,
  scales: { x, y },
  width,
  height,
  ink,
}: {
  layout: CurveLayout;
  scales: Scales;
  width: number;
  height: number;
  ink: Ink;
}) {
  return (
    <>
      <ByteAxis top={layout.top} height={height - TOP - BOTTOM} left={LEFT} right={width - RIGHT} y={y} ink={ink} />
      {layout.ticks.map((time) => (
        <text key={time} x={x(time)} y={height - BOTTOM + 18} text-anchor="middle" fill={ink.faint}>
          {timeText(time)}
        </text>
      ))}
      <text x={(LEFT + width - RIGHT) / 2} y={height - BOTTOM + 36} text-anchor="middle" fill={ink.faint}>
        step time
      </text>
    </>
  );
}

interface PointProps {
  point: PlanPoint;
  isPlan: boolean;
  scales: Scales;
  ink: Ink;
  choose: CurveProps["choose"];
}

function Point({ point, isPlan, scales, ink, choose }: PointProps) {
  const [x, y, low, high] = [scales.x(point.extra_time), ...[point.peak_bytes, point.low_bytes, point.high_bytes].map(scales.y)] as [
    number,
    number,
    number,
    number,
  ];
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
      <path
        d={`M${x} ${low}V${high}M${x - CAP} ${low}H${x + CAP}M${x - CAP} ${high}H${x + CAP}`}
        fill="none"
        stroke={ink.line}
        stroke-width="1.25"
        opacity="0.55"
      />
      <path
        d={`M${x - size} ${y}L${x} ${y - size}L${x + size} ${y}L${x} ${y + size}Z`}
        fill={isPlan ? ink.accent : ink.line}
        stroke={ink.background}
        stroke-width="1"
      />
    </g>
  );
}

function Budget({ bytes, inside, width, y, ink }: { bytes: number; inside: boolean; width: number; y: Scales["y"]; ink: Ink }) {
  return (
    <>
      {inside && (
        <line x1={LEFT} x2={width - RIGHT} y1={y(bytes)} y2={y(bytes)} stroke={ink.capacity} stroke-width="1.25" stroke-dasharray="6 4" />
      )}
      <text x={width - RIGHT} y={inside ? y(bytes) - 5 : TOP - 8} text-anchor="end" fill={ink.capacity} font-size="11">
        {inside ? "" : "↑ "}budget {formatBytes(bytes)}
      </text>
    </>
  );
}

export function PlanCurveDrawing({ plan, scheme, choose, width, height }: Drawing) {
  const ink = INKS[scheme];
  const layout = curveLayout(plan);
  const at = planPoint(plan);
  const chosen = at === null ? null : plan.curve[at];
  const scales: Scales = {
    x: (time) => LEFT + (time / layout.time) * (width - LEFT - RIGHT),
    y: (bytes) => TOP + (1 - bytes / layout.top) * (height - TOP - BOTTOM),
  };
  const line = layout.points.map(({ extra_time, peak_bytes }) => `${scales.x(extra_time)} ${scales.y(peak_bytes)}`).join("L");
  const box = { width, height, viewBox: `0 0 ${width} ${height}` };
  const said = layout.points.map(pointSentence).join("; ");
  return (
    <svg xmlns="http://www.w3.org/2000/svg" {...box} font-family={FONT} font-size="12" role={choose ? "group" : "img"} aria-label={said}>
      <rect width={width} height={height} fill={ink.background} />
      <Axes {...{ layout, scales, width, height, ink }} />
      <path d={`M${line}`} fill="none" stroke={ink.line} stroke-width="1.75" stroke-linejoin="round" />
      <Budget bytes={plan.budget_bytes} inside={layout.budgetInside} width={width} y={scales.y} ink={ink} />
      {layout.points.map((point) => (
        <Point key={point.extra_time} point={point} isPlan={point === chosen} scales={scales} ink={ink} choose={choose} />
      ))}
    </svg>
  );
}

export function PlanCurve(props: CurveProps) {
  const { host, width, height } = useSize();
  const isOnCurve = planPoint(props.plan) !== null;
  return (
    <section aria-label="Peak against step time">
      <h3>
        Peak against step time <span class="small">{isOnCurve ? "" : "of recomputation alone"}</span>
      </h3>
      <div class="plan-curve" ref={host} data-testid="plan-curve">
        {width > 0 && <PlanCurveDrawing {...props} width={Math.floor(width)} height={Math.floor(height)} />}
      </div>
    </section>
  );
}
