import { describe, expect, it } from "vitest";

import { groupSeries } from "../../src/model/timeline";
import {
  momentSentence,
  rowFacts,
  sinceText,
  timeText,
  untilText,
  whatText,
  lifetimeText,
  atPeakText,
} from "../../src/model/timeline-text";
import { column, TIMELINE } from "./timeline-cases";
import { TIMELINE as TENSORS, timelineOf } from "./timeline-tensors-cases";

describe("words on a timeline", () => {
  it("give times and operations of rows", () => {
    expect([0, 1, 2, 3].map((row) => [sinceText(TIMELINE, row), untilText(TIMELINE, row), whatText(TIMELINE, row)])).toEqual([
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
    expect(rowFacts(TIMELINE, 1)).toEqual(["net/a: activations", "net/a/MatMul", "allocated at 1 ms, freed at 3 ms", "the trace, step 5"]);
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
    expect(momentSentence(TIMELINE, series, labels, 3)).toBe("at 3 ms: 8.0 MiB in use; weights:trainable 8.0 MiB");
  });
});

describe("a lifetime", () => {
  it("has a lifetime in words", () => {
    const row = (tensor: number): number => TENSORS.tensor.indexOf(tensor);
    expect(lifetimeText(TENSORS, row(4))).toBe("throughout the step");
    expect(lifetimeText(TENSORS, row(6))).toBe("from before the step to 3 ms");
    const late = timelineOf([{ category: "inputs", start: 2, end: 6, bytes: 16 }]);
    expect([lifetimeText(late, 0), atPeakText(TENSORS, row(3))]).toEqual(["2 ms to after the step", "no"]);
  });
});
