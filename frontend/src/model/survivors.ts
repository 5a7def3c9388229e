/** Tensors that a step allocates and does not free: a leak is among them. */

import type { Timeline } from "./timeline";

/** Whether a row was allocated during the step and is live at its end. */
export const survives = ({ start, end, moments }: Timeline, row: number): boolean => (start[row] ?? 0) > 0 && (end[row] ?? 0) >= moments;
