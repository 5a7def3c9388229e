/** Tensors that a step leaves behind: a leak is among them. */

import type { Category } from "./categories";
import { ownerOfRow, type Timeline } from "./timeline";

/** Memory of variables and the input pipeline, which no Python object of the program holds as a tensor. */
const OWNED: ReadonlySet<Category> = new Set<Category>(["weights", "optimizer_state", "other_state", "inputs", "rounding"]);

const outlives = ({ end, moments }: Timeline, row: number): boolean => (end[row] ?? 0) >= moments;

/** Whether something in Python may keep the tensor of a row alive after the step. */
export const isHeld = (timeline: Timeline, row: number): boolean =>
  outlives(timeline, row) && !OWNED.has(ownerOfRow(timeline, row).category);

/** Rows that the step allocated and did not free, without rounding and new values in place of freed ones, such as weights. */
export function survivors(timeline: Timeline, rows: Iterable<number>): number[] {
  const { start, owner, bytes } = timeline;
  const key = (row: number): string => `${owner[row]}/${bytes[row]}`;
  const freed = new Map<string, number>();
  for (let row = 0; row < timeline.rows; row += 1) {
    if (start[row] === 0 && !outlives(timeline, row)) freed.set(key(row), (freed.get(key(row)) ?? 0) + 1);
  }
  return [...rows].filter((row) => {
    if (start[row] === 0 || !outlives(timeline, row) || ownerOfRow(timeline, row).category === "rounding") return false;
    const left = freed.get(key(row)) ?? 0;
    freed.set(key(row), left - 1);
    return left <= 0;
  });
}
