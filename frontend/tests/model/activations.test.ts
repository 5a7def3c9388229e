import { describe, expect, it } from "vitest";

import { topLayers, totalAt, type Activations } from "../../src/model/activations";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

describe("recorded activations", () => {
  const ACTIVATIONS: Activations = {
    run: "r",
    rows: 3,
    total_rows: 3,
    layers: ["a", "b", "c", "d"],
    step: column(0, 1, 2),
    wall_time: column(0, 1, 2),
    bytes: [column(1, 2, NaN), column(9, NaN, 1), column(NaN, 4, NaN), column(3, 3, NaN)],
  };

  it("are the largest layers by their maximum, and the sum of the others", () => {
    const top = topLayers(ACTIVATIONS, 1);
    expect(top.map(({ layer, count, max_bytes }) => [layer, count, max_bytes])).toEqual([
      ["b", 1, 9],
      [null, 3, 9],
    ]);
    expect([...(top[1]?.bytes ?? [])]).toEqual([4, 9, NaN]);
    expect([0, 1, 2].map((row) => totalAt(top, row))).toEqual([13, 9, 1]);
  });

  it("need no band for the others if there is only one", () => {
    expect(topLayers(ACTIVATIONS, 3).map(({ layer }) => layer)).toEqual(["b", "c", "d", "a"]);
    expect(totalAt(topLayers({ ...ACTIVATIONS, layers: [], bytes: [] }, 3), 0)).toBeNull();
  });
});
