/** Where the curve of peak against step time lies. Pure. */

import { byteRange } from "../../charts/axis";
import type { Plan, PlanPoint } from "../../model/what-if";

/** Least width of the time axis, so that a cheap plan does not look expensive. */
const LEAST_TIME = 0.1;
const TIME_STEPS = [0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5];
const MOST_TICKS = 6;

export interface CurveLayout {
  /** The points from the recorded training to the smallest peak. */
  points: PlanPoint[];
  /** Right end of the time axis, as a share of the recorded step, and its ticks. */
  time: number;
  ticks: number[];
  /** Upper end of the byte axis. */
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
