/** A step's timeline as a table for a file. */

import type { Table } from "../lib/table";
import { at } from "./overview";
import { isLive, lineOfRow, opOfRow, ownerOfRow, shapeOfRow, type Timeline } from "./timeline";
import { sizesText } from "./traced-details";

const COLUMNS = [
  "layer",
  "category",
  "trainable",
  "operation",
  "shape",
  "dtype",
  "bytes",
  "count",
  "since_ns",
  "until_ns",
  "line",
  "address",
  "tensor",
  "live_at_peak",
];

/** All rows; unknown values are null. Rows of one `tensor` are its requested bytes and its rounding. */
export const timelineFile = (timeline: Timeline): Table => ({
  columns: COLUMNS,
  rows: Array.from({ length: timeline.rows }, (_, row) => {
    const { layer, category, trainable } = ownerOfRow(timeline, row);
    const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
    const shape = shapeOfRow(timeline, row);
    return [
      layer,
      category,
      trainable,
      opOfRow(timeline, row),
      shape && sizesText(shape.shape),
      shape && shape.dtype,
      timeline.bytes[row] ?? null,
      // An allocation is counted once, not again with its rounding.
      category === "rounding" ? 0 : (timeline.count[row] ?? null),
      start === 0 ? null : (timeline.time_ns[start] ?? null),
      end >= timeline.moments ? null : (timeline.time_ns[end] ?? null),
      lineOfRow(timeline, row),
      at(timeline.address, row),
      timeline.tensor[row] ?? null,
      isLive(timeline, row, timeline.peak),
    ];
  }),
});
