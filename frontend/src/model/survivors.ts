/** Tensors that a step allocates and does not free: a leak is among them. */

import type { HeldTensorGroup } from "./snapshot";
import { lineOfRow, shapeOfRow, type Timeline } from "./timeline";

/** Whether a row was allocated during the step and is live at its end. */
export const survives = ({ start, end, moments }: Timeline, row: number): boolean => (start[row] ?? 0) > 0 && (end[row] ?? 0) >= moments;

/** The lines that made tensors of a shape and dtype which survived the step; none if no line is known. */
export function madeAt(timeline: Timeline, { shape, dtype }: Pick<HeldTensorGroup, "shape" | "dtype">): string[] {
  const wanted = JSON.stringify([shape, dtype]);
  const lines = Array.from({ length: timeline.rows }, (_, row) => row).flatMap((row) => {
    const [own, line] = [shapeOfRow(timeline, row), lineOfRow(timeline, row)];
    return own && line !== null && survives(timeline, row) && JSON.stringify([own.shape, own.dtype]) === wanted ? [line] : [];
  });
  return [...new Set(lines)];
}
