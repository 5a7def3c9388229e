import { describe, expect, it } from "vitest";

import { demandParts } from "../../src/model/demand";

describe("the parts of a peak", () => {
  const demand = {
    step: 3,
    phase: "train" as const,
    peak_bytes: 200,
    demand_bytes: 150,
    rounding_bytes: 10,
    unsplit_bytes: 40,
    sentences: [],
  };

  it("are shares of the peak that sum to all of it", () => {
    const parts = demandParts(demand);
    expect(parts.map(({ name, bytes, share }) => [name, bytes, share])).toEqual([
      ["demand", 150, 0.75],
      ["rounding", 10, 0.05],
      ["unsplit", 40, 0.2],
    ]);
  });

  it("are nothing of a peak of nothing", () => {
    expect(demandParts({ ...demand, peak_bytes: 0, demand_bytes: 0 }).map(({ share }) => share)).toEqual([0, 0, 0]);
  });
});
