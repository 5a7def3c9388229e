import { describe, expect, it } from "vitest";

import {
  groupSeries,
  momentSentence,
  rowFacts,
  sinceText,
  timeText,
  untilText,
  whatText,
  lifetimeText,
  atPeakText,
  largestTensor,
  shapeText,
  sizeFormula,
  sizeText,
  tensorOf,
  tensorStops,
  tensorLines,
  timelineFile,
} from "../../src/model/timeline";
import { LARGEST_FIRST, sortedRows } from "../../src/model/timeline-order";
import { column, TIMELINE } from "./timeline-cases";
import { TENSORS, timelineOf } from "./timeline-tensors-cases";

describe("words on a timeline", () => {
  it("give times and operations of rows", () => {
    expect(
      [0, 1, 2, 3].map((row) => [
        sinceText(TIMELINE, row),
        untilText(TIMELINE, row),
        whatText(TIMELINE, row),
      ]),
    ).toEqual([
      ["before", "after", "allocated before the step"],
      ["1 ms", "3 ms", "net/a/MatMul"],
      ["1.5 ms", "3 ms", "3 smaller allocations"],
      ["before", "3 ms", "allocations unknown"],
    ]);
    expect(whatText({ ...TIMELINE, op: column(NaN, NaN, NaN, NaN) }, 1)).toBe("operation unknown");
    expect([timeText(TIMELINE, 0), timeText(TIMELINE, 4)]).toEqual(["0 ms", "4 ms"]);
  });

  it("give all facts of a row once", () => {
    expect(rowFacts(TIMELINE, 0)).toEqual([
      "net/a: weights, trainable",
      "allocated before the step, live after the step",
      "the trace, step 5",
    ]);
    expect(rowFacts(TIMELINE, 1)).toEqual([
      "net/a: activations",
      "net/a/MatMul",
      "allocated at 1 ms, freed at 3 ms",
      "the trace, step 5",
    ]);
    expect(rowFacts(TIMELINE, 3)).toEqual([
      "not tied to a layer: unattributed",
      "allocations unknown",
      "allocated before the step, freed at 3 ms",
      "the trace, step 5",
    ]);
  });

  it("describe a moment, largest part first", () => {
    const series = groupSeries(TIMELINE);
    const labels = series.map(({ key }) => key);
    expect(momentSentence(TIMELINE, series, labels, 2)).toBe(
      "at 1.5 ms, backward, peak: 14.0 MiB in use; weights:trainable 8.0 MiB; activations 4.0 MiB; workspace 2.0 MiB",
    );
    expect(momentSentence(TIMELINE, series, labels, 3)).toBe(
      "at 3 ms: 8.0 MiB in use; weights:trainable 8.0 MiB",
    );
  });
});

describe("a lifetime", () => {
  it("has a lifetime in words", () => {
    const row = (tensor: number): number => TENSORS.tensor.indexOf(tensor);
    expect(lifetimeText(TENSORS, row(4))).toBe("throughout the step");
    expect(lifetimeText(TENSORS, row(6))).toBe("from before the step to 3 ms");
    const late = timelineOf([{ category: "inputs", start: 2, end: 6, bytes: 16 }]);
    expect([lifetimeText(late, 0), atPeakText(TENSORS, row(3))]).toEqual([
      "2 ms to after the step",
      "no",
    ]);
  });
});

describe("a tensor", () => {
  it("has all that is known of it", () => {
    const tensor = tensorOf(TENSORS, 0);
    expect(tensor).toMatchObject({
      bytes: 24_832,
      requested_bytes: 24_576,
      rounding_bytes: 256,
      address: 9000,
      line: "train.py:10",
    });
    expect(tensor?.shape && shapeText(tensor.shape)).toBe("(64, 32, 3) float32");
    expect(tensor?.shape && sizeFormula(tensor.shape)).toBe("64 × 32 × 3 × 4 B = 24,576 B");
    expect(tensor && tensorLines(TENSORS, tensor)).toEqual([
      "24.3 KiB · (64, 32, 3) float32",
      "net/b: activations",
      "net/a/MatMul",
      "2 ms to 4 ms: 2 ms",
      "train.py:10",
    ]);
    const first = tensor?.rows[0] ?? -1;
    expect([lifetimeText(TENSORS, first), atPeakText(TENSORS, first)]).toEqual([
      "2 ms to 4 ms: 2 ms",
      "yes",
    ]);
  });

  it("says what is unknown", () => {
    const unknown = {
      requested_bytes: null,
      rounding_bytes: null,
      address: null,
      shape: null,
      line: null,
    };
    expect(tensorOf(TENSORS, 1)).toMatchObject({ bytes: 9000, ...unknown });
    expect(tensorOf(TENSORS, 99)).toBeNull();
    expect([sizeText(null), sizeText(512), sizeText(2048)]).toEqual([
      "unknown",
      "512 B",
      "2.0 KiB (2,048 B)",
    ]);
    expect(sizeFormula({ shape: [8], dtype: "string" })).toBeNull();
    expect(sizeFormula({ shape: [], dtype: "int64" })).toBe("8 B = 8 B");
  });
});

describe("the largest tensor", () => {
  it("is the largest of a moment among those with a known owner", () => {
    expect([0, 2].map((moment) => largestTensor(TENSORS, moment))).toEqual([4, 0]);
    expect(
      largestTensor(
        timelineOf([{ category: "unattributed", start: 0, end: 6, bytes: 9, count: 0 }]),
        0,
      ),
    ).toBeNull();
  });
});

describe("the keyboard", () => {
  it("stops once at each tensor, though its rounding is a row further down", () => {
    expect(tensorStops(TENSORS, [...sortedRows(TENSORS, LARGEST_FIRST)])).toEqual([
      0, 1, 4, 2, 5, 3, 7, 6,
    ]);
  });
});

describe("the file", () => {
  it("is saved with shape, dtype, line, address and tensor", () => {
    const { columns, rows } = timelineFile(TENSORS);
    const first = Object.fromEntries(columns.map((name, index) => [name, rows[0]?.[index]]));
    expect(first).toMatchObject({
      shape: "(64, 32, 3)",
      dtype: "float32",
      line: "train.py:10",
      address: 9000,
      tensor: 0,
      bytes: 24_576,
    });
    const rounding = Object.fromEntries(columns.map((name, index) => [name, rows[1]?.[index]]));
    expect(rounding).toMatchObject({
      category: "rounding",
      shape: null,
      dtype: null,
      tensor: 0,
      bytes: 256,
      count: 0,
    });
    const unplaced = TENSORS.address.findIndex(Number.isNaN);
    expect(rows[unplaced]?.[columns.indexOf("address")]).toBeNull();
  });
});
