import { describe, expect, it } from "vitest";

import { rowsInSight } from "../../../src/views/shared/scroll-window";

describe("the rows in sight", () => {
  it("are few before the height is known", () => {
    expect(rowsInSight(1000, 28, 0, 0)).toEqual({ first: 0, last: 8 });
  });

  it("cover the height, with a margin on both sides", () => {
    expect(rowsInSight(1000, 28, 0, 280)).toEqual({ first: 0, last: 18 });
    expect(rowsInSight(1000, 28, 2800, 280)).toEqual({ first: 92, last: 118 });
  });

  it("end with the list", () => {
    expect(rowsInSight(5, 28, 0, 280)).toEqual({ first: 0, last: 5 });
    expect(rowsInSight(1000, 28, 28000, 280)).toEqual({ first: 992, last: 1000 });
    expect(rowsInSight(3, 28, 28000, 280)).toEqual({ first: 2, last: 3 });
    expect(rowsInSight(0, 28, 0, 280)).toEqual({ first: 0, last: 0 });
  });
});
