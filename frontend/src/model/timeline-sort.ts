/** Orders of the rows of a timeline, for its list. */

import { categoryLabel } from "./categories";
import { lineOfRow, ownerOfRow, shapeOfRow, type Timeline } from "./timeline";
import { whatText } from "./timeline-text";
import { sizesText } from "./traced-details";

export const LIVE_KEYS = ["layer", "category", "operation", "shape", "dtype", "bytes", "allocated", "freed", "line"] as const;
export type LiveKey = (typeof LIVE_KEYS)[number];

export interface LiveSort {
  key: LiveKey;
  /** Against the key's usual direction: texts and times ascend, bytes descend. */
  reversed: boolean;
}

export const LARGEST_FIRST: LiveSort = { key: "bytes", reversed: false };

/** The order after a click on a key. */
export const nextSort = ({ key, reversed }: LiveSort, clicked: LiveKey): LiveSort => ({
  key: clicked,
  reversed: key === clicked && !reversed,
});

/** Whether the smallest value comes first. */
export const ascends = ({ key, reversed }: LiveSort): boolean => (key === "bytes") === reversed;

/** The value that a row is sorted by; null where it is unknown. */
function keyOf(timeline: Timeline, key: LiveKey): (row: number) => string | number | null {
  switch (key) {
    case "layer":
      return (row) => ownerOfRow(timeline, row).layer;
    case "category":
      return (row) => categoryLabel(ownerOfRow(timeline, row).category);
    case "operation":
      return (row) => whatText(timeline, row);
    case "shape":
      return (row) => {
        const shape = shapeOfRow(timeline, row);
        return shape && sizesText(shape.shape);
      };
    case "dtype":
      return (row) => shapeOfRow(timeline, row)?.dtype ?? null;
    case "line":
      return (row) => lineOfRow(timeline, row);
    case "bytes":
      return (row) => timeline.bytes[row] ?? 0;
    case "allocated":
      return (row) => timeline.start[row] ?? 0;
    case "freed":
      return (row) => timeline.end[row] ?? 0;
  }
}

const natural = new Intl.Collator("en", { numeric: true });

/** All rows in an order; unknown values come last, rows of one value largest first. */
export function sortedRows(timeline: Timeline, sort: LiveSort): Uint32Array {
  const value = keyOf(timeline, sort.key);
  const values = Array.from({ length: timeline.rows }, (_, row) => value(row));
  const sign = ascends(sort) ? 1 : -1;
  const compare = (a: string | number | null, b: string | number | null): number => {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : natural.compare(String(a), String(b)));
  };
  const bytes = (row: number): number => timeline.bytes[row] ?? 0;
  return Uint32Array.from({ length: timeline.rows }, (_, row) => row).sort(
    (a, b) => compare(values[a] ?? null, values[b] ?? null) || bytes(b) - bytes(a) || (timeline.start[a] ?? 0) - (timeline.start[b] ?? 0),
  );
}
