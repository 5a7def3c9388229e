import { describe, expect, it } from "vitest";

import { at, breakdown, peakRow, provenance, provenanceSentence, rowOfStep, rowSentence } from "../../src/model/overview";
import { MIB, column, OVERVIEW } from "./overview-cases";

describe("rows of an overview", () => {
  it("have a value or null", () => {
    expect([at(column(0, NaN), 0), at(column(0, NaN), 1), at(column(0), 5), at(column(0), -1)]).toEqual([0, null, null, null]);
  });

  it("include the earliest highest peak and the row of a step", () => {
    expect(peakRow(OVERVIEW)).toBe(2);
    expect([rowOfStep(OVERVIEW, 24), rowOfStep(OVERVIEW, 26), rowOfStep(OVERVIEW, 999)]).toEqual([1, 2, 3]);
  });

  it("have a breakdown with shares of the peak", () => {
    expect(breakdown(OVERVIEW, 1).map(({ bytes, share }) => [bytes, share])).toEqual([
      [16 * MIB, 0.25],
      [40 * MIB, 0.625],
      [8 * MIB, 0.125],
    ]);
    expect(breakdown(OVERVIEW, 0).map(({ bytes, share }) => [bytes, share])).toEqual(Array(3).fill([null, null]));
  });

  it("state the source of their breakdown", () => {
    const sentences = [0, 1, 2].map((row) => provenanceSentence(provenance(OVERVIEW, row)));
    expect(sentences).toEqual([
      "Peak measured; no step traced yet, so only weights and optimizer state are known (layer table).",
      "Measured: this step was traced (XLA).",
      "Peak measured; breakdown inferred from the trace of step 20, long-lived categories also from the bytes in use at step end.",
    ]);
  });

  it("are read aloud, largest category first", () => {
    expect(rowSentence(OVERVIEW, 1)).toBe("step 20: peak 64.0 MiB; activations 40.0 MiB; weights, frozen 16.0 MiB; unattributed 8.0 MiB");
    expect(rowSentence(OVERVIEW, 0)).toBe("step 10: peak unknown");
  });
});
